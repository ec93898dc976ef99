"""The rows of ``explanations``: at most one for each plan."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection, and_, insert, select, update

from clearway.model.plan import Explanation
from clearway.store import rows
from clearway.store.plan_rows import PRESENT
from clearway.store.serialise import dump, load
from clearway.store.tables import EVICTIONS, EXPLANATIONS, PLANS

_MISSING_AT_ONCE = 10


def write(connection: Connection, eviction_id: int, revision: int, explanation: Explanation) -> None:
    """A plan that is explained already keeps its first explanation. The curve joins the plan."""
    key = {"eviction_id": eviction_id, "revision": revision}
    if connection.execute(select(EXPLANATIONS.c.revision).filter_by(**key)).first() is not None:
        return
    document = dump(replace(explanation, curve=None))
    connection.execute(insert(EXPLANATIONS).values(key | {"complete": explanation.complete, "document": document}))
    if explanation.curve is not None:
        query = select(EVICTIONS.c.kind, PLANS.c.document).join_from(PLANS, EVICTIONS)
        query = query.where(PLANS.c.eviction_id == eviction_id, PLANS.c.revision == revision)
        kind, plan = connection.execute(query).one()
        document = dump(replace(load(rows.PLANS[kind], plan), curve=explanation.curve))
        connection.execute(update(PLANS).filter_by(**key).values(document=document))


def newest(connection: Connection, eviction_id: int) -> Explanation | None:
    """Of the newest plan that has one."""
    query = (
        select(EXPLANATIONS.c.document)
        .where(EXPLANATIONS.c.eviction_id == eviction_id)
        .order_by(EXPLANATIONS.c.revision.desc())
        .limit(1)
    )
    document = connection.execute(query).scalar_one_or_none()
    return None if document is None else load(Explanation, document)


def newest_of(connection: Connection, eviction_ids: Iterable[int]) -> dict[int, Explanation]:
    """Of the newest plan of each that has one; evictions without any are absent."""
    query = (
        select(EXPLANATIONS.c.eviction_id, EXPLANATIONS.c.document)
        .where(EXPLANATIONS.c.eviction_id.in_(tuple(eviction_ids)))
        .order_by(EXPLANATIONS.c.revision)
    )
    documents = {row.eviction_id: row.document for row in connection.execute(query)}
    return {eviction_id: load(Explanation, document) for eviction_id, document in documents.items()}


def missing(connection: Connection, since: datetime) -> tuple[int, ...]:
    """Evictions planned since then whose present plan has no explanation, the oldest first."""
    same = and_(EXPLANATIONS.c.eviction_id == PLANS.c.eviction_id, EXPLANATIONS.c.revision == PLANS.c.revision)
    query = (
        select(EVICTIONS.c.eviction_id)
        .select_from(EVICTIONS.join(PLANS, PRESENT).outerjoin(EXPLANATIONS, same))
        .where(EXPLANATIONS.c.revision.is_(None), EVICTIONS.c.created_at >= since)
        .order_by(EVICTIONS.c.eviction_id)
        .limit(_MISSING_AT_ONCE)
    )
    return tuple(connection.execute(query).scalars())
