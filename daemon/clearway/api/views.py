"""From the product's records to the API's answers."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, TypeVar

from clearway.api import plan_schemas as p
from clearway.api import schemas as s
from clearway.api.report import part_of, report
from clearway.api.report_schemas import ReportView
from clearway.api.status_schemas import StatusView
from clearway.config.configuration import Config, DaemonConfig
from clearway.estimates.learning import History
from clearway.estimates.run_times import RunRecord, advice_on, sentence
from clearway.execution.breaker import BREAKER
from clearway.execution.gate import Gate
from clearway.execution.placement import placement_name
from clearway.model.claims import read_claims
from clearway.model.operations import (
    Drain,
    Eviction,
    EvictionState,
    Operation,
    OperationKind,
    Preemption,
    Promise,
    Relocation,
)
from clearway.model.orders import DrainOrder, RelocationOrder, RollingDrain, RollingState
from clearway.model.plan import (
    Alternative,
    Choice,
    DrainPlan,
    Explanation,
    NoPlan,
    OperationPlan,
    Plan,
    PlannedAction,
    RelocationPlan,
    RuleOutcome,
)
from clearway.model.problem import Option
from clearway.model.records import BACKEND, MOST_CASES, PAUSED, STATUS, Key
from clearway.model.report import CycleReport, Waiting
from clearway.store.repository import Store

MOST_SKIPPED = 50
_NO_ORDER = DrainOrder(nodes=(), actor="")

A = TypeVar("A", bound=p.Answer)
R = TypeVar("R")
S = TypeVar("S", bound=s.EvictionSummary)
P = TypeVar("P", bound=p.PlanView)


def view(schema: type[A], *records: object, **own: object) -> A:
    """An answer with these ``own`` fields. Every other field is that of the first record that has one of its name."""
    found = {
        name: getattr(record, name)
        for record in reversed(records)
        for name in schema.model_fields.keys() - own.keys()
        if hasattr(record, name)
    }
    return schema.model_validate(found | own)


def page(schema: type[A], found: Sequence[R], shown: Callable[[R], object], limit: int, offset: int = 0) -> A:
    """An answer with the first ``limit`` of what was found. Where more was found, it names the next page's offset."""
    more = len(found) > limit
    return view(schema, items=tuple(map(shown, found[:limit])), next_offset=offset + limit if more else None)


def urgent_report(store: Store, since_s: float, now: datetime, user: str | None = None) -> ReportView:
    """The report of so long a time; ``user``: the part of it that is this user's."""
    at = now - timedelta(seconds=since_s)
    found = store.cases_since(at, MOST_CASES + 1)
    told = found[:MOST_CASES]
    if user is not None:
        told = tuple(part for case in told if (part := part_of(case, user)) is not None)
    return report(told, at, now, more=len(found) > MOST_CASES, complete=user is None)


def advice(user: str, name: str, runs: Sequence[RunRecord]) -> s.WalltimeAdviceView | None:
    """None: no run says anything."""
    found = advice_on(runs)
    if found is None:
        return None
    return s.WalltimeAdviceView(user=user, app=name, advice=sentence(found), **asdict(found))


def promise_list(store: Store, limit: int, offset: int = 0) -> s.EvictionList:
    found = store.evictions(kind=OperationKind.PROMISE, limit=limit + 1, offset=offset)
    return page(s.EvictionList, found, summary, limit, offset)


def rolling_list(store: Store, limit: int, offset: int = 0, state: RollingState | None = None) -> s.RollingList:
    found = store.rolling_drains(state=state, limit=limit + 1, offset=offset)
    return page(s.RollingList, found, rolling_view, limit, offset)


def rolling_view(rolling: RollingDrain) -> s.RollingView:
    return view(s.RollingView, rolling, rolling.order)


def leader_list(store: Store, limit: int, offset: int = 0) -> s.LeaderList:
    return page(s.LeaderList, store.leaders(limit=limit + 1, offset=offset), s.LeaderView.model_validate, limit, offset)


