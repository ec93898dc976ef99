"""Waiting jobs and the operations that are planned and carried out for them, for Prometheus."""

from collections import Counter as Tally
from datetime import datetime
from functools import singledispatchmethod

from clearway.config.configuration import Mode
from clearway.model.events import Event, OperationFinished, PlanMade
from clearway.model.operations import Drain, Eviction, EvictionState, Operation, PreemptionState, Relocation
from clearway.model.report import CycleReport
from clearway.telemetry.families import MARGIN_BUCKETS, WAIT_BUCKETS, Families

_OPEN = tuple(state for state in EvictionState if not state.terminal)
_OPEN_PREEMPTIONS = tuple(state for state in PreemptionState if not state.terminal)
_PLANNER_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class EvictionMetrics:
    """``since``: when this daemon began; an earlier one has counted what happened before."""

    def __init__(self, families: Families, since: datetime) -> None:
        self._since = since
        self._started: set[int] = set()  # operations whose start is counted
        self._missed: set[int] = set()  # ... whose missed deadline is counted
        self._waiting = families.gauge("clearway_waiting_preemptors", "Preemptors that wait; 0: none waits.")
        self._unplanned = families.gauge(
            "clearway_waiting_preemptors_without_eviction",
            "Preemptors that wait and for which nothing is planned; 0: there is a plan for each.",
        )
        self._overdue = families.gauge(
            "clearway_waiting_preemptors_overdue", "Preemptors that wait beyond their deadline; 0: none does."
        )
        self._open = families.gauge(
            "clearway_open_evictions", "Evictions in each open state.", state=[state.value for state in _OPEN]
        )
        self._open_preemptions = families.gauge(
            "clearway_open_preemptions",
            "Preemptees of evictions under way, in each open state.",
            state=[state.value for state in _OPEN_PREEMPTIONS],
        )
        self._planned = families.counter(
            "clearway_evictions_planned", "Evictions planned.", mode=[mode.value for mode in Mode]
        )
        self._finished = families.counter(
            "clearway_evictions",
            "Evictions that have ended, by result.",
            result=[state.value for state in EvictionState if state.terminal],
        )
        self._starts = families.counter(
            "clearway_preemptor_starts", "Preemptors that started with Clearway's help.", result=("in_time", "late")
        )
        self._deadlines_missed = families.counter(
            "clearway_deadlines_missed", "Evictions whose preemptor started after its deadline, or that failed."
        )
        self._time_to_start = families.histogram(
            "clearway_time_to_start_seconds",
            "Seconds from the plan of an eviction to the start of its preemptor.",
            WAIT_BUCKETS,
        )
        self._time_to_empty = families.histogram(
            "clearway_time_to_empty_seconds",
            "Seconds from the beginning of a drain until its nodes were empty.",
            WAIT_BUCKETS,
        )
        self._emptied = families.counter("clearway_nodes_emptied", "Nodes that drains have emptied.")
        self._margin = families.histogram(
            "clearway_start_margin_seconds",
            "Seconds from a preemptor's start to its deadline; negative: it started after the deadline.",
            MARGIN_BUCKETS,
        )
        self._planner_seconds = families.histogram(
            "clearway_planner_duration_seconds",
            "Seconds that it took to plan an eviction and to store it.",
            _PLANNER_BUCKETS,
        )

    @singledispatchmethod
    def record(self, event: Event) -> None:
        """Count one event; types that are not registered below change nothing here."""

    @record.register
    def _cycle(self, report: CycleReport) -> None:
        self._waiting.set(len(report.waiting))
        self._unplanned.set(sum(1 for waiting in report.waiting if waiting.eviction_id is None))
        self._overdue.set(sum(1 for waiting in report.waiting if waiting.preemptor.deadline < report.at))
        evictions = Tally(eviction.state for eviction in report.open_evictions)
        for state in _OPEN:
            self._open.labels(state.value).set(evictions[state])
        preemptions = Tally(p.state for e in report.open_evictions if e.state.acting for p in e.preemptions)
        for preemption_state in _OPEN_PREEMPTIONS:
            self._open_preemptions.labels(preemption_state.value).set(preemptions[preemption_state])
        for eviction in report.open_evictions:
            self._count_start(eviction)

    @record.register
    def _plan_made(self, event: PlanMade) -> None:
        self._planned.labels(event.operation.mode).inc()
        if isinstance(event.operation, Eviction):  # drains are planned later, relocations in another way
            self._planner_seconds.observe(event.seconds)

    @record.register
    def _ended(self, event: OperationFinished) -> None:
        eviction = event.operation
        self._count_start(eviction)
        self._finished.labels(eviction.state.value).inc()
        if eviction.state is EvictionState.FAILED and isinstance(eviction, Eviction):
            self._count_missed(eviction)
        self._started.discard(eviction.eviction_id)
        self._missed.discard(eviction.eviction_id)

    def _count_start(self, eviction: Operation) -> None:
        """Once for each start that happened in this daemon's life."""
        started = eviction.started_at
        if started is None or started < self._since or eviction.eviction_id in self._started:
            return
        self._started.add(eviction.eviction_id)
        if isinstance(eviction, Relocation):
            return  # counted when they are over
        if isinstance(eviction, Drain):
            begun = eviction.order.begin_at or eviction.created_at
            self._time_to_empty.observe(max(0.0, (started - begun).total_seconds()))
            self._emptied.inc(len(eviction.order.nodes))
            return
        margin_s = (eviction.plan.deadline - started).total_seconds()
        self._time_to_start.observe(max(0.0, (started - eviction.created_at).total_seconds()))
        self._margin.observe(margin_s)
        self._starts.labels("in_time" if margin_s >= 0 else "late").inc()
        if margin_s < 0:
            self._count_missed(eviction)

    def _count_missed(self, eviction: Operation) -> None:
        if eviction.eviction_id not in self._missed:
            self._missed.add(eviction.eviction_id)
            self._deadlines_missed.inc()
