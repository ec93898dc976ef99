"""A preemptor: the job that waits for room, and when it must run."""

from dataclasses import dataclass
from datetime import datetime

from clearway.model.cluster import Job
from clearway.model.plan import called


@dataclass(frozen=True, slots=True)
class Preemptor:
    """A waiting job that room is made for. ``obstacle`` says in one sentence why no plan can be made, if none can."""

    job: Job
    rule: str
    max_delay_s: float
    deadline: datetime
    obstacle: str = ""
    ordinary: bool = False  # an ordinary job, for which eternal jobs make room (see clearway.preemption.opportunistic)
    only_opportunistic: bool = False  # only eternal jobs leave for it
    takes_free: bool = True  # whether it may count on idle nodes; not while a job before it waits for them

    @property
    def called(self) -> str:
        """What messages call it."""
        return called(ordinary=self.ordinary)
