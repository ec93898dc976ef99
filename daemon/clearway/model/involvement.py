"""One job's part in operations, as the store finds it without their plans. Frozen data."""

from dataclasses import dataclass
from datetime import datetime

from clearway.model.operations import EvictionState, OperationKind, Preemption, Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Involvement:
    """An operation as it concerns one job: it serves the job, or the job leaves for it."""

    eviction_id: int
    kind: OperationKind
    mode: str
    state: EvictionState
    state_since: datetime
    created_at: datetime
    deadline: datetime
    started_at: datetime | None
    finished_at: datetime | None
    outcome: str
    rule: str  # that made the preemptor urgent; empty: not kept
    subject: Subject
    preemption: Preemption | None  # the job's newest one in it; None: it is the job that the operation serves
