"""Which checkpoint is asked for next, over all evictions under way, and whether the file system has room for it. Pure.

Model: checkpoints that wait are all ready now; each takes ``seconds`` on the shared file system and must be complete
by its ``latest``. Written one after another, in the order of ``latest`` (Jackson's earliest-due-date rule), all of
them are in time whenever any order has them all in time. The least slack (latest - seconds) is no such order: of one
that takes 10 s and is due in 12 s, and one that takes 1 s and is due in 4 s, it begins the first and misses the
second. Those that cannot be in time any more come last, so that they make nobody else late. Of those that are due
together those of one plan are not parted, and ties end on job_id.

A checkpoint begins only when no more than ``limit`` would be under way and its rate fits into what the others leave of
the bandwidth; one alone may always begin, whatever its estimate says. Nobody overtakes the next in order, even where
a later one would fit: the most urgent would starve.

Checkpoints that share the file system (``whole_s``; see ``planning.shared_bandwidth``) are all begun at once: their
plan holds however bandwidth is shared among them. Only those of other plans have to be kept from harm: one that began
at t, takes w with the whole file system and e besides, and shares it with checkpoints that take W with the whole file
system, itself among them, is complete by t + e + W. Another one may join when that stays in time.

Cost: O(n) time for the next one, O(n^2) for whether one may join.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One checkpoint that is asked for, or shall be."""

    job_id: str
    seconds: float  # how long it takes on the file system
    latest: datetime  # when it must be complete
    rate_mib_s: float = 0.0  # what it takes of the file system's bandwidth meanwhile
    whole_s: float | None = None  # how long it takes with the whole file system, shared; None: others wait for it
    own_pace: bool = False  # nobody asks for it: the job begins it itself, before or after ``begun``
    plan: int = 0  # whose it is: that of this eviction
    begun: datetime | None = None
    done: datetime | None = None

    @property
    def whole(self) -> float:
        """Seconds for which it keeps the whole file system, at most."""
        return self.seconds if self.whole_s is None else self.whole_s


def next_to_ask(waiting: Iterable[Write], now: datetime) -> Write | None:
    """The first in order; None when nothing waits."""

    def order(write: Write) -> tuple[bool, datetime, int, float, str]:
        hopeless = now + timedelta(seconds=write.seconds) > write.latest
        return (hopeless, write.latest, write.plan, write.seconds, write.job_id)

    return min(waiting, key=order, default=None)


def has_room(write: Write, running: Iterable[Write], limit: int, bandwidth_mib_s: float) -> bool:
    """Whether this checkpoint may begin beside those that are under way."""
    others = list(running)
    if not others:
        return True
    left_mib_s = bandwidth_mib_s - sum(other.rate_mib_s for other in others)
    return len(others) < limit and write.rate_mib_s <= left_mib_s


def may_join(write: Write, first: Write | None, begun: Iterable[Write]) -> bool:
    """Whether a checkpoint that shares the file system may begin now.

    ``first`` is the next in order; ``begun`` are those that are being written, or were complete only while some of them
    were.
    """
    if first is not None and first.plan != write.plan:
        return False
    return delays_nobody(write, begun)


def delays_nobody(write: Write, begun: Iterable[Write], *, sharing: bool = False) -> bool:
    """Whether those of other plans that are being written stay in time beside this one; ``sharing``: that share."""
    known = list(begun)
    return all(
        complete_by(each, known) + timedelta(seconds=write.whole) <= each.latest
        for each in known
        if each.done is None and each.plan != write.plan and (each.whole_s is not None or not sharing)
    )


def complete_by(write: Write, known: Iterable[Write]) -> datetime:
    """When a checkpoint that has begun is complete at the latest."""
    assert write.begun is not None  # noqa: S101 - the caller has chosen those
    beside_s = sum(each.whole for each in known if each.done is None or each.done >= write.begun)
    return write.begun + timedelta(seconds=write.seconds - write.whole + beside_s)
