"""Conservative backfilling: every job gets a place in the plan when it is submitted, and no other job may delay it.

A job's place is the earliest that its limit and the places of all before it leave. When a running job ends before
its limit, the plan has a gap: each waiting job in turn, by submission, is moved to the earliest place that it now
finds, which is never later than the one it had (compression). Source: as for EASY.

Cost: a submission takes a pass over the plan, an early end one for each waiting job that the gap can concern. With
exact limits there are no gaps.
"""

from heapq import heappop, heappush

from clearway.simulation.machine import Machine, ReplayedJob
from clearway.simulation.profile import Profile


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
