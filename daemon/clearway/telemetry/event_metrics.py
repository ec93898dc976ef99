"""What events and cycles count, for Prometheus."""

from collections.abc import Iterable
from datetime import datetime
from functools import singledispatchmethod
from itertools import product

from clearway.config.configuration import Config
from clearway.drain.rolling import newly_skipped, standstill_s
from clearway.model.claims import last_checkpoint, read_claims
from clearway.model.events import Event, JobLeft, OperationFinished, PlanExplained, PlanMade, RollingProgress
from clearway.model.notice import Channel, Waiting
from clearway.model.operations import (
    Drain,
    Eviction,
    EvictionState,
    Operation,
    Preemption,
    PreemptionState,
    Promise,
    Relocation,
)
from clearway.model.outcome import OutcomeCode
from clearway.model.records import CheckpointOutcome, CheckpointRecord, RestartRecord
from clearway.model.report import CycleReport
from clearway.telemetry.families import PREEMPTING, Families


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


class NoticeMetrics:
    def __init__(self, families: Families) -> None:
        self._families = families

    def sent(self, channel: Channel) -> None:
        self._families.add("messages_sent", 1, channel.value)

    def failed(self, channel: Channel) -> None:
        self._families.add("messages_failed", 1, channel.value)

    def given_up(self, channel: Channel, notices: int) -> None:
        self._families.add("notices_given_up", notices, channel.value)

    def waiting(self, channel: Channel, waiting: Waiting) -> None:
        self._families.set("notices_waiting", waiting.count, channel.value)
        oldest = waiting.oldest.timestamp() if waiting.oldest is not None else 0.0
        self._families.set("notices_oldest_timestamp_seconds", oldest, channel.value)


_APPLICATION, _OTHER = "application", "other"  # checkpointers: what saves itself, and what is not installed here


class WorkMetrics:
    """What preemption costs and saves, and what has become of checkpoints, for Prometheus.

    Work is counted when a job passes its point of no return, that is when its requeue or cancellation is intended:

    lost    nodes x time since the job's last checkpoint (``Preemption.actual_lost_node_s``).
    saved   what would have been lost had the job been killed at the moment it was asked to save itself, less what was
            lost after all. Nothing for jobs that were requeued without being asked; never negative.

    ``checkpointers`` are those that are installed: jobs name them, and what a job says must make no label.
    """

    def __init__(self, families: Families, checkpointers: Iterable[str]) -> None:
        self._families = families
        self._checkpointers = frozenset({_APPLICATION, *checkpointers})
        self._partitions: frozenset[str] = frozenset()
        for checkpointer, outcome in product((*sorted(self._checkpointers), _OTHER), CheckpointOutcome):
            families.add("checkpoints", 0, checkpointer, outcome.value)

    def configured(self, config: Config) -> None:
        """Show the limits; one that is not set is absent."""
        limits = config.budget
        node_hours = limits.lost_node_hours_per_hour
        self._families.set("budget_jobs", limits.jobs_per_hour, "limit")
        self._families.set("budget_lost_node_seconds", None if node_hours is None else node_hours * 3_600, "limit")

    @singledispatchmethod
    def record(self, event: Event) -> None:
        """Count one event; types that are not registered below change nothing here."""

    @record.register
    def _cycle(self, report: CycleReport) -> None:
        self._families.set("budget_jobs", report.usage.jobs, "used")
        self._families.set("budget_lost_node_seconds", report.usage.lost_node_s, "used")
        partitions = frozenset(partition for node in report.snapshot.nodes for partition in node.partitions)
        for partition, action in product(partitions - self._partitions, PREEMPTING):
            self._families.add("preemptions", 0, action.value, partition)
        self._partitions |= partitions

    @record.register
    def _left(self, event: JobLeft) -> None:
        preemption, action = event.preemption, event.preemption.action.value
        self._families.add("preemptions", 1, action, event.partition)
        self._families.add("lost_work_node_seconds", preemption.actual_lost_node_s or 0.0, action)
        self._families.add("saved_work_node_seconds", saved_node_s(preemption))
        if (took_s := preemption.actual_checkpoint_s) is not None:
            self._families.observe("checkpoint_duration_seconds", took_s)
            self._families.observe("checkpoint_prediction_error_seconds", took_s - preemption.predicted_checkpoint_s)

    @record.register
    def _plan_explained(self, event: PlanExplained) -> None:
        """Only what is carried out is summed up: proposals may be made anew time and again.

        Plans made together with others are left out: a rule was asked about each of them as if it were alone.
        """
        eviction, explanation = event.operation, event.explanation
        carried_out = eviction.state.acting or eviction.state is EvictionState.COMPLETED
        if not carried_out or (isinstance(eviction, Eviction) and eviction.plan.together):
            return
        self._families.add("rule_lost_work_node_seconds", explanation.cost.lost_work_node_s, "clearway")
        for outcome in explanation.rules:
            if outcome.cost is None:
                self._families.add("rule_infeasible", 1, outcome.rule)
            else:
                self._families.add("rule_lost_work_node_seconds", outcome.cost.lost_work_node_s, outcome.rule)

    @record.register
    def _checkpointed(self, record: CheckpointRecord) -> None:
        checkpointer = record.checkpointer if record.checkpointer in self._checkpointers else _OTHER
        self._families.add("checkpoints", 1, checkpointer, record.outcome.value)
        if record.actual_s is not None and record.predicted_s > 0:
            self._families.observe("checkpoint_seconds_ratio", record.actual_s / record.predicted_s)

    @record.register
    def _restarted(self, record: RestartRecord) -> None:
        self._families.add("restarts", 1, record.restart.value)


