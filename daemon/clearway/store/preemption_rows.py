"""The rows of ``preemptions``: read for several evictions at once, written as far as they differ, and counted."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import BindParameter, Connection, Row, ScalarSelect, bindparam, delete, func, insert, select, update

from clearway.estimates.learning import Requeued
from clearway.model.operations import EvictionState, Preemption, PreemptionState, Usage
from clearway.model.orders import MoveKind
from clearway.model.problem import Action
from clearway.store import rows
from clearway.store.tables import EVICTIONS, PLANS, PREEMPTIONS

_REQUEUED = 200  # older ones would hardly change a median
_IDS_A_QUERY = 500  # databases limit the parameters of a statement
_FREES_NODES = tuple(state for state in EvictionState if state.before_start)
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


def usage_since(connection: Connection, since: datetime, without: int = 0) -> Usage:
    """See ``usage_queries``."""
    return usage_of(*connection.execute(select(*usage_queries(since, without))).one())


def usage_queries(since: datetime | BindParameter[datetime], without: int = 0) -> tuple[ScalarSelect[Any], ...]:
    """Jobs and lost work, and the same of what is intended, as columns of one row, for ``usage_of``.

    The predicted figure counts until the actual one is known. Eternal jobs are there to be preempted. ``without``: an
    operation whose intentions do not count.
    """
    intended = (
        EVICTIONS.c.state.in_(_FREES_NODES),
        PREEMPTIONS.c.state.in_((PreemptionState.PLANNED, PreemptionState.CHECKPOINTING)),
        PREEMPTIONS.c.requeued_at.is_(None),
        PREEMPTIONS.c.action != Action.END,
        PREEMPTIONS.c.eternal.is_not(True),
        PREEMPTIONS.c.eviction_id != without,
    )
    both = PREEMPTIONS.join(EVICTIONS, PREEMPTIONS.c.eviction_id == EVICTIONS.c.eviction_id)
    shall_leave = select(func.count()).select_from(both).where(*intended).scalar_subquery()
    shall_be_lost = select(func.sum(PREEMPTIONS.c.predicted_lost_node_s)).select_from(both).where(*intended)
    counted = PREEMPTIONS.c.requeued_at >= since, PREEMPTIONS.c.eternal.is_not(True)
    lost = func.coalesce(PREEMPTIONS.c.actual_lost_node_s, PREEMPTIONS.c.predicted_lost_node_s)
    jobs = select(func.count()).select_from(PREEMPTIONS).where(*counted).scalar_subquery()
    have_been_lost = select(func.sum(lost)).where(*counted).scalar_subquery()
    return jobs, have_been_lost, shall_leave, shall_be_lost.scalar_subquery()


def usage_of(jobs: int, lost_node_s: float | None, intended_jobs: int, intended_lost_node_s: float | None) -> Usage:
    """From the values of ``usage_queries``; the sum over no rows is None."""
    return Usage(int(jobs), float(lost_node_s or 0.0), int(intended_jobs), float(intended_lost_node_s or 0.0))


def moved_since(connection: Connection, kind: MoveKind, since: datetime) -> int:
    """By the name that stands for the planner of such a plan, of which there is one an eviction."""
    query = (
        select(func.count())
        .select_from(PREEMPTIONS.join(PLANS, PREEMPTIONS.c.eviction_id == PLANS.c.eviction_id))
        .where(PLANS.c.planner == kind.value, PREEMPTIONS.c.requeued_at >= since)
    )
    return int(connection.execute(query).scalar_one())


def write(connection: Connection, eviction_id: int, preemptions: Sequence[Preemption]) -> bool:
    """Make the stored rows equal to these preemptions; whether any was not.

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
    return bool(by_columns or added) or len(preemptions) < len(stored)
