"""From the product's records to the API's answers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from clearway.api import report_schemas as r
from clearway.api import schemas as s
from clearway.api.report import part_of, report
from clearway.config.configuration import Config, DaemonConfig
from clearway.estimates.history import RunRecord, advice_on, sentence
from clearway.estimates.learning import History
from clearway.execution.lifecycle import placement_name
from clearway.execution.restraints import BREAKER, Gate
from clearway.model import operations as o
from clearway.model.audit import AuditRow
from clearway.model.claims import read_claims
from clearway.model.explanation import Explanation
from clearway.model.losses import is_measured, told_loss
from clearway.model.orders import DrainOrder, RelocationOrder, RollingDrain, RollingState
from clearway.model.plan import Choice, Cost, DrainPlan, NoPlan, OperationPlan, Plan, RelocationPlan
from clearway.model.records import BACKEND, MOST_CASES, PAUSED, STATUS, Key
from clearway.model.report import CycleReport, Waiting
from clearway.store.repository import Store

MOST_SKIPPED = 50
_NO_ORDER = DrainOrder(nodes=(), actor="")

A = TypeVar("A", bound=s.Answer)
S = TypeVar("S", bound=s.EvictionSummary)
P = TypeVar("P", bound=s.PlanView)


# What records call by another name.
_OF_RECORDS = {
    "predicted_lost_work_node_s": "predicted_lost_node_s",
    "actual_lost_work_node_s": "actual_lost_node_s",
    "gap_ratio": "gap",
}


def view(schema: type[A], *records: object, **own: object) -> A:
    """An answer with these ``own`` fields. Every other field is that of the first record that has one of its name."""
    names = {name: _OF_RECORDS.get(name, name) for name in schema.model_fields.keys() - own.keys()}
    found = {
        name: getattr(record, theirs)
        for record in reversed(records)
        for name, theirs in names.items()
        if hasattr(record, theirs)
    }
    return schema.model_validate(found | own)


class Page(NamedTuple):
    limit: int
    offset: int = 0

    @property
    def end(self) -> int:
        return self.offset + self.limit


def page(schema: type[A], found: Sequence[object], asked: Page, **more: object) -> A:
    """An answer with the page, which ``found`` begins with. Where more was found, it names the next one's offset."""
    next_offset = asked.end if len(found) > asked.limit else None
    return view(schema, items=tuple(found[: asked.limit]), next_offset=next_offset, **more)


def urgent_report(store: Store, since_s: float, now: datetime, user: str | None = None) -> r.ReportView:
    """The report of so long a time; ``user``: the part of it that is this user's."""
    at = now - timedelta(seconds=since_s)
    found = store.cases_since(at, MOST_CASES + 1)
    told = found[:MOST_CASES]
    if user is not None:
        told = tuple(part for case in told if (part := part_of(case, user)) is not None)
    return report(told, at, now, more=len(found) > MOST_CASES, complete=user is None)


def audit_view(row: AuditRow) -> r.AuditView:
    known = row.document()
    about = known.get("about")
    told = {name: str(known.get(name, "")) for name in ("actor", "kind")}
    return view(r.AuditView, row, at=known.get("at"), about=about if isinstance(about, dict) else {}, **told)


def advice(user: str, name: str, runs: Sequence[RunRecord]) -> r.WalltimeAdviceView | None:
    """None: no run says anything."""
    found = advice_on(runs)
    if found is None:
        return None
    return r.WalltimeAdviceView(user=user, app=name, advice=sentence(found), **asdict(found))


def promise_list(store: Store, asked: Page) -> s.EvictionList:
    found = store.evictions(kind=o.OperationKind.PROMISE, limit=asked.limit + 1, offset=asked.offset)
    return page(s.EvictionList, tuple(map(summary, found)), asked)


def rolling_list(store: Store, asked: Page, state: RollingState | None = None) -> s.RollingList:
    found = store.rolling_drains(state=state, limit=asked.limit + 1, offset=asked.offset)
    return page(s.RollingList, tuple(map(rolling_view, found)), asked)


