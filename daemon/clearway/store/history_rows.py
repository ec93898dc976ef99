"""The rows of ``checkpoint_history`` and ``restart_history``: a record is a row, its fields are the columns."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, FromClause, Row, Table, and_, delete, func, insert, select, update

from clearway.learning import CheckpointRecord, Key, RestartRecord
from clearway.store.tables import CHECKPOINT_HISTORY, RESTART_HISTORY

A_KEY = 200  # of each (user, application, checkpointer) are read: older ones would hardly change a quantile
AT_ALL = 10_000  # records that are looked at, so that planning stays quick however long the history is


def write_checkpoint(connection: Connection, record: CheckpointRecord) -> bool:
    return _write(connection, CHECKPOINT_HISTORY, dataclasses.asdict(record))


def write_restart(connection: Connection, record: RestartRecord) -> bool:
    return _write(connection, RESTART_HISTORY, dataclasses.asdict(record))


def read_checkpoints(connection: Connection) -> tuple[CheckpointRecord, ...]:
    return tuple(CheckpointRecord(**_fields(row)) for row in _newest(connection, CHECKPOINT_HISTORY, "ended_at"))


def read_restarts(connection: Connection) -> tuple[RestartRecord, ...]:
    return tuple(RestartRecord(**_fields(row)) for row in _newest(connection, RESTART_HISTORY, "started_at"))


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


def _newest(connection: Connection, table: Table, time: str) -> list[Row[Any]]:
    """The newest ``A_KEY`` of each key among the newest ``AT_ALL``; newest first, ties by the primary key."""

    def order(of: FromClause) -> list[ColumnElement[Any]]:
        return [of.c[time].desc(), *(of.c[column.name] for column in table.primary_key)]

    newest = select(table).order_by(*order(table)).limit(AT_ALL).subquery()
    key = [newest.c[name] for name in Key._fields]
    ranked = select(newest, func.row_number().over(partition_by=key, order_by=order(newest)).label("rank_in_key"))
    chosen = ranked.subquery()
    columns = [chosen.c[column.name] for column in table.columns]
    query = select(*columns).where(chosen.c.rank_in_key <= A_KEY).order_by(*order(chosen))
    return list(connection.execute(query))


def _fields(row: Row[Any]) -> dict[str, Any]:
    return dict(row._mapping)  # noqa: SLF001 - SQLAlchemy's public name for it
