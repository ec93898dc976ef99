"""Records to rows and back. Pure: what is written where, and nothing about when."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import CursorResult, Row

from clearway.model.cluster import Job
from clearway.model.errors import StoreError
from clearway.model.operations import Drain, Eviction, Operation, OperationKind, Preemption, Relocation, StepRecord
from clearway.model.plan import DrainPlan, OperationPlan, Plan, RelocationPlan
from clearway.model.requests import OperatorRequest
from clearway.store.serialise import dump, load

Values = dict[str, Any]

# Fields of ``Preemption`` that are columns of the same name.
_PREEMPTION_FIELDS = (
    "action", "state", "state_since", "attempted_at", "attempts", "asked_at", "checkpointed_at", "requeued_at",
    "vacated_at", "returned_at", "predicted_lost_node_s", "predicted_checkpoint_s", "actual_lost_node_s",
    "actual_checkpoint_s", "reason", "note",
)  # fmt: skip


OPERATIONS: dict[OperationKind, type[Operation]] = {each.kind: each for each in (Eviction, Drain, Relocation)}
PLANS: dict[OperationKind, type[OperationPlan]] = {
    OperationKind.EVICTION: Plan,
    OperationKind.DRAIN: DrainPlan,
    OperationKind.RELOCATION: RelocationPlan,
}


def eviction_values(eviction: Operation) -> Values:
    """The row of ``evictions``, but for its id."""
    subject = eviction.subject
    return {
        "kind": eviction.kind,
        "state": eviction.state,
        "state_since": eviction.state_since,
        "mode": eviction.mode,
        "revision": eviction.revision,
        "preemptor_job_id": subject.job_id,
        "preemptor_user": subject.user,
        "preemptor_account": subject.account,
        "deadline": eviction.plan.deadline,
        "nodes_needed": eviction.plan.nodes_needed,
        "created_at": eviction.created_at,
        "started_at": eviction.started_at,
        "finished_at": eviction.finished_at,
        "placement": eviction.placement,
        "approved_by": eviction.approved_by,
        "outcome": eviction.outcome,
        "outcome_code": eviction.outcome_code,
        "why": eviction.why,
        "late": eviction.late,
        "predicted_lost_node_s": eviction.predicted_lost_node_s,
        "actual_lost_node_s": eviction.actual_lost_node_s,
    }


def plan_values(eviction_id: int, revision: int, plan: OperationPlan) -> Values:
    return {
        "eviction_id": eviction_id,
        "revision": revision,
        "made_at": plan.made_at,
        "deadline": plan.deadline,
        "planner": plan.curve.planner,
        "chosen_delay_s": plan.chosen.max_delay_s,
        "predicted_lost_node_s": plan.chosen.lost_work_node_s,
        "predicted_checkpoint_s": plan.chosen.checkpoint_s,
        "document": dump(plan),
    }


def preemption_values(preemption: Preemption) -> Values:
    """The row of ``preemptions``, but for its key (eviction and position)."""
    job = preemption.job
    values: Values = {name: getattr(preemption, name) for name in _PREEMPTION_FIELDS}
    return values | {
        "job_id": job.job_id,
        "user": job.user,
        "account": job.account,
        "num_nodes": job.num_nodes,
        "plan_order": preemption.order,
        "eternal": preemption.eternal,
        "job": dump(job),
    }


def eviction_from(row: Row[Any], plan: OperationPlan, preemptions: Sequence[Row[Any]]) -> Operation:
    return OPERATIONS[row.kind](
        eviction_id=row.eviction_id,
        mode=row.mode,
        plan=plan,
        preemptions=tuple(preemption_from(each) for each in preemptions),
        state=row.state,
        state_since=row.state_since,
        created_at=row.created_at,
        placement=row.placement,
        revision=row.revision,
        approved_by=row.approved_by,
        started_at=row.started_at,
        finished_at=row.finished_at,
        outcome=row.outcome,
        outcome_code=row.outcome_code,
        why=row.why or "",
        late=row.late,
    )


@lru_cache(maxsize=4_096)  # rows are read several times a cycle, and few of them differ from the time before
def preemption_from(row: Row[Any]) -> Preemption:
    fields = {name: getattr(row, name) for name in _PREEMPTION_FIELDS}
    return Preemption(job=load(Job, row.job), order=row.plan_order, eternal=bool(row.eternal), **fields)


def step_from(row: Row[Any]) -> StepRecord:
    return StepRecord(
        step_id=row.step_id,
        eviction_id=row.eviction_id,
        job_id=row.job_id,
        kind=row.kind,
        intended_at=row.intended_at,
        finished_at=row.finished_at,
        result=row.result,
        detail=row.detail,
    )


def request_from(row: Row[Any]) -> OperatorRequest:
    return OperatorRequest(
        request_id=row.request_id,
        kind=row.kind,
        eviction_id=row.eviction_id,
        actor=row.actor,
        created_at=row.created_at,
        document=row.document or "",
        handled_at=row.handled_at,
        code=row.code,
        result=row.result,
        rolling_id=row.rolling_id,
    )


def changed(values: Values, stored: Row[Any]) -> Values:
    """What a row must be given to hold these values."""
    return {name: value for name, value in values.items() if getattr(stored, name) != value}


def new_id(result: CursorResult[Any]) -> int:
    """The id that the database gave an inserted row."""
    if result.inserted_primary_key is None:
        raise StoreError("the database gave a new row no id")
    return int(result.inserted_primary_key[0])
