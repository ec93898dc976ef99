"""The second that a requeued job must wait before it may start again, even when an administrator says "now".

Slurm makes a requeued job wait for 121 s. ``StartTime=now`` lifts that, but a job that starts within the second of
its requeue on the same node is lost: the node holds that second's credentials for revoked ("Killing non-startable
batch JobId=4: Job credential revoked", state FAILED, never to run again). Measured on 22.05.8: 2 of 3 jobs when
set at once, none of 64 after this delay.
"""

import time
from collections.abc import Callable, Iterable
from datetime import datetime

from clearway.model.cluster import Job, JobState

DELAY_S = 1.1  # credentials and revocations are told apart by whole seconds


class RequeueDelay:
    """Remembers since when requeued jobs are seen waiting; by then their last process had gone.

    The time between two snapshots counts, so slurmctld's clock may differ from ours. All jobs that one snapshot saw
    may start once the first of them may: it costs a cycle ``DELAY_S`` at most.
    """

    def __init__(self, *, now: Callable[[], datetime], sleep: Callable[[float], None] = time.sleep) -> None:
        self._now = now
        self._sleep = sleep
        self._since: dict[tuple[str, int], datetime] = {}  # by job id and restart count

    def saw_all(self, jobs: Iterable[Job]) -> None:
        """All jobs of a snapshot; those that are not among them are forgotten."""
        now = self._now()
        keys = (_requeue_of(job) for job in jobs if job.restart_count)
        self._since = {key: self._since.get(key, now) for key in keys if key}

    def saw(self, job: Job) -> None:
        """One job, looked at by itself."""
        if key := _requeue_of(job):
            self._since.setdefault(key, self._now())

    def before_start(self, job: Job) -> None:
        """Return once this waiting job may start at once."""
        self.saw(job)
        if key := _requeue_of(job):
            left_s = DELAY_S - (self._now() - self._since[key]).total_seconds()
            if left_s > 0:
                self._sleep(min(left_s, DELAY_S))


def _requeue_of(job: Job) -> tuple[str, int] | None:
    """Which requeue a waiting job comes from; None for a job that has not run or does not wait."""
    return (job.job_id, job.restart_count) if job.state is JobState.PENDING and job.restart_count else None
