"""The rows of ``rolling_drains``."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, delete, insert, select, update

from clearway.model.errors import StoreError
from clearway.model.rolling import RollingDrain, RollingState
from clearway.store.rows import Values, fields_of, new_id
from clearway.store.serialise import dump, load
from clearway.store.tables import ROLLING_DRAINS as TABLE

OPEN = [state for state in RollingState if not state.terminal]


def _values(rolling: RollingDrain) -> Values:
    return fields_of(rolling, ("state", "created_at", "finished_at")) | {"document": dump(rolling)}


def _read(connection: Connection, query: Select[Any]) -> tuple[RollingDrain, ...]:
    """Of a query for rows of the table."""
    return tuple(
        replace(load(RollingDrain, row.document), rolling_id=row.rolling_id) for row in connection.execute(query)
    )


def create(connection: Connection, rolling: RollingDrain) -> RollingDrain:
    return replace(rolling, rolling_id=new_id(connection.execute(insert(TABLE).values(_values(rolling)))))


def save(connection: Connection, rolling: RollingDrain) -> None:
    query = update(TABLE).where(TABLE.c.rolling_id == rolling.rolling_id)
    if connection.execute(query.values(_values(rolling))).rowcount != 1:
        raise StoreError(f"no rolling drain {rolling.rolling_id}")


def find(connection: Connection, rolling_id: int) -> RollingDrain | None:
    return next(iter(_read(connection, select(TABLE).where(TABLE.c.rolling_id == rolling_id))), None)


def open_ones(connection: Connection) -> tuple[RollingDrain, ...]:
    return _read(connection, select(TABLE).where(TABLE.c.state.in_(OPEN)).order_by(TABLE.c.rolling_id))


def newest(
    connection: Connection, *, state: RollingState | None = None, limit: int = 50, offset: int = 0
) -> tuple[RollingDrain, ...]:
    query = select(TABLE).order_by(TABLE.c.rolling_id.desc()).limit(limit).offset(offset)
    return _read(connection, query if state is None else query.where(TABLE.c.state == state))


def prune(connection: Connection, before: datetime) -> None:
    """Delete those that ended before then."""
    connection.execute(delete(TABLE).where(TABLE.c.finished_at < before))
