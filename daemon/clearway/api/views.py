"""From the product's records to the API's answers. Pure."""

from collections import Counter
from dataclasses import asdict
from datetime import datetime, timedelta

from clearway.api import plan_schemas as p
from clearway.api import schemas as s
from clearway.config.configuration import BudgetConfig, Config
from clearway.estimates.learning import History
from clearway.model.claims import read_claims
from clearway.model.explanation import Explanation
from clearway.model.operations import Drain, Operation, Preemption, Relocation, Usage
from clearway.model.orders import DrainOrder
from clearway.model.plan import Cost, NoPlan, OperationPlan, Plan
from clearway.model.records import Key
from clearway.model.report import CycleReport, Waiting

MOST_SKIPPED = 50


def cluster_view(report: CycleReport, config: Config, backend: str) -> s.ClusterView:
    snapshot = report.snapshot
    return s.ClusterView(
        taken_at=snapshot.taken_at,
        backend=backend,
        mode=config.daemon.mode,
        paused=report.paused,
        standby=report.standby,
        nodes=_node_counts(report),
        jobs=dict(sorted(Counter(job.state.value for job in snapshot.jobs).items())),
        waiting_preemptors=len(report.waiting),
        open_evictions=dict(sorted(Counter(e.state.value for e in report.open_evictions).items())),
        budget=budget_usage(report.usage, config.budget),
        skipped_records=len(snapshot.skipped),
        skipped=tuple(s.SkippedRecord.model_validate(item) for item in snapshot.skipped[:MOST_SKIPPED]),
        unreadable_claims=sum(1 for job in snapshot.jobs if read_claims(job)[1]),
        cycle_s=report.seconds,
    )


def _node_counts(report: CycleReport) -> s.NodeCounts:
    nodes, holders = report.snapshot.nodes, report.snapshot.jobs_on
    available = [node for node in nodes if node.available]
    return s.NodeCounts(
        total=len(nodes),
        available=len(available),
        free=sum(1 for node in available if node.name not in holders and node.alloc_cpus == 0),
        occupied=sum(1 for node in nodes if node.name in holders or node.alloc_cpus > 0),
        unavailable=len(nodes) - len(available),
        reserved=sum(1 for node in nodes if node.reservation is not None),
    )


def budget_usage(usage: Usage, budget: BudgetConfig) -> s.BudgetUsage:
    hours = budget.lost_node_hours_per_hour
    return s.BudgetUsage(
        jobs=usage.jobs,
        jobs_limit=budget.jobs_per_hour,
        lost_node_s=usage.lost_node_s,
        lost_node_s_limit=None if hours is None else hours * 3_600,
    )


def preemptor_view(waiting: Waiting, report: CycleReport) -> s.PreemptorView:
    preemptor, job = waiting.preemptor, waiting.preemptor.job
    return s.PreemptorView(
        job_id=job.job_id,
        display_id=job.display_id,
        user=job.user,
        name=job.name,
        partitions=job.partitions,
        nodes=job.num_nodes,
        rule=preemptor.rule,
        submit_time=job.submit_time,
        max_delay_s=preemptor.max_delay_s,
        deadline=preemptor.deadline,
        seconds_left=(preemptor.deadline - report.at).total_seconds(),
        eviction_id=waiting.eviction_id,
        why=waiting.why,
    )


def _missing(plan: OperationPlan) -> int:
    return max(0, plan.nodes_needed - len(plan.free_nodes))


def what_if_view(taken_at: datetime, plan: OperationPlan | NoPlan, *, budget: str = "") -> s.WhatIfView:
    if isinstance(plan, NoPlan):
        curve = None if plan.curve is None else p.CurveView.model_validate(plan.curve)
        verdicts = tuple(p.VerdictView.model_validate(verdict) for verdict in plan.verdicts)
        return s.WhatIfView(
            taken_at=taken_at, feasible=False, why=plan.why, budget="", plan=None, curve=curve, verdicts=verdicts
        )
    view = plan_view(plan)
    return s.WhatIfView(taken_at=taken_at, feasible=True, why="", budget=budget, plan=view, curve=view.curve)


def plan_view(plan: OperationPlan) -> p.PlanView:
    for_preemptor = plan if isinstance(plan, Plan) else None
    return p.PlanView(
        made_at=plan.made_at,
        deadline=plan.deadline,
        nodes_needed=plan.nodes_needed,
        nodes_to_free=plan.problem.nodes_needed if plan.problem.needs is None else _missing(plan),
        free_nodes=plan.free_nodes,
        placement_nodes=plan.placement_nodes,
        switch=for_preemptor.switch or None if for_preemptor else None,
        chosen=p.CurvePointView.model_validate(plan.chosen),
        predicted_nodes_free_at=plan.made_at + timedelta(seconds=plan.chosen.max_delay_s),
        curve=p.CurveView.model_validate(plan.curve),
        verdicts=tuple(p.VerdictView.model_validate(verdict) for verdict in plan.verdicts),
        together=for_preemptor.together if for_preemptor else (),
        note=for_preemptor.note if for_preemptor else "",
    )


