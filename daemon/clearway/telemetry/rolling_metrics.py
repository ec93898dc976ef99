"""The progress of rolling drains, for Prometheus."""

from collections import Counter as Tally
from functools import singledispatchmethod

from clearway.drain.rolling import newly_skipped, standstill_s
from clearway.model.events import Event, RollingProgress
from clearway.model.report import CycleReport
from clearway.model.rolling import TurnState
from clearway.telemetry.families import Families


class RollingMetrics:
    """Gauges are of the rolling drains that are open; only the daemon that acts has any."""

    def __init__(self, families: Families) -> None:
        self._open = families.gauge(
            "clearway_open_rolling_drains", "Rolling drains that have not ended; 0: none is under way."
        )
        self._nodes = families.gauge(
            "clearway_rolling_drain_nodes",
            "Nodes of open rolling drains, by the state of their turn.",
            state=[state.value for state in TurnState],
        )
        self._standstill = families.gauge(
            "clearway_rolling_drain_standstill_seconds",
            "Seconds since a node's turn last changed, in the open rolling drain where that is longest; 0: none open.",
        )
        self._skipped = families.counter(
            "clearway_rolling_drain_skipped_nodes",
            "Nodes that rolling drains could not empty; nodes that an operator left out do not count.",
        )

    @singledispatchmethod
    def record(self, event: Event) -> None:
        """Count one event; types that are not registered below change nothing here."""

    @record.register
    def _cycle(self, report: CycleReport) -> None:
        open_ones = report.rolling_drains
        self._open.set(len(open_ones))
        states = Tally(turn.state for rolling in open_ones for turn in rolling.turns)
        for state in TurnState:
            self._nodes.labels(state.value).set(states[state])
        self._standstill.set(max((standstill_s(rolling, report.at) for rolling in open_ones), default=0.0))

    @record.register
    def _progress(self, event: RollingProgress) -> None:
        self._skipped.inc(len(newly_skipped(event.before, event.after)))
