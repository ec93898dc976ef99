"""What Prometheus reads, in a registry of its own: what events and cycles count.

Labels take few values: never a job id or a user's name. Counters start at 0 with the daemon, as Prometheus expects.
"""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product

from prometheus_client import CollectorRegistry, Info, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.exposition import generate_latest

import clearway
from clearway.config.configuration import Config, Mode
from clearway.drain.rolling import newly_skipped, standstill_s
from clearway.estimates.history import saved_node_s
from clearway.model import events
from clearway.model.claims import CLAIM, read_claims, tells_restart
from clearway.model.clock import Clock, SystemClock
from clearway.model.losses import is_measured
from clearway.model.operations import Drain, Eviction, EvictionState, Operation, PreemptionState, Promise, Relocation
from clearway.model.outcome import OutcomeCode
from clearway.model.records import CheckpointOutcome, CheckpointRecord, RestartRecord
from clearway.model.report import CycleReport
from clearway.telemetry.families import CUTS, FAILURES, PREEMPTING, RECORDS, Families

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter, which is never read

_APPLICATION, _OTHER = "application", "other"  # checkpointers: what saves itself, and what is not installed here
OWN = 100  # combinations of labels that keep their account
OTHER, NONE = "other", "none"
_LONGEST = 64  # characters of a label's value
_FLAGS = ("paused", "stopped", "halted", "only_observes", "standby")  # of the report


