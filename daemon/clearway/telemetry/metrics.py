"""What Prometheus reads, in a registry of its own. Labels take few values: never a job id or a user's name.

Counters start at 0 with the daemon, as Prometheus expects. Work is counted when a job passes its point of no
return, that is when its requeue or cancellation is intended:

lost    nodes x time since the job's last checkpoint (``Preemption.actual_lost_node_s``).
saved   what would have been lost had the job been killed at the moment it was asked to save itself, less what was
        lost after all. Nothing for jobs that were requeued without being asked; never negative.
"""

from __future__ import annotations

import platform
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import singledispatchmethod

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.exposition import generate_latest

import clearway
from clearway.config.configuration import Config, Mode
from clearway.execution.job_lifecycle import Command
from clearway.model.claims import Restart, last_checkpoint, read_claims
from clearway.model.clock import Clock, SystemClock
from clearway.model.errors import SlurmRefusedError, SlurmTimeoutError, SlurmUnavailableError, StoreError
from clearway.model.events import (
    CommandGiven,
    CycleFailed,
    Event,
    JobLeft,
    OperationFinished,
    PlanExplained,
    PlanMade,
    RollingProgress,
)
from clearway.model.operations import Drain, Eviction, EvictionState, Operation, Preemption, PreemptionState, Relocation
from clearway.model.problem import Action
from clearway.model.records import CheckpointOutcome, CheckpointRecord, RestartRecord
from clearway.model.report import CycleReport
from clearway.preemption.explanation import RULES
from clearway.telemetry.relocation_metrics import MoveMetrics
from clearway.telemetry.rolling_metrics import RollingMetrics

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter, which nobody reads

_OPEN_EVICTIONS = tuple(state for state in EvictionState if not state.terminal)
_FINISHED_EVICTIONS = tuple(state for state in EvictionState if state.terminal)
_OPEN_PREEMPTIONS = tuple(state for state in PreemptionState if not state.terminal)
_PREEMPTING = tuple(action for action in Action if action is not Action.END)
_STEP_RESULTS = ("ok", "refused", "error")
_FAILURES = ("slurm_timeout", "slurm_unavailable", "slurm_refused", "store", "internal")
_RECORDS = ("job", "node", "reservation")
_APPLICATION, _OTHER = "application", "other"  # checkpointers: what saves itself, and what is not installed here

_CYCLE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2.5, 5, 10, 30)
_PLANNER_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
_WAIT_BUCKETS = (1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 3_600)
_RATIO_BUCKETS = (0.1, 0.25, 0.5, 0.75, 0.9, 1, 1.1, 1.25, 1.5, 2, 4, 10)
_MARGIN_BUCKETS = (-3_600, -600, -120, -60, -30, -10, 0, 10, 30, 60, 120, 600, 3_600)


