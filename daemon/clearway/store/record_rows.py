"""The rows of what is kept beside operations: documents, history and notices.

Cases, tests of saving and rolling drains are stored whole, as JSON, beside columns to find them by. Of history a record
is a row, and its fields are the columns. Notices are written with the change that they tell of, and said later;
``bundle`` is the number of the first notice in the message that a notice was said in: several may be said at once.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    FromClause,
    Table,
    and_,
    delete,
    distinct,
    func,
    insert,
    or_,
    select,
    tuple_,
    update,
)

from clearway.estimates.history import RunKey, RunRecord
from clearway.model.cluster import Job, of_one_job
from clearway.model.errors import StoreError
from clearway.model.notice import Channel, Notice, Waiting
from clearway.model.orders import RollingDrain, RollingState
from clearway.model.records import MOST_CASES, Case, CheckpointRecord, Key, RestartRecord, SaveTest
from clearway.store.rows import Values, columns_of, dump, fields_of, load, new_id, put, record_from
from clearway.store.tables import (
    CASES,
    CHECKPOINT_HISTORY,
    NOTICES,
    RESTART_HISTORY,
    ROLLING_DRAINS,
    RUN_HISTORY,
    SAVE_TESTS,
)

A_KEY = 200  # of each (user, application, checkpointer) are read: older ones would hardly change a quantile
AT_ALL = 10_000  # records that are looked at, so that planning stays quick however long the history is

Record = CheckpointRecord | RestartRecord | RunRecord
D = TypeVar("D", bound=Case | RollingDrain | SaveTest)
R = TypeVar("R", bound=Record)

OPEN_ROLLING = [state for state in RollingState if not state.terminal]


class Documents(Generic[D]):
    """One table of records. Every column but ``document`` is an attribute of the record, or of the record's job."""

    def __init__(self, table: Table, kind: type[D], called: str, ended: Column[Any]) -> None:
        self._table = table
        self._kind = kind
        self._called = called  # as errors name a record, before its key
        self._ended = ended  # the column that says when the record is over
        self._keys = [column.name for column in table.primary_key]

    def _values(self, record: D) -> Values:
        names = [column.name for column in self._table.columns if column.name != "document"]
        return {name: _of(record, name) for name in names} | {"document": dump(record)}

    def add(self, connection: Connection, record: D) -> D:
        """Returned with its id, where the database gives it one."""
        values = self._values(record)
        if self._table.autoincrement_column is None:
            connection.execute(insert(self._table).values(values))
            return record
        [key] = self._keys
        del values[key]
        given: Values = {key: new_id(connection.execute(insert(self._table).values(values)))}
        return replace(record, **given)

    def save(self, connection: Connection, record: D) -> None:
        values = self._values(record)
        same = [self._table.c[name] == values.pop(name) for name in self._keys]
        if connection.execute(update(self._table).where(*same).values(values)).rowcount != 1:
            raise StoreError(f"no {self._called} {', '.join(str(getattr(record, name)) for name in self._keys)}")

    def keep(self, connection: Connection, record: D) -> None:
        """Store it in place of that with the same key."""
        put(connection, self._table, self._values(record))

    def read(
        self,
        connection: Connection,
        *which: ColumnElement[bool],
        order: Sequence[ColumnElement[Any]],
        limit: int | None = None,
        offset: int = 0,
    ) -> tuple[D, ...]:
        query = select(self._table).where(*which).order_by(*order).limit(limit).offset(offset)
        return tuple(
            replace(load(self._kind, row.document), **fields_of(row, self._keys)) for row in connection.execute(query)
        )

    def find(self, connection: Connection, key: int) -> D | None:
        return next(iter(self.read(connection, self._table.c[self._keys[0]] == key, order=())), None)

    def prune(self, connection: Connection, before: datetime) -> None:
        connection.execute(delete(self._table).where(self._ended < before))


def _of(record: object, name: str) -> object:
    return getattr(record, name) if hasattr(record, name) else _of(getattr(record, "job"), name)  # noqa: B009


ALL_CASES = Documents(CASES, Case, "case", CASES.c.closed_at)
ALL_TESTS = Documents(SAVE_TESTS, SaveTest, "test of request", SAVE_TESTS.c.ended_at)
ALL_ROLLING = Documents(ROLLING_DRAINS, RollingDrain, "rolling drain", ROLLING_DRAINS.c.finished_at)


def open_cases(connection: Connection) -> tuple[Case, ...]:
    """Those that are still followed, the oldest first."""
    return ALL_CASES.read(connection, CASES.c.closed_at.is_(None), order=(CASES.c.began_at, CASES.c.job_id))


