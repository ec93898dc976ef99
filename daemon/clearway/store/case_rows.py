"""The rows of ``cases``."""

from datetime import datetime

from sqlalchemy import Connection, delete, insert, or_, select, update

from clearway.model.case import Case
from clearway.store.serialise import dump, load
from clearway.store.tables import CASES as TABLE

MOST_AT_ONCE = 1_000


def keep(connection: Connection, case: Case) -> None:
    """Insert, or replace that of the same key."""
    same = (TABLE.c.job_id == case.job_id, TABLE.c.began_at == case.began_at)
    values = {"closed_at": case.closed_at, "document": dump(case)}
    if connection.execute(update(TABLE).where(*same).values(values)).rowcount == 0:
        connection.execute(insert(TABLE).values(values | {"job_id": case.job_id, "began_at": case.began_at}))


def open_ones(connection: Connection) -> tuple[Case, ...]:
    """Those that are still followed, the oldest first."""
    query = select(TABLE.c.document).where(TABLE.c.closed_at.is_(None)).order_by(TABLE.c.began_at, TABLE.c.job_id)
    return tuple(load(Case, document) for document in connection.execute(query).scalars())


def since(connection: Connection, at: datetime, limit: int = MOST_AT_ONCE) -> tuple[Case, ...]:
    """Those that began since then, or are still followed, newest first."""
    query = select(TABLE.c.document).where(or_(TABLE.c.began_at >= at, TABLE.c.closed_at.is_(None)))
    query = query.order_by(TABLE.c.began_at.desc(), TABLE.c.job_id).limit(limit)
    return tuple(load(Case, document) for document in connection.execute(query).scalars())


def prune(connection: Connection, before: datetime) -> None:
    """Delete those that were followed to their end before then."""
    connection.execute(delete(TABLE).where(TABLE.c.closed_at < before))
