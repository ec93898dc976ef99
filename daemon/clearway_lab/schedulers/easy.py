"""First come, first served, with and without backfilling (EASY).

First come, first served: no job overtakes.

The base of the schedulers with one queue: they differ in its order, and in what they do once the first does not fit.

EASY backfilling: others overtake the first job of the queue only where that does not delay it.

When the first job does not fit, the limits of the running jobs tell when it will (its shadow time), and how many
nodes will then be left over (extra). A later job that fits now starts if it ends by the shadow time, or needs no
more than the extra nodes. Source: Mu'alem and Feitelson, "Utilization, predictability, workloads, and user runtime
estimates in scheduling the IBM SP2 with backfilling", as the UJFB paper cites it.

Cost: a pass over the queue when nodes have become free. A submission alone costs O(1): as long as no job leaves, the
shadow time and the extra nodes stay what they are. A job that was refused then is refused again, since every refusal
only grows with the clock. The pass compares numbers that stand beside the queue, in one step each where the queue is
long. The reservation is found only when a waiting job behind the first fits: until then nothing that it depends on
changes.
"""

from array import array
from bisect import insort
from collections.abc import Sequence
from math import inf
from operator import attrgetter

import numpy as np

from clearway_lab.simulator.machine import Machine, ReplayedJob

BY_INDEX = attrgetter("index")


class Fcfs:
    name = "fcfs"
    machine: Machine

    def __init__(self) -> None:
        self.queue: list[ReplayedJob] = []

    def begin(self, machine: Machine) -> None:
        self.machine = machine

    def submitted(self, job: ReplayedJob) -> None:
        self.queue.append(job)

    def ended(self, job: ReplayedJob) -> None:
        pass

    def returned(self, job: ReplayedJob) -> None:
        """Preempted jobs were submitted before those that wait, so they come first."""
        insort(self.queue, job, key=BY_INDEX)

    def schedule(self) -> None:
        machine, queue = self.machine, self.queue
        started = 0
        for job in queue:
            if job.size > len(machine.free):
                break
            machine.start(job)
            started += 1
        if started:
            del queue[:started]


class Ujf(Fcfs):
    """Urgent job first: as first come, first served, but urgent jobs stand before all others in the queue.

    No job is preempted. Source: the UJFB paper, section V-B.
    """

    name = "ujf"

    def submitted(self, job: ReplayedJob) -> None:
        if job.urgent:
            insort(self.queue, job, key=lambda each: (not each.urgent, each.index))
        else:
            self.queue.append(job)


_LONG = 48  # so many to look at take numpy as long as a loop


