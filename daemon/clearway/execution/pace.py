"""How many jobs go into one batch of commands, and how many batches into one cycle.

A cycle must stay short: the daemon looks at the cluster and at the stop switch between cycles, and a command may not
outlast the lease. And slurmctld has other work: where its answers become slow, it is asked for less at once.
"""

from collections.abc import Callable
from datetime import datetime

FIRST_SIZE = 50  # jobs
LEAST_SIZE = 4
MOST_SIZE = 200  # names of jobs in a command, by far shorter than what a system takes
BATCH_S = 0.3  # what a batch should take
CYCLE_S = 0.4  # no batch begins once those of this cycle have taken as long


class Pace:
    """``size``: jobs in the next batch. It halves after a batch that was slow, and doubles after one that was quick.

    What it has learned may be forgotten. ``monotonic`` counts seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._cycle: datetime | None = None
        self._spent_s = 0.0
        self.size = FIRST_SIZE

    def open(self, cycle: datetime) -> bool:
        """Whether another batch may begin in the cycle of this time."""
        if cycle != self._cycle:
            self._cycle, self._spent_s = cycle, 0.0
        return self._spent_s < CYCLE_S

    def measured(self, jobs: int, work: Callable[[], None]) -> None:
        """Do the work of a batch of so many jobs."""
        began = self._monotonic()
        try:
            work()
        finally:
            self._took(jobs, max(0.0, self._monotonic() - began))

    def _took(self, jobs: int, seconds: float) -> None:
        self._spent_s += seconds
        if seconds > BATCH_S:
            self.size = max(LEAST_SIZE, min(self.size, jobs) // 2)
        elif seconds < BATCH_S / 2 and jobs >= self.size:
            self.size = min(MOST_SIZE, self.size * 2)
