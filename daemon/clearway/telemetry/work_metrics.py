"""What preemption costs and saves, and what has become of checkpoints, for Prometheus.

Work is counted when a job passes its point of no return, that is when its requeue or cancellation is intended:

lost    nodes x time since the job's last checkpoint (``Preemption.actual_lost_node_s``).
saved   what would have been lost had the job been killed at the moment it was asked to save itself, less what was
        lost after all. Nothing for jobs that were requeued without being asked; never negative.
"""

from collections.abc import Iterable
from contextlib import suppress
from functools import singledispatchmethod

from clearway.config.configuration import Config
from clearway.model.claims import Restart, last_checkpoint, read_claims
from clearway.model.events import Event, JobLeft, PlanExplained
from clearway.model.operations import Eviction, EvictionState, Preemption
from clearway.model.problem import Action
from clearway.model.records import CheckpointOutcome, CheckpointRecord, RestartRecord
from clearway.model.report import CycleReport
from clearway.preemption.explanation import RULES
from clearway.telemetry.families import MARGIN_BUCKETS, WAIT_BUCKETS, Families

_PREEMPTING = tuple(action for action in Action if action is not Action.END)
_APPLICATION, _OTHER = "application", "other"  # checkpointers: what saves itself, and what is not installed here
_RATIO_BUCKETS = (0.1, 0.25, 0.5, 0.75, 0.9, 1, 1.1, 1.25, 1.5, 2, 4, 10)


class WorkMetrics:
    """``checkpointers`` are those that are installed: jobs name them, and what a job says must make no label."""

    def __init__(self, families: Families, checkpointers: Iterable[str]) -> None:
        self._checkpointers = frozenset({_APPLICATION, *checkpointers})
        self._partitions: frozenset[str] = frozenset()
        rules = [rule.name for rule in RULES]
        self._preemptions = families.counter(
            "clearway_preemptions", "Jobs that passed their point of no return.", action=(), partition=()
        )
        self._lost = families.counter(
            "clearway_lost_work_node_seconds",
            "Node-seconds of work that preemption lost, by action.",
            action=[action.value for action in _PREEMPTING],
        )
        self._saved = families.counter(
            "clearway_saved_work_node_seconds",
            "Node-seconds of work that checkpoints saved: what a kill would have lost, less what was lost.",
        )
        self._checkpoint_seconds = families.histogram(
            "clearway_checkpoint_duration_seconds",
            "Seconds from asking a job to save itself to its checkpoint.",
            WAIT_BUCKETS,
        )
        self._checkpoint_error = families.histogram(
            "clearway_checkpoint_prediction_error_seconds",
            "Seconds that a checkpoint took beyond those predicted; negative: it took less.",
            MARGIN_BUCKETS,
        )
        self._budget_jobs = families.gauge(
            "clearway_budget_jobs",
            "Jobs preempted in the last hour (used), and how many may be (limit; absent: no limit).",
            kind=("used",),
        )
        self._budget_lost = families.gauge(
            "clearway_budget_lost_node_seconds",
            "Node-seconds of work lost in the last hour (used), and how many may be (limit; absent: no limit).",
            kind=("used",),
        )
        self._rule_lost = families.counter(
            "clearway_rule_lost_work_node_seconds",
            "Node-seconds that plans expected to lose (rule clearway), and that simple rules would have lost instead.",
            rule=("clearway", *rules),
        )
        self._rule_infeasible = families.counter(
            "clearway_rule_infeasible",
            "Plans for which a simple rule would not have freed the nodes in time; they add nothing to its loss.",
            rule=rules,
        )
        self._checkpoints = families.counter(
            "clearway_checkpoints",
            "Checkpoints that were asked for, by what became of them.",
            checkpointer=(*sorted(self._checkpointers), _OTHER),
            outcome=[outcome.value for outcome in CheckpointOutcome],
        )
        self._checkpoint_ratio = families.histogram(
            "clearway_checkpoint_seconds_ratio",
            "Seconds that a checkpoint took, over those predicted; 1: exactly as predicted.",
            _RATIO_BUCKETS,
        )
        self._restarts = families.counter(
            "clearway_restarts",
            "Runs that went on from a checkpoint: from the newest (ok), the one before (fallback), or none (scratch).",
            restart=[restart.value for restart in Restart],
        )

    def configured(self, config: Config) -> None:
        """Show the limits; one that is not set is absent."""
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

    @singledispatchmethod
    def record(self, event: Event) -> None:
        """Count one event; types that are not registered below change nothing here."""

    @record.register
    def _cycle(self, report: CycleReport) -> None:
        self._budget_jobs.labels("used").set(report.usage.jobs)
        self._budget_lost.labels("used").set(report.usage.lost_node_s)
        partitions = frozenset(partition for node in report.snapshot.nodes for partition in node.partitions)
        for partition in partitions - self._partitions:  # seen at 0 before they rise, as all counters
            for action in _PREEMPTING:
                self._preemptions.labels(action.value, partition)
        self._partitions |= partitions

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
    def _checkpointed(self, record: CheckpointRecord) -> None:
        known = record.checkpointer in self._checkpointers
        self._checkpoints.labels(record.checkpointer if known else _OTHER, record.outcome.value).inc()
        if record.actual_s is not None and record.predicted_s > 0:
            self._checkpoint_ratio.observe(record.actual_s / record.predicted_s)

    @record.register
    def _restarted(self, record: RestartRecord) -> None:
        self._restarts.labels(record.restart.value).inc()


def saved_node_s(preemption: Preemption) -> float:
    """Work (node-seconds) that a kill would have lost when the job was asked to save itself, less what was lost."""
    if preemption.asked_at is None or preemption.actual_lost_node_s is None:
        return 0.0
    job = preemption.job  # as seen when it was chosen: its claims are those of before the asking
    claims, _ = read_claims(job)
    since = last_checkpoint(claims, job.start_time or job.submit_time, preemption.asked_at)
    would_lose = max(1, job.num_nodes) * max(0.0, (preemption.asked_at - since).total_seconds())
    return max(0.0, would_lose - preemption.actual_lost_node_s)
