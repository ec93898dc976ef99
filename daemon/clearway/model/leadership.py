"""Which daemon may act, as the store keeps it. Frozen data; its times are the database's."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class LeaderEnd(StrEnum):
    RELEASED = "released"  # in order: no command of that daemon is under way any more
    EXPIRED = "expired"  # it has not renewed its lease in time, or its process was seen to be gone
    FORCED = "forced"  # an operator took the lease from it


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Who holds the lease, as seen by the daemon that asked for it."""

    owner: str
    epoch: int
    renewed_at: datetime | None = None  # None: by this very call
    lasts_s: float = 0.0  # after each renewal, as its holder has it
    orderly: bool = True  # the one before gave it up itself; else a command of that daemon may still be under way


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """A daemon's time as the one that acts. ``epoch`` is greater than those of all before."""

    epoch: int
    owner: str  # host, process id, and what tells processes of one host name apart
    began_at: datetime
    ended_at: datetime | None = None  # None: nothing is known of its end
    ended: LeaderEnd | None = None
    ended_by: str = ""  # the operator, where one took the lease from it
