"""Urgent job first with backfilling: urgent jobs start at once; where nodes are missing, others are suspended.

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

from dataclasses import dataclass
from random import Random

from clearway.simulation.machine import ReplayedJob
from clearway.simulation.schedulers.conservative import Conservative

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
