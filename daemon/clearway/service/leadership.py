"""Whether this daemon may act, and for how long still.

The lease is a row in the database with an epoch, which grows with each takeover; every write of the leader is
conditional on it (``store.lease_rows``). With a lease of L seconds (``daemon.lease``), counted by this host's monotonic
clock from before the renewal was asked for:

- it is renewed when a third of L has gone, also inside a cycle and while an answer of Slurm is waited for;
- a command is given only while more than L/2 is left, and is killed after L/2: so it ends before another daemon can
  take the lease, however slow Slurm is;
- a daemon that takes it from one that has not given it up observes for L/2: a command may still be under way;
- no command is given on a snapshot that is older than ``daemon.snapshot_limit``.

What remains is the moment between the last look at the clock and the start of the command, which no client can close.
"""

import os
import re
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from clearway.config.configuration import DaemonConfig
from clearway.model.clock import Clock
from clearway.model.cluster import ClusterSnapshot, JobState
from clearway.model.errors import HaltedError, LeaseLostError, SnapshotTooOldError, StoreError
from clearway.model.records import Lease
from clearway.slurm.parse.fields import LATEST
from clearway.store.repository import Store

_OWNER = re.compile(r"(?P<host>.*) pid (?P<pid>\d+) (?P<machine>[0-9a-f-]+\.\d+)\.(?P<start>\d+)\.[0-9a-f]+")


def own_name() -> str:
    """Names this process and no other on any host; one that has ended is recognised on its machine."""
    machine, pid = _machine(), os.getpid()
    known = f"{machine}.{_start(pid)}" if machine is not None else "unknown"
    return f"{socket.gethostname()} pid {pid} {known}.{secrets.token_hex(4)}"


def host_of(name: str) -> str:
    return name.partition(" pid ")[0]


def certainly_gone(name: str) -> bool:
    """Whether the process of this name ran on this very machine since its boot, and has ended."""
    found = _OWNER.fullmatch(name)
    return found is not None and found["machine"] == _machine() and _start(int(found["pid"])) != found["start"]


def _machine() -> str | None:
    """The boot, and the namespace in which process ids count (a container has its own); None when not to be had."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot}.{Path('/proc/self/ns/pid').stat().st_ino}"
    except (OSError, ValueError):
        return None


def _start(pid: int) -> str | None:
    """When a process started, in ticks since the boot; None when there is none, or only what is left of it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


class Leadership:
    """The lease as this daemon holds it; implements ``slurm.base.Fence``. For the loop's thread, but for ``leads``."""

    def __init__(self, store: Store, clock: Clock, owner: str, config: DaemonConfig) -> None:
        self._store, self._clock, self._owner = store, clock, owner
        self._config = config
        self._lease_s = config.lease  # of the renewal that counts
        self.closed: Callable[[], str] = lambda: ""  # the stop switch: why no command may be given now
        self.epoch: int | None = None  # None: another daemon leads, or none
        self._renewed = 0.0  # these are times of the monotonic clock
        self._observes_until = 0.0
        self._stands_back_until = 0.0
        self._hands_over = False
        self._seen: tuple[int, datetime | None] | None = None  # the last renewal of another daemon's lease, and when
        self._seen_at = 0.0
        self._snapshot_at = 0.0

    @property
    def leads(self) -> bool:
        return self.epoch is not None and self._left_s > 0

    @property
    def observes(self) -> bool:
        return self._clock.monotonic() < self._observes_until

    @property
    def standby_pause_s(self) -> float:
        return self._config.lease / 5

    def begin_cycle(self, config: DaemonConfig) -> bool:
        """Renew the lease or take it; whether this daemon leads. Raises ``StoreError``."""
        self._config = config
        if self.epoch is not None:
            with suppress(LeaseLostError):
                self._renew()
                return True
        began = self._clock.monotonic()
        if began < self._stands_back_until:
            return False
        lease = self._take()
        if lease.owner != self._owner and (certainly_gone(lease.owner) or self._silent(lease)):
            lease = self._take(gone=lease.owner)
        if lease.owner != self._owner:
            return False
        self.epoch, self._renewed, self._lease_s = lease.epoch, began, config.lease
        self._observes_until = began if lease.orderly else self._clock.monotonic() + self._limit_s
        return True

    def _silent(self, lease: Lease) -> bool:
        """Not renewed for twice as long as it lasts, by this host's clock: the database's may have been set."""
        seen, now = (lease.epoch, lease.renewed_at), self._clock.monotonic()
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        return now - self._seen_at > 2 * lease.lasts_s

    def look(self) -> None:
        self._snapshot_at = self._clock.monotonic()

    def keep(self) -> None:
        """Renew the lease when a third of it has gone. Raises ``LeaseLostError`` when another daemon has taken it."""
        if self.epoch is None or self._clock.monotonic() - self._renewed < self._lease_s / 3:
            return
        try:
            self._renew()
        except StoreError:
            if self._left_s <= 0:
                raise

    def kept(self) -> bool:
        """As ``keep``, for the pauses between cycles; False when another daemon has taken the lease."""
        try:
            self.keep()
        except LeaseLostError:
            return False
        return True

    def command_limit_s(self) -> float:
        """How long a command may take. Raises ``HaltedError``, ``LeaseLostError``, ``SnapshotTooOldError``."""
        self.keep()
        if why := self.closed():  # after the renewal, which may take long, and before the last look at the clock
            raise HaltedError(why)
        if self.epoch is None or self.observes:
            raise LeaseLostError("this daemon does not hold the lease, or has only just taken it over")
        if self._left_s <= self._limit_s:
            left_s = max(0.0, self._left_s)
            raise LeaseLostError(f"the lease could not be renewed in time: {left_s:.1f} s of it are left")
        age_s = self._clock.monotonic() - self._snapshot_at
        if age_s > self._config.snapshot_limit:
            raise SnapshotTooOldError(f"the snapshot is {age_s:.0f} s old (daemon.snapshot_limit)")
        return self._limit_s

    def release(self) -> None:
        self.epoch = None
        self._store.release_lease(self._clock.now())

    def ask_to_hand_over(self) -> str:
        """Give the lease up at the end of this cycle, and let others have it for a while; what comes then, in words."""
        self._hands_over = True
        return f"takes it again when no other daemon has taken it within {self._config.lease:g} s"

    def end_cycle(self) -> None:
        if self._hands_over:
            self._hands_over = False
            self._stands_back_until = self._clock.monotonic() + self._config.lease
            self.release()

    def _take(self, gone: str | None = None) -> Lease:
        return self._store.take_lease(self._owner, self._clock.now(), self._config.lease, gone)

    def _renew(self) -> None:
        began = self._clock.monotonic()
        try:
            self._store.renew_lease(self._clock.now(), self._config.lease)
        except LeaseLostError:
            self.epoch = None
            raise
        self._renewed, self._lease_s = began, self._config.lease

    @property
    def _left_s(self) -> float:
        return self._lease_s - (self._clock.monotonic() - self._renewed)

    @property
    def _limit_s(self) -> float:
        return self._lease_s / 2


