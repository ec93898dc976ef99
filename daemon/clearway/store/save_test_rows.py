"""The rows of ``save_tests``."""

from datetime import datetime

from sqlalchemy import Connection, delete, insert, or_, select, update

from clearway.model.errors import StoreError
from clearway.model.save_test import SaveTest
from clearway.store.rows import Values
from clearway.store.serialise import dump, load
from clearway.store.tables import SAVE_TESTS as TABLE


def _values(test: SaveTest) -> Values:
    job = test.job
    return {
        "job_id": job.job_id,
        "display_id": job.display_id,
        "user": job.user,
        "asked_at": test.asked_at,
        "ended_at": test.ended_at,
        "document": dump(test),
    }


def create(connection: Connection, test: SaveTest) -> None:
    connection.execute(insert(TABLE).values(_values(test) | {"request_id": test.request_id}))


def save(connection: Connection, test: SaveTest) -> None:
    query = update(TABLE).where(TABLE.c.request_id == test.request_id)
    if connection.execute(query.values(_values(test))).rowcount != 1:
        raise StoreError(f"no test of request {test.request_id}")


def find(connection: Connection, request_id: int) -> SaveTest | None:
    query = select(TABLE.c.document).where(TABLE.c.request_id == request_id)
    document = connection.execute(query).scalar_one_or_none()
    return None if document is None else load(SaveTest, document)


def since(connection: Connection, at: datetime) -> tuple[SaveTest, ...]:
    """Those that were asked for since then or have not ended, newest first."""
    query = select(TABLE.c.document).where(or_(TABLE.c.asked_at >= at, TABLE.c.ended_at.is_(None)))
    query = query.order_by(TABLE.c.request_id.desc())
    return tuple(load(SaveTest, document) for document in connection.execute(query).scalars())


def of_job(connection: Connection, job: str, *, own: str | None = None, limit: int = 5) -> tuple[SaveTest, ...]:
    """By either form of the job's id, newest first; ``own``: only where the job was this user's."""
    query = select(TABLE.c.document).where(or_(TABLE.c.job_id == job, TABLE.c.display_id == job))
    if own is not None:
        query = query.where(TABLE.c.user == own)
    query = query.order_by(TABLE.c.request_id.desc()).limit(limit)
    return tuple(load(SaveTest, document) for document in connection.execute(query).scalars())


def prune(connection: Connection, before: datetime) -> None:
    """Delete those that ended before then."""
    connection.execute(delete(TABLE).where(TABLE.c.ended_at < before))
