"""Which checkpoint is asked for next, over all evictions under way, and whether the file system has room for it. Pure.

Model: checkpoints that wait are all ready now; each takes ``seconds`` on the shared file system and must be complete
by its ``latest``. Written one after another, in the order of ``latest`` (Jackson's earliest-due-date rule), all of
them are in time whenever any order has them all in time. The least slack (latest - seconds) is no such order: of one
that takes 10 s and is due in 12 s, and one that takes 1 s and is due in 4 s, it begins the first and misses the
second. Those that cannot be in time any more come last, so that they make no other one late. Of those that are due
together those of one plan are not parted, and ties end on job_id.

A checkpoint begins only when no more than ``limit`` would be under way and its rate fits into what the others leave of
the bandwidth; one alone may always begin, whatever its estimate says. No checkpoint overtakes the next in order, even
where a later one would fit: the most urgent would starve.

Checkpoints that share the file system (``file_system_s``; see ``planning.formulation.shared_bandwidth``) are all begun
at once: their plan holds however bandwidth is shared among them. Only those of other plans must not become late: one
that began at t, takes w with the whole file system and e besides, and shares it with checkpoints that take W with the
whole file system, itself among them, is complete by t + e + W. Another one may join when that stays in time.

Cost: O(n) time for the next one, O(n^2) for whether one may join.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointWrite:
    """One checkpoint on the file system: that waits, is being written or is complete."""

    job_id: str
    seconds: float  # from its beginning until it is complete
    latest: datetime  # when it must be complete
    rate_mib_s: float = 0.0  # of the file system's bandwidth
    file_system_s: float | None = None  # seconds with the whole file system, which it shares; None: it does not share
    own_pace: bool = False  # the job begins it by itself, before or after ``begun``; it is not asked for
    plan: int = 0  # the number of its eviction
    begun: datetime | None = None  # None: it waits
    done: datetime | None = None  # None: it is not complete

    @property
    def occupies_s(self) -> float:
        """Seconds for which it keeps the whole file system, at most."""
        return self.seconds if self.file_system_s is None else self.file_system_s


def next_to_ask(waiting: Iterable[CheckpointWrite], now: datetime) -> CheckpointWrite | None:
    """The first in order; None when nothing waits."""

    def order(write: CheckpointWrite) -> tuple[bool, datetime, int, float, str]:
        late = now + timedelta(seconds=write.seconds) > write.latest
        return (late, write.latest, write.plan, write.seconds, write.job_id)

    return min(waiting, key=order, default=None)


def has_room(write: CheckpointWrite, running: Iterable[CheckpointWrite], limit: int, bandwidth_mib_s: float) -> bool:
    """Whether this checkpoint may begin beside those that are under way."""
    others = list(running)
    if not others:
        return True
    left_mib_s = bandwidth_mib_s - sum(other.rate_mib_s for other in others)
    return len(others) < limit and write.rate_mib_s <= left_mib_s


def may_join(write: CheckpointWrite, first: CheckpointWrite | None, begun: Iterable[CheckpointWrite]) -> bool:
    """Whether a checkpoint that shares the file system may begin now.

    ``first`` is the next in order; ``begun`` are those that are being written, or were complete only while some of them
    were.
    """
    if first is not None and first.plan != write.plan:
        return False
    return keeps_others_in_time(write, begun)


def keeps_others_in_time(write: CheckpointWrite, begun: Iterable[CheckpointWrite], *, sharing: bool = False) -> bool:
    """Whether those of other plans that are being written stay in time beside this one; ``sharing``: that share."""
    known = list(begun)
    return all(
        complete_by(each, known) + timedelta(seconds=write.occupies_s) <= each.latest
        for each in known
        if each.done is None and each.plan != write.plan and (each.file_system_s is not None or not sharing)
    )


def complete_by(write: CheckpointWrite, known: Iterable[CheckpointWrite]) -> datetime:
    """When a checkpoint that has begun is complete at the latest."""
    assert write.begun is not None  # noqa: S101 - the caller has chosen those
    beside_s = sum(each.occupies_s for each in known if each.done is None or each.done >= write.begun)
    return write.begun + timedelta(seconds=write.seconds - write.occupies_s + beside_s)