def rolling_view(rolling: RollingDrain) -> s.RollingView:
    return view(s.RollingView, rolling, rolling.order)


def leader_list(store: Store, asked: Page) -> r.LeaderList:
    return page(r.LeaderList, store.leaders(limit=asked.limit + 1, offset=asked.offset), asked)


def cluster_view(report: CycleReport, config: Config, backend: str) -> r.ClusterView:
    snapshot, usage, hours = report.snapshot, report.usage, config.budget.lost_node_hours_per_hour
    return view(
        r.ClusterView,
        report,
        snapshot,
        backend=backend,
        mode=config.daemon.mode,
        nodes=_node_counts(report),
        jobs=dict(sorted(Counter(job.state.value for job in snapshot.jobs).items())),
        waiting_preemptors=len(report.waiting),
        open_evictions=dict(sorted(Counter(e.state.value for e in report.open_evictions).items())),
        budget=view(
            r.BudgetUsage,
            usage,
            jobs_limit=config.budget.jobs_per_hour,
            lost_node_s_limit=None if hours is None else hours * 3_600,
        ),
        skipped_records=len(snapshot.skipped),
        skipped=snapshot.skipped[:MOST_SKIPPED],
        unreadable_claims=sum(1 for job in snapshot.jobs if read_claims(job)[1]),
        cycle_s=report.seconds,
    )


def _node_counts(report: CycleReport) -> r.NodeCounts:
    nodes, holders = report.snapshot.nodes, report.snapshot.jobs_on
    available = [node for node in nodes if node.available]
    return r.NodeCounts(
        total=len(nodes),
        available=len(available),
        free=sum(1 for node in available if node.name not in holders and node.alloc_cpus == 0),
        occupied=sum(1 for node in nodes if node.name in holders or node.alloc_cpus > 0),
        unavailable=len(nodes) - len(available),
        reserved=sum(1 for node in nodes if node.reservation is not None),
    )


def preemptor_view(waiting: Waiting, report: CycleReport) -> s.PreemptorView:
    urgent = waiting.preemptor
    left_s = (urgent.deadline - report.at).total_seconds()
    code = urgent.obstacle and urgent.obstacle.code
    return view(s.PreemptorView, waiting, urgent, urgent.job, nodes=urgent.nodes, left_s=left_s, left_to_slurm=code)


def what_if_view(taken_at: datetime, plan: OperationPlan | NoPlan, *, budget: str = "") -> s.WhatIfView:
    if isinstance(plan, NoPlan):
        return view(s.WhatIfView, plan, taken_at=taken_at, feasible=False, budget="", plan=None, drain=None)
    made = plan_view(plan, s.WholePlanView)
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
        view(s.ActionView, each, display_id=names.get(each.job_id, each.job_id)) for each in plan.chosen.actions
    )
    return view(
        schema,
        plan,
        chosen=view(s.ChosenPointView, plan.chosen, actions=actions),
        jobs_by_choice={choice: counts[choice] for choice in Choice},
        nodes_to_free=plan.problem.nodes_needed if plan.problem.needs is None else missing,
        predicted_nodes_free_at=plan.free_at,
        **({"switch": plan.switch or None} if isinstance(plan, Plan) else no_preemptor),
    )


def explanation_view(eviction_id: int, plan: OperationPlan, explanation: Explanation) -> s.ExplanationView:
    curve, own = plan.curve, explanation.cost
    candidates = {candidate.job_id: candidate for candidate in plan.problem.candidates}
    leaving = {planned.job_id: planned for planned in plan.chosen.actions}

    def more(cost: Cost | None) -> float | None:
        return None if cost is None else cost.lost_work_node_s - own.lost_work_node_s

    alternatives = []
    for each in explanation.alternatives:
        candidate = candidates[each.job_id]
        in_time = plan.problem.in_time(candidate.options) if each.known and each.cost is not None else ()
        cheapest = min(in_time, key=attrgetter("lost_work_node_s", "return_node_s", "checkpoint_s"), default=None)
        way = leaving.get(each.job_id) or cheapest
        told = view(
            s.AlternativeView,
            each,
            more_lost_work_node_s=more(each.cost),
            nodes=candidate.nodes,
            action=way and way.action,
            own_lost_work_node_s=way and way.lost_work_node_s,
        )
        alternatives.append(told)
    return view(
        s.ExplanationView,
        curve,
        explanation,
        eviction_id=eviction_id,
        alternatives=alternatives,
        rules=[view(s.RuleOutcomeView, each, more_lost_work_node_s=more(each.cost)) for each in explanation.rules],
    )


