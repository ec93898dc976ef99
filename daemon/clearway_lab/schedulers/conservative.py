"""Conservative backfilling, and the UJFB paper's scheduler over it.

How many nodes are free in each interval, by the limits of the jobs: the plan of conservative backfilling.

A list of moments, ascending, and beside it how many nodes are free from each to the next; from the last on for
ever, when all of them are. Finding a place costs one pass over the moments at most, taking or giving one a pass over
those it covers; over many moments a pass is a few steps of numpy.

Conservative backfilling: every job gets a place in the plan when it is submitted, and no other job may delay it.

A job's place is the earliest that its limit and the places of all before it leave. When a running job ends before
its limit, the plan has a gap: each waiting job in turn, by submission, is moved to the earliest place that it now
finds, which is never later than the one it had (compression). Source: as for EASY.

Cost: a submission takes a pass over the plan, an early end one for each waiting job that the gap can concern. With
exact limits there are no gaps.

Urgent job first with backfilling: urgent jobs start at once; where nodes are missing, others are suspended.

Source: "Preemptive Parallel Job Scheduling for Heterogeneous Systems Supporting Urgent Computing", IEEE Access, 2021,
DOI 10.1109/ACCESS.2021.3053162 (the UJFB paper), section IV-B, Figure 5 and Algorithm 1. Regular jobs are scheduled by
conservative backfilling. An urgent job that fits the free nodes starts, past the places of all others in the plan. One
that does not has running regular jobs suspended in memory, the longest remaining first (by their limits), until it
fits; it starts when the last of them has swapped out. Where even that does not suffice, since other urgent jobs hold
the nodes, it waits in the urgent queue. A suspended job is at the head of the regular queue: it resumes on its own
nodes as soon as they are free.

Where the paper is silent: of the urgent jobs that wait the shortest (by its limit) goes first, since waiting makes its
slowdown the largest, and none overtakes it; while an urgent job waits, no regular job starts or resumes; nodes of a
suspended job that no urgent job uses stay idle until it is back; an urgent job takes such nodes first; ties go by
submission, those of remaining time to the later. After every urgent start, suspension and return the regular plan is
made anew, by submission.

Swap times are drawn once for each job from its number and the seed, so that they are the same for every scheduler
and every multiple: ``swap_out_s`` uniform in 0.2 to 2 s, ``swap_in_s`` in 0.1 to 2 s (the range of the paper's
Figure 9 and of the smallest and largest of its Table 3), times ``swap_factor``.

Its other options each take one thing away, to measure what that does.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random

import numpy as np

from clearway_lab.simulator.machine import Machine, ReplayedJob

_LONG = 64  # so many moments take numpy as long as a loop


class Profile:
    def __init__(self, now_s: float, free: int, coming: Iterable[tuple[float, int]] = ()) -> None:
        """``coming``: moments at which nodes become free, and how many; moments that have passed count as now."""
        self.times = array("d", [now_s])
        self.free = array("q", [free])
        for time_s, more in coming:
            free += more
            if time_s > self.times[-1]:
                self.times.append(time_s)
                self.free.append(free)
            else:
                self.free[-1] = free

    def advance(self, now_s: float) -> None:
        """Forget what lies before now."""
        passed = bisect_right(self.times, now_s) - 1
        if passed > 0:
            del self.times[:passed], self.free[:passed]
        self.times[0] = now_s

    def earliest(self, size: int, duration_s: float) -> float:
        """The first moment from which so many nodes are free for so long."""
        times, free, last = self.times, self.free, len(self.times)
        if last > _LONG:
            return self._earliest_of_many(size, duration_s)
        i = 0
        while True:
            while free[i] < size:
                i += 1
            start_s = times[i]
            end_s = start_s + duration_s
            i += 1
            while i < last and free[i] >= size and times[i] < end_s:
                i += 1
            if i == last or times[i] >= end_s:
                return start_s

    def _earliest_of_many(self, size: int, duration_s: float) -> float:
        times = np.frombuffer(self.times, np.float64)
        lacking = np.flatnonzero(np.frombuffer(self.free, np.int64) < size)
        if not len(lacking):
            return float(times[0])
        # Enough are free from the end of each lacking interval until the next one begins, which may be at once.
        until = times[lacking]
        if until[0] >= times[0] + duration_s:
            return float(times[0])
        starts = times[lacking + 1]
        enough = starts[:-1] + duration_s <= until[1:]
        place = int(enough.argmax()) if len(enough) else 0
        return float(starts[place if len(enough) and enough[place] else -1])

    def take(self, start_s: float, end_s: float, size: int) -> None:
        """So many nodes fewer in between; with a negative size, more."""
        first = self._moment(start_s)
        last = self._moment(end_s)
        free = self.free
        if last - first > _LONG:
            np.frombuffer(free, np.int64)[first:last] -= size
            return
        for i in range(first, last):
            free[i] -= size

    def room_before(self, size: int, end_s: float) -> bool:
        """Whether so many nodes are free at any moment before this one."""
        until = bisect_left(self.times, end_s)
        return bool((np.frombuffer(self.free, np.int64)[:until] >= size).any())

    def _moment(self, time_s: float) -> int:
        """The place of this moment, which is put in where it is missing."""
        place = bisect_left(self.times, time_s)
        if place == len(self.times) or self.times[place] != time_s:
            self.times.insert(place, time_s)
            self.free.insert(place, self.free[place - 1])
        return place


class Conservative:
    name = "conservative"
    machine: Machine

    def __init__(self) -> None:
        self.waiting: dict[int, ReplayedJob] = {}  # by index, in that order
        self.place_s: dict[int, float] = {}  # by index: when it is to start
        self.due: list[tuple[float, int]] = []  # place and index; outdated entries stay until they come up
        self.gap = False

    def begin(self, machine: Machine) -> None:
        self.machine = machine
        self.profile = Profile(machine.now_s, machine.nodes)

    def submitted(self, job: ReplayedJob) -> None:
        self._settle()  # jobs that wait already choose first
        self.waiting[job.index] = job
        self._place(job)

    def ended(self, job: ReplayedJob) -> None:
        now_s = self.machine.now_s
        if now_s < job.expected_end_s:
            self.profile.advance(now_s)
            self.profile.take(now_s, job.expected_end_s, -job.size)
            self.gap = True

    def returned(self, job: ReplayedJob) -> None:
        """A preempted job is the first in the queue again, so the places of all jobs are found anew."""
        self.waiting = dict(sorted([*self.waiting.items(), (job.index, job)]))
        self.plan_anew()

    def schedule(self) -> None:
        machine, due, place_s = self.machine, self.due, self.place_s
        now_s = machine.now_s
        self._settle()
        while due and due[0][0] <= now_s:
            time_s, index = heappop(due)
            if place_s.get(index) == time_s:
                del place_s[index]
                machine.start(self.waiting.pop(index))

    def plan_anew(self) -> None:
        """The places of all jobs, by submission, from what the machine holds now."""
        machine = self.machine
        self.profile = Profile(machine.now_s, len(machine.free), machine.free_later())
        self.due = []
        for job in self.waiting.values():
            self._place(job)

    def _place(self, job: ReplayedJob) -> None:
        limit_s = job.lasts_s
        start_s = self.profile.earliest(job.size, limit_s)
        self.profile.take(start_s, start_s + limit_s, job.size)
        self.place_s[job.index] = start_s
        heappush(self.due, (start_s, job.index))
        self.machine.wake_at(start_s)  # the job that made room for this place may have gone: nothing else happens then

    def _settle(self) -> None:
        profile = self.profile
        profile.advance(self.machine.now_s)
        if not self.gap:
            return
        self.gap = False
        for index, job in self.waiting.items():
            old_s = self.place_s[index]
            if not profile.room_before(job.size, old_s):
                continue
            profile.take(old_s, old_s + job.lasts_s, -job.size)
            self._place(job)


SWAP_OUT_S = (0.2, 2.0)
SWAP_IN_S = (0.1, 2.0)


def swap_times_s(job_id: int, seed: int) -> tuple[float, float]:
    """Out and in: the longest among its processes, which swap at the same time (equation 3).

    Whole 1024ths of a second, so that sums of times stay exact.
    """
    rng = Random(f"swap-{seed}-{job_id}")  # noqa: S311 - a simulation, not a secret
    out_s, in_s = rng.uniform(*SWAP_OUT_S), rng.uniform(*SWAP_IN_S)
    return round(out_s * 1_024) / 1_024, round(in_s * 1_024) / 1_024


@dataclass(eq=False, kw_only=True)
class Ujfb(Conservative):
    name = "ujfb"

    swap_factor: float = 1.0
    suspends: bool = True
    keep_nodes: bool = True  # off: a suspended job returns anywhere
    shortest_first: bool = True  # off: urgent jobs that wait go by submission
    regular_wait: bool = True  # off: regular jobs start and resume while an urgent one waits
    swap_together: bool = True  # off: the jobs that make room for one urgent job swap out one after another

    def __post_init__(self) -> None:
        super().__init__()
        self.urgent: list[ReplayedJob] = []
        self.outdated = False  # the regular plan: nodes went to urgent jobs, or came back from them

    def submitted(self, job: ReplayedJob) -> None:
        if job.urgent:
            self.urgent.append(job)
        elif self.outdated:
            self.waiting[job.index] = job
        else:
            super().submitted(job)

    def ended(self, job: ReplayedJob) -> None:
        if job.urgent or self.machine.suspended or self.outdated:
            self.outdated = True
        else:
            super().ended(job)

    def returned(self, job: ReplayedJob) -> None:
        self.outdated = True
        if not job.keeps_nodes:  # else it resumes by itself
            self.waiting = dict(sorted([*self.waiting.items(), (job.index, job)]))

    def schedule(self) -> None:
        machine = self.machine
        if self.urgent:
            self.outdated = True
            self._serve_urgent()
        if (self.urgent and self.regular_wait) or machine.leaving:
            self.outdated = True
            return
        for job in list(machine.suspended.values()):
            if machine.can_resume(job):
                machine.start(job)
                self.outdated = True
        if self.outdated:
            self.outdated = self.gap = False
            self.plan_anew()
        super().schedule()

    def _serve_urgent(self) -> None:
        machine, urgent = self.machine, self.urgent
        urgent.sort(key=lambda job: (job.limit_s if self.shortest_first else 0, job.index))
        started = 0
        for job in urgent:
            if job.size > len(machine.free) + len(machine.kept_free):
                break
            machine.start(job, beside=machine.suspended.values())
            started += 1
        del urgent[:started]
        wanted = 0
        for job in urgent if self.suspends else ():
            wanted += job.size
            leaving = sum(other.size for other in machine.leaving.values())
            missing = wanted - len(machine.free) - len(machine.kept_free) - leaving
            if missing > 0 and not self._make_room(missing):
                return

    def _make_room(self, missing: int) -> bool:
        """Suspend regular jobs on so many nodes; none where there are not enough."""
        machine = self.machine
        regular = [job for _, _, job in reversed(machine.running) if not job.urgent]  # the longest remaining first
        chosen = []
        for job in regular:
            if missing <= 0:
                break
            chosen.append(job)
            missing -= job.size
        if missing > 0:
            return False
        before_s = 0.0
        for job in chosen:
            out_s, in_s = (self.swap_factor * each for each in swap_times_s(job.job_id, machine.seed))
            machine.preempt(job, leave_s=before_s + out_s, return_s=in_s, keep_nodes=self.keep_nodes)
            if not self.swap_together:
                before_s += out_s
        return True