class Metrics:
    """All metrics of one daemon. ``clock`` is the loop's; times of day that are shown come from the wall's."""

    def __init__(
        self, clock: Clock, *, backend: str = "", wall: Clock | None = None, checkpointers: Iterable[str] = ()
    ) -> None:
        self._checkpointers = frozenset({_APPLICATION, *checkpointers})  # jobs name them: others must make no label
        self._wall = wall or SystemClock()
        self._since = clock.now()
        self._started: set[int] = set()  # evictions whose start is counted
        self._missed: set[int] = set()  # ... whose missed deadline is counted
        self._skipped: frozenset[tuple[str, str]] = frozenset()
        self._partitions: frozenset[str] = frozenset()
        self.registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self.registry)
        self._build(backend)
        self._declare_daemon()
        self._declare_evictions()
        self._declare_work()
        self._declare_learning()

    def _build(self, backend: str) -> None:
        build = Info("clearway_build", "Version of the daemon.", registry=self.registry)
        build.info({"version": clearway.__version__, "python": platform.python_version()})
        Info("clearway_backend", "How the daemon talks to Slurm.", registry=self.registry).info({"name": backend})
        self._restarts = _Restarts()
        self.registry.register(self._restarts)

    def _declare_daemon(self) -> None:
        registry = self.registry
        self._cycles = Counter("clearway_cycles", "Cycles that succeeded.", registry=registry)
        self._cycle_failures = Counter("clearway_cycle_failures", "Cycles that failed.", ["kind"], registry=registry)
        self._cycle_seconds = Histogram(
            "clearway_cycle_duration_seconds",
            "Time of a cycle that succeeded.",
            buckets=_CYCLE_BUCKETS,
            registry=registry,
        )
        self._last_cycle = Gauge(
            "clearway_last_cycle_timestamp_seconds",
            "Unix time of the last cycle that succeeded; 0 before the first.",
            registry=registry,
        )
        self._queries = Counter(
            "clearway_slurm_queries", "Queries that snapshots of the cluster took.", registry=registry
        )
        self._steps = Counter("clearway_slurm_steps", "Commands given to Slurm.", ["kind", "result"], registry=registry)
        self._unreadable_records = Gauge(
            "clearway_unreadable_records",
            "Records in the newest snapshot that could not be read, and are never acted upon.",
            ["kind"],
            registry=registry,
        )
        self._skipped_total = Counter(
            "clearway_skipped_records",
            "Records that could not be read; one that stays unreadable counts once.",
            ["kind"],
            registry=registry,
        )
        self._unreadable_claims = Gauge(
            "clearway_unreadable_claims",
            "Jobs in the newest snapshot with a clearway: Comment that cannot be read, and counts as none.",
            registry=registry,
        )
        self._paused = Gauge("clearway_paused", "1 while an operator has paused the daemon.", registry=registry)
        self._standby = Gauge(
            "clearway_standby", "1 while another daemon holds the lease on the database.", registry=registry
        )
        self._mode = Gauge("clearway_mode", "1 for what the daemon may do, else 0.", ["mode"], registry=registry)
        for failure in _FAILURES:
            self._cycle_failures.labels(failure)
        for command in Command:
            for result in _STEP_RESULTS:
                self._steps.labels(command.value, result)
        for kind in _RECORDS:
            self._unreadable_records.labels(kind)
            self._skipped_total.labels(kind)

    def _declare_evictions(self) -> None:
        registry = self.registry
        self._waiting = Gauge("clearway_waiting_preemptors", "Preemptors that wait.", registry=registry)
        self._unplanned = Gauge(
            "clearway_waiting_preemptors_without_eviction",
            "Preemptors that wait and for which nothing is planned.",
            registry=registry,
        )
        self._overdue = Gauge(
            "clearway_waiting_preemptors_overdue", "Preemptors that wait beyond their deadline.", registry=registry
        )
        self._open = Gauge("clearway_open_evictions", "Evictions in each open state.", ["state"], registry=registry)
        self._open_preemptions = Gauge(
            "clearway_open_preemptions",
            "Preemptees of evictions under way, in each open state.",
            ["state"],
            registry=registry,
        )
        self._planned = Counter("clearway_evictions_planned", "Evictions planned.", ["mode"], registry=registry)
        self._finished = Counter(
            "clearway_evictions", "Evictions that came to their end.", ["result"], registry=registry
        )
        self._starts = Counter(
            "clearway_preemptor_starts", "Preemptors that started with Clearway's help.", ["result"], registry=registry
        )
        self._deadlines_missed = Counter(
            "clearway_deadlines_missed",
            "Evictions whose preemptor started after its deadline, or that failed.",
            registry=registry,
        )
        self._time_to_start = Histogram(
            "clearway_time_to_start_seconds",
            "From the plan of an eviction to the start of its preemptor.",
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )
        self._time_to_empty = Histogram(
            "clearway_time_to_empty_seconds",
            "From the beginning of a drain until its nodes were empty.",
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )
        self._emptied = Counter("clearway_nodes_emptied", "Nodes that drains have emptied.", registry=registry)
        self._moves = MoveMetrics(registry)
        self._rolling = RollingMetrics(registry)
        self._margin = Histogram(
            "clearway_start_margin_seconds",
            "By how much a preemptor started before its deadline; negative: after it.",
            buckets=_MARGIN_BUCKETS,
            registry=registry,
        )
        self._planner_seconds = Histogram(
            "clearway_planner_duration_seconds",
            "Time to plan an eviction and to store it.",
            buckets=_PLANNER_BUCKETS,
            registry=registry,
        )
        for state in _OPEN_EVICTIONS:
            self._open.labels(state.value)
        for preemption_state in _OPEN_PREEMPTIONS:
            self._open_preemptions.labels(preemption_state.value)
        for state in _FINISHED_EVICTIONS:
            self._finished.labels(state.value)
        for mode in Mode:
            self._planned.labels(mode.value)
        for result in ("in_time", "late"):
            self._starts.labels(result)

    def _declare_work(self) -> None:
        registry = self.registry
        self._preemptions = Counter(
            "clearway_preemptions",
            "Jobs that passed their point of no return.",
            ["action", "partition"],
            registry=registry,
        )
        self._lost = Counter(
            "clearway_lost_work_node_seconds", "Work that preemption lost.", ["action"], registry=registry
        )
        self._saved = Counter(
            "clearway_saved_work_node_seconds",
            "Work that checkpoints saved: what a kill instead would have lost, less what was lost.",
            registry=registry,
        )
        self._checkpoint_seconds = Histogram(
            "clearway_checkpoint_duration_seconds",
            "From asking a job to save itself to its checkpoint.",
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )
        self._checkpoint_error = Histogram(
            "clearway_checkpoint_prediction_error_seconds",
            "By how much a checkpoint took longer than predicted; negative: less long.",
            buckets=_MARGIN_BUCKETS,
            registry=registry,
        )
        self._budget_jobs = Gauge(
            "clearway_budget_jobs", "Jobs preempted in the last hour, and how many may be.", ["kind"], registry=registry
        )
        self._budget_lost = Gauge(
            "clearway_budget_lost_node_seconds",
            "Work lost in the last hour, and how much may be.",
            ["kind"],
            registry=registry,
        )
        self._rule_lost = Counter(
            "clearway_rule_lost_work_node_seconds",
            "Work that plans expected to lose (rule clearway), and that simple rules would have lost in their place.",
            ["rule"],
            registry=registry,
        )
        self._rule_infeasible = Counter(
            "clearway_rule_infeasible",
            "Plans in whose place a simple rule would not have freed the nodes in time; they add nothing to its loss.",
            ["rule"],
            registry=registry,
        )
        self._rule_lost.labels("clearway")
        for rule in RULES:
            self._rule_lost.labels(rule.name)
            self._rule_infeasible.labels(rule.name)
        for action in _PREEMPTING:
            self._lost.labels(action.value)
        self._budget_jobs.labels("used")
        self._budget_lost.labels("used")

    def _declare_learning(self) -> None:
        registry = self.registry
        self._checkpoints = Counter(
            "clearway_checkpoints",
            "Checkpoints that were asked for, by what became of them.",
            ["checkpointer", "outcome"],
            registry=registry,
        )
        self._checkpoint_ratio = Histogram(
            "clearway_checkpoint_seconds_ratio",
            "Seconds that a checkpoint took, over those that were predicted.",
            buckets=_RATIO_BUCKETS,
            registry=registry,
        )
        self._job_restarts = Counter(
            "clearway_restarts",
            "Runs that went on from a checkpoint: from the newest (ok), the one before (fallback), or none (scratch).",
            ["restart"],
            registry=registry,
        )
        for outcome in CheckpointOutcome:
            for checkpointer in (*sorted(self._checkpointers), _OTHER):
                self._checkpoints.labels(checkpointer, outcome.value)
        for restart in Restart:
            self._job_restarts.labels(restart.value)

    # -- what is told by the loop --------------------------------------------------------------------------

    def configured(self, config: Config) -> None:
        """Show mode and limits; a limit that is not set is absent."""
        for mode in Mode:
            self._mode.labels(mode.value).set(mode is config.daemon.mode)
        limits = config.budget
        node_hours = limits.lost_node_hours_per_hour
        for gauge, limit in (
            (self._budget_jobs, limits.jobs_per_hour),
            (self._budget_lost, None if node_hours is None else node_hours * 3_600),
        ):
            if limit is not None:
                gauge.labels("limit").set(limit)
            else:
                with suppress(KeyError):  # there was none
                    gauge.remove("limit")

    def count_restarts(self, restarts: Callable[[], int]) -> None:
        """Show how often the backend's own process had to be started again; 0 for one without such a process."""
        self._restarts.count = restarts

    @singledispatchmethod
    def record(self, event: Event) -> None:
        """Count one event; the types that are not registered below change no metric."""

    @record.register
    def _cycle(self, report: CycleReport) -> None:
        self._cycles.inc()
        self._cycle_seconds.observe(report.seconds)
        self._last_cycle.set(self._wall.now().timestamp())
        self._queries.inc(report.snapshot.queries)
        self._paused.set(report.paused)
        self._standby.set(report.standby)
        self._waiting.set(len(report.waiting))
        self._unplanned.set(sum(1 for waiting in report.waiting if waiting.eviction_id is None))
        self._overdue.set(sum(1 for waiting in report.waiting if waiting.preemptor.deadline < report.at))
        self._budget_jobs.labels("used").set(report.usage.jobs)
        self._budget_lost.labels("used").set(report.usage.lost_node_s)
        self._unreadable_claims.set(sum(1 for job in report.snapshot.jobs if read_claims(job)[1]))
        self._count_skipped(report)
        self._know_partitions(report)
        evictions = Tally(eviction.state for eviction in report.open_evictions)
        for state in _OPEN_EVICTIONS:
            self._open.labels(state.value).set(evictions[state])
        preemptions = Tally(p.state for e in report.open_evictions if e.state.acting for p in e.preemptions)
        for preemption_state in _OPEN_PREEMPTIONS:
            self._open_preemptions.labels(preemption_state.value).set(preemptions[preemption_state])
        for eviction in report.open_evictions:
            self._count_start(eviction)
        self._rolling.cycle(report.rolling_drains, report.at)

    @record.register
    def _cycle_failed(self, event: CycleFailed) -> None:
        self._cycle_failures.labels(failure_kind(event.error)).inc()

    @record.register
    def _plan_made(self, event: PlanMade) -> None:
        self._planned.labels(event.operation.mode).inc()
        if isinstance(event.operation, Eviction):  # drains are planned later, relocations in another way
            self._planner_seconds.observe(event.seconds)

    @record.register
    def _plan_explained(self, event: PlanExplained) -> None:
        """Only what is carried out is summed up: proposals may be made anew time and again.

        Plans made together with others are left out: a rule was asked about each of them as if it were alone.
        """
        eviction, explanation = event.operation, event.explanation
        carried_out = eviction.state.acting or eviction.state is EvictionState.COMPLETED
        if not carried_out or (isinstance(eviction, Eviction) and eviction.plan.together):
            return
        self._rule_lost.labels("clearway").inc(explanation.cost.lost_work_node_s)
        for outcome in explanation.rules:
            if outcome.cost is None:
                self._rule_infeasible.labels(outcome.rule).inc()
            else:
                self._rule_lost.labels(outcome.rule).inc(outcome.cost.lost_work_node_s)

    @record.register
    def _command(self, event: CommandGiven) -> None:
        self._steps.labels(event.kind, event.result).inc()

    @record.register
    def _left(self, event: JobLeft) -> None:
        preemption = event.preemption
        self._preemptions.labels(preemption.action.value, event.partition).inc()
        self._lost.labels(preemption.action.value).inc(preemption.actual_lost_node_s or 0.0)
        self._saved.inc(saved_node_s(preemption))
        if preemption.actual_checkpoint_s is not None:
            self._checkpoint_seconds.observe(preemption.actual_checkpoint_s)
            self._checkpoint_error.observe(preemption.actual_checkpoint_s - preemption.predicted_checkpoint_s)

    @record.register
    def _checkpointed(self, record: CheckpointRecord) -> None:
        known = record.checkpointer in self._checkpointers
        self._checkpoints.labels(record.checkpointer if known else _OTHER, record.outcome.value).inc()
        if record.actual_s is not None and record.predicted_s > 0:
            self._checkpoint_ratio.observe(record.actual_s / record.predicted_s)

    @record.register
    def _restarted(self, record: RestartRecord) -> None:
        self._job_restarts.labels(record.restart.value).inc()

    @record.register
    def _rolled(self, event: RollingProgress) -> None:
        self._rolling.rolled(event.before, event.after)

    @record.register
    def _ended(self, event: OperationFinished) -> None:
        eviction = event.operation
        self._count_start(eviction)
        self._finished.labels(eviction.state.value).inc()
        if eviction.state is EvictionState.FAILED and isinstance(eviction, Eviction):
            self._count_missed(eviction)
        self._moves.finished(eviction)
        self._started.discard(eviction.eviction_id)
        self._missed.discard(eviction.eviction_id)

    # -- what is worked out here ---------------------------------------------------------------------------

    def _count_start(self, eviction: Operation) -> None:
        """Once for each start that happened in this daemon's life; an earlier one has been counted before."""
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

    def _count_skipped(self, report: CycleReport) -> None:
        skipped = frozenset((item.kind, item.ident) for item in report.snapshot.skipped)
        for kind, _ in skipped - self._skipped:
            self._skipped_total.labels(_record(kind)).inc()
        self._skipped = skipped
        kinds = Tally(_record(item.kind) for item in report.snapshot.skipped)
        for kind in _RECORDS:
            self._unreadable_records.labels(kind).set(kinds[kind])

    def _know_partitions(self, report: CycleReport) -> None:
        """A counter must be seen at 0 before it rises: else Prometheus misses its first increase."""
        partitions = frozenset(partition for node in report.snapshot.nodes for partition in node.partitions)
        for partition in partitions - self._partitions:
            for action in _PREEMPTING:
                self._preemptions.labels(action.value, partition)
        self._partitions |= partitions

    def text(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self.registry)