def cases_since(connection: Connection, at: datetime, limit: int = MOST_CASES) -> tuple[Case, ...]:
    """Those that began since then or are still followed, newest first."""
    which = or_(CASES.c.began_at >= at, CASES.c.closed_at.is_(None))
    return ALL_CASES.read(connection, which, order=(CASES.c.began_at.desc(), CASES.c.job_id), limit=limit)


def save_tests_since(connection: Connection, at: datetime) -> tuple[SaveTest, ...]:
    """Those that were asked for since then or have not ended, newest first."""
    which = or_(SAVE_TESTS.c.asked_at >= at, SAVE_TESTS.c.ended_at.is_(None))
    return ALL_TESTS.read(connection, which, order=[SAVE_TESTS.c.request_id.desc()])


def save_tests_of(
    connection: Connection, job: str, *, seen: Job | None = None, own: str | None = None, limit: int = 5
) -> tuple[SaveTest, ...]:
    """Of a job, by either form of its id, newest first; ``seen``: see ``eviction_rows.involvements``."""
    which = [or_(SAVE_TESTS.c.job_id == job, SAVE_TESTS.c.display_id == job)]
    if own is not None:
        which.append(SAVE_TESTS.c.user == own)
    found = ALL_TESTS.read(connection, *which, order=[SAVE_TESTS.c.request_id.desc()], limit=limit)
    return tuple(of_one_job(((test, test.job.submission) for test in found), None if seen is None else seen.submission))


def open_rolling_drains(connection: Connection) -> tuple[RollingDrain, ...]:
    """All that are not in a terminal state, by id."""
    which = ROLLING_DRAINS.c.state.in_(OPEN_ROLLING)
    return ALL_ROLLING.read(connection, which, order=[ROLLING_DRAINS.c.rolling_id])


def rolling_drains(
    connection: Connection, *, state: RollingState | None = None, limit: int = 50, offset: int = 0
) -> tuple[RollingDrain, ...]:
    """Newest first; ``state``: those in this state alone."""
    which = [] if state is None else [ROLLING_DRAINS.c.state == state]
    return ALL_ROLLING.read(connection, *which, order=[ROLLING_DRAINS.c.rolling_id.desc()], limit=limit, offset=offset)


# Where history is kept, and the column that says how old a record is.
_HISTORY: dict[type, tuple[Table, str]] = {
    CheckpointRecord: (CHECKPOINT_HISTORY, "ended_at"),
    RestartRecord: (RESTART_HISTORY, "started_at"),
    RunRecord: (RUN_HISTORY, "ended_at"),
}


def record(connection: Connection, record: Record) -> bool:
    """The same record again replaces the first, and is not new: False."""
    return put(connection, _HISTORY[type(record)][0], dataclasses.asdict(record))


def record_runs(connection: Connection, records: Sequence[RunRecord]) -> None:
    for each in records:
        record(connection, each)


def runs_of(connection: Connection, key: RunKey) -> tuple[RunRecord, ...]:
    table = RUN_HISTORY
    same = and_(*(table.c[name] == value for name, value in key._asdict().items()))
    newest = select(table).where(same).order_by(table.c.ended_at.desc(), table.c.job_id, table.c.started_at)
    return tuple(record_from(RunRecord, row) for row in connection.execute(newest.limit(A_KEY)))


def newest_records(connection: Connection, kind: type[R]) -> tuple[R, ...]:
    """The newest ``A_KEY`` of each key among the newest ``AT_ALL``; newest first, ties by the primary key."""
    table, time = _HISTORY[kind]

    def order(of: FromClause) -> list[ColumnElement[Any]]:
        return [of.c[time].desc(), *(of.c[column.name] for column in table.primary_key)]

    newest = select(table).order_by(*order(table)).limit(AT_ALL).subquery()
    key = [newest.c[name] for name in Key._fields]
    ranked = select(newest, func.row_number().over(partition_by=key, order_by=order(newest)).label("rank_in_key"))
    chosen = ranked.subquery()
    columns = [chosen.c[column.name] for column in table.columns]
    query = select(*columns).where(chosen.c.rank_in_key <= A_KEY).order_by(*order(chosen))
    return tuple(record_from(kind, row) for row in connection.execute(query))


def prune(connection: Connection, before: datetime) -> None:
    """Delete the documents that ended, and the history, from before then."""
    for documents in (ALL_ROLLING, ALL_TESTS, ALL_CASES):
        documents.prune(connection, before)
    for table, time in _HISTORY.values():
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


_NOTICE_FIELDS = columns_of(Notice, NOTICES)
_WAITS = NOTICES.c.said_at.is_(None) & NOTICES.c.given_up_at.is_(None)
_LONGEST_ERROR = 200


