"""The rows of ``preemptions``: read for several evictions at once, written as far as they differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, insert, select, update

from clearway.estimates.learning import Requeued
from clearway.model.operations import Preemption, PreemptionState
from clearway.model.problem import Action
from clearway.store import rows
from clearway.store.tables import PREEMPTIONS

_REQUEUED = 200  # older ones would hardly change a median
_QUEUED = (Action.KILL, Action.APP_CHECKPOINT, Action.SYS_CHECKPOINT)  # a suspended job keeps its nodes


def read_preemptions(connection: Connection, eviction_ids: Sequence[int]) -> dict[int, list[Row[Any]]]:
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


def read_requeued(connection: Connection) -> tuple[Requeued, ...]:
    """Preemptees that came back from the queue, newest first: as many as planning goes by."""
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


def write_preemptions(connection: Connection, eviction_id: int, preemptions: Sequence[Preemption]) -> None:
    """Make the stored rows equal to these preemptions.

    Rows that change in the same columns (a whole plan that moves on together) go in one statement.
    """
    stored = read_preemptions(connection, [eviction_id])[eviction_id]
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