class _Restarts:
    """Reads the backend's own count when Prometheus asks."""

    def __init__(self) -> None:
        self.count: Callable[[], int] = lambda: 0

    def collect(self) -> Iterator[Metric]:
        text = "Times that the backend's own process was started again."
        yield CounterMetricFamily("clearway_backend_restarts", text, value=self.count())


def saved_node_s(preemption: Preemption) -> float:
    """Work (node-seconds) that a kill would have lost when the job was asked to save itself, less what was lost."""
    if preemption.asked_at is None or preemption.actual_lost_node_s is None:
        return 0.0
    job = preemption.job  # as seen when it was chosen: its claims are those of before the asking
    claims, _ = read_claims(job)
    since = last_checkpoint(claims, job.start_time or job.submit_time, preemption.asked_at)
    would_lose = max(1, job.num_nodes) * max(0.0, (preemption.asked_at - since).total_seconds())
    return max(0.0, would_lose - preemption.actual_lost_node_s)


def failure_kind(error: BaseException) -> str:
    match error:
        case SlurmTimeoutError():
            return "slurm_timeout"
        case SlurmUnavailableError():
            return "slurm_unavailable"
        case SlurmRefusedError():
            return "slurm_refused"
        case StoreError():
            return "store"
        case _:
            return "internal"


def _record(kind: str) -> str:
    return kind if kind in _RECORDS else "job"
