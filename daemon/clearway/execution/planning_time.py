"""How long planning may take in a cycle, and what need not be planned again.

A planner cannot be interrupted, so what is begun in time may end a little later. What is under way has up to half of
the time for other plans, and comes first; new plans have what is left.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from clearway.model.clock import Clock

UNDER_WAY = 0.5  # the share of the time that operations under way may use for other plans
_REMEMBERED_FOR = timedelta(seconds=30)  # guards and deadlines change the answer with time alone


class PlanningTime:
    """The computing time that planning has in one cycle."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.limit_s = 0.0
        self._spent_s = 0.0
        self._since: float | None = None

    def begin(self, limit_s: float) -> None:
        """A cycle begins, with so much time."""
        self.limit_s, self._spent_s, self._since = limit_s, 0.0, None

    def left_s(self, share: float = 1.0) -> float:
        """Seconds that are left of this share; negative: so much longer it has taken."""
        running_s = 0.0 if self._since is None else self._clock.monotonic() - self._since
        return share * self.limit_s - self._spent_s - running_s

    def charge(self, seconds: float) -> None:
        """What is under way took so long in all, with its commands: of that counts what others can do without."""
        self._spent_s = max(self._spent_s, min(seconds, UNDER_WAY * self.limit_s))

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
    """What could not be planned for the cluster as it is, and why; forgotten when anything changes."""

    def __init__(self) -> None:
        self._scene: object = None
        self._known: dict[str, tuple[object, str, datetime]] = {}

    def look(self, scene: object) -> None:
        """Go by this cycle's cluster: jobs that hold nodes, nodes, operations, configuration."""
        if self._known and scene != self._scene:
            self._known = {}
        self._scene = scene

    def why(self, ident: str, asks: object, now: datetime) -> str | None:
        """Why there was no plan when it was last looked for; None where it should be looked for again."""
        found = self._known.get(ident)
        if found is None or found[0] != asks or now >= found[2]:
            return None
        return found[1]

    def remember(self, ident: str, asks: object, why: str, now: datetime) -> None:
        """There is no plan for what this asks for."""
        self._known[ident] = (asks, why, now + _REMEMBERED_FOR)
