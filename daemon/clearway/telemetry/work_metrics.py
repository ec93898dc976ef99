"""What preemption costs and saves, and what has become of checkpoints, for Prometheus.

Work is counted when a job passes its point of no return, that is when its requeue or cancellation is intended:

lost    nodes x time since the job's last checkpoint (``Preemption.actual_lost_node_s``).
saved   what would have been lost had the job been killed at the moment it was asked to save itself, less what was
        lost after all. Nothing for jobs that were requeued without being asked; never negative.
"""

from collections.abc import Iterable
from functools import singledispatchmethod
from itertools import product

from clearway.config.configuration import Config
from clearway.model.claims import last_checkpoint, read_claims
from clearway.model.events import Event, JobLeft, PlanExplained
from clearway.model.operations import Eviction, EvictionState, Preemption
from clearway.model.records import CheckpointOutcome, CheckpointRecord, RestartRecord
from clearway.model.report import CycleReport
from clearway.telemetry.families import PREEMPTING, Families

_APPLICATION, _OTHER = "application", "other"  # checkpointers: what saves itself, and what is not installed here


class WorkMetrics:
    """``checkpointers`` are those that are installed: jobs name them, and what a job says must make no label."""

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
