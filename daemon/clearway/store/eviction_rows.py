"""The steps of evictions, their successors, and evictions that are deleted."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, delete, func, insert, select, text, update

from clearway.model.errors import StoreError
from clearway.model.operations import EvictionState, OperationKind
from clearway.model.records import NewStep, StepLog, StepRecord
from clearway.store import rows
from clearway.store.plan_rows import forget_parts, parts_named
from clearway.store.tables import EVICTIONS, EXPLANATIONS, PLANS, STEPS

_EVENT = "event"


def write_steps(connection: Connection, eviction_id: int, log: StepLog) -> tuple[int, ...]:
    """Returns the ids of the steps that the log begins, in their order; raises ``StoreError`` for an unknown step."""
    for step in log.ended:
        finish_step(connection, step.step_id, log.at, step.result, step.detail)
    if not log.begun:
        return ()
    values = [
        {"eviction_id": eviction_id, "job_id": step.job_id, "kind": step.kind, "intended_at": log.at}
        | {"finished_at": log.at if step.kind == _EVENT else None, "result": "ok" if step.kind == _EVENT else ""}
        | {"detail": step.detail}
        for step in log.begun
    ]
    statement = insert(STEPS).returning(STEPS.c.step_id, sort_by_parameter_order=True)
    return tuple(int(step_id) for step_id in connection.execute(statement, values).scalars())


def begin_step(
    connection: Connection, eviction_id: int, job_id: str | None, kind: str, at: datetime, detail: str = ""
) -> int:
    return write_steps(connection, eviction_id, StepLog(at=at, begun=(NewStep(job_id, kind, detail),)))[0]


def finish_step(connection: Connection, step_id: int, at: datetime, result: str, detail: str = "") -> None:
    """An empty detail leaves what was said when the step began."""
    values = {"finished_at": at, "result": result} | ({"detail": detail} if detail else {})
    if connection.execute(update(STEPS).where(STEPS.c.step_id == step_id).values(values)).rowcount != 1:
        raise StoreError(f"no step {step_id}")


def add_event(connection: Connection, eviction_id: int, job_id: str | None, at: datetime, detail: str) -> None:
    begin_step(connection, eviction_id, job_id, _EVENT, at, detail)


def steps(connection: Connection, eviction_id: int) -> tuple[StepRecord, ...]:
    query = select(STEPS).where(STEPS.c.eviction_id == eviction_id).order_by(STEPS.c.step_id)
    return tuple(rows.record_from(StepRecord, row) for row in connection.execute(query))


PRUNED_AT_ONCE = 100  # evictions a transaction: others may write in between
_SIZE = {
    "sqlite": "SELECT (page_count - freelist_count) * page_size "
    "FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()",
    "postgresql": "SELECT pg_database_size(current_database())",
    "mysql": "SELECT SUM(data_length + index_length) FROM information_schema.tables WHERE table_schema = DATABASE()",
}


def forget_plans(connection: Connection, eviction_id: int, before_revision: int) -> None:
    parts = parts_named(connection, PLANS.c.eviction_id == eviction_id, PLANS.c.revision < before_revision)
    for table in (EXPLANATIONS, PLANS):
        old = table.c.eviction_id == eviction_id, table.c.revision < before_revision
        connection.execute(delete(table).where(*old))
    forget_parts(connection, parts)


def successor(connection: Connection, eviction_id: int) -> int | None:
    this = select(EVICTIONS.c.preemptor_job_id).where(EVICTIONS.c.eviction_id == eviction_id).scalar_subquery()
    same = EVICTIONS.c.kind == OperationKind.EVICTION, EVICTIONS.c.preemptor_job_id == this
    query = select(func.min(EVICTIONS.c.eviction_id)).where(EVICTIONS.c.eviction_id > eviction_id, *same)
    found: int | None = connection.execute(query).scalar_one()
    return found


def prune_superseded(connection: Connection, before: datetime) -> int:
    old = (
        select(EVICTIONS.c.eviction_id)
        .where(EVICTIONS.c.state == EvictionState.SUPERSEDED, EVICTIONS.c.finished_at < before)
        .limit(PRUNED_AT_ONCE)
    )
    ids = connection.execute(old).scalars().all()
    forget(connection, ids)
    return len(ids)


def forget(connection: Connection, eviction_ids: Sequence[int]) -> None:
    if eviction_ids:
        parts = parts_named(connection, PLANS.c.eviction_id.in_(eviction_ids))
        connection.execute(delete(EVICTIONS).where(EVICTIONS.c.eviction_id.in_(eviction_ids)))
        forget_parts(connection, parts)


def size_bytes(connection: Connection) -> int:
    """What the database holds: on SQLite without the pages that are free again."""
    kind = "mysql" if connection.dialect.name in ("mysql", "mariadb") else connection.dialect.name
    return int(connection.execute(text(_SIZE[kind])).scalar_one() or 0)
