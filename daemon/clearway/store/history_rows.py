"""The rows of the three ``*_history`` tables: a record is a row, its fields are the columns."""

import dataclasses
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, FromClause, Table, and_, delete, func, insert, select, update

from clearway.estimates.history import RunKey, RunRecord
from clearway.model.records import CheckpointRecord, Key, RestartRecord
from clearway.store.rows import record_from
from clearway.store.tables import CHECKPOINT_HISTORY, RESTART_HISTORY, RUN_HISTORY

A_KEY = 200  # of each (user, application, checkpointer) are read: older ones would hardly change a quantile
AT_ALL = 10_000  # records that are looked at, so that planning stays quick however long the history is

Record = CheckpointRecord | RestartRecord | RunRecord
R = TypeVar("R", bound=Record)

# Where they are kept, and the column that says how old they are.
_TABLES: dict[type, tuple[Table, str]] = {
    CheckpointRecord: (CHECKPOINT_HISTORY, "ended_at"),
    RestartRecord: (RESTART_HISTORY, "started_at"),
    RunRecord: (RUN_HISTORY, "ended_at"),
}


def write(connection: Connection, record: Record) -> bool:
    table, values = _TABLES[type(record)][0], dataclasses.asdict(record)
    keys = [column.name for column in table.primary_key]
    same = and_(*(table.c[name] == values[name] for name in keys))
    rest = {name: value for name, value in values.items() if name not in keys}
    if connection.execute(update(table).where(same).values(rest)).rowcount:
        return False
    connection.execute(insert(table).values(values))
    return True


def write_runs(connection: Connection, records: Sequence[RunRecord]) -> None:
    for record in records:
        write(connection, record)


def read_runs(connection: Connection, key: RunKey) -> tuple[RunRecord, ...]:
    table = RUN_HISTORY
    same = and_(*(table.c[name] == value for name, value in key._asdict().items()))
    newest = select(table).where(same).order_by(table.c.ended_at.desc(), table.c.job_id, table.c.started_at)
    return tuple(record_from(RunRecord, row) for row in connection.execute(newest.limit(A_KEY)))


def prune(connection: Connection, before: datetime) -> None:
    for table, time in _TABLES.values():
        connection.execute(delete(table).where(table.c[time] < before))
    _prune_runs(connection)


def _prune_runs(connection: Connection) -> None:
    """Every job of the cluster leaves one: beyond the newest ``A_KEY`` of each key they are not read any more."""
    table = RUN_HISTORY
    key = [table.c[name] for name in RunKey._fields]
    many = select(*key).group_by(*key).having(func.count() > A_KEY)
    for row in connection.execute(many).all():
        same = and_(*(column == value for column, value in zip(key, row, strict=True)))
        newest = select(table.c.ended_at).where(same).order_by(table.c.ended_at.desc())
        last_kept = connection.execute(newest.offset(A_KEY - 1).limit(1)).scalar_one()
        connection.execute(delete(table).where(same, table.c.ended_at < last_kept))


def newest(connection: Connection, kind: type[R]) -> tuple[R, ...]:
    """The newest ``A_KEY`` of each key among the newest ``AT_ALL``; newest first, ties by the primary key."""
    table, time = _TABLES[kind]

    def order(of: FromClause) -> list[ColumnElement[Any]]:
        return [of.c[time].desc(), *(of.c[column.name] for column in table.primary_key)]

    newest = select(table).order_by(*order(table)).limit(AT_ALL).subquery()
    key = [newest.c[name] for name in Key._fields]
    ranked = select(newest, func.row_number().over(partition_by=key, order_by=order(newest)).label("rank_in_key"))
    chosen = ranked.subquery()
    columns = [chosen.c[column.name] for column in table.columns]
    query = select(*columns).where(chosen.c.rank_in_key <= A_KEY).order_by(*order(chosen))
    return tuple(record_from(kind, row) for row in connection.execute(query))
