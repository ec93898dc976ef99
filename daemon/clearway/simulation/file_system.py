"""A shared file system: how fast each job writes when several write at once. Pure.

Model: max-min fair sharing with a greatest rate for each writer. Bandwidth is shared equally; a writer that can take
less than an equal share leaves the rest to the others. Bandwidth is never idle while a writer could take more.

Cost: O(n log n) for the rates of n writers; a whole history takes n of these.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf

_MOMENT_S = 2e-6  # times are whole microseconds


def fair_rates(greatest_mib_s: Mapping[str, float], bandwidth_mib_s: float) -> dict[str, float]:
    """What each writer gets, in MiB/s."""
    rates: dict[str, float] = {}
    left_mib_s = bandwidth_mib_s
    order = sorted(greatest_mib_s, key=lambda name: (greatest_mib_s[name], name))
    for place, name in enumerate(order):
        rates[name] = min(greatest_mib_s[name], left_mib_s / (len(order) - place))
        left_mib_s -= rates[name]
    return rates


@dataclass
class FileSystem:
    """Writes in progress; time only goes forward."""

    now: datetime
    bandwidth_mib_s: float = inf
    _left_mib: dict[str, float] = field(default_factory=dict)
    _greatest_mib_s: dict[str, float] = field(default_factory=dict)

    def begin(self, name: str, size_mib: float, greatest_mib_s: float, now: datetime) -> None:
        self.advance(now)
        self._left_mib[name], self._greatest_mib_s[name] = size_mib, greatest_mib_s

    def forget(self, name: str) -> None:
        """It writes no more."""
        self._left_mib.pop(name, None)
        self._greatest_mib_s.pop(name, None)

    def advance(self, now: datetime) -> None:
        """What has been written by then; no write may have been complete before."""
        seconds = (now - self.now).total_seconds()
        for name, rate in fair_rates(self._greatest_mib_s, self.bandwidth_mib_s).items():
            self._left_mib[name] -= rate * seconds
        self.now = now

    @property
    def writers(self) -> tuple[str, ...]:
        return tuple(self._left_mib)

    @property
    def complete(self) -> tuple[str, ...]:
        return tuple(
            name for name, left_mib in self._left_mib.items() if left_mib <= self._greatest_mib_s[name] * _MOMENT_S
        )

    def next_end(self) -> datetime | None:
        """When the next write is complete if none begins before; None when nothing is written."""
        rates = fair_rates(self._greatest_mib_s, self.bandwidth_mib_s)
        seconds = [max(0.0, left_mib) / rates[name] for name, left_mib in self._left_mib.items()]
        return self.now + timedelta(seconds=min(seconds)) if seconds else None
