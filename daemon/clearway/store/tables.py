"""The tables. Figures that one filters and sums by are columns; the rest of a decision is JSON text.

``evictions`` 1-n ``plans`` (one a revision), 1-n ``preemptions`` (in the eviction's order), 1-n ``steps``; a plan
has at most one row in ``explanations``.
Rows that belong to an eviction are deleted with it; ``checkpoint_history``, ``restart_history`` and
``run_history`` stand for themselves.
Ids are never given out twice.
"""

from datetime import datetime
from typing import cast

from sqlalchemy import ForeignKey, Index, MetaData, Table
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from clearway.model.claims import Restart
from clearway.model.operations import EvictionState, OperationKind, PreemptionState
from clearway.model.outcome import OutcomeCode
from clearway.model.problem import Action
from clearway.model.records import CheckpointOutcome
from clearway.model.requests import RequestResult
from clearway.model.rolling import RollingState
from clearway.store.types import ID_LENGTH, TABLE_OPTIONS, Figure, LongText, Name, UtcDateTime, word

_OWN_IDS = {**TABLE_OPTIONS, "sqlite_autoincrement": True}


class Base(DeclarativeBase):
    # Every constraint has a name, so that a later migration can change it on all three databases.
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {datetime: UtcDateTime, float: Figure, str: LongText}  # noqa: RUF012 - SQLAlchemy's own form


class EvictionRow(Base):
    """Where an operation stands, and the sums of its preemptions."""

    __tablename__ = "evictions"
    __table_args__ = (Index(None, "state"), Index(None, "finished_at"), _OWN_IDS)

    eviction_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    kind: Mapped[OperationKind] = mapped_column(word(OperationKind), server_default=OperationKind.EVICTION.value)
    state: Mapped[EvictionState] = mapped_column(word(EvictionState))
    state_since: Mapped[datetime]
    mode: Mapped[str] = mapped_column(Name(ID_LENGTH))
    revision: Mapped[int]
    preemptor_job_id: Mapped[str] = mapped_column(Name(ID_LENGTH))
    preemptor_user: Mapped[str] = mapped_column(Name())
    preemptor_account: Mapped[str] = mapped_column(Name())
    deadline: Mapped[datetime]
    nodes_needed: Mapped[int]
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    placement: Mapped[str]
    approved_by: Mapped[str]
    outcome: Mapped[str]
    outcome_code: Mapped[OutcomeCode | None] = mapped_column(
        word(OutcomeCode)
    )  # NULL: none yet, or from before it was kept
    why: Mapped[str | None]  # the outcome without what its code says
    late: Mapped[bool]
    predicted_lost_node_s: Mapped[float]
    actual_lost_node_s: Mapped[float]


class PlanRow(Base):
    """A decision as it was made; a plan made anew is a row of its own, so older ones stay readable."""

    __tablename__ = "plans"
    __table_args__ = (TABLE_OPTIONS,)

    eviction_id: Mapped[int] = mapped_column(ForeignKey("evictions.eviction_id", ondelete="CASCADE"), primary_key=True)
    revision: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    made_at: Mapped[datetime]
    deadline: Mapped[datetime]
    planner: Mapped[str] = mapped_column(Name())
    chosen_delay_s: Mapped[int]
    predicted_lost_node_s: Mapped[float | None]
    predicted_checkpoint_s: Mapped[float | None]
    document: Mapped[str]  # the whole plan of its eviction's kind: problem, curve, chosen point, verdicts, jobs


class ExplanationRow(Base):
    """What else could have been decided, and at what cost; made after the plan, while the daemon has time."""

    __tablename__ = "explanations"
    __table_args__ = (TABLE_OPTIONS,)

    eviction_id: Mapped[int] = mapped_column(ForeignKey("evictions.eviction_id", ondelete="CASCADE"), primary_key=True)
    revision: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    complete: Mapped[bool]
    document: Mapped[str]  # the whole ``explanation.Explanation``


