"""EASY backfilling: others overtake the first job of the queue only where that does not delay it.

When the first job does not fit, the limits of the running jobs tell when it will (its shadow time), and how many
nodes will then be left over (extra). A later job that fits now starts if it ends by the shadow time, or needs no
more than the extra nodes. Source: Mu'alem and Feitelson, "Utilization, predictability, workloads, and user runtime
estimates in scheduling the IBM SP2 with backfilling", as the UJFB paper cites it.

Cost: a pass over the queue when nodes have become free. A submission alone costs O(1): as long as no job leaves, the
shadow time and the extra nodes stay what they are. A job that was refused then is refused again, since every refusal
only grows with the clock. The pass compares whole numbers in a list beside the queue. The reservation is found only
when a waiting job behind the first fits: until then nothing that it depends on changes.
"""

from collections.abc import Sequence
from math import inf

from clearway.simulation.machine import ReplayedJob
from clearway.simulation.schedulers.fcfs import Fcfs


class Easy(Fcfs):
    name = "easy"

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []  # of the queue's jobs
        self.seen = 0  # so many of the queue were looked at since nodes became free
        self.shadow_s: float = inf
        self.extra = 0

    def submitted(self, job: ReplayedJob) -> None:
        self.queue.append(job)
        self.sizes.append(job.size)

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
        if seen == last or not free:
            return
        if seen + 1 == last:  # as after most submissions
            if sizes[seen] > free:
                return
            fitting = [seen]
        else:
            fitting = [i for i in range(seen, last) if sizes[i] <= free]
            if not fitting:
                return
        if self.shadow_s < 0:
            self.shadow_s, self.extra = self.reservation(queue[0])
        taken = self.backfill(fitting, self.shadow_s - machine.now_s)
        for i in reversed(taken):
            del queue[i], sizes[i]
        self.seen = last - len(taken)

    def _start_first(self, free: int) -> None:
        """Those at the head of the queue that fit so many nodes."""
        queue, sizes, started = self.queue, self.sizes, 0
        for job in queue:
            free -= job.size
            if free < 0:
                break
            self.machine.start(job)
            started += 1
        del queue[:started], sizes[:started]

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

    def backfill(self, fitting: Sequence[int], window_s: float) -> list[int]:
        """Start those of these places in the queue that may overtake; the places of those started, ascending."""
        machine, queue, extra = self.machine, self.queue, self.extra
        free = len(machine.free)
        taken = []
        for i in fitting:
            job = queue[i]
            size = job.size
            if size > free:
                continue
            if job.limit_s + job.return_s - job.done_s > window_s:  # of a preempted job: what is left of it
                if size > extra:
                    continue
                extra -= size
            machine.start(job)
            free -= size
            taken.append(i)
        self.extra = extra
        return taken


class ShortestJobFirstBackfill(Easy):
    """Shortest job first backfilling: EASY, but of those that may overtake the one with the shortest limit goes first.

    Ties go by submission. The first job of the queue keeps its reservation as in EASY.
    """

    name = "sjf-backfill"

    def backfill(self, fitting: Sequence[int], window_s: float) -> list[int]:
        queue = self.queue
        return sorted(super().backfill(sorted(fitting, key=lambda i: (queue[i].limit_s, i)), window_s))
