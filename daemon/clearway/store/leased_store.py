"""The part of the store that knows the lease: who may act, and writing transactions for that daemon alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection

from clearway.model.errors import LeaseLostError
from clearway.model.leadership import Lease
from clearway.store import lease_rows
from clearway.store.database import Database

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
    """Implements the lease of ``store.base.Store``. The epoch is that of the one daemon that uses this object."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._epoch: int | None = None  # None: the lease was never asked for, so this is no daemon's store

    @contextmanager
    def _leading(self) -> Iterator[Connection]:
        """A transaction for what only the daemon that holds the lease may write.

        Raises:
            LeaseLostError: when it does not (any more); nothing is written.
        """
        with self._database.writing() as connection:
            lease_rows.require(connection, self._epoch)
            yield connection

    def take_lease(self, owner: str, now: datetime, ttl_s: float, gone: str | None = None) -> Lease:
        self._epoch = _NO_EPOCH
        with self._database.writing() as connection:
            lease = lease_rows.take(connection, owner, now, ttl_s, gone)
        if lease.owner == owner:
            self._epoch = lease.epoch
        return lease

    def renew_lease(self, now: datetime, ttl_s: float) -> None:
        if self._epoch is None or self._epoch == _NO_EPOCH:
            raise LeaseLostError("this daemon does not hold the lease")
        with self._database.statement() as connection:
            if lease_rows.renew(connection, self._epoch, now, ttl_s):
                return
        epoch, self._epoch = self._epoch, _NO_EPOCH
        raise LeaseLostError(f"another daemon has taken over: epoch {epoch} is over")

    def release_lease(self, now: datetime) -> None:
        epoch, self._epoch = self._epoch, _NO_EPOCH
        if epoch is not None and epoch != _NO_EPOCH:
            with self._database.writing() as connection:
                lease_rows.release(connection, epoch, now)

    def depose(self, actor: str, now: datetime) -> str:
        with self._database.writing() as connection:
            return lease_rows.depose(connection, actor, now)

    sign_of_life = method(lease_rows.renewed_at)
    leaders = method(lease_rows.newest)
    server_time = method(lease_rows.server_time)
