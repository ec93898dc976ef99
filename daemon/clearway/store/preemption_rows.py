"""The rows of ``preemptions``: read for several evictions at once, written as far as they differ, and counted."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, ScalarSelect, bindparam, delete, func, insert, select, update

from clearway.estimates.learning import Requeued
from clearway.model.operations import Preemption, PreemptionState, Usage
from clearway.model.orders import MoveKind
from clearway.model.problem import Action
from clearway.store import rows
from clearway.store.tables import PLANS, PREEMPTIONS

_REQUEUED = 200  # older ones would hardly change a median
_IDS_A_QUERY = 500  # databases limit the parameters of a statement
_QUEUED = (Action.KILL, Action.APP_CHECKPOINT, Action.SYS_CHECKPOINT)  # a suspended job keeps its nodes


def read(connection: Connection, eviction_ids: Sequence[int]) -> dict[int, list[Row[Any]]]:
    """Each eviction's rows in their order; an eviction without any has an empty list."""
    query = (
        select(PREEMPTIONS)
        .where(PREEMPTIONS.c.eviction_id.in_(eviction_ids))
        .order_by(PREEMPTIONS.c.eviction_id, PREEMPTIONS.c.position)
    )
    found: dict[int, list[Row[Any]]] = {eviction_id: [] for eviction_id in eviction_ids}
    for row in connection.execute(query):
        found[row.eviction_id].append(row)
    return found


def requeued(connection: Connection) -> tuple[Requeued, ...]:
    """Preemptees that came back from the queue, newest first: as many as planning uses."""
    columns = PREEMPTIONS.c
    query = (
        select(columns.num_nodes, columns.vacated_at, columns.returned_at)
        .where(columns.state == PreemptionState.RETURNED, columns.action.in_(_QUEUED))
        .order_by(columns.requeued_at.desc(), columns.eviction_id, columns.position)
        .limit(_REQUEUED)
    )
    return tuple(
        Requeued(nodes, max(0.0, (back - gone).total_seconds()))
        for nodes, gone, back in connection.execute(query)
        if gone is not None and back is not None
    )


def counts(connection: Connection, job_ids: Iterable[str]) -> dict[str, int]:
    """How often each job has passed its point of no return; jobs without any are absent."""
    wanted = sorted(set(job_ids))
    found: dict[str, int] = {}
    for start in range(0, len(wanted), _IDS_A_QUERY):
        some = wanted[start : start + _IDS_A_QUERY]
        query = (
            select(PREEMPTIONS.c.job_id, func.count())
            .where(PREEMPTIONS.c.job_id.in_(some), PREEMPTIONS.c.requeued_at.is_not(None))
            .group_by(PREEMPTIONS.c.job_id)
        )
        found.update((job_id, int(count)) for job_id, count in connection.execute(query))
    return found


def usage_since(connection: Connection, since: datetime) -> Usage:
    """See ``usage_queries``."""
    return usage_of(*connection.execute(select(*usage_queries(since))).one())


def usage_queries(since: datetime) -> tuple[ScalarSelect[int], ScalarSelect[float]]:
    """Jobs and lost work, as columns of one row, for ``usage_of``.

    The predicted figure counts until the actual one is known. Eternal jobs are there to be preempted.
    """
    counted = PREEMPTIONS.c.requeued_at >= since, PREEMPTIONS.c.eternal.is_not(True)
    lost = func.coalesce(PREEMPTIONS.c.actual_lost_node_s, PREEMPTIONS.c.predicted_lost_node_s)
    jobs = select(func.count()).select_from(PREEMPTIONS).where(*counted).scalar_subquery()
    return jobs, select(func.sum(lost)).where(*counted).scalar_subquery()


def usage_of(jobs: int, lost_node_s: float | None) -> Usage:
    """From the values of ``usage_queries``; the sum over no rows is None."""
    return Usage(jobs=int(jobs), lost_node_s=float(lost_node_s or 0.0))


def moved_since(connection: Connection, kind: MoveKind, since: datetime) -> int:
    """By the name that stands for the planner of such a plan, of which there is one an eviction."""
    query = (
        select(func.count())
        .select_from(PREEMPTIONS.join(PLANS, PREEMPTIONS.c.eviction_id == PLANS.c.eviction_id))
        .where(PLANS.c.planner == kind.value, PREEMPTIONS.c.requeued_at >= since)
    )
    return int(connection.execute(query).scalar_one())


def write(connection: Connection, eviction_id: int, preemptions: Sequence[Preemption]) -> None:
    """Make the stored rows equal to these preemptions.

    Rows that change in the same columns (a whole plan that moves on together) go in one statement.
    """
    stored = read(connection, [eviction_id])[eviction_id]
    added: list[rows.Values] = []
    by_columns: defaultdict[tuple[str, ...], list[rows.Values]] = defaultdict(list)
    for position, preemption in enumerate(preemptions):
        values = rows.preemption_values(preemption)
        if position >= len(stored):
            added.append(values | {"eviction_id": eviction_id, "position": position})
        elif changes := rows.changed(values, stored[position]):
            by_columns[tuple(changes)].append(changes | {"at_position": position})
    for columns, parameters in by_columns.items():
        statement = (
            update(PREEMPTIONS)
            .where(PREEMPTIONS.c.eviction_id == eviction_id, PREEMPTIONS.c.position == bindparam("at_position"))
            .values({name: bindparam(name) for name in columns})
        )
        connection.execute(statement, parameters)
    if added:
        connection.execute(insert(PREEMPTIONS), added)
    if len(preemptions) < len(stored):
        connection.execute(
            delete(PREEMPTIONS).where(
                PREEMPTIONS.c.eviction_id == eviction_id, PREEMPTIONS.c.position >= len(preemptions)
            )
        )
