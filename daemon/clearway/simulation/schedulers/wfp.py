"""The rule of Argonne's Blue Gene machines: large jobs that wait long for their length stand first; EASY behind.

The score is (wait / time limit) ** 3 x size ("WFP", of the scheduler Cobalt that the WCJS paper's baseline
simulates: its section 6.3 names the three quantities, not the formula, which is that of Tang et al., "Fault-aware,
utility-based job scheduling on Blue Gene/P systems"). Whenever a job is submitted or leaves, the queue is ordered
anew; the first job that does not fit keeps its reservation as in EASY, until the order changes. Ties go by submission.

Cost: a sort and a pass over the queue at each event.
"""

from clearway.simulation.machine import ReplayedJob
from clearway.simulation.schedulers.easy import Easy


class Wfp(Easy):
    name = "wfp"

    def schedule(self) -> None:
        self.order()
        self.start_in_order()

    def order(self) -> None:
        """The queue by rank; all of it is to be looked at."""
        self.renew(sorted(self.queue, key=self.rank))

    def rank(self, job: ReplayedJob) -> tuple[float, ...]:
        return (-wfp_score(job, self.machine.now_s), job.index)

    def start(self, job: ReplayedJob) -> None:
        self.machine.start(job)
        self.remove(job)

    def start_in_order(self) -> None:
        if self.queue:
            super().schedule()


def wfp_score(job: ReplayedJob, now_s: float) -> float:
    return (float(now_s - job.submit_s) / job.limit_s) ** 3 * job.size


class HighPriority(Wfp):
    """A queue for urgent jobs that comes first: while one of them waits, no other job starts. No job is preempted.

    Source: the WCJS paper, section 4.1. Within each of the two queues the order is that of ``wfp``; in the first,
    every job that fits starts, in the second EASY backfilling holds.
    """

    name = "high-priority"

    def schedule(self) -> None:
        self.order()
        for job in [job for job in self.queue if job.urgent]:
            if job.size <= len(self.machine.free):
                self.start(job)
        if not any(job.urgent for job in self.queue):
            self.start_in_order()
