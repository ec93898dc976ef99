"""How the jobs on nodes that shall be empty leave them. Pure.

Model: smigrate of the Slurm+DMTCP paper, for any set of nodes. Nothing new starts there from the beginning on; every
job that is there has to leave, each in one of its own ways (``costs``), within the time there is. Which way, and in
which order checkpoints are written, is the eviction problem again: all nodes that are busy are asked for, so all of
their jobs are needed. Without a deadline there is as much time as all checkpoints take one after another, and some
patience. One job that cannot leave stops the whole: then no job is touched. ``force`` lets such a job be requeued
without a checkpoint.

Which jobs must not be touched: ``eligibility.exemption``. Guards against too early and too frequent preemption do not
hold here, as an operator has named these nodes; those that protect jobs hold unless the order is forced.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from clearway.config.configuration import Config
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.exemption import Exemption, Purpose, exemption
from clearway.eligibility.options import options_for, why_not_saved
from clearway.estimates.checkpoint_load import file_system_busy_s
from clearway.estimates.costs import end_ready_s
from clearway.model.cluster import Job, JobState
from clearway.model.durations import format_duration
from clearway.model.orders import DrainOrder
from clearway.model.plan import Choice, Curve, CurvePoint, DrainPlan, NoPlan, Verdict, kept_by_others, what_becomes
from clearway.model.problem import Action, Candidate, EvictionProblem, Option
from clearway.planning.base import Planner
from clearway.planning.formulation.shared_bandwidth import one_after_another

_NAMED_JOBS = 5  # in one sentence


def first_plan(order: DrainOrder, config: Config, now: datetime) -> DrainPlan:
    """A plan that empties nothing: the jobs are looked at when nothing new can start on the nodes any more."""
    begins = order.begin_at or now
    point = CurvePoint(0, feasible=True, lost_work_node_s=0.0, checkpoint_s=0, nodes_freed=0)
    patience = timedelta(seconds=config.drain.patience)
    return DrainPlan(
        made_at=now,
        deadline=order.deadline or begins + patience,
        nodes_needed=len(order.nodes),
        problem=EvictionProblem(0, math.ceil(config.drain.patience), 1, (), len(order.nodes)),
        curve=Curve(config.planning.planner, (point,)),
        chosen=point,
        placement_nodes=order.nodes,
        free_nodes=(),
        leaving=(),
        order=order,
    )


def plan_drain(order: DrainOrder, context: PlanningContext, planner: Planner) -> DrainPlan | NoPlan:
    """How the jobs on these nodes leave; a NoPlan names those that are in the way.

    ``under_way.leaving`` are this drain's own jobs past their point of no return, ``under_way.avoid`` those that were
    asked to save themselves in vain, ``under_way.jobs`` those of other evictions.
    """
    snapshot, config, now = context.snapshot, context.config, context.now
    allowance_s = config.execution.kill_allowance
    limit_s = None if order.deadline is None else (order.deadline - now).total_seconds() - allowance_s
    left_alone, jobs = _on_nodes(order, context)
    if limit_s is not None and limit_s < 0 and jobs:
        return NoPlan(f"the deadline does not leave the {format_duration(allowance_s)} to end jobs")
    leaving = _leaving(order, jobs, limit_s, context)
    if stuck := [job for job in jobs if not leaving.ways.get(job.job_id)]:
        return NoPlan(_in_the_way(stuck, leaving, context))
    problem = _problem(order, leaving, limit_s, context)
    busy_s = file_system_busy_s(context.under_way.evictions, snapshot, config, now, problem.max_delay_s)
    # Without a deadline it waits for others as long as it takes.
    waits_s = math.ceil(busy_s / problem.step_s) * problem.step_s if order.deadline is None else 0
    problem, curve = _solve(replace(problem, max_delay_s=problem.max_delay_s + waits_s, busy_s=busy_s), planner)
    point = curve.choose()
    if point is None:
        return NoPlan(
            f"saving its jobs takes longer than the {format_duration(problem.max_delay_s)} that the deadline leaves"
            + kept_by_others(problem),
            curve=curve,
        )
    verdicts = [Verdict(p.job_id, Choice.CHOSEN, p.action.value, what_becomes(p)) for p in point.actions]
    return DrainPlan(
        made_at=now,
        deadline=order.deadline or now + timedelta(seconds=problem.max_delay_s + allowance_s),
        nodes_needed=len(order.nodes),
        problem=problem,
        curve=curve,
        chosen=point,
        placement_nodes=order.nodes,
        free_nodes=tuple(name for name in order.nodes if name not in snapshot.jobs_on),
        leaving=tuple(snapshot.job_by_id[planned.job_id] for planned in point.actions),
        verdicts=tuple(sorted([*left_alone, *verdicts], key=lambda verdict: verdict.job_id)),
        order=order,
    )


def _on_nodes(order: DrainOrder, context: PlanningContext) -> tuple[list[Verdict], list[Job]]:
    """Why jobs on these nodes are left to end by themselves, and those that have to leave."""
    found = {job.job_id: job for name in order.nodes for job in context.snapshot.jobs_on.get(name, ())}
    left_alone, leaving = [], []
    for job_id, job in sorted(found.items()):
        if job.state is JobState.COMPLETING or job_id in context.under_way.leaving:
            continue
        if order.leaves_alone(job):
            why = "it also runs on other nodes, and such jobs are left to end by themselves"
            left_alone.append(Verdict(job_id, Choice.SPARED, "parallel_left", why))
        else:
            leaving.append(job)
    return left_alone, leaving


@dataclass(frozen=True, slots=True)
class _Leaving:
    """The jobs that have to leave, and how each can."""

    jobs: Sequence[Job]
    exempt: Mapping[str, Exemption | None]  # by job_id
    ways: Mapping[str, Sequence[Option]]  # by job_id; none where it is missing
    saving_s: float  # for all checkpoints, one after another


def _leaving(order: DrainOrder, jobs: Sequence[Job], limit_s: float | None, context: PlanningContext) -> _Leaving:
    purpose, under_way = Purpose.FORCED_DRAIN if order.force else Purpose.DRAIN, context.under_way
    exempt = {job.job_id: exemption(job, purpose, context, nodes=order.nodes) for job in jobs}
    ways = {job.job_id: _ways(order, job, context) for job in jobs if exempt[job.job_id] is None}
    saving_s = sum(max((option.checkpoint_s for option in each), default=0.0) for each in ways.values())
    for job in jobs:
        # What ends while the others are saved need not be saved; what cannot be saved may still end in time. Without
        # a deadline there is time for all checkpoints.
        ready_s = end_ready_s(job, context.now, 0.0) if job.state is JobState.RUNNING else None
        in_time = ready_s is not None and ready_s <= (saving_s if limit_s is None else limit_s)
        if in_time and job.job_id not in under_way.avoid | under_way.jobs:
            ways.setdefault(job.job_id, []).append(Option(Action.END, ready_s=round(ready_s or 0.0, 3)))
    return _Leaving(jobs, exempt, ways, saving_s)


def _ways(order: DrainOrder, job: Job, context: PlanningContext) -> list[Option]:
    """Without ``force`` only in ways that lose nothing."""
    kill = order.force and (job.can_be_requeued or context.config.candidates.allow_cancel)
    return list(options_for(job, context, kill=kill, shared=order.deadline is not None))


def _solve(problem: EvictionProblem, planner: Planner) -> tuple[EvictionProblem, Curve]:
    """Checkpoints one after another where that loses no more: then urgent jobs can have theirs in between."""
    serial = one_after_another(problem)
    apart = planner.decide(serial)
    if serial == problem:
        return problem, apart
    beside = planner.decide(problem)
    one, other = apart.choose(), beside.choose()
    loses_more = other is not None and (
        one is None or (one.lost_work_node_s, one.return_node_s) > (other.lost_work_node_s, other.return_node_s)
    )
    return (problem, beside) if loses_more else (serial, apart)


def _problem(order: DrainOrder, leaving: _Leaving, limit_s: float | None, context: PlanningContext) -> EvictionProblem:
    """All nodes that these jobs hold are asked for, as though jobs that are left alone were not there."""
    seen_at, config = context.snapshot.taken_at, context.config
    candidates = tuple(
        Candidate(
            job_id=job.job_id,
            nodes=len(names),
            options=tuple(leaving.ways[job.job_id]),
            node_names=names,
            ran_s=max(0.0, (seen_at - (job.start_time or seen_at)).total_seconds()),
            job_nodes=len(job.nodes),
        )
        for job in leaving.jobs
        if (names := tuple(sorted(set(job.nodes) & set(order.nodes))))
    )
    # Each checkpoint is rounded up to whole steps: without a deadline there must be room for all that adds up.
    wanted_s = leaving.saving_s + config.drain.patience if limit_s is None else limit_s
    step_s = max(1, math.ceil(wanted_s / config.planning.steps))
    steps = math.floor(wanted_s / step_s) if limit_s is not None else math.ceil(wanted_s / step_s) + len(candidates)
    needed = len({name for candidate in candidates for name in candidate.node_names})
    return EvictionProblem(needed, steps * step_s, step_s, candidates, len(order.nodes))


def _in_the_way(stuck: Sequence[Job], leaving: _Leaving, context: PlanningContext) -> str:
    exempt = {job_id: each.reason for job_id, each in leaving.exempt.items() if each is not None}
    whys = [
        f"job {job.display_id} of {job.user}: {exempt.get(job.job_id) or why_not_saved(job, context)}"
        for job in stuck[:_NAMED_JOBS]
    ]
    more = f"; and {len(stuck) - _NAMED_JOBS} more" if len(stuck) > _NAMED_JOBS else ""
    return f"{len(stuck)} job(s) in the way: {'; '.join(whys)}{more}"