STEP_S = 5.0  # less is drift, or a correction that harms no plan
APART_S = 30.0  # so far the clocks of other machines may be from ours
LASTS_S = 10.0  # where nothing is under way
LASTS_UNDER_WAY_S = 300.0  # longer than most jobs take to save themselves
_ASKS_EVERY_S = 600.0  # a database server


class ClockWatch:
    """Whether the wall clock can be gone by: it and the clock that nobody sets must go on alike, and others must agree.
    One that was set forward makes every checkpoint late at once. So after a step nothing is done until the clock is set
    back, or the new time has lasted. Others are a database server and Slurm, whose clock has shown at least the latest
    start or submission of a job. Looks once a cycle; only the loop's thread uses it.
    """

    def __init__(self, clock: Clock, server_time: Callable[[], datetime | None] = lambda: None) -> None:
        self._clock = clock
        self._server_time = server_time
        self._ahead: float | None = None  # by how much the wall clock is ahead of the other one, as it is gone by
        self._new: tuple[float, float] | None = None  # the same after a step, and when that was seen first
        self._asked: float | None = None  # the server, last; None: it has to be asked
        self.step_s = 0.0  # by so much the clock was set, where that is believed since the last look

    def doubt(self, now: datetime, seen: float, snapshot: ClusterSnapshot, *, under_way: bool) -> str:
        """Why nothing must be done by this time; empty: nothing. ``seen``: what ``steady`` said at ``now``."""
        ahead, self.step_s = now.timestamp() - seen, 0.0
        step_s = 0.0 if self._ahead is None else ahead - self._ahead
        if abs(step_s) <= STEP_S:
            self._new = None
        else:
            if self._new is None or abs(ahead - self._new[0]) > STEP_S:
                self._new, self._asked = (ahead, seen), None
            if seen - self._new[1] < (LASTS_UNDER_WAY_S if under_way else LASTS_S):
                return f"the wall clock was set by {step_s:+.0f} s"
        if why := self._others(now, seen, snapshot):
            return why
        if self._new is not None:
            self.step_s = step_s
        self._ahead, self._new = ahead, None
        return ""

    def _others(self, now: datetime, seen: float, snapshot: ClusterSnapshot) -> str:
        times = [job.start_time for job in snapshot.holders if job.state is JobState.RUNNING and job.start_time]
        times += [job.submit_time for job in snapshot.jobs]
        latest = max((each for each in times if each < LATEST), default=now)  # one bad record says nothing of a clock
        if (behind_s := (latest - now).total_seconds()) > APART_S:
            return f"the wall clock is at least {behind_s:.0f} s behind Slurm's"
        if self._asked is None or seen - self._asked >= _ASKS_EVERY_S:
            theirs = self._server_time()
            since_s = self._clock.steady() - seen
            if theirs is not None and abs(ahead_s := (now - theirs).total_seconds() + since_s) > APART_S:
                return f"the wall clock is {ahead_s:+.0f} s ahead of the database's"
            self._asked = seen
        return ""
