"""Records to rows and to JSON text, and back. What is written where, and nothing about when.

The dataclasses of ``model`` are the schema of the JSON (pydantic reads their annotations): a field that gains a default
stays readable in old rows, and one that is gone is passed over. A value that does not fit its annotation (a fraction in
an ``int`` field) is refused when it is written, because it could not be read again.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields
from functools import lru_cache
from typing import Any, TypeVar, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError
from sqlalchemy import Connection, CursorResult, Row, Table, insert, update

from clearway.model.cluster import Job
from clearway.model.errors import StoreError
from clearway.model.operations import Drain, Eviction, Operation, OperationKind, Preemption, Promise, Relocation
from clearway.model.plan import OperationPlan, Plan
from clearway.store.tables import EVICTIONS, PREEMPTIONS

T = TypeVar("T")


_adapters: dict[Any, TypeAdapter[Any]] = {}


def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Made on first use: building one for ``Plan`` takes some 50 ms, which a command line may never need.

    A dataclass takes no configuration of its own here, a union hands its configuration down; without it an
    infinite number would silently become null.
    """
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind | None, config=ConfigDict(ser_json_inf_nan="strings"))
    return _adapters[kind]


def dump(value: object, kind: Any = None) -> str:
    """A frozen record as one line of JSON; ``kind``: where the type does not say what is in it (a tuple of records)."""
    try:
        return _adapter(kind or type(value)).dump_json(value, warnings="error").decode()
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


def columns_of(kind: type[Any], table: Table, but_for: Iterable[str] = ()) -> tuple[str, ...]:
    """The fields of these records that are columns of the same name."""
    return tuple(each.name for each in fields(kind) if each.name in table.c and each.name not in but_for)


_EVICTION_FIELDS = columns_of(Operation, EVICTIONS, but_for=["eviction_id"])
_PREEMPTION_FIELDS = columns_of(Preemption, PREEMPTIONS, but_for=["job", "eternal"])

OPERATIONS: dict[OperationKind, type[Operation]] = {each.kind: each for each in (Eviction, Drain, Relocation, Promise)}
PLANS: dict[OperationKind, type[OperationPlan]] = {
    kind: get_type_hints(operation)["plan"] for kind, operation in OPERATIONS.items()
}


def eviction_values(eviction: Operation) -> Values:
    plan, subject = eviction.plan, asdict(eviction.subject)
    return (
        fields_of(eviction, (*_EVICTION_FIELDS, "kind", "predicted_lost_node_s", "actual_lost_node_s"))
        | fields_of(plan, ("deadline", "nodes_needed"))
        | {f"preemptor_{name}": value for name, value in subject.items()}
        | _submission("preemptor_", eviction.preemptor if isinstance(eviction, Eviction) else None)
        | {"rule": plan.rule if isinstance(plan, Plan) else ""}
    )


def preemption_values(preemption: Preemption) -> Values:
    job = preemption.job
    return (
        fields_of(preemption, (*_PREEMPTION_FIELDS, "eternal"))
        | fields_of(job, ("job_id", "display_id", "user", "account", "num_nodes"))
        | _submission("", job)
        | {"plan_order": preemption.order, "job": dump(job)}
    )


def _submission(begins: str, job: Job | None) -> Values:
    at, restarts = (None, None) if job is None else (job.submit_time, job.restart_count)
    return {f"{begins}submit_time": at, f"{begins}restarts": restarts}


def eviction_from(row: Row[Any], plan: OperationPlan, preemptions: Sequence[Row[Any]]) -> Operation:
    return OPERATIONS[row.kind](
        eviction_id=row.eviction_id,
        plan=plan,
        preemptions=tuple(preemption_from(each) for each in preemptions),
        **fields_of(row, _EVICTION_FIELDS) | {"why": row.why or "", "mark": row.mark or ""},
    )


@lru_cache(maxsize=4_096)  # rows are read several times a cycle, and few of them differ from the time before
def preemption_from(row: Row[Any]) -> Preemption:
    given = fields_of(row, _PREEMPTION_FIELDS)
    return Preemption(job=load(Job, row.job), order=row.plan_order, eternal=bool(row.eternal), **given)


def record_from(kind: Callable[..., T], row: Row[Any], **others: object) -> T:
    """A record whose fields are the columns, but for ``others``."""
    return kind(**dict(row._mapping) | others)  # noqa: SLF001 - SQLAlchemy's public name for it


def fields_of(record: object, names: Iterable[str]) -> Values:
    return {name: getattr(record, name) for name in names}


def changed(values: Values, stored: Row[Any]) -> Values:
    return {name: value for name, value in values.items() if getattr(stored, name) != value}


def put(connection: Connection, table: Table, values: Values) -> bool:
    """Store a row in place of that with the same primary key; whether there was none."""
    keys = [column.name for column in table.primary_key]
    rest = {name: value for name, value in values.items() if name not in keys}
    same = [table.c[name] == values[name] for name in keys]
    if connection.execute(update(table).where(*same).values(rest)).rowcount:
        return False
    connection.execute(insert(table).values(values))
    return True


def new_id(result: CursorResult[Any]) -> int:
    if result.inserted_primary_key is None:
        raise StoreError("the database gave a new row no id")
    return int(result.inserted_primary_key[0])
