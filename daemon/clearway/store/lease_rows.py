"""The lease in its one row, and the history of those that held it.

The row's epoch grows with every takeover. A leader's transaction reads the row first and locks it (``require``): a
takeover waits for it to end, or has come before, and then nothing of it is written.

Times are the server's own, so that the clocks of daemons need not agree. SQLite has no server: its file belongs to
one host, and the time is the caller's.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, DateTime, Interval, Row, func, insert, literal, select, text, update

from clearway.model.audit import Audited, AuditKind
from clearway.model.errors import LeaseLostError
from clearway.model.leadership import Leader, LeaderEnd, Lease
from clearway.store import audit_rows
from clearway.store.tables import LEADERS, LEASES
from clearway.store.types import MARIADB, UtcDateTime

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


def renew(connection: Connection, epoch: int, now: datetime, ttl_s: float) -> bool:
    """Let the lease last from now on; whether it is still of this epoch. One statement."""
    until = _server_time(connection, now, ttl_s)
    query = update(LEASES).where(_ROW, LEASES.c.epoch == epoch)
    result = connection.execute(query.values(renewed_at=_server_time(connection, now), expires_at=until))
    return result.rowcount == 1


def take(connection: Connection, owner: str, now: datetime, ttl_s: float, gone: str | None) -> Lease:
    """Take the lease where it is free; else say who holds it. ``gone``: an owner that certainly lives no more."""
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
        audit_rows.append(connection, Audited(at=at, actor=owner, kind=AuditKind.TAKEOVER, about=about))
    return lease


def release(connection: Connection, epoch: int, now: datetime) -> None:
    """Nothing happens where another epoch has begun."""
    row, at = _locked(connection, now)
    if row.epoch == epoch:
        connection.execute(update(LEASES).where(_ROW).values(owner=_NOBODY, expires_at=_LONG_AGO))
        _end(connection, at, LeaderEnd.RELEASED)


def depose(connection: Connection, actor: str, now: datetime) -> str:
    """End the present epoch, whoever has it; the owner, empty where there was none."""
    row, at = _locked(connection, now)
    values = {"owner": _DEPOSED, "epoch": row.epoch + 1, "expires_at": _LONG_AGO}
    connection.execute(update(LEASES).where(_ROW).values(values))
    _end(connection, at, LeaderEnd.FORCED, actor)
    about = {"epoch": row.epoch + 1, "from": row.owner, "forced": True}
    audit_rows.append(connection, Audited(at=at, actor=actor, kind=AuditKind.TAKEOVER, about=about))
    return "" if row.owner == _DEPOSED else str(row.owner)


def renewed_at(connection: Connection) -> datetime | None:
    """When a daemon that acts has last shown itself; None: there was none yet."""
    found: datetime | None = connection.execute(select(LEASES.c.renewed_at).where(_ROW)).scalar_one()
    return found


def newest(connection: Connection, *, limit: int = 50, offset: int = 0) -> tuple[Leader, ...]:
    query = select(LEADERS).order_by(LEADERS.c.epoch.desc()).limit(limit).offset(offset)
    return tuple(Leader(**row._mapping) for row in connection.execute(query))  # noqa: SLF001 - SQLAlchemy's name


def _end(connection: Connection, at: datetime, how: LeaderEnd, actor: str = "") -> None:
    """Write down that the time of the one that led is over, where that is not known yet."""
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
    """The time by the server's clock; None where the database has none of its own."""
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