def cluster_view(report: CycleReport, config: Config, backend: str) -> s.ClusterView:
    snapshot, usage, hours = report.snapshot, report.usage, config.budget.lost_node_hours_per_hour
    return view(
        s.ClusterView,
        report,
        snapshot,
        backend=backend,
        mode=config.daemon.mode,
        nodes=_node_counts(report),
        jobs=dict(sorted(Counter(job.state.value for job in snapshot.jobs).items())),
        waiting_preemptors=len(report.waiting),
        open_evictions=dict(sorted(Counter(e.state.value for e in report.open_evictions).items())),
        budget=view(
            s.BudgetUsage,
            usage,
            jobs_limit=config.budget.jobs_per_hour,
            lost_node_s_limit=None if hours is None else hours * 3_600,
        ),
        skipped_records=len(snapshot.skipped),
        skipped=snapshot.skipped[:MOST_SKIPPED],
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


def preemptor_view(waiting: Waiting, report: CycleReport) -> s.PreemptorView:
    preemptor = waiting.preemptor
    left_s = (preemptor.deadline - report.at).total_seconds()
    nodes = preemptor.nodes
    code = preemptor.obstacle and preemptor.obstacle.code
    return view(s.PreemptorView, waiting, preemptor, preemptor.job, nodes=nodes, left_s=left_s, left_to_slurm=code)


def what_if_view(taken_at: datetime, plan: OperationPlan | NoPlan, *, budget: str = "") -> s.WhatIfView:
    if isinstance(plan, NoPlan):
        return view(s.WhatIfView, plan, taken_at=taken_at, feasible=False, budget="", plan=None, drain=None)
    made = plan_view(plan, p.WholePlanView)
    order = plan.order if isinstance(plan, DrainPlan | RelocationPlan) else None
    # Moves have no deadline, and nodes that are empty cost nothing: then there is nothing to trade.
    trade = isinstance(plan, Plan) or (isinstance(plan, DrainPlan) and plan.problem.candidates)
    drain = None if order is None else _order_view(order)
    curve = made.curve if trade else None
    return s.WhatIfView(taken_at=taken_at, feasible=True, why="", budget=budget, drain=drain, plan=made, curve=curve)


def plan_view(plan: OperationPlan, schema: type[P]) -> P:
    missing = max(0, plan.nodes_needed - len(plan.free_nodes))
    no_preemptor = {"switch": None, "together": (), "note": ""}
    counts = Counter(verdict.choice for verdict in plan.verdicts)
    names = {job.job_id: job.display_id for job in plan.leaving}
    actions = tuple(
        view(p.ActionView, each, display_id=names.get(each.job_id, each.job_id)) for each in plan.chosen.actions
    )
    return view(
        schema,
        plan,
        chosen=view(p.ChosenPointView, plan.chosen, actions=actions),
        jobs_by_choice={choice: counts[choice] for choice in Choice},
        nodes_to_free=plan.problem.nodes_needed if plan.problem.needs is None else missing,
        predicted_nodes_free_at=plan.made_at + timedelta(seconds=plan.chosen.max_delay_s),
        **({"switch": plan.switch or None} if isinstance(plan, Plan) else no_preemptor),
    )


def explanation_view(eviction_id: int, plan: OperationPlan, explanation: Explanation) -> p.ExplanationView:
    curve, own = plan.curve, explanation.cost
    candidates = {candidate.job_id: candidate for candidate in plan.problem.candidates}
    leaving = {planned.job_id: planned for planned in plan.chosen.actions}

    def with_more(each: Alternative | RuleOutcome) -> dict[str, Any]:
        more = None if each.cost is None else each.cost.lost_work_node_s - own.lost_work_node_s
        return asdict(each) | {"more_lost_work_node_s": more}

    def alternative(each: Alternative) -> dict[str, Any]:
        candidate = candidates[each.job_id]
        in_time = plan.problem.in_time(candidate.options) if each.known and each.cost is not None else ()
        way: PlannedAction | Option | None = leaving.get(each.job_id) or min(
            in_time,
            key=lambda option: (option.lost_work_node_s, option.return_node_s, option.checkpoint_s),
            default=None,
        )
        ways = (None, None) if way is None else (way.action, way.lost_work_node_s)
        return with_more(each) | {"nodes": candidate.nodes, "action": ways[0], "own_lost_work_node_s": ways[1]}

    return view(
        p.ExplanationView,
        curve,
        explanation,
        eviction_id=eviction_id,
        gap_ratio=curve.gap,
        alternatives=[alternative(each) for each in explanation.alternatives],
        later=[asdict(each) for each in explanation.later],
        rules=[with_more(each) for each in explanation.rules],
    )


def verdict_views(e: Operation) -> tuple[p.VerdictView, ...]:
    order = list(Choice)
    found = sorted(e.plan.verdicts, key=lambda verdict: (order.index(verdict.choice), verdict.job_id))
    return tuple(p.VerdictView.model_validate(each) for each in found)


def eviction_view(e: Operation, store: Store) -> s.EvictionView:
    replaced_by = store.successor(e.eviction_id) if e.state is EvictionState.SUPERSEDED else None
    preemptions = tuple(preemption_view(each) for each in e.preemptions)
    return eviction_summary(
        e, s.EvictionView, replaced_by=replaced_by, plan=plan_view(e.plan, p.PlanView), preemptions=preemptions
    )


def summary(e: Operation) -> s.EvictionSummary:
    return eviction_summary(e, s.EvictionSummary)


def eviction_summary(e: Operation, schema: type[S], **more: object) -> S:
    started = e.started_at
    return view(
        schema,
        e,
        e.subject,
        e.plan,
        drain=_order_view(e.order) if isinstance(e, Drain | Relocation) else None,
        promise=_promise_view(e),
        tasks=e.plan.tasks if isinstance(e, Eviction) else 1,
        preemptees=len(e.plan.preemptees),
        # Slurm gives whole seconds: a job that starts in the second of its plan would have started before it.
        time_to_start_s=None if started is None else max(0.0, (started - e.created_at).total_seconds()),
        start_margin_s=None if started is None else (e.plan.deadline - started).total_seconds(),
        predicted_lost_work_node_s=e.predicted_lost_node_s,
        actual_lost_work_node_s=e.actual_lost_node_s,
        **more,
    )


def _promise_view(e: Operation) -> s.PromiseView | None:
    if not isinstance(e, Promise):
        return None
    return view(s.PromiseView, e.order, reservation=placement_name(e), chosen=e.plan.placement_nodes)


def _order_view(order: DrainOrder | RelocationOrder) -> s.DrainView:
    """A relocation is told as a drain with a move: its nodes take jobs again."""
    return view(s.DrainView, order, _NO_ORDER, move=order if isinstance(order, RelocationOrder) else None)


def preemption_view(one: Preemption) -> s.PreemptionView:
    return view(
        s.PreemptionView,
        one,
        one.job,
        partition=one.job.partitions[0] if one.job.partitions else "",
        predicted_lost_work_node_s=one.predicted_lost_node_s,
        actual_lost_work_node_s=one.actual_lost_node_s,
    )


def calibration_view(
    history: History, keys: Sequence[Key], now: datetime, limit: int, offset: int
) -> s.CalibrationView:
    end = offset + limit
    return s.CalibrationView(
        checkpointers=tuple(
            s.Calibrated(checkpointer=name, **asdict(history.calibration(checkpointer=name)))
            for name in history.checkpointers[:limit]
        ),
        items=tuple(_application(key, history, now) for key in keys[offset:end]),
        next_offset=end if len(keys) > end else None,
    )


def _application(key: Key, history: History, now: datetime) -> s.ApplicationCalibration:
    estimate = history.estimate(*key, 1)
    return s.ApplicationCalibration(
        **key._asdict(),
        **asdict(history.calibration(key=key)),
        trusted=history.trusted(*key, now),
        failures_in_a_row=history.failures_in_a_row(*key),
        expected_s=None if estimate is None else estimate.checkpoint_s,
    )


MOST_WAITING = 100


# What the daemon that led last has stored of itself, and what is told where it has not.
_KEPT_STATUS: dict[str, object] = {
    "mode": None,
    "backend_why": "",
    "slurm_version": "",
    "only_observes": "",
    "waiting_preemptors": 0,
    "left_to_slurm": {},
}


def read_status(
    store: Store, now: datetime, config: DaemonConfig, operations: Sequence[Operation] | None = None
) -> StatusView:
    """Whether a daemon leads, in which mode, and what waits: as the database has it, so that any machine can say it.

    ``now`` counts where the database has no clock of its own; ``operations``: the open ones, where they are known.
    Raises ``StoreError`` when the database does not answer.
    """
    now = store.server_time() or now
    kept: dict[str, Any] = store.get_value(STATUS) or {}
    found = store.open_evictions() if operations is None else operations
    return view(
        StatusView,
        **_leadership(store, now, config.lease),
        **{name: kept.get(name, absent) for name, absent in _KEPT_STATUS.items()},
        backend=store.get_value(BACKEND),
        paused=bool(store.get_value(PAUSED)),
        stopped=(store.get_value(BREAKER) or {}).get("stopped", ""),
        halted=Gate(store, config.halt_file).closed(),
        waiting=tuple(_waiting(each, now) for each in kept.get("waiting", ())),
        open_evictions=tuple(map(summary, found)),
        rolling_drains=tuple(map(rolling_view, store.open_rolling_drains())),
    )


def _leadership(store: Store, now: datetime, lease_s: float) -> dict[str, object]:
    beat, newest = store.sign_of_life(), next(iter(store.leaders(limit=1)), None)
    age_s = None if beat is None else max(0.0, (now - beat).total_seconds())
    # A lease that is over lets no daemon act, and one that lives renews it three times as often.
    if newest is not None and newest.ended is None and age_s is not None and age_s <= lease_s:
        leads: dict[str, object] = {"running": True, "leader": newest.owner, "not_running_since": None}
    else:
        ended_at = None if newest is None else newest.ended_at
        leads = {"running": False, "leader": None, "not_running_since": ended_at or beat}
    return leads | {"last_heartbeat": beat, "heartbeat_age_s": age_s}


def _waiting(kept: dict[str, Any], now: datetime) -> s.PreemptorView:
    left_s = (datetime.fromisoformat(kept["deadline"]) - now).total_seconds()
    return s.PreemptorView.model_validate(kept | {"left_s": left_s})
