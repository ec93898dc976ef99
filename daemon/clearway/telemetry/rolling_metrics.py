"""How rolling drains get on, for Prometheus."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Collection
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge

from clearway.drain.rolling import newly_skipped, standstill_s
from clearway.model.rolling import RollingDrain, TurnState


class RollingMetrics:
    """Gauges are of the orders that are open; only the daemon that acts has any."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._open = Gauge("clearway_open_rolling_drains", "Rolling drains that have not ended.", registry=registry)
        self._nodes = Gauge(
            "clearway_rolling_drain_nodes",
            "Nodes of open rolling drains, by what has become of their turn.",
            ["state"],
            registry=registry,
        )
        self._standstill = Gauge(
            "clearway_rolling_drain_standstill_seconds",
            "How long the turn of no node has changed, in the open rolling drain where that is longest; 0 without one.",
            registry=registry,
        )
        self._skipped = Counter(
            "clearway_rolling_drain_skipped_nodes",
            "Nodes that rolling drains could not empty; not those that somebody left out.",
            registry=registry,
        )
        for state in TurnState:
            self._nodes.labels(state.value)

    def cycle(self, open_ones: Collection[RollingDrain], now: datetime) -> None:
        self._open.set(len(open_ones))
        states = Tally(turn.state for rolling in open_ones for turn in rolling.turns)
        for state in TurnState:
            self._nodes.labels(state.value).set(states[state])
        self._standstill.set(max((standstill_s(rolling, now) for rolling in open_ones), default=0.0))

    def rolled(self, before: RollingDrain, after: RollingDrain) -> None:
        self._skipped.inc(len(newly_skipped(before, after)))