def explanation_view(eviction: Operation, explanation: Explanation) -> p.ExplanationView:
    curve, own = eviction.plan.curve, explanation.cost

    def more(cost: Cost | None) -> float | None:
        return None if cost is None else cost.lost_work_node_s - own.lost_work_node_s

    return p.ExplanationView(
        eviction_id=eviction.eviction_id,
        planner=curve.planner,
        exact=curve.exact,
        gap_ratio=curve.gap,
        complete=explanation.complete,
        cost=p.CostView.model_validate(own),
        alternatives=tuple(
            p.AlternativeView(
                job_id=each.job_id,
                choice=each.choice,
                known=each.known,
                cost=_cost_view(each.cost),
                more_lost_work_node_s=more(each.cost),
            )
            for each in explanation.alternatives
        ),
        later=tuple(p.LaterView.model_validate(each) for each in explanation.later),
        rules=tuple(
            p.RuleOutcomeView(rule=each.rule, cost=_cost_view(each.cost), more_lost_work_node_s=more(each.cost))
            for each in explanation.rules
        ),
    )


def _cost_view(cost: Cost | None) -> p.CostView | None:
    return None if cost is None else p.CostView.model_validate(cost)


def eviction_summary(eviction: Operation) -> s.EvictionSummary:
    return s.EvictionSummary(**_summary(eviction))


def eviction_view(eviction: Operation) -> s.EvictionView:
    return s.EvictionView(
        **_summary(eviction),
        plan=plan_view(eviction.plan),
        preemptions=tuple(_preemption_view(p) for p in eviction.preemptions),
    )


def _summary(e: Operation) -> dict[str, object]:
    started = e.started_at
    return {
        "eviction_id": e.eviction_id,
        "drain": _drain_view(e),
        "mode": e.mode,
        "state": e.state,
        "state_since": e.state_since,
        "created_at": e.created_at,
        "job_id": e.subject.job_id,
        "display_id": e.subject.display_id,
        "user": e.subject.user,
        "nodes_needed": e.plan.nodes_needed,
        "deadline": e.plan.deadline,
        "preemptees": len(e.plan.preemptees),
        "placement": e.placement,
        "revision": e.revision,
        "approved_by": e.approved_by,
        "started_at": started,
        "finished_at": e.finished_at,
        # Slurm gives whole seconds: a job that starts in the second of its plan would have started before it.
        "time_to_start_s": None if started is None else max(0.0, (started - e.created_at).total_seconds()),
        "start_margin_s": None if started is None else (e.plan.deadline - started).total_seconds(),
        "predicted_lost_work_node_s": e.predicted_lost_node_s,
        "actual_lost_work_node_s": e.actual_lost_node_s,
        "outcome": e.outcome,
    }


def _drain_view(e: Operation) -> s.DrainView | None:
    """A relocation is told as a drain with a move: its nodes take jobs again."""
    if not isinstance(e, Drain | Relocation):
        return None
    order = e.order if isinstance(e, Drain) else DrainOrder(nodes=e.order.nodes, actor=e.order.actor)
    return s.DrainView(
        nodes=order.nodes,
        actor=order.actor,
        reason=e.order.reason,
        deadline=order.deadline,
        begin_at=order.begin_at,
        parallel=order.parallel,
        force=order.force,
        move=s.MoveView.model_validate(e.order) if isinstance(e, Relocation) else None,
        rolling_id=order.rolling_id,
    )


def _preemption_view(one: Preemption) -> s.PreemptionView:
    return s.PreemptionView(
        job_id=one.job_id,
        display_id=one.job.display_id,
        user=one.job.user,
        name=one.job.name,
        partition=one.job.partitions[0] if one.job.partitions else "",
        nodes=one.job.nodes,
        eternal=one.eternal,
        action=one.action,
        reason=one.reason,
        state=one.state,
        state_since=one.state_since,
        attempts=one.attempts,
        asked_at=one.asked_at,
        checkpointed_at=one.checkpointed_at,
        requeued_at=one.requeued_at,
        vacated_at=one.vacated_at,
        returned_at=one.returned_at,
        predicted_lost_work_node_s=one.predicted_lost_node_s,
        actual_lost_work_node_s=one.actual_lost_node_s,
        predicted_checkpoint_s=one.predicted_checkpoint_s,
        actual_checkpoint_s=one.actual_checkpoint_s,
        note=one.note,
    )


def checkpointer_calibration(checkpointer: str, history: History) -> s.Calibrated:
    return s.Calibrated(checkpointer=checkpointer, **asdict(history.calibration(checkpointer=checkpointer)))


def application_calibration(key: Key, history: History, now: datetime) -> s.ApplicationCalibration:
    estimate = history.estimate(*key, 1)
    return s.ApplicationCalibration(
        **key._asdict(),
        **asdict(history.calibration(key=key)),
        trusted=history.trusted(*key, now),
        failures_in_a_row=history.failures_in_a_row(*key),
        expected_s=None if estimate is None else estimate.checkpoint_s,
    )
