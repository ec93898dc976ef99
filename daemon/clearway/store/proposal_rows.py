"""What proposals leave in the database: plans of theirs that were made anew, and those that were put aside."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, delete, func, select, text

from clearway.model.operations import EvictionState, OperationKind
from clearway.store.plan_rows import forget_parts, parts_named
from clearway.store.tables import EVICTIONS, EXPLANATIONS, PLANS

_AT_ONCE = 100  # evictions a transaction
_SIZE = {
    "sqlite": "SELECT (page_count - freelist_count) * page_size "
    "FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()",
    "postgresql": "SELECT pg_database_size(current_database())",
    "mysql": "SELECT SUM(data_length + index_length) FROM information_schema.tables WHERE table_schema = DATABASE()",
}


def forget_plans(connection: Connection, eviction_id: int, before_revision: int) -> None:
    """Delete the plans that a proposal had before, with their explanations: nothing was done for any of them."""
    parts = parts_named(connection, PLANS.c.eviction_id == eviction_id, PLANS.c.revision < before_revision)
    for table in (EXPLANATIONS, PLANS):
        old = table.c.eviction_id == eviction_id, table.c.revision < before_revision
        connection.execute(delete(table).where(*old))
    forget_parts(connection, parts)


def successor(connection: Connection, eviction_id: int) -> int | None:
    """The next eviction for the same preemptor."""
    this = select(EVICTIONS.c.preemptor_job_id).where(EVICTIONS.c.eviction_id == eviction_id).scalar_subquery()
    same = EVICTIONS.c.kind == OperationKind.EVICTION, EVICTIONS.c.preemptor_job_id == this
    query = select(func.min(EVICTIONS.c.eviction_id)).where(EVICTIONS.c.eviction_id > eviction_id, *same)
    found: int | None = connection.execute(query).scalar_one()
    return found


def prune_superseded(connection: Connection, before: datetime) -> int:
    """Delete what was put aside before then; returns how many of them, a bounded number."""
    old = (
        select(EVICTIONS.c.eviction_id)
        .where(EVICTIONS.c.state == EvictionState.SUPERSEDED, EVICTIONS.c.finished_at < before)
        .limit(_AT_ONCE)
    )
    ids = connection.execute(old).scalars().all()
    forget(connection, ids)
    return len(ids)


def forget(connection: Connection, eviction_ids: Sequence[int]) -> None:
    """Delete evictions with all that belongs to them."""
    if eviction_ids:
        parts = parts_named(connection, PLANS.c.eviction_id.in_(eviction_ids))
        connection.execute(delete(EVICTIONS).where(EVICTIONS.c.eviction_id.in_(eviction_ids)))
        forget_parts(connection, parts)


def size_bytes(connection: Connection) -> int:
    """What the database holds: on SQLite without the pages that are free again."""
    kind = "mysql" if connection.dialect.name in ("mysql", "mariadb") else connection.dialect.name
    return int(connection.execute(text(_SIZE[kind])).scalar_one() or 0)
