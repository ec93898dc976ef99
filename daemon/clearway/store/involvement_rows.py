"""What operations have to do with one job, without loading their plans: a big one of those takes some 10 MB."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, or_, select, union

from clearway.model.involvement import Involvement
from clearway.model.operations import Subject
from clearway.store import rows
from clearway.store.tables import EVICTIONS, PREEMPTIONS

_COLUMNS = (
    "eviction_id", "kind", "mode", "state", "state_since", "created_at", "deadline", "started_at", "finished_at",
    "outcome",
)  # fmt: skip


def serves(job: str) -> ColumnElement[bool]:
    """Whether an eviction is for this job, by either form of its id."""
    return or_(EVICTIONS.c.preemptor_job_id == job, EVICTIONS.c.preemptor_display_id == job)


def leaves(job: str) -> ColumnElement[bool]:
    """Whether a preemption is of this job, by either form of its id."""
    return or_(PREEMPTIONS.c.job_id == job, PREEMPTIONS.c.display_id == job)


def leaving(*conditions: ColumnElement[bool]) -> Select[Any]:
    """The ids of operations that a job of this kind leaves for."""
    return select(PREEMPTIONS.c.eviction_id).where(*conditions)


def concerning(*, user: str | None, job: str | None, own: str | None) -> Iterator[ColumnElement[bool]]:
    """The conditions of ``Store.evictions``."""
    known = [] if own is None else [PREEMPTIONS.c.user == own]
    ids = EVICTIONS.c.eviction_id
    if own is not None:
        yield or_(EVICTIONS.c.preemptor_user == own, ids.in_(leaving(*known)))
    if user is not None:
        yield or_(EVICTIONS.c.preemptor_user == user, ids.in_(leaving(PREEMPTIONS.c.user == user, *known)))
    if job is not None:
        yield or_(serves(job), ids.in_(leaving(leaves(job), *known)))


def of_job(
    connection: Connection, job: str, *, own: str | None = None, limit: int = 10, offset: int = 0
) -> tuple[Involvement, ...]:
    """Newest first; ``own``: only where the job was this user's (job ids come again)."""
    served, left = [serves(job)], [leaves(job)]
    if own is not None:
        served.append(EVICTIONS.c.preemptor_user == own)
        left.append(PREEMPTIONS.c.user == own)
    ids = union(select(EVICTIONS.c.eviction_id).where(*served), leaving(*left)).subquery()
    query = (
        select(EVICTIONS)
        .where(EVICTIONS.c.eviction_id.in_(select(ids.c.eviction_id)))
        .order_by(EVICTIONS.c.eviction_id.desc())
        .limit(limit)
        .offset(offset)
    )
    found = connection.execute(query).all()
    mine = (
        select(PREEMPTIONS)
        .where(PREEMPTIONS.c.eviction_id.in_([row.eviction_id for row in found]), *left)
        .order_by(PREEMPTIONS.c.eviction_id, PREEMPTIONS.c.position)
    )
    own_rows = {row.eviction_id: row for row in connection.execute(mine)} if found else {}
    return tuple(
        Involvement(
            **rows.fields_of(row, _COLUMNS),
            rule=row.rule or "",
            subject=Subject(
                row.preemptor_job_id,
                row.preemptor_display_id or row.preemptor_job_id,
                row.preemptor_user,
                row.preemptor_account,
            ),
            preemption=rows.preemption_from(mine_) if (mine_ := own_rows.get(row.eviction_id)) is not None else None,
        )
        for row in found
    )
