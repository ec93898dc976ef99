"""How long planning may take in a cycle, how long it is until a plan is begun, and what need not be planned again.

All of it is measured. A planner is given what is left, and may end a little later. What is under way has up to half of
the time for other plans, and comes first; new plans have what is left.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from clearway.model.clock import Clock

UNDER_WAY = 0.5  # the share of the time that operations under way may use for other plans


class PlanningTime:
    """The computing time that planning has in one cycle."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.limit_s = 0.0
        self._spent_s = 0.0
        self._since: float | None = None
        self._cycle_began = clock.monotonic()
        self._carried_out_s: float | None = None  # that plans took last, from their making to their beginning

    def begin(self, limit_s: float, cycle_began: float | None = None) -> None:
        """A cycle begins, with so much time; ``cycle_began``: on the monotonic clock, before Slurm was asked."""
        self.limit_s, self._spent_s, self._since = limit_s, 0.0, None
        self._cycle_began = self._clock.monotonic() if cycle_began is None else cycle_began

    @property
    def begins_in_s(self) -> float:
        """Seconds from the cycle's look at the cluster until a plan that is made now is begun.

        What has passed, and as much as plans took last; where that is not known, as much again: most of it is one more
        look at the cluster.
        """
        passed_s = self._clock.monotonic() - self._cycle_began
        return passed_s + (passed_s if self._carried_out_s is None else self._carried_out_s)

    def carried_out(self, seconds: float) -> None:
        """Plans have taken so long from their making to their beginning."""
        self._carried_out_s = max(0.0, seconds)

    def left_s(self, share: float = 1.0) -> float:
        """Seconds that are left of this share; negative: so much longer it has taken."""
        running_s = 0.0 if self._since is None else self._clock.monotonic() - self._since
        return share * self.limit_s - self._spent_s - running_s

    def charge(self, seconds: float) -> None:
        """What is under way took so long in all, with its commands: of that counts what others can do without."""
        self._spent_s = max(self._spent_s, min(seconds, UNDER_WAY * self.limit_s))

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Slurm is asked meanwhile: that is no computing, however long its commands take."""
        began = self._clock.monotonic()
        try:
            yield
        finally:
            if self._since is not None:
                self._spent_s -= self._clock.monotonic() - began

    @contextmanager
    def spending(self) -> Iterator[None]:
        """What is done meanwhile counts, once."""
        if self._since is not None:
            yield
            return
        self._since = self._clock.monotonic()
        try:
            yield
        finally:
            self._spent_s += self._clock.monotonic() - self._since
            self._since = None


class Impossible:
    """What could not be planned for the cluster as it is, and why.

    Forgotten when anything changes, and when time alone may have changed the answer.
    """

    def __init__(self) -> None:
        self._scene: object = None
        self._known: dict[str, tuple[object, str, datetime | None]] = {}

    def look(self, scene: object) -> None:
        """Go by this cycle's cluster: all that plans follow from but the time and the job that they are for."""
        if self._known and scene != self._scene:
            self._known = {}
        self._scene = scene

    def why(self, ident: str, asks: object, now: datetime) -> str | None:
        """Why there was no plan when it was last looked for; None where it should be looked for again."""
        found = self._known.get(ident)
        if found is None or found[0] != asks or (found[2] is not None and now >= found[2]):
            return None
        return found[1]

    def remember(self, ident: str, asks: object, why: str, until: datetime | None) -> None:
        """There is no plan for what this asks for before ``until``; None: whatever the time."""
        self._known[ident] = (asks, why, until)
