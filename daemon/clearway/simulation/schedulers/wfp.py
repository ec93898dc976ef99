"""The rule of Argonne's Blue Gene machines: large jobs that wait long for their length stand first; EASY behind.

The score is (wait / time limit) ** 3 x size ("WFP", of the scheduler Cobalt that the WCJS paper's baseline
simulates: its section 6.3 names the three quantities, not the formula, which is that of Tang et al., "Fault-aware,
utility-based job scheduling on Blue Gene/P systems"). Whenever a job is submitted or leaves, the queue is ordered
anew; the first job that does not fit keeps its reservation as in EASY, until the order changes. Ties go by submission.

With ``order="small"`` the jobs of the partition ``short`` stand first, and then those on fewer nodes, of which waiting
makes up for as many in a week: Slurm's order where that partition has a higher PriorityTier, PriorityFavorSmall is set,
and age and size have equal weights.

Cost: a sort and a pass over the queue at each event at which a waiting job fits; else a pass that finds that none does.
"""

from collections.abc import Iterable
from typing import Literal

from clearway.simulation.cluster_view import SHORT, names_of
from clearway.simulation.machine import ReplayedJob
from clearway.simulation.schedulers.easy import Easy
from clearway.simulation.schedulers.fcfs import BY_INDEX

MAX_AGE_S = 7 * 86_400  # Slurm's PriorityMaxAge, if not set


class Wfp(Easy):
    name = "wfp"

    def __init__(self, order: Literal["submission", "wfp", "small"] = "wfp") -> None:
        super().__init__()
        self.by = order

    def schedule(self) -> None:
        self.start_in_order()

    def in_order(self, jobs: Iterable[ReplayedJob]) -> list[ReplayedJob]:
        """These jobs by rank, which time changes."""
        now_s, nodes = self.machine.now_s, self.machine.nodes
        if self.by == "wfp":
            # One loop without calls, as queues are long: a job by its score, then by its index, which is its own.
            ranked = [(-((float(now_s - job.submit_s) / job.limit_s) ** 3) * job.size, job.index, job) for job in jobs]
            return [job for _, _, job in sorted(ranked)]
        if self.by == "small":

            def rank(job: ReplayedJob) -> tuple[float, ...]:
                age = min(1.0, (now_s - job.submit_s) / MAX_AGE_S)
                return (not is_short(job), job.size / nodes - age, job.index)

            return sorted(jobs, key=rank)
        return sorted(jobs, key=BY_INDEX)

    def start(self, job: ReplayedJob) -> None:
        self.machine.start(job)
        self.remove(job)

    def start_in_order(self) -> None:
        """EASY, with the queue by rank. Which job is the first matters only where one fits."""
        if self.queue and min(self.sizes) <= len(self.machine.free):
            self.renew(self.in_order(self.queue))
            super().schedule()


def is_short(job: ReplayedJob) -> bool:
    """Whether it is in the partition for short jobs."""
    return names_of(job.trace).partition == SHORT


class HighPriority(Wfp):
    """A queue for urgent jobs that comes first: while one of them waits, no other job starts. No job is preempted.

    Source: the WCJS paper, section 4.1. Within each of the two queues the order is that of ``wfp``; in the first,
    every job that fits starts, in the second EASY backfilling holds.
    """

    name = "high-priority"

    def schedule(self) -> None:
        for job in self.in_order([job for job in self.queue if job.urgent]):
            if job.size <= len(self.machine.free):
                self.start(job)
        if not any(job.urgent for job in self.queue):
            self.start_in_order()