class Metrics(Families):
    """All metrics of one daemon. ``clock`` is the loop's; times of day that are shown come from the wall's.

    ``checkpointers`` are those that are installed: jobs name them, and what a job says must make no label.

    Work is counted once a job has left, as Slurm says afterwards: a counter cannot take anything back.

    lost    nodes x time since the job's last checkpoint (``Preemption.actual_lost_node_s``). More is added once its
            next run says that it went on from an older one, or began anew, and how long its restart took.
    saved   what would have been lost had the job been killed at the moment it was asked to save itself, less what was
            lost after all. Where the next run says how it went on, once it has.
            Nothing for jobs that were requeued without being asked; never negative.

    Each job that leaves is counted by account twice: for what it left for, and for itself. A site may have thousands
    of accounts, and where Slurm enforces none, users invent them. So each of these families has at most
    ``2 * OWN + 1`` combinations of labels: the first ``OWN`` as they are, then as many with the account ``other``, and
    one that is ``other`` throughout. Which come first is by time: a counter must not change its labels. Whoever reaches
    the API can read metrics, so accounts are named only where ``access.account_metrics`` says so.
    """

    def __init__(
        self, clock: Clock, *, backend: str = "", wall: Clock | None = None, checkpointers: Iterable[str] = ()
    ) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self.registry)
        build = Info("clearway_build", "Version of the daemon.", registry=self.registry)
        build.info({"version": clearway.__version__, "python": platform.python_version()})
        Info("clearway_backend", "How the daemon talks to Slurm.", registry=self.registry).info({"name": backend})
        self.restarts: Callable[[], int] = lambda: 0
        """How often the backend's own process had to be started again; 0 for one without such a process."""
        self.leads: Callable[[], bool] = lambda: True
        """Whether the lease of a daemon that led in its last cycle still lasts."""
        self._led = False
        self.registry.register(self)
        super().__init__(self.registry)
        self._since = clock.now()  # an earlier daemon has counted what happened before
        self._wall = wall or SystemClock()
        self._skipped: frozenset[tuple[str, str]] = frozenset()
        self._started: set[int] = set()  # operations whose start is counted
        self._missed: set[int] = set()  # ... whose missed deadline is counted
        self._partitions: frozenset[str] = frozenset()
        self._accounts_named = False
        self._causes, self._payers = _Bound(account_at=1), _Bound(account_at=0)
        self._checkpointers = frozenset({_APPLICATION, *checkpointers})
        for checkpointer, outcome in product((*sorted(self._checkpointers), _OTHER), CheckpointOutcome):
            self.add("checkpoints", 0, checkpointer, outcome.value)

    def configured(self, config: Config) -> None:
        """Show mode and limits (one that is not set is absent), and from now on name accounts or not."""
        for mode in Mode:
            self.set("mode", mode is config.daemon.mode, mode.value)
        self.set("database_limit_bytes", config.daemon.database_limit_mib * 2**20)
        node_hours = config.budget.lost_node_hours_per_hour
        self.set("budget_jobs", config.budget.jobs_per_hour, "limit")
        self.set("budget_lost_node_seconds", None if node_hours is None else node_hours * 3_600, "limit")
        self._accounts_named = config.access.account_metrics

    def collect(self) -> Iterator[Metric]:
        """The backend's own count, read when Prometheus asks."""
        text = "Times that the backend's own process was started again; always 0 for one without such a process."
        yield CounterMetricFamily("clearway_backend_restarts", text, value=self.restarts())

    def text(self) -> bytes:
        """Prometheus' text format. A daemon that cannot renew its lease has no cycle that says so."""
        if self._led and not self.leads():
            self.set("standby", True)
            self.set("lease_epoch", 0)
        return generate_latest(self.registry)

    def record(self, event: events.Event) -> None:
        """Count one event; other types change nothing."""
        match event:
            case CycleReport():
                self._count_cycle(event)
            case events.CycleFailed(error):
                self.add("cycle_failures", 1, _kind_of(error, FAILURES))
            case events.CycleCut(error):
                self.add("cycles_cut", 1, _kind_of(error, CUTS))
            case events.HandlingFailed(failed):
                self.add("handling_failures", 1, failed.subject.value)
            case events.CommandGiven(kind, result):
                self.add("slurm_steps", 1, kind, result)
            case _:
                self._record_of_operation(event)

    def _record_of_operation(self, event: events.Event) -> None:
        match event:
            case events.RollingProgress(before, after):
                self.add("rolling_drain_skipped_nodes", len(newly_skipped(before, after)))
            case events.PlanMade(operation, seconds):
                self.add("evictions_planned", 1, operation.mode)
                if isinstance(operation, Eviction):  # drains are planned later, relocations in another way
                    self.observe("planner_duration_seconds", seconds)
            case events.PlanExplained():
                self._count_rules(event)
            case events.OperationFinished(operation):
                self._count_end(operation)
            case events.JobLeft():
                self._count_left(event)
            case events.LossMeasured():
                self._count_measured(event)
            case CheckpointRecord():
                self._count_checkpoint(event)
            case RestartRecord():
                self.add("restarts", 1, event.restart.value)

    def _count_cycle(self, report: CycleReport) -> None:
        self.add("cycles")
        self.observe("cycle_duration_seconds", report.seconds)
        self.set("last_cycle_timestamp_seconds", self._wall.now().timestamp())
        for flag in _FLAGS:
            self.set(flag, bool(getattr(report, flag)))
        self.set("clock_doubted", bool(report.clock_doubt))
        self.set("lease_epoch", report.epoch or 0)
        self._led = report.epoch is not None
        self.set("database_bytes", report.database_bytes)
        self.set_tally("quarantined", (each.subject.value for each in report.quarantined))
        self.set("budget_jobs", report.usage.jobs, "used")
        self.set("budget_lost_node_seconds", report.usage.lost_node_s, "used")
        self._count_seen(report)
        self._count_open(report)

    def _count_seen(self, report: CycleReport) -> None:
        """What the snapshot holds."""
        snapshot = report.snapshot
        self.add("slurm_queries", snapshot.queries)
        unreadable = sum(1 for job in snapshot.jobs if CLAIM in job.comment and read_claims(job)[1])
        self.set("unreadable_claims", unreadable)
        self.set_tally("unreadable_records", (_record(item.kind) for item in snapshot.skipped))
        skipped = frozenset((item.kind, item.ident) for item in snapshot.skipped)
        for kind, _ in skipped - self._skipped:
            self.add("skipped_records", 1, _record(kind))
        self._skipped = skipped
        partitions = frozenset(partition for node in snapshot.nodes for partition in node.partitions)
        for partition, action in product(partitions - self._partitions, PREEMPTING):
            self.add("preemptions", 0, action.value, partition)
        self._partitions |= partitions

    def _count_open(self, report: CycleReport) -> None:
        """What waits, and what is under way; only the daemon that acts has rolling drains."""
        waiting, operations, rolling = report.waiting, report.open_evictions, report.rolling_drains
        self.set("waiting_preemptors", len(waiting))
        self.set("waiting_preemptors_overdue", sum(each.preemptor.deadline < report.at for each in waiting))
        self.set("waiting_preemptors_without_eviction", sum(each.eviction_id is None for each in waiting))
        kinds = ("left_alone" if left_alone else "asked_about" for left_alone in report.user_pauses)
        self.set_tally("paused_users", kinds)
        self.set_tally("urgent_jobs_left_to_slurm", report.left_to_slurm)
        self.set_tally("open_evictions", (each.state for each in operations))
        acting = (each for each in operations if each.state.acting)
        self.set_tally("open_preemptions", (p.state for each in acting for p in each.preemptions))
        self.set("open_rolling_drains", len(rolling))
        longest_s = max((standstill_s(each, report.at) for each in rolling), default=0.0)
        self.set("rolling_drain_standstill_seconds", longest_s)
        self.set_tally("rolling_drain_nodes", (turn.state for each in rolling for turn in each.turns))
        for operation in operations:
            self._count_start(operation)

    def _count_rules(self, event: events.PlanExplained) -> None:
        """Only what is carried out is summed up: proposals may be made anew time and again.

        Plans made together with others are left out: a rule was asked about each of them as if it were alone.
        """
        eviction, explanation = event.operation, event.explanation
        carried_out = eviction.state.acting or eviction.state is EvictionState.COMPLETED
        if not carried_out or (isinstance(eviction, Eviction) and eviction.plan.together):
            return
        self.add("rule_lost_work_node_seconds", explanation.cost.lost_work_node_s, "clearway")
        for outcome in explanation.rules:
            if outcome.cost is None:
                self.add("rule_infeasible", 1, outcome.rule)
            else:
                self.add("rule_lost_work_node_seconds", outcome.cost.lost_work_node_s, outcome.rule)

    def _count_end(self, operation: Operation) -> None:
        self._count_start(operation)
        self.add("evictions", 1, operation.state.value)
        if operation.state is EvictionState.FAILED and isinstance(operation, Eviction):
            self._count_missed(operation)
        if operation.state is EvictionState.FAILED and isinstance(operation, Promise):
            self.add("promises", 1, "not_kept")
        self._started.discard(operation.eviction_id)
        self._missed.discard(operation.eviction_id)
        if isinstance(operation, Relocation):
            order, kind = operation.order, operation.order.kind.value
            self.add("moved_jobs", sum(p.state is PreemptionState.RETURNED for p in operation.preemptions), kind)
            if operation.state is EvictionState.COMPLETED:
                self.add("move_gain_node_seconds", order.gain_node_s, kind)
                self.add("compacted_nodes", len(order.nodes))

    def _count_start(self, operation: Operation) -> None:
        """Once for each start that happened in this daemon's life; relocations are counted when they are over."""
        started = operation.started_at
        if started is None or started < self._since or operation.eviction_id in self._started:
            return
        self._started.add(operation.eviction_id)
        match operation:
            case Drain():
                begun = operation.order.begin_at or operation.created_at
                self.observe("time_to_empty_seconds", max(0.0, (started - begun).total_seconds()))
                self.add("nodes_emptied", len(operation.order.nodes))
            case Promise():
                self.add("promises", 1, "late" if operation.outcome_code is OutcomeCode.KEPT_LATE else "kept")
            case Eviction():
                margin_s = (operation.plan.deadline - started).total_seconds()
                took_s = max(0.0, (started - operation.created_at).total_seconds())
                self.observe("time_to_start_seconds", took_s)
                self.observe("start_margin_seconds", margin_s)
                self.add("preemptor_starts", 1, "in_time" if margin_s >= 0 else "late")
                if margin_s < 0:
                    self._count_missed(operation)

    def _count_missed(self, eviction: Eviction) -> None:
        if eviction.eviction_id not in self._missed:
            self._missed.add(eviction.eviction_id)
            self.add("deadlines_missed")

    def _count_left(self, event: events.JobLeft) -> None:
        preemption, action = event.preemption, event.preemption.action.value
        lost_node_s = preemption.actual_lost_node_s or 0.0
        self.add("preemptions", 1, action, event.partition)
        self.add("lost_work_node_seconds", lost_node_s, action)
        if is_measured(preemption) or not tells_restart(preemption.job):
            self.add("saved_work_node_seconds", saved_node_s(preemption))
        if (took_s := preemption.actual_checkpoint_s) is not None:
            self.observe("checkpoint_duration_seconds", took_s)
            self.observe("checkpoint_prediction_error_seconds", took_s - preemption.predicted_checkpoint_s)
        cause, payer = self._who(event)
        self.add("caused_preemptions", 1, *cause)
        self.add("caused_lost_work_node_seconds", lost_node_s, *cause)
        self.add("suffered_preemptions", 1, *payer)
        self.add("suffered_lost_work_node_seconds", lost_node_s, *payer)

    def _who(self, event: events.JobLeft | events.LossMeasured) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The labels of what the job left for, and of itself."""
        rule, account, partition = _cause(event.operation)
        cause = self._causes.within(rule, self._named(account), partition)
        return cause, self._payers.within(self._named(event.preemption.job.account), event.partition)

    def _count_measured(self, event: events.LossMeasured) -> None:
        """What was lost beyond what was counted when it left, and what its checkpoint has saved after all."""
        before, after = event.before, event.preemption
        more_node_s = max(0.0, (after.actual_lost_node_s or 0.0) - (before.actual_lost_node_s or 0.0))
        cause, payer = self._who(event)
        self.add("lost_work_node_seconds", more_node_s, after.action.value)
        self.add("caused_lost_work_node_seconds", more_node_s, *cause)
        self.add("suffered_lost_work_node_seconds", more_node_s, *payer)
        if not is_measured(before) and tells_restart(before.job):
            self.add("saved_work_node_seconds", saved_node_s(after))

    def _named(self, account: str) -> str:
        return account if self._accounts_named else OTHER

    def _count_checkpoint(self, record: CheckpointRecord) -> None:
        checkpointer = record.checkpointer if record.checkpointer in self._checkpointers else _OTHER
        self.add("checkpoints", 1, checkpointer, record.outcome.value)
        if record.actual_s is not None and record.predicted_s > 0:
            self.observe("checkpoint_seconds_ratio", record.actual_s / record.predicted_s)


def _kind_of(error: BaseException, kinds: Mapping[type[BaseException], str]) -> str:
    """The label of a cycle that failed or was cut."""
    return next(kind for sort, kind in kinds.items() if isinstance(error, sort))


def _record(kind: str) -> str:
    return kind if kind in RECORDS else "job"


def _cause(operation: Operation) -> tuple[str, str, str]:
    """Rule, account and partition of the job that others leave for; drains and moves are rules of their own."""
    match operation:
        case Eviction():
            job = operation.preemptor
            return operation.plan.rule, job.account, job.partitions[0] if job.partitions else ""
        case Relocation():
            return operation.order.kind.value, "", ""
        case _:
            return operation.kind.value, "", ""


class _Bound:
    """Lets few combinations of labels through, and the same ones ever after; see ``Metrics``."""

    def __init__(self, account_at: int) -> None:
        self._account_at = account_at  # its place among the labels
        self._own: set[tuple[str, ...]] = set()
        self._shared: set[tuple[str, ...]] = set()

    def within(self, *values: str) -> tuple[str, ...]:
        """These values as labels."""
        shown = tuple(_shown(value) for value in values)
        shared = tuple(OTHER if place == self._account_at else value for place, value in enumerate(shown))
        for labels, known in ((shown, self._own), (shared, self._shared)):
            if labels not in known and len(known) < OWN:
                known.add(labels)
            if labels in known:
                return labels
        return tuple(OTHER for _ in shown)


def _shown(value: str) -> str:
    """What a user may have written must be neither long nor strange."""
    return (value if value.isprintable() and len(value) <= _LONGEST else OTHER) if value else NONE