class Easy(Fcfs):
    name = "easy"
    reorders = False  # those that may overtake go by submission

    def __init__(self) -> None:
        super().__init__()
        self.sizes = array("q")  # of the queue's jobs
        self.lasts = array("d")  # likewise: how long each takes by its limit, in seconds
        self.seen = 0  # so many of the queue were looked at since nodes became free
        self.shadow_s: float = inf
        self.extra = 0

    def submitted(self, job: ReplayedJob) -> None:
        self.queue.append(job)
        self.sizes.append(job.size)
        self.lasts.append(job.limit_s)

    def ended(self, job: ReplayedJob) -> None:  # noqa: ARG002 - any job's end frees nodes
        self.seen = 0

    def returned(self, job: ReplayedJob) -> None:
        """Preempted jobs come back to where they were: by submission."""
        place = next((i for i, other in enumerate(self.queue) if other.index > job.index), len(self.queue))
        self.insert(place, job)

    def insert(self, place: int, job: ReplayedJob) -> None:
        """Into the queue, all of which is to be looked at again."""
        self.queue.insert(place, job)
        self.sizes.insert(place, job.size)
        self.lasts.insert(place, job.lasts_s)
        self.seen = 0

    def remove(self, job: ReplayedJob) -> None:
        place = self.queue.index(job)
        del self.queue[place], self.sizes[place], self.lasts[place]

    def renew(self, queue: list[ReplayedJob]) -> None:
        """Another queue in place of this one, all of which is to be looked at."""
        self.queue = queue
        self.sizes = array("q", [job.size for job in queue])
        self.lasts = array("d", [job.lasts_s for job in queue])
        self.seen = 0

    def schedule(self) -> None:
        queue = self.queue
        if not queue:
            return
        machine, sizes, seen = self.machine, self.sizes, self.seen
        free = len(machine.free)
        if not seen:
            if sizes[0] <= free:
                self._start_first(free)
                if not queue:
                    return
                free = len(machine.free)
            self.shadow_s = -inf  # not known yet
            seen = 1
        self.seen = last = len(queue)
        if seen == last or not free or (seen + 1 == last and sizes[seen] > free):  # as after most submissions
            return
        taken = self._backfill(seen, free) if last - seen <= _LONG else self._backfill_many(seen, free)
        if taken:
            lasts = self.lasts
            for i in sorted(taken, reverse=True):
                del queue[i], sizes[i], lasts[i]
            self.seen = last - len(taken)

    def _start_first(self, free: int) -> None:
        """Those at the head of the queue that fit so many nodes."""
        queue, start, started = self.queue, self.machine.start, 0
        for job in queue:
            free -= job.size
            if free < 0:
                break
            start(job)
            started += 1
        del queue[:started], self.sizes[:started], self.lasts[:started]

    def _reserve(self) -> tuple[float, int]:
        """How long the first job will still wait at most, and the nodes that will be left then."""
        if self.shadow_s < 0:
            self.shadow_s, self.extra = self.reservation(self.queue[0])
        return self.shadow_s - self.machine.now_s, self.extra

    def reservation(self, head: ReplayedJob) -> tuple[float, int]:
        """When the first job will start at the latest, and how many nodes will be left then."""
        machine = self.machine
        missing, shadow_s = head.size - len(machine.free), inf
        if machine.kept or machine.leaving:
            for end_s, size in machine.free_later():
                if end_s > shadow_s:
                    break
                missing -= size
                if missing <= 0:
                    shadow_s = end_s
        else:  # the same, without a list made for it
            for end_s, _, job in machine.running:
                if end_s > shadow_s:
                    break
                missing -= job.size
                if missing <= 0:
                    shadow_s = end_s
        return shadow_s, -missing

    def _backfill(self, seen: int, free: int) -> list[int]:
        """Start those jobs from this place in the queue on that may overtake; the places of those started."""
        sizes, started = self.sizes, []
        places: Sequence[int] = range(seen, len(self.queue))
        if self.reorders:
            places = self.in_turn([i for i in places if sizes[i] <= free])
        queue, lasts, start, window_s, extra = self.queue, self.lasts, self.machine.start, 0.0, -1
        for i in places:
            size = sizes[i]
            if size > free:
                continue
            if extra < 0:  # not known before a job fits
                window_s, extra = self._reserve()
            if lasts[i] > window_s:
                if size > extra:
                    continue
                extra -= size
            start(queue[i])
            free -= size
            started.append(i)
        if started:
            self.extra = extra
        return started

    def _backfill_many(self, seen: int, free: int) -> list[int]:
        """The same, with few steps where few of very many may overtake."""
        sizes, lasts = np.frombuffer(self.sizes, np.int64), np.frombuffer(self.lasts, np.float64)
        window_s, extra = self._reserve()
        taken: list[int] = []
        places = np.arange(seen, len(sizes))
        while True:
            of_places = sizes[places]
            places = places[(of_places <= min(extra, free)) | ((of_places <= free) & (lasts[places] <= window_s))]
            if not len(places):
                break
            if not taken:
                places = np.asarray(self.in_turn(places.tolist())) if self.reorders else places
            i, places = int(places[0]), places[1:]
            job = self.queue[i]
            if self.lasts[i] > window_s:
                extra -= job.size
            self.machine.start(job)
            free -= job.size
            taken.append(i)
        self.extra = extra
        return taken

    def in_turn(self, places: list[int]) -> list[int]:
        """Where the scheduler ``reorders``: how the jobs at these places go that may overtake."""
        return places


class ShortestJobFirstBackfill(Easy):
    """Shortest job first backfilling: EASY, but of those that may overtake the one with the shortest limit goes first.

    Ties go by submission. The first job of the queue keeps its reservation as in EASY.
    """

    name = "sjf-backfill"
    reorders = True

    def in_turn(self, places: list[int]) -> list[int]:
        queue = self.queue
        return sorted(places, key=lambda i: (queue[i].limit_s, i))
