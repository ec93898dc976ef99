"""The rows of ``notices``: what must be told. They are written with the change that they tell of, and said later.

``bundle`` is the number of the first notice in the message that a notice was said in: several may be said at once.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, delete, distinct, func, insert, select, tuple_, update

from clearway.model.notice import Channel, Notice, Waiting
from clearway.store import rows
from clearway.store.rows import dump, load
from clearway.store.tables import NOTICES as TABLE

_FIELDS = ("key", "kind", "channel", "at", "created_at", "user", "job_id", "eviction_id")
_WAITS = TABLE.c.said_at.is_(None) & TABLE.c.given_up_at.is_(None)
_LONGEST_ERROR = 200


def add(connection: Connection, notices: Iterable[Notice]) -> int:
    wanted = {(each.key, each.channel): each for each in notices}
    if not wanted:
        return 0
    query = select(TABLE.c.key, TABLE.c.channel).where(tuple_(TABLE.c.key, TABLE.c.channel).in_(list(wanted)))
    known = {(row.key, row.channel) for row in connection.execute(query)}
    fresh = [each for name, each in wanted.items() if name not in known]
    if fresh:
        connection.execute(insert(TABLE), [_values(each) for each in fresh])
    return len(fresh)


def _values(notice: Notice) -> dict[str, Any]:
    others = {"attempts": 0, "next_attempt_at": notice.created_at, "error": ""}
    return rows.fields_of(notice, _FIELDS) | others | {"document": dump(dict(notice.about))}


def due(connection: Connection, channel: Channel, now: datetime, longest: timedelta, limit: int) -> tuple[Notice, ...]:
    next_at = TABLE.c.next_attempt_at
    query = select(TABLE).where(_WAITS, TABLE.c.channel == channel, (next_at <= now) | (next_at > now + longest))
    return tuple(map(_notice, connection.execute(query.order_by(TABLE.c.notice_id).limit(limit))))


def _notice(row: Row[Any]) -> Notice:
    found = rows.fields_of(row, (*_FIELDS, "notice_id", "attempts"))
    return Notice(about=load(dict[str, str], row.document), **found)


def _change(connection: Connection, ids: Sequence[int], **values: Any) -> None:
    """Of those that still wait."""
    connection.execute(update(TABLE).where(TABLE.c.notice_id.in_(ids), _WAITS).values(values))


def begin(connection: Connection, ids: Sequence[int], again_at: datetime) -> None:
    _change(connection, ids, attempts=TABLE.c.attempts + 1, next_attempt_at=again_at)


def postpone(connection: Connection, ids: Sequence[int], until: datetime, error: str = "") -> None:
    _change(connection, ids, next_attempt_at=until, error=error[:_LONGEST_ERROR])


def said(connection: Connection, ids: Sequence[int], now: datetime) -> None:
    _change(connection, ids, said_at=now, bundle=min(ids), error="")


def give_up(connection: Connection, ids: Sequence[int], now: datetime, error: str) -> None:
    _change(connection, ids, given_up_at=now, error=error[:_LONGEST_ERROR])


def overdue(connection: Connection, channel: Channel, before: datetime, tried: int, most: int) -> tuple[int, ...]:
    waiting = select(TABLE.c.notice_id).where(_WAITS, TABLE.c.channel == channel)
    given_time = (TABLE.c.created_at < before) & (TABLE.c.attempts >= tried)
    old = connection.execute(waiting.where(given_time).limit(1_000)).scalars()
    newest = waiting.order_by(TABLE.c.notice_id.desc())
    beyond = connection.execute(newest.offset(most).limit(1_000)).scalars()
    return tuple(sorted({*old, *beyond}))


def messages_between(connection: Connection, channel: Channel, user: str, since: datetime, until: datetime) -> int:
    query = select(func.count(distinct(TABLE.c.bundle))).where(
        TABLE.c.channel == channel, TABLE.c.user == user, TABLE.c.said_at.between(since, until)
    )
    return int(connection.execute(query).scalar_one())


def waiting(connection: Connection) -> dict[Channel, Waiting]:
    query = select(TABLE.c.channel, func.count(), func.min(TABLE.c.created_at)).where(_WAITS).group_by(TABLE.c.channel)
    return {channel: Waiting(count, oldest) for channel, count, oldest in connection.execute(query)}


def prune(connection: Connection, before: datetime) -> None:
    connection.execute(delete(TABLE).where((TABLE.c.said_at < before) | (TABLE.c.given_up_at < before)))
    connection.execute(delete(TABLE).where(_WAITS, TABLE.c.created_at < before))  # of channels that are off by now
