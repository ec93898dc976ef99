"""The one place that reads the time; all other code is given it."""

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime: ...

    def monotonic(self) -> float:
        """Seconds for measuring durations and staleness, never for dates."""

    def steady(self) -> float:
        """Seconds at the pace of ``now``, which no one can set: what ``now`` is compared with."""


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Counts while the machine is suspended as well, so that a lease ends meanwhile."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def steady(self) -> float:
        return self.monotonic()


class ScaledClock(SystemClock):
    """Runs ``factor`` times as fast as the wall; the demo's clock."""

    def __init__(self, start: datetime, factor: float) -> None:
        self._start = start
        self._pace = (time.monotonic(), 0.0, factor)  # since when, what had passed by then, and how fast from then on

    def run_at(self, factor: float) -> None:
        """Another pace from now on; any thread may read the clock meanwhile."""
        now = time.monotonic()
        began, passed, before = self._pace
        self._pace = (now, passed + (now - began) * before, factor)

    def steady(self) -> float:
        began, passed, factor = self._pace
        return passed + (time.monotonic() - began) * factor

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self.steady())
