"""The rows of ``checkpoint_history`` and ``restart_history``: a record is a row, its fields are the columns."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Table, and_, delete, func, insert, select, update

from clearway.learning import CheckpointRecord, RestartRecord
from clearway.store.tables import CHECKPOINT_HISTORY, RESTART_HISTORY

A_KEY = 200  # of each (user, application, checkpointer) are read: older ones would hardly change a quantile
AT_ALL = 10_000  # records that are looked at, so that planning stays quick however long the history is


def write_checkpoint(connection: Connection, record: CheckpointRecord) -> bool:
    return _write(connection, CHECKPOINT_HISTORY, dataclasses.asdict(record))


def write_restart(connection: Connection, record: RestartRecord) -> bool:
    return _write(connection, RESTART_HISTORY, dataclasses.asdict(record))


def read_checkpoints(connection: Connection) -> tuple[CheckpointRecord, ...]:
    newest = CHECKPOINT_HISTORY.c.ended_at
    return tuple(CheckpointRecord(**_fields(row)) for row in _newest(connection, CHECKPOINT_HISTORY, newest))


def read_restarts(connection: Connection) -> tuple[RestartRecord, ...]:
    newest = RESTART_HISTORY.c.started_at
    return tuple(RestartRecord(**_fields(row)) for row in _newest(connection, RESTART_HISTORY, newest))


def prune(connection: Connection, before: datetime) -> None:
    connection.execute(delete(CHECKPOINT_HISTORY).where(CHECKPOINT_HISTORY.c.ended_at < before))
    connection.execute(delete(RESTART_HISTORY).where(RESTART_HISTORY.c.started_at < before))


def _write(connection: Connection, table: Table, values: dict[str, Any]) -> bool:
    """Insert, or replace the row of the same key; whether it is new."""
    keys = [column.name for column in table.primary_key]
    same = and_(*(table.c[name] == values[name] for name in keys))
    rest = {name: value for name, value in values.items() if name not in keys}
    if connection.execute(update(table).where(same).values(rest)).rowcount:
        return False
    connection.execute(insert(table).values(values))
    return True


def _newest(connection: Connection, table: Table, time: ColumnElement[Any]) -> list[Row[Any]]:
    """The newest ``A_KEY`` of each key among the newest ``AT_ALL``; newest first, ties by the primary key."""
    order = [time.desc(), *table.primary_key]
    newest = select(table).order_by(*order).limit(AT_ALL).subquery()
    later = [newest.c[time.key].desc(), *(newest.c[column.name] for column in table.primary_key)]
    rank = func.row_number().over(partition_by=[newest.c.user, newest.c.app, newest.c.checkpointer], order_by=later)
    ranked = select(newest, rank.label("rank_in_key")).subquery()
    query = select(*(ranked.c[column.name] for column in table.columns)).where(ranked.c.rank_in_key <= A_KEY)
    final = [ranked.c[time.key].desc(), *(ranked.c[column.name] for column in table.primary_key)]
    return list(connection.execute(query.order_by(*final)))


def _fields(row: Row[Any]) -> dict[str, Any]:
    return dict(row._mapping)  # noqa: SLF001 - SQLAlchemy's public name for it
