"""Records to rows and to JSON text, and back. Pure: what is written where, and nothing about when.

The dataclasses of ``model`` are the schema of the JSON (pydantic reads their annotations): a field that gains a default
stays readable in old rows, and one that is gone is passed over. A value that does not fit its annotation (a fraction in
an ``int`` field) is refused when it is written, because it could not be read again.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, TypeVar, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError
from sqlalchemy import CursorResult, Row

from clearway.model.cluster import Job
from clearway.model.errors import StoreError
from clearway.model.operations import Drain, Eviction, Operation, OperationKind, Preemption, Promise, Relocation
from clearway.model.plan import OperationPlan

T = TypeVar("T")

_adapters: dict[Any, TypeAdapter[Any]] = {}


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    """Made on first use: building one for ``Plan`` takes some 50 ms, which a command line may never need.

    A dataclass takes no configuration of its own here, a union hands its configuration down; without it an
    infinite number would silently become null.
    """
    if kind not in _adapters:
        union: Any = kind | None
        _adapters[kind] = TypeAdapter(union, config=ConfigDict(ser_json_inf_nan="strings"))
    return _adapters[kind]


def dump(value: object) -> str:
    """A frozen record (``Plan``, ``EvictionProblem``, ``Curve``, ``Job`` ...) as one line of JSON."""
    return dump_as(type(value), value)


def dump_as(kind: Any, value: object) -> str:
    """A value whose type does not say what is in it, as a tuple of records."""
    try:
        return _adapter(kind).dump_json(value, warnings="error").decode()
    except (PydanticSerializationError, UnicodeError) as error:
        why = " ".join(str(error).split())
        raise StoreError(f"{type(value).__name__} cannot be written as JSON: {why}") from error


def load(kind: type[T], text: str) -> T:
    try:
        value: T | None = _adapter(kind).validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "document"
        raise StoreError(f"stored {kind.__name__} cannot be read: {where}: {first['msg']}") from error
    if value is None:
        raise StoreError(f"stored {kind.__name__} cannot be read: it is null")
    return value


Values = dict[str, Any]

# Fields of ``Operation`` and of ``Preemption`` that are columns of the same name.
_EVICTION_FIELDS = (
    "mode", "state", "state_since", "created_at", "placement", "revision", "approved_by", "started_at", "finished_at",
    "outcome", "outcome_code", "why", "late", "mark",
)  # fmt: skip
_PREEMPTION_FIELDS = (
    "action", "state", "state_since", "attempted_at", "attempts", "asked_at", "checkpointed_at", "requeued_at",
    "vacated_at", "returned_at", "predicted_lost_node_s", "predicted_checkpoint_s", "actual_lost_node_s",
    "actual_checkpoint_s", "reason", "note",
)  # fmt: skip

OPERATIONS: dict[OperationKind, type[Operation]] = {each.kind: each for each in (Eviction, Drain, Relocation, Promise)}
PLANS: dict[OperationKind, type[OperationPlan]] = {
    kind: get_type_hints(operation)["plan"] for kind, operation in OPERATIONS.items()
}


def eviction_values(eviction: Operation) -> Values:
    subject = eviction.subject
    return fields_of(eviction, _EVICTION_FIELDS) | {
        "kind": eviction.kind,
        "preemptor_job_id": subject.job_id,
        "preemptor_display_id": subject.display_id,
        "preemptor_user": subject.user,
        "preemptor_account": subject.account,
        "rule": eviction.plan.rule if isinstance(eviction, Eviction) else "",
        "deadline": eviction.plan.deadline,
        "nodes_needed": eviction.plan.nodes_needed,
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
    }


def preemption_values(preemption: Preemption) -> Values:
    job = preemption.job
    return fields_of(preemption, _PREEMPTION_FIELDS) | {
        "job_id": job.job_id,
        "display_id": job.display_id,
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
        plan=plan,
        preemptions=tuple(preemption_from(each) for each in preemptions),
        **fields_of(row, _EVICTION_FIELDS) | {"why": row.why or "", "mark": row.mark or ""},
    )


@lru_cache(maxsize=4_096)  # rows are read several times a cycle, and few of them differ from the time before
def preemption_from(row: Row[Any]) -> Preemption:
    fields = fields_of(row, _PREEMPTION_FIELDS)
    return Preemption(job=load(Job, row.job), order=row.plan_order, eternal=bool(row.eternal), **fields)


def record_from(kind: Callable[..., T], row: Row[Any], **others: object) -> T:
    """A record whose fields are the columns, but for ``others``."""
    return kind(**dict(row._mapping) | others)  # noqa: SLF001 - SQLAlchemy's public name for it


def fields_of(record: object, names: Iterable[str]) -> Values:
    return {name: getattr(record, name) for name in names}


def changed(values: Values, stored: Row[Any]) -> Values:
    return {name: value for name, value in values.items() if getattr(stored, name) != value}


def new_id(result: CursorResult[Any]) -> int:
    if result.inserted_primary_key is None:
        raise StoreError("the database gave a new row no id")
    return int(result.inserted_primary_key[0])
