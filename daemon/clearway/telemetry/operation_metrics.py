"""Waiting jobs, and the operations and rolling drains that are planned and carried out, for Prometheus."""

from datetime import datetime
from functools import singledispatchmethod

from clearway.drain.rolling import newly_skipped, standstill_s
from clearway.model.events import Event, OperationFinished, PlanMade, RollingProgress
from clearway.model.operations import Drain, Eviction, EvictionState, Operation, PreemptionState, Promise, Relocation
from clearway.model.outcome import OutcomeCode
from clearway.model.report import CycleReport
from clearway.telemetry.families import Families


class OperationMetrics:
    """``since``: when this daemon began; an earlier one has counted what happened before."""

    def __init__(self, families: Families, since: datetime) -> None:
        self._families = families
        self._since = since
        self._started: set[int] = set()  # operations whose start is counted
        self._missed: set[int] = set()  # ... whose missed deadline is counted

    @singledispatchmethod
    def record(self, event: Event) -> None:
        """Count one event; types that are not registered below change nothing here."""

    @record.register
    def _cycle(self, report: CycleReport) -> None:
        waiting, operations, rolling = report.waiting, report.open_evictions, report.rolling_drains
        unplanned = sum(1 for each in waiting if each.eviction_id is None)
        overdue = sum(1 for each in waiting if each.preemptor.deadline < report.at)
        preemptees = (p.state for each in operations if each.state.acting for p in each.preemptions)
        turns = (turn.state for each in rolling for turn in each.turns)
        longest_s = max((standstill_s(each, report.at) for each in rolling), default=0.0)
        self._families.set("waiting_preemptors", len(waiting))
        kinds = ("left_alone" if left_alone else "asked_about" for left_alone in report.user_pauses)
        self._families.set_tally("paused_users", kinds)
        self._families.set("waiting_preemptors_overdue", overdue)
        self._families.set_tally("urgent_jobs_left_to_slurm", report.left_to_slurm)
        self._families.set("waiting_preemptors_without_eviction", unplanned)
        self._families.set_tally("open_evictions", (each.state for each in operations))
        self._families.set_tally("open_preemptions", preemptees)
        # Only the daemon that acts has rolling drains.
        self._families.set("open_rolling_drains", len(rolling))
        self._families.set("rolling_drain_standstill_seconds", longest_s)
        self._families.set_tally("rolling_drain_nodes", turns)
        for operation in operations:
            self._count_start(operation)

    @record.register
    def _rolled(self, event: RollingProgress) -> None:
        self._families.add("rolling_drain_skipped_nodes", len(newly_skipped(event.before, event.after)))

    @record.register
    def _plan_made(self, event: PlanMade) -> None:
        self._families.add("evictions_planned", 1, event.operation.mode)
        if isinstance(event.operation, Eviction):  # drains are planned later, relocations in another way
            self._families.observe("planner_duration_seconds", event.seconds)

    @record.register
    def _ended(self, event: OperationFinished) -> None:
        operation = event.operation
        self._count_start(operation)
        self._families.add("evictions", 1, operation.state.value)
        if operation.state is EvictionState.FAILED and isinstance(operation, Eviction):
            self._count_missed(operation)
        if operation.state is EvictionState.FAILED and isinstance(operation, Promise):
            self._families.add("promises", 1, "not_kept")
        self._started.discard(operation.eviction_id)
        self._missed.discard(operation.eviction_id)
        if isinstance(operation, Relocation):
            order, kind = operation.order, operation.order.kind.value
            back = sum(p.state is PreemptionState.RETURNED for p in operation.preemptions)
            self._families.add("moved_jobs", back, kind)
            if operation.state is EvictionState.COMPLETED:
                self._families.add("move_gain_node_seconds", order.gain_node_s, kind)
                self._families.add("compacted_nodes", len(order.nodes))

    def _count_start(self, operation: Operation) -> None:
        """Once for each start that happened in this daemon's life; relocations are counted when they are over."""
        started = operation.started_at
        if started is None or started < self._since or operation.eviction_id in self._started:
            return
        self._started.add(operation.eviction_id)
        match operation:
            case Drain():
                begun = operation.order.begin_at or operation.created_at
                self._families.observe("time_to_empty_seconds", max(0.0, (started - begun).total_seconds()))
                self._families.add("nodes_emptied", len(operation.order.nodes))
            case Promise():
                kept = operation.outcome_code is not OutcomeCode.KEPT_LATE
                self._families.add("promises", 1, "kept" if kept else "late")
            case Eviction():
                margin_s = (operation.plan.deadline - started).total_seconds()
                took_s = max(0.0, (started - operation.created_at).total_seconds())
                self._families.observe("time_to_start_seconds", took_s)
                self._families.observe("start_margin_seconds", margin_s)
                self._families.add("preemptor_starts", 1, "in_time" if margin_s >= 0 else "late")
                if margin_s < 0:
                    self._count_missed(operation)

    def _count_missed(self, eviction: Eviction) -> None:
        if eviction.eviction_id not in self._missed:
            self._missed.add(eviction.eviction_id)
            self._families.add("deadlines_missed")
