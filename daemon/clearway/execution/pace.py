"""How many jobs go into one batch of commands, and how many batches into one cycle.

A cycle must stay short: the daemon looks at the cluster and at the stop switch between cycles, and a command may not
outlast the lease. And slurmctld has other work: where its answers become slow, it is asked for less at once.

A batch has as many jobs as fit into what is left of the cycle, by the time that each job of the batch before has taken,
and at most twice as many as that batch. So a cycle is longer than ``CYCLE_S`` only by how much slower Slurm is than it
was a moment before; the first batch of a daemon, when nothing is known, is small.
"""

from collections.abc import Callable
from datetime import datetime

FIRST_SIZE = 20  # jobs
MOST_SIZE = 200  # names of jobs in a command, by far shorter than what a system takes
CYCLE_S = 0.5  # what the batches of a cycle take together


class Pace:
    """What it has learned may be forgotten. ``monotonic`` counts seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._cycle: datetime | None = None
        self._spent_s = 0.0  # by the batches of this cycle
        self._job_s = 0.0  # by each job of the newest batch; 0: not known
        self._most = FIRST_SIZE
        self._waiting = False

    def open(self, cycle: datetime) -> bool:
        """Whether another command may be given in the cycle of this time. Where not, its turn comes in the next."""
        if cycle != self._cycle:
            self._cycle, self._spent_s, self._waiting = cycle, 0.0, False
        fits = self._spent_s == 0.0 or self._spent_s + self._job_s < CYCLE_S
        self._waiting |= not fits
        return fits

    @property
    def size(self) -> int:
        """Jobs in the next batch."""
        left_s = max(0.0, CYCLE_S - self._spent_s)
        fitting = self._most if self._job_s == 0.0 else int(left_s / self._job_s)
        return max(1, min(self._most, fitting))

    def in_arrears(self, cycle: datetime) -> bool:
        """Whether commands wait for the next cycle, which should begin at once; not where Slurm has become slow."""
        return cycle == self._cycle and self._waiting and self._spent_s < 2 * CYCLE_S

    def measured(self, jobs: int, work: Callable[[], None]) -> None:
        """Do the work of a batch of so many jobs."""
        size, began = self.size, self._monotonic()
        try:
            work()
        finally:
            seconds = max(0.0, self._monotonic() - began)
            self._spent_s += seconds
            self._job_s = seconds / jobs
            if jobs >= size:
                self._most = min(MOST_SIZE, 2 * jobs)
