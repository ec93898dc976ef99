"""The lease: which daemon may act, and writing transactions for that daemon alone.

The lease is one row, and ``leaders`` remembers who held it. The row's epoch grows with every takeover. A leader's
transaction reads the row first and locks it: a takeover waits for it to end, or has come before, and then nothing of it
is written.

Times are the server's own, so that the clocks of daemons need not agree. SQLite has no server: its file belongs to one
host, and the time is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, DateTime, Interval, Row, func, insert, literal, select, text, update

from clearway.model.audit import Audited, AuditKind
from clearway.model.errors import LeaseLostError
from clearway.model.records import Leader, LeaderEnd, Lease
from clearway.store import request_rows
from clearway.store.database import MARIADB, Database, UtcDateTime
from clearway.store.rows import record_from
from clearway.store.tables import LEADERS, LEASES

_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
_NOBODY = ""
_DEPOSED = "-"  # nobody either, but the last one has not given it up itself
_ROW = LEASES.c.name == "daemon"


def require(connection: Connection, epoch: int | None) -> None:
    """Raise unless this epoch is still the newest, and keep it so until the transaction ends.

    None: a store that was never asked for the lease; its writer is no daemon.
    """
    if epoch is None:
        return
    newest = connection.execute(select(LEASES.c.epoch).where(_ROW).with_for_update(read=True)).scalar_one()
    if newest != epoch:
        raise LeaseLostError(f"another daemon has taken over: epoch {newest}, this one had {epoch}")


def _renew(connection: Connection, epoch: int, now: datetime, ttl_s: float) -> bool:
    until = _server_time(connection, now, ttl_s)
    query = update(LEASES).where(_ROW, LEASES.c.epoch == epoch)
    result = connection.execute(query.values(renewed_at=_server_time(connection, now), expires_at=until))
    return result.rowcount == 1


def _take(connection: Connection, owner: str, now: datetime, ttl_s: float, gone: str | None) -> Lease:
    row, at = _locked(connection, now)
    if row.owner not in (_NOBODY, owner, gone) and row.expires_at > at:
        lasts_s = (row.expires_at - row.renewed_at).total_seconds() if row.renewed_at else ttl_s
        return Lease(owner=row.owner, epoch=row.epoch, renewed_at=row.renewed_at, lasts_s=lasts_s)
    lease = Lease(owner=owner, epoch=row.epoch + 1, orderly=row.owner in (_NOBODY, owner))
    _end(connection, min(row.expires_at, at) if row.expires_at > _LONG_AGO else at, LeaderEnd.EXPIRED)
    values = {"owner": owner, "epoch": lease.epoch, "renewed_at": at, "expires_at": at + timedelta(seconds=ttl_s)}
    connection.execute(update(LEASES).where(_ROW).values(values))
    connection.execute(insert(LEADERS).values(epoch=lease.epoch, owner=owner, began_at=at, ended_by=""))
    if row.epoch > 0:  # the first daemon of a database takes over from none
        about = {"epoch": lease.epoch, "from": row.owner, "orderly": lease.orderly}
        request_rows.audit(connection, Audited(at=at, actor=owner, kind=AuditKind.TAKEOVER, about=about))
    return lease


def _release(connection: Connection, epoch: int, now: datetime) -> None:
    row, at = _locked(connection, now)
    if row.epoch == epoch:
        connection.execute(update(LEASES).where(_ROW).values(owner=_NOBODY, expires_at=_LONG_AGO))
        _end(connection, at, LeaderEnd.RELEASED)


def _depose(connection: Connection, actor: str, now: datetime) -> str:
    """Take the lease from the daemon that holds it, whatever that is doing; its owner, empty for none.

    The daemon that takes the lease next, which may be the same, has to expect commands that are still under way.
    """
    row, at = _locked(connection, now)
    values = {"owner": _DEPOSED, "epoch": row.epoch + 1, "expires_at": _LONG_AGO}
    connection.execute(update(LEASES).where(_ROW).values(values))
    _end(connection, at, LeaderEnd.FORCED, actor)
    about = {"epoch": row.epoch + 1, "from": row.owner, "forced": True}
    request_rows.audit(connection, Audited(at=at, actor=actor, kind=AuditKind.TAKEOVER, about=about))
    return "" if row.owner == _DEPOSED else str(row.owner)


def _sign_of_life(connection: Connection) -> datetime | None:
    """When a daemon has last renewed the lease; None: none has taken it yet."""
    found: datetime | None = connection.execute(select(LEASES.c.renewed_at).where(_ROW)).scalar_one()
    return found


def _leaders(connection: Connection, *, limit: int = 50, offset: int = 0) -> tuple[Leader, ...]:
    """The daemons that have held the lease, newest first."""
    query = select(LEADERS).order_by(LEADERS.c.epoch.desc()).limit(limit).offset(offset)
    return tuple(record_from(Leader, row) for row in connection.execute(query))


def _end(connection: Connection, at: datetime, how: LeaderEnd, actor: str = "") -> None:
    """Note the end of the leader before, unless it is noted already."""
    query = update(LEADERS).where(LEADERS.c.ended_at.is_(None))
    connection.execute(query.values(ended_at=at, ended=how, ended_by=actor))


def _locked(connection: Connection, now: datetime) -> tuple[Row[Any], datetime]:
    """The row, which no other transaction changes until this one ends, and the time."""
    time = _server_time(connection, now)
    known = isinstance(time, datetime)
    columns = [LEASES] if known else [LEASES, time.label("at")]
    row = connection.execute(select(*columns).where(_ROW).with_for_update()).one()
    return row, now if known else row.at


def server_time(connection: Connection) -> datetime | None:
    """The time by the database's own clock; None where it has none (SQLite)."""
    unknown = datetime.max.replace(tzinfo=UTC)
    time = _server_time(connection, unknown)
    return None if time is unknown else connection.execute(select(time)).scalar_one()


