"""What a plan for an urgent job follows from, on the job's side, as one value. Frozen data."""

from dataclasses import dataclass
from datetime import datetime

from clearway.model.cluster import Job
from clearway.model.limits import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """All of an urgent job, its rule and its partitions that a plan for it follows from.

    Of the job every field counts that ``preemption.validation`` does not set to the same for all: a new field counts by
    itself.
    """

    job: Job
    rule: str
    max_delay_s: float
    since: datetime | None  # from when on the delay counts; None: from whatever moment it is planned at
    max_late_s: float = 0.0
    max_kill_loss_s: float | None = None
    only_in: tuple[str, ...] = ()
    ordinary: bool = False
    components: tuple[str, ...] = ()
    tasks: int = 1
    takes_free: bool = True
    partitions: tuple[Partition, ...] = ()  # of these, as far as they were looked at
