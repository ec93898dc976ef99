"""Whether this daemon may act, and for how long still.

The lease is a row in the database with an epoch, which grows with each takeover. Every write of the leader is
conditional on its epoch (``store.lease_rows``); every command that changes Slurm asks ``command_limit_s`` first. With a
lease of L seconds (``daemon.lease``), counted by this host's monotonic clock from before the renewal was asked for:

- it is renewed when a third of L has gone, inside a cycle as well, and while an answer of Slurm is waited for;
- a command is given only while more than L/2 is left, and is killed when it takes longer than L/2. So a command ends
  before another daemon can take the lease, however slow Slurm is;
- a daemon that takes the lease from one that has not given it up observes for L/2 first: a command of a process that
  was stopped in between may still be under way;
- no command is given on a snapshot that is older than ``daemon.snapshot_limit``: a process that was stopped in the
  middle of a cycle looks again.

What remains is the moment between the last look at the clock and the start of the command, which no client can close.
"""

import os
import re
import secrets
import socket
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from clearway.config.configuration import DaemonConfig
from clearway.model.clock import Clock
from clearway.model.errors import HaltedError, LeaseLostError, SnapshotTooOldError, StoreError
from clearway.model.records import Lease
from clearway.store.repository import Store

_OWNER = re.compile(r"(?P<host>.*) pid (?P<pid>\d+) (?P<machine>[0-9a-f-]+\.\d+)\.(?P<start>\d+)\.[0-9a-f]+")


def own_name() -> str:
    """A name for this process that no other process has, on this host or another, now or later.

    The host's name is for people: two hosts may have the same. The boot, the process namespace, the process id and its
    start tell processes apart, and let a process that has ended be recognised on the same machine.

    A new one for each call: two daemons in one process are two.
    """
    machine, pid = _machine(), os.getpid()
    known = f"{machine}.{_start(pid)}" if machine is not None else "unknown"
    return f"{socket.gethostname()} pid {pid} {known}.{secrets.token_hex(4)}"


def host_of(name: str) -> str:
    """The host of a process of this name."""
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
        """Whether this daemon holds the lease now, as far as it can know; any thread may ask."""
        return self.epoch is not None and self._left_s > 0

    @property
    def observes(self) -> bool:
        """Whether it has taken over so lately that it must not act yet."""
        return self._clock.monotonic() < self._observes_until

    @property
    def standby_pause_s(self) -> float:
        """How often a daemon that waits for the lease has to ask for it."""
        return self._config.lease / 5

    def begin_cycle(self, config: DaemonConfig) -> bool:
        """Renew the lease or take it; whether this daemon leads.

        Raises ``StoreError`` when the database does not answer.
        """
        self._config = config
        if self.epoch is not None:
            try:
                self._renew()
            except LeaseLostError:
                self.epoch = None
            else:
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
        """Whether its holder has not renewed it for twice as long as it lasts, by this host's own count.

        So a clock of the database that was set ahead, and back again, does not keep a dead leader's lease alive.
        """
        seen, now = (lease.epoch, lease.renewed_at), self._clock.monotonic()
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        return now - self._seen_at > 2 * lease.lasts_s

    def look(self) -> None:
        """The snapshot that this cycle goes by is taken from now on."""
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
        except LeaseLostError:
            self.epoch = None
            raise

    def kept(self) -> bool:
        """As ``keep``, for the pauses between cycles; False when another daemon has taken the lease."""
        try:
            self.keep()
        except LeaseLostError:
            return False
        return True

    def command_limit_s(self) -> float:
        """How long a command to Slurm may take that is given at once.

        Raises:
            HaltedError: when the stop switch has been thrown.
            LeaseLostError: when this daemon must not give it.
            SnapshotTooOldError: when it should look at the cluster first.
        """
        self.keep()
        if why := self.closed():  # after the renewal, which may take long, and before the last look at the clock
            raise HaltedError(why)
        if self.epoch is None or self.observes:
            raise LeaseLostError("this daemon does not hold the lease, or has only just taken it over")
        if self._left_s <= self._limit_s:
            raise LeaseLostError(
                f"the lease could not be renewed in time: {max(0.0, self._left_s):.1f} s of it are left"
            )
        age_s = self._clock.monotonic() - self._snapshot_at
        if age_s > self._config.snapshot_limit:
            raise SnapshotTooOldError(f"the snapshot is {age_s:.0f} s old (daemon.snapshot_limit)")
        return self._limit_s

    def release(self) -> None:
        """Give the lease up: no command is under way any more."""
        self.epoch = None
        self._store.release_lease(self._clock.now())

    def ask_to_hand_over(self) -> str:
        """Give the lease up at the end of this cycle, and let others have it for a while; what comes then, in words."""
        self._hands_over = True
        return f"takes it again when no other daemon has taken it within {self._config.lease:g} s"

    def end_cycle(self) -> None:
        """No command is under way."""
        if self._hands_over:
            self._hands_over = False
            self._stands_back_until = self._clock.monotonic() + self._config.lease
            self.release()

    def _take(self, gone: str | None = None) -> Lease:
        return self._store.take_lease(self._owner, self._clock.now(), self._config.lease, gone)

    def _renew(self) -> None:
        began = self._clock.monotonic()
        self._store.renew_lease(self._clock.now(), self._config.lease)
        self._renewed, self._lease_s = began, self._config.lease

    @property
    def _left_s(self) -> float:
        return self._lease_s - (self._clock.monotonic() - self._renewed)

    @property
    def _limit_s(self) -> float:
        return self._lease_s / 2