def verdict_views(e: o.Operation) -> tuple[s.VerdictView, ...]:
    order = list(Choice)
    found = sorted(e.plan.verdicts, key=lambda verdict: (order.index(verdict.choice), verdict.job_id))
    return tuple(s.VerdictView.model_validate(each) for each in found)


def eviction_view(e: o.Operation, store: Store) -> s.EvictionView:
    replaced_by = store.successor(e.eviction_id) if e.state is o.EvictionState.SUPERSEDED else None
    preemptions = tuple(preemption_view(each) for each in e.preemptions)
    plan = plan_view(e.plan, s.PlanView)
    return eviction_summary(e, s.EvictionView, replaced_by=replaced_by, plan=plan, preemptions=preemptions)


def summary(e: o.Operation) -> s.EvictionSummary:
    return eviction_summary(e, s.EvictionSummary)


def eviction_summary(e: o.Operation, schema: type[S], **more: object) -> S:
    started = e.started_at
    return view(
        schema,
        e,
        e.subject,
        e.plan,
        drain=_order_view(e.order) if isinstance(e, o.Drain | o.Relocation) else None,
        promise=view(s.PromiseView, e.order, reservation=placement_name(e), chosen=e.plan.placement_nodes)
        if isinstance(e, o.Promise)
        else None,
        tasks=e.plan.tasks if isinstance(e, o.Eviction) else 1,
        preemptees=len(e.plan.preemptees),
        # Slurm gives whole seconds: a job that starts in the second of its plan would have started before it.
        time_to_start_s=None if started is None else max(0.0, (started - e.created_at).total_seconds()),
        start_margin_s=None if started is None else (e.plan.deadline - started).total_seconds(),
        **more,
    )


def _order_view(order: DrainOrder | RelocationOrder) -> s.DrainView:
    """A relocation is told as a drain with a move: its nodes take jobs again."""
    return view(s.DrainView, order, _NO_ORDER, move=order if isinstance(order, RelocationOrder) else None)


def preemption_view(one: o.Preemption) -> s.PreemptionView:
    return view(
        s.PreemptionView,
        one,
        one.job,
        partition=next(iter(one.job.partitions), ""),
        loss=told_loss(one),
        loss_measured=is_measured(one),
    )


def calibration_view(history: History, keys: Sequence[Key], now: datetime, asked: Page) -> r.CalibrationView:
    items = tuple(_application(key, history, now) for key in keys[asked.offset : asked.end + 1])
    names = history.checkpointers[: asked.limit]
    checkpointers = tuple({"checkpointer": name, **asdict(history.calibration(checkpointer=name))} for name in names)
    return page(r.CalibrationView, items, asked, checkpointers=checkpointers)


def _application(key: Key, history: History, now: datetime) -> r.ApplicationCalibration:
    estimate = history.estimate(*key, 1)
    return r.ApplicationCalibration(
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
    "refused_rules": "",
    "waiting_preemptors": 0,
    "left_to_slurm": {},
}


def read_status(
    store: Store, now: datetime, config: DaemonConfig, operations: Sequence[o.Operation] | None = None
) -> r.StatusView:
    """As the database has it, so that any machine can say it. ``operations``: the open ones, where they are known.

    ``now`` counts where the database has no clock of its own. Raises ``StoreError``.
    """
    now = store.server_time() or now
    kept: dict[str, Any] = store.get_value(STATUS) or {}
    found = store.open_evictions() if operations is None else operations
    return view(
        r.StatusView,
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