class PreemptionRow(Base):
    """One preemptee, by its position in the eviction (a job may be chosen, spared and chosen again)."""

    __tablename__ = "preemptions"
    __table_args__ = (Index(None, "job_id"), Index(None, "requeued_at"), TABLE_OPTIONS)

    eviction_id: Mapped[int] = mapped_column(ForeignKey("evictions.eviction_id", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    job_id: Mapped[str] = mapped_column(Name(ID_LENGTH))
    user: Mapped[str] = mapped_column(Name())
    account: Mapped[str] = mapped_column(Name())
    num_nodes: Mapped[int]
    action: Mapped[Action] = mapped_column(word(Action))
    plan_order: Mapped[int]
    eternal: Mapped[bool | None]  # NULL: from before there were eternal jobs
    state: Mapped[PreemptionState] = mapped_column(word(PreemptionState))
    state_since: Mapped[datetime | None]
    attempted_at: Mapped[datetime | None]
    attempts: Mapped[int]
    asked_at: Mapped[datetime | None]
    checkpointed_at: Mapped[datetime | None]
    requeued_at: Mapped[datetime | None]
    vacated_at: Mapped[datetime | None]
    returned_at: Mapped[datetime | None]
    predicted_lost_node_s: Mapped[float]
    predicted_checkpoint_s: Mapped[float]
    actual_lost_node_s: Mapped[float | None]
    actual_checkpoint_s: Mapped[float | None]
    reason: Mapped[str]
    note: Mapped[str]
    job: Mapped[str]  # ``model.Job`` as seen when it was chosen


class StepRow(Base):
    """The journal: what was intended, and the result."""

    __tablename__ = "steps"
    __table_args__ = (Index(None, "eviction_id"), _OWN_IDS)

    step_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    eviction_id: Mapped[int] = mapped_column(ForeignKey("evictions.eviction_id", ondelete="CASCADE"))
    job_id: Mapped[str | None] = mapped_column(Name(ID_LENGTH))
    kind: Mapped[str] = mapped_column(Name(ID_LENGTH))
    intended_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    result: Mapped[str] = mapped_column(Name())
    detail: Mapped[str]


class RequestRow(Base):
    """What operators asked of the loop."""

    __tablename__ = "requests"
    __table_args__ = (Index(None, "handled_at"), Index(None, "eviction_id"), _OWN_IDS)

    request_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    kind: Mapped[str] = mapped_column(Name(ID_LENGTH))
    eviction_id: Mapped[int | None] = mapped_column(ForeignKey("evictions.eviction_id", ondelete="CASCADE"))
    actor: Mapped[str] = mapped_column(Name())
    created_at: Mapped[datetime]
    handled_at: Mapped[datetime | None]
    code: Mapped[RequestResult | None] = mapped_column(word(RequestResult))  # NULL until it is handled
    result: Mapped[str]  # the sentence for people
    document: Mapped[str | None]  # what a drain or undrain is about, as JSON
    rolling_id: Mapped[int | None]  # the rolling drain that it is about or has led to


class RollingDrainRow(Base):
    """Nodes that are emptied a few at a time; each drain of theirs is an eviction."""

    __tablename__ = "rolling_drains"
    __table_args__ = (Index(None, "state"), _OWN_IDS)

    rolling_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    state: Mapped[RollingState] = mapped_column(word(RollingState))
    created_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    document: Mapped[str]  # the whole ``model.rolling.RollingDrain``: the turn of each node, and why nodes were skipped


class CheckpointHistoryRow(Base):
    """The outcome of a checkpoint, predicted and actual (``learning.CheckpointRecord``)."""

    __tablename__ = "checkpoint_history"
    __table_args__ = (Index(None, "ended_at"), TABLE_OPTIONS)

    # No foreign key: the duration of a checkpoint stays true without its eviction.
    eviction_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    job_id: Mapped[str] = mapped_column(Name(ID_LENGTH), primary_key=True)
    asked_at: Mapped[datetime] = mapped_column(primary_key=True)
    ended_at: Mapped[datetime]
    run: Mapped[int]
    user: Mapped[str] = mapped_column(Name())
    app: Mapped[str] = mapped_column(Name())
    checkpointer: Mapped[str] = mapped_column(Name(ID_LENGTH))
    action: Mapped[Action] = mapped_column(word(Action))
    nodes: Mapped[int]
    outcome: Mapped[CheckpointOutcome] = mapped_column(word(CheckpointOutcome))
    predicted_s: Mapped[float]
    actual_s: Mapped[float | None]
    write_s: Mapped[float | None]
    predicted_size_mib: Mapped[float | None]
    size_mib: Mapped[float | None]


class RestartHistoryRow(Base):
    """How a run of a job went on from a checkpoint (``learning.RestartRecord``)."""

    __tablename__ = "restart_history"
    __table_args__ = (Index(None, "started_at"), TABLE_OPTIONS)

    job_id: Mapped[str] = mapped_column(Name(ID_LENGTH), primary_key=True)
    started_at: Mapped[datetime] = mapped_column(primary_key=True)
    run: Mapped[int]
    user: Mapped[str] = mapped_column(Name())
    app: Mapped[str] = mapped_column(Name())
    checkpointer: Mapped[str] = mapped_column(Name(ID_LENGTH))
    nodes: Mapped[int]
    restart: Mapped[Restart] = mapped_column(word(Restart))
    predicted_s: Mapped[float | None]
    restart_s: Mapped[float | None]


class RunHistoryRow(Base):
    """How long a run of a job lasted (``run_times.RunRecord``)."""

    __tablename__ = "run_history"
    __table_args__ = (Index(None, "ended_at"), Index(None, "user", "app"), TABLE_OPTIONS)

    job_id: Mapped[str] = mapped_column(Name(ID_LENGTH), primary_key=True)
    started_at: Mapped[datetime] = mapped_column(primary_key=True)
    ended_at: Mapped[datetime]
    user: Mapped[str] = mapped_column(Name())
    app: Mapped[str] = mapped_column(Name())
    nodes: Mapped[int]
    limit_s: Mapped[float | None]
    cut: Mapped[bool]


class ValueRow(Base):
    """Small JSON values by key."""

    __tablename__ = "kept_values"
    __table_args__ = (TABLE_OPTIONS,)

    key: Mapped[str] = mapped_column("name", Name(), primary_key=True)
    document: Mapped[str]


class LeaseRow(Base):
    """The daemon that may act. The row is there from the first migration on, so taking the lease is one UPDATE."""

    __tablename__ = "leases"
    __table_args__ = (TABLE_OPTIONS,)

    name: Mapped[str] = mapped_column(Name(ID_LENGTH), primary_key=True)
    owner: Mapped[str] = mapped_column(Name())
    expires_at: Mapped[datetime]


# The repository writes plain statements, it keeps no session and no identity map.
EVICTIONS = cast(Table, EvictionRow.__table__)
PLANS = cast(Table, PlanRow.__table__)
EXPLANATIONS = cast(Table, ExplanationRow.__table__)
PREEMPTIONS = cast(Table, PreemptionRow.__table__)
STEPS = cast(Table, StepRow.__table__)
REQUESTS = cast(Table, RequestRow.__table__)
ROLLING_DRAINS = cast(Table, RollingDrainRow.__table__)
CHECKPOINT_HISTORY = cast(Table, CheckpointHistoryRow.__table__)
RESTART_HISTORY = cast(Table, RestartHistoryRow.__table__)
RUN_HISTORY = cast(Table, RunHistoryRow.__table__)
KEPT_VALUES = cast(Table, ValueRow.__table__)
LEASES = cast(Table, LeaseRow.__table__)
