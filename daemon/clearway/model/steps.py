"""What is stored of each thing done or noticed for an operation. Frozen data."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One thing done or noticed. ``finished_at`` None: intended, and not known to have been done."""

    step_id: int
    eviction_id: int
    job_id: str | None  # the preemptee, or None when it concerns the eviction as a whole
    kind: str  # create_placement, attach, ask_checkpoint, requeue, ..., or "event"
    intended_at: datetime
    finished_at: datetime | None = None
    result: str = ""  # ok, refused, error
    detail: str = ""


@dataclass(frozen=True, slots=True)
class NewStep:
    """A step to be stored: an intent, or something noticed (kind "event"), which is finished at once."""

    job_id: str | None
    kind: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class EndedStep:
    """What has become of a step that was stored as an intent; an empty detail leaves what was said then."""

    step_id: int
    result: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLog:
    """What is stored of steps in the transaction that stores where their operation stands."""

    at: datetime
    begun: tuple[NewStep, ...] = ()
    ended: tuple[EndedStep, ...] = ()