def add_notices(connection: Connection, notices: Iterable[Notice]) -> int:
    """What must be told; returns how many are new by key and channel."""
    wanted = {(each.key, each.channel): each for each in notices}
    if not wanted:
        return 0
    query = select(NOTICES.c.key, NOTICES.c.channel).where(tuple_(NOTICES.c.key, NOTICES.c.channel).in_(list(wanted)))
    known = {(row.key, row.channel) for row in connection.execute(query)}
    fresh = [each for name, each in wanted.items() if name not in known]
    if fresh:
        connection.execute(insert(NOTICES), [_notice_values(each) for each in fresh])
    return len(fresh)


def _notice_values(notice: Notice) -> Values:
    values = fields_of(notice, _NOTICE_FIELDS) | {"document": dump(dict(notice.about))}
    del values["notice_id"]
    return values | {"next_attempt_at": notice.created_at, "error": ""}


def notices_due(
    connection: Connection, channel: Channel, now: datetime, longest: timedelta, limit: int
) -> tuple[Notice, ...]:
    """To be said now, the oldest first.

    What is put off for more than ``longest`` as well: the clock was set back since.
    """
    next_at = NOTICES.c.next_attempt_at
    query = select(NOTICES).where(_WAITS, NOTICES.c.channel == channel, (next_at <= now) | (next_at > now + longest))
    return tuple(
        Notice(about=load(dict[str, str], row.document), **fields_of(row, _NOTICE_FIELDS))
        for row in connection.execute(query.order_by(NOTICES.c.notice_id).limit(limit))
    )


def _change(connection: Connection, ids: Sequence[int], **values: Any) -> None:
    """Of those that still wait."""
    connection.execute(update(NOTICES).where(NOTICES.c.notice_id.in_(ids), _WAITS).values(values))


def begin_notices(connection: Connection, ids: Sequence[int], again_at: datetime) -> None:
    """They are about to be said; where nothing more is stored, the next attempt is at this time."""
    _change(connection, ids, attempts=NOTICES.c.attempts + 1, next_attempt_at=again_at)


def postpone_notices(connection: Connection, ids: Sequence[int], until: datetime, error: str = "") -> None:
    _change(connection, ids, next_attempt_at=until, error=error[:_LONGEST_ERROR])


def notices_said(connection: Connection, ids: Sequence[int], now: datetime) -> None:
    """They were said in one message."""
    _change(connection, ids, said_at=now, bundle=min(ids), error="")


def give_up_notices(connection: Connection, ids: Sequence[int], now: datetime, error: str) -> None:
    _change(connection, ids, given_up_at=now, error=error[:_LONGEST_ERROR])


def overdue_notices(
    connection: Connection, channel: Channel, before: datetime, tried: int, most: int
) -> tuple[int, ...]:
    """Ids of those stored before then and tried so often, and of the oldest beyond ``most``; a bounded number."""
    waiting = select(NOTICES.c.notice_id).where(_WAITS, NOTICES.c.channel == channel)
    given_time = (NOTICES.c.created_at < before) & (NOTICES.c.attempts >= tried)
    old = connection.execute(waiting.where(given_time).limit(1_000)).scalars()
    newest = waiting.order_by(NOTICES.c.notice_id.desc())
    beyond = connection.execute(newest.offset(most).limit(1_000)).scalars()
    return tuple(sorted({*old, *beyond}))


def messages_between(connection: Connection, channel: Channel, user: str, since: datetime, until: datetime) -> int:
    """How many messages were sent to this user ("": operators) by this channel, both ends included."""
    query = select(func.count(distinct(NOTICES.c.bundle))).where(
        NOTICES.c.channel == channel, NOTICES.c.user == user, NOTICES.c.said_at.between(since, until)
    )
    return int(connection.execute(query).scalar_one())


def waiting_notices(connection: Connection) -> dict[Channel, Waiting]:
    """What was not said yet, by channel."""
    query = select(NOTICES.c.channel, func.count(), func.min(NOTICES.c.created_at)).where(_WAITS)
    found = connection.execute(query.group_by(NOTICES.c.channel))
    return {channel: Waiting(count, oldest) for channel, count, oldest in found}


def prune_notices(connection: Connection, before: datetime) -> None:
    """Delete what was said or given up before then."""
    connection.execute(delete(NOTICES).where((NOTICES.c.said_at < before) | (NOTICES.c.given_up_at < before)))
    connection.execute(delete(NOTICES).where(_WAITS, NOTICES.c.created_at < before))  # of channels that are off by now