def saved_node_s(preemption: Preemption) -> float:
    """Work (node-seconds) that a kill would have lost when the job was asked to save itself, less what was lost."""
    if preemption.asked_at is None or preemption.actual_lost_node_s is None:
        return 0.0
    job = preemption.job  # as seen when it was chosen: its claims are those of before the asking
    claims, _ = read_claims(job)
    since = last_checkpoint(claims, job.start_time or job.submit_time, preemption.asked_at)
    would_lose = max(1, job.num_nodes) * max(0.0, (preemption.asked_at - since).total_seconds())
    return max(0.0, would_lose - preemption.actual_lost_node_s)


OWN = 100  # combinations of labels that keep their account
OTHER, NONE = "other", "none"
_LONGEST = 64  # characters of a value


class AccountMetrics:
    """Who causes preemptions, and who pays for them, for Prometheus: by rule, account and partition.

    A site may have thousands of accounts, and where Slurm enforces none, users invent them. So each family has at most
    ``2 * OWN + 1`` combinations of labels: the first ``OWN`` as they are, then as many with the account ``other``, and
    one that is ``other`` throughout. Which come first is by time: a counter must not change its labels. Whoever reaches
    the API can read metrics, so accounts are named only where ``access.account_metrics`` says so.

    Counts each job that leaves twice: for what it left for, and for itself.
    """

    def __init__(self, families: Families) -> None:
        self._families = families
        self._named = False
        self._causes, self._payers = _Bound(), _Bound()

    def configured(self, config: Config) -> None:
        """From now on, accounts have their names or not."""
        self._named = config.access.account_metrics

    @singledispatchmethod
    def record(self, event: Event) -> None:
        """Count one event; types that are not registered below change nothing here."""

    @record.register
    def _left(self, event: JobLeft) -> None:
        lost_node_s = event.preemption.actual_lost_node_s or 0.0
        rule, account, partition = _cause(event.operation)
        cause = self._causes.within((rule, self._name(account), partition), account=1)
        payer = self._payers.within((self._name(event.preemption.job.account), event.partition), account=0)
        self._families.add("caused_preemptions", 1, *cause)
        self._families.add("caused_lost_work_node_seconds", lost_node_s, *cause)
        self._families.add("suffered_preemptions", 1, *payer)
        self._families.add("suffered_lost_work_node_seconds", lost_node_s, *payer)

    def _name(self, account: str) -> str:
        return account if self._named else OTHER


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
    """Lets few combinations of labels through, and the same ones ever after."""

    def __init__(self) -> None:
        self._own: set[tuple[str, ...]] = set()
        self._shared: set[tuple[str, ...]] = set()

    def within(self, values: tuple[str, ...], account: int) -> tuple[str, ...]:
        """These values as labels; ``account`` is the place of the account among them."""
        shown = tuple(_shown(value) for value in values)
        if _admitted(shown, self._own):
            return shown
        shared = (*shown[:account], OTHER, *shown[account + 1 :])
        return shared if _admitted(shared, self._shared) else tuple(OTHER for _ in shown)


def _admitted(labels: tuple[str, ...], known: set[tuple[str, ...]]) -> bool:
    if labels not in known and len(known) < OWN:
        known.add(labels)
    return labels in known


def _shown(value: str) -> str:
    """What a user may have written must be neither long nor strange."""
    return (value if value.isprintable() and len(value) <= _LONGEST else OTHER) if value else NONE
