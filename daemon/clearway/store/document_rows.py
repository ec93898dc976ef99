"""Cases, tests of saving and rolling drains: records that are stored whole, as JSON, beside columns to find them by."""

from dataclasses import replace
from datetime import datetime
from typing import Any, Generic, TypeVar

from sqlalchemy import Column, ColumnElement, Connection, Table, delete, insert, or_, select, update

from clearway.model.errors import StoreError
from clearway.model.orders import RollingDrain, RollingState
from clearway.model.records import SaveTest
from clearway.model.urgent_report import Case
from clearway.store.rows import Values, dump, load, new_id
from clearway.store.tables import CASES, ROLLING_DRAINS, SAVE_TESTS

R = TypeVar("R", bound=Case | RollingDrain | SaveTest)

OPEN_ROLLING = [state for state in RollingState if not state.terminal]
_MOST_CASES = 1_000


class Documents(Generic[R]):
    """One table of records. Every column but ``document`` is an attribute of the record, or of the record's job."""

    def __init__(self, table: Table, kind: type[R], called: str, ended: Column[Any]) -> None:
        self.table = table
        self._kind = kind
        self._called = called  # as errors name a record, before its key
        self._ended = ended  # the column that says when the record is over
        self._keys = [column.name for column in table.primary_key]

    def _values(self, record: R) -> Values:
        others = [column.name for column in self.table.columns if column.name not in (*self._keys, "document")]
        return {name: _of(record, name) for name in others} | {"document": dump(record)}

    def add(self, connection: Connection, record: R) -> R:
        given: Values = {name: getattr(record, name) for name in self._keys}
        if self.table.autoincrement_column is None:
            connection.execute(insert(self.table).values(self._values(record) | given))
            return record
        given = {self._keys[0]: new_id(connection.execute(insert(self.table).values(self._values(record))))}
        return replace(record, **given)

    def change(self, connection: Connection, record: R) -> bool:
        same = [self.table.c[name] == getattr(record, name) for name in self._keys]
        return connection.execute(update(self.table).where(*same).values(self._values(record))).rowcount == 1

    def save(self, connection: Connection, record: R) -> None:
        if not self.change(connection, record):
            raise StoreError(f"no {self._called} {', '.join(str(getattr(record, name)) for name in self._keys)}")

    def keep(self, connection: Connection, record: R) -> None:
        if not self.change(connection, record):
            self.add(connection, record)

    def read(
        self,
        connection: Connection,
        *which: ColumnElement[bool],
        order: Any = (),
        limit: int | None = None,
        offset: int = 0,
    ) -> tuple[R, ...]:
        query = select(self.table).where(*which).order_by(*order).limit(limit).offset(offset)
        return tuple(
            replace(load(self._kind, row.document), **{name: getattr(row, name) for name in self._keys})
            for row in connection.execute(query)
        )

    def find(self, connection: Connection, key: int) -> R | None:
        return next(iter(self.read(connection, self.table.c[self._keys[0]] == key)), None)

    def prune(self, connection: Connection, before: datetime) -> None:
        connection.execute(delete(self.table).where(self._ended < before))


def _of(record: object, name: str) -> object:
    return getattr(record, name) if hasattr(record, name) else _of(getattr(record, "job"), name)  # noqa: B009


ALL_CASES = Documents(CASES, Case, "case", CASES.c.closed_at)
ALL_TESTS = Documents(SAVE_TESTS, SaveTest, "test of request", SAVE_TESTS.c.ended_at)
ALL_ROLLING = Documents(ROLLING_DRAINS, RollingDrain, "rolling drain", ROLLING_DRAINS.c.finished_at)


def open_cases(connection: Connection) -> tuple[Case, ...]:
    return ALL_CASES.read(connection, CASES.c.closed_at.is_(None), order=(CASES.c.began_at, CASES.c.job_id))


def cases_since(connection: Connection, at: datetime, limit: int = _MOST_CASES) -> tuple[Case, ...]:
    which = or_(CASES.c.began_at >= at, CASES.c.closed_at.is_(None))
    return ALL_CASES.read(connection, which, order=(CASES.c.began_at.desc(), CASES.c.job_id), limit=limit)


def save_tests_since(connection: Connection, at: datetime) -> tuple[SaveTest, ...]:
    which = or_(SAVE_TESTS.c.asked_at >= at, SAVE_TESTS.c.ended_at.is_(None))
    return ALL_TESTS.read(connection, which, order=[SAVE_TESTS.c.request_id.desc()])


def save_tests_of(connection: Connection, job: str, *, own: str | None = None, limit: int = 5) -> tuple[SaveTest, ...]:
    which = [or_(SAVE_TESTS.c.job_id == job, SAVE_TESTS.c.display_id == job)]
    if own is not None:
        which.append(SAVE_TESTS.c.user == own)
    return ALL_TESTS.read(connection, *which, order=[SAVE_TESTS.c.request_id.desc()], limit=limit)


def open_rolling(connection: Connection) -> tuple[RollingDrain, ...]:
    which = ROLLING_DRAINS.c.state.in_(OPEN_ROLLING)
    return ALL_ROLLING.read(connection, which, order=[ROLLING_DRAINS.c.rolling_id])


def newest_rolling(
    connection: Connection, *, state: RollingState | None = None, limit: int = 50, offset: int = 0
) -> tuple[RollingDrain, ...]:
    which = [] if state is None else [ROLLING_DRAINS.c.state == state]
    return ALL_ROLLING.read(connection, *which, order=[ROLLING_DRAINS.c.rolling_id.desc()], limit=limit, offset=offset)
