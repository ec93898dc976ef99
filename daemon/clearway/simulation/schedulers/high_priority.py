"""A queue for urgent jobs that comes first: while one of them waits, no other job starts. No job is preempted.

Source: the WCJS paper, section 4.1. Within each of the two queues the order is that of ``wfp``; in the first,
every job that fits starts, in the second EASY backfilling holds.
"""

from clearway.simulation.schedulers.wfp import Wfp


class HighPriority(Wfp):
    name = "high-priority"

    def schedule(self) -> None:
        self.order()
        for job in [job for job in self.queue if job.urgent]:
            if job.size <= len(self.machine.free):
                self.start(job)
        if not any(job.urgent for job in self.queue):
            self.start_in_order()