def _server_time(connection: Connection, now: datetime, later_s: float = 0.0) -> Any:
    """So many seconds from now, by the server's clock at the moment of the statement."""
    later = timedelta(seconds=later_s)
    kind = connection.dialect.name
    if kind == "postgresql":
        # Not now(), which is the time when the transaction began.
        return func.clock_timestamp(type_=UtcDateTime()) if not later_s else (
            func.clock_timestamp(type_=DateTime(timezone=True)) + literal(later, Interval())
        )  # fmt: skip
    if kind in MARIADB:
        micros = round(later.total_seconds() * 1_000_000)
        return func.timestampadd(text("MICROSECOND"), micros, func.utc_timestamp(text("6")), type_=UtcDateTime())
    return now + later if later_s else now


P = ParamSpec("P")
T = TypeVar("T")

_NO_EPOCH = -1  # of a daemon that does not hold the lease: nothing that only a leader may write is written


def method(
    function: Callable[Concatenate[Connection, P], T], *, writes: bool = False, anybody: bool = False
) -> Callable[Concatenate[LeasedStore, P], T]:
    """A method that returns what this function does, in one transaction.

    What ``writes`` is for the leader alone, but for what ``anybody`` may write: requests, and the audit trail.
    """

    def wrapped(self: LeasedStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        changing = self._database.writing if anybody else self._leading
        with changing() if writes else self._database.reading() as connection:
            return function(connection, *args, **kwargs)

    return wrapped


class LeasedStore:
    """The lease, and transactions under it. The epoch is that of the one daemon that uses this object."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._epoch: int | None = None  # None: the lease was never asked for, so this is no daemon's store

    @contextmanager
    def _leading(self) -> Iterator[Connection]:
        """A transaction for what only the daemon that holds the lease may write.

        Raises ``LeaseLostError``: when it does not (any more); nothing is written.
        """
        with self._database.writing() as connection:
            require(connection, self._epoch)
            yield connection

    def take_lease(self, owner: str, now: datetime, ttl_s: float, gone: str | None = None) -> Lease:
        """Take the lease where it is free or its holder has not renewed it in time; says who holds it afterwards.

        It is free as well where it is the owner's own, or that of ``gone``, which must certainly live no more. Each
        taking begins an epoch; what this object writes belongs to its newest one. ``now`` counts on SQLite only.
        """
        self._epoch = _NO_EPOCH
        with self._database.writing() as connection:
            lease = _take(connection, owner, now, ttl_s, gone)
        if lease.owner == owner:
            self._epoch = lease.epoch
        return lease

    def renew_lease(self, now: datetime, ttl_s: float) -> None:
        """Let the lease last ``ttl_s`` from now on; raises ``LeaseLostError`` when its epoch is over."""
        if self._epoch is None or self._epoch == _NO_EPOCH:
            raise LeaseLostError("this daemon does not hold the lease")
        with self._database.statement() as connection:
            if _renew(connection, self._epoch, now, ttl_s):
                return
        epoch, self._epoch = self._epoch, _NO_EPOCH
        raise LeaseLostError(f"another daemon has taken over: epoch {epoch} is over")

    def release_lease(self, now: datetime) -> None:
        """Let another daemon act at once; nothing happens when this one does not hold the lease."""
        epoch, self._epoch = self._epoch, _NO_EPOCH
        if epoch is not None and epoch != _NO_EPOCH:
            with self._database.writing() as connection:
                _release(connection, epoch, now)

    depose = method(_depose, writes=True, anybody=True)
    sign_of_life = method(_sign_of_life)
    leaders = method(_leaders)
    server_time = method(server_time)
