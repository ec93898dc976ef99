"""What a daemon of a chaos schedule has in place of its clock, its planner, its database and Slurm."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from clearway.planning.dp.eviction_dp import EvictionDP
from tests.builders import ManualClock

if TYPE_CHECKING:
    from tests.simulation.chaos_world import ChaosDaemon

OWN = ("url", "close", "fenced_by")  # no effects


class OwnClock:
    """A daemon's: its wall clock may be wrong, its monotonic one goes on as time does."""

    def __init__(self, true: ManualClock) -> None:
        self._true = true
        self.ahead = timedelta()

    def now(self) -> datetime:
        return self._true.now() + self.ahead

    def monotonic(self) -> float:
        return self._true.monotonic()

    def steady(self) -> float:
        return self._true.monotonic()


class SlowPlanner(EvictionDP):
    """Each plan takes its time, by the world's clock: others go on meanwhile."""

    def __init__(self, daemon: ChaosDaemon) -> None:
        super().__init__()
        self._daemon = daemon

    def decide(self, *args: Any, **kwargs: Any) -> Any:
        self._daemon.world.take(self._daemon.world.plan_s, self._daemon)
        return super().decide(*args, **kwargs)


class Calls:
    """Passes each call of a daemon through ``through``."""

    def __init__(self, target: Any, through: Callable[[str, Any, Any, Any], Any]) -> None:
        self._target, self._through = target, through

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._target, name)
        if name in OWN or not callable(attribute):
            return attribute
        return lambda *args, **kwargs: self._through(name, attribute, args, kwargs)
