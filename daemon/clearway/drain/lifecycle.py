"""The lifecycle of drains: the rows of the table, whose hold is the DRAIN state of the nodes, and their plans.

placing     not all nodes are drained by us: drain them; all are: go on with what a later snapshot shows there
preempting  the preemptions' own table; until no job is left that has to go
started     the nodes are empty, and stay drained until they are brought back
cancelling  the nodes whose Reason is still ours go back as they were

A node that was drained outside Clearway is neither drained again nor brought back: Slurm keeps one Reason only, and
DRAIN over DRAIN would replace it.
"""

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from clearway.config.configuration import Config
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.exemption import Cause, Exemption, Purpose, exemption
from clearway.eligibility.options import options_for, why_not_saved
from clearway.eligibility.under_way import UnderWay, under_way_for_replan
from clearway.estimates.checkpoint_load import file_system_busy_s
from clearway.estimates.costs import end_ready_s
from clearway.execution.cycle_context import UNDER_WAY, CycleContext, PlanningBasis
from clearway.execution.job_lifecycle import Command, StepContext
from clearway.execution.lifecycle import (
    E,
    NodesLifecycle,
    Phase,
    call_off,
    close_phase,
    nodes_held,
    nodes_with_other_reasons,
    undo,
)
from clearway.model.cluster import Job, JobState
from clearway.model.durations import format_duration
from clearway.model.operations import Drain, Preemption, PreemptionState
from clearway.model.orders import DrainOrder
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.model.plan import Choice, Curve, CurvePoint, DrainPlan, NoPlan, Verdict, kept_by_others, what_becomes
from clearway.model.problem import Action, Candidate, EvictionProblem, Option
from clearway.planning.base import Planner
from clearway.planning.formulation.shared_bandwidth import one_after_another

_NAMED_JOBS = 5  # in one sentence


def first_plan(order: DrainOrder, config: Config, now: datetime) -> DrainPlan:
    """A plan that empties nothing: the jobs are looked at when nothing new can start on the nodes any more."""
    point = CurvePoint(0, feasible=True, lost_work_node_s=0.0, checkpoint_s=0, nodes_freed=0)
    return DrainPlan(
        made_at=now,
        deadline=order.deadline or (order.begin_at or now) + timedelta(seconds=config.drain.patience),
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
    """How the jobs on these nodes leave; a NoPlan names those that are in the way: then no job is touched.

    Model: smigrate of the Slurm+DMTCP paper, for any set of nodes. Every job that is there has to leave, each in one of
    its own ways (``costs``), within the time there is. Which way, and in which order checkpoints are written, is the
    eviction problem again: all nodes that are busy are asked for. Without a deadline there is as much time as all
    checkpoints take one after another, and some patience. Guards against too early and too frequent preemption do not
    hold, as an operator has named these nodes; those that protect jobs hold unless the order is forced.
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
    return replace(
        first_plan(order, config, now),
        deadline=order.deadline or now + timedelta(seconds=problem.max_delay_s + allowance_s),
        problem=problem,
        curve=curve,
        chosen=point,
        free_nodes=tuple(name for name in order.nodes if name not in snapshot.jobs_on),
        leaving=tuple(snapshot.job_by_id[planned.job_id] for planned in point.actions),
        verdicts=tuple(sorted([*left_alone, *verdicts], key=lambda verdict: verdict.job_id)),
        frees_in_s=allowance_s,
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
    jobs: Sequence[Job]
    exempt: Mapping[str, Exemption | None]  # by job_id
    ways: Mapping[str, Sequence[Option]]  # by job_id; none where it is missing
    saving_s: float  # for all checkpoints, one after another


def _leaving(order: DrainOrder, jobs: Sequence[Job], limit_s: float | None, context: PlanningContext) -> _Leaving:
    purpose, under_way = Purpose.FORCED_DRAIN if order.force else Purpose.DRAIN, context.under_way
    exempt = {job.job_id: exemption(job, purpose, context, nodes=order.nodes) for job in jobs}
    ways = {job.job_id: _ways(order, job, context) for job in jobs if exempt[job.job_id] is None}
    saving_s = sum(max((option.takes_s for option in each), default=0.0) for each in ways.values())
    for job in jobs:
        # What ends while the others are saved need not be saved; what cannot be saved may still end in time. Without
        # a deadline there is time for all checkpoints.
        ready_s = end_ready_s(job, context.now, 0.0) if job.state is JobState.RUNNING else None
        in_time = ready_s is not None and ready_s <= (saving_s if limit_s is None else limit_s)
        if in_time and job.job_id not in under_way.avoid | under_way.jobs:
            ways.setdefault(job.job_id, []).append(Option(Action.END, ready_s=round(ready_s or 0.0, 3)))
    return _Leaving(jobs, exempt, ways, saving_s)


def _ways(order: DrainOrder, job: Job, context: PlanningContext) -> list[Option]:
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
    config = context.config
    candidates = tuple(
        Candidate(
            job_id=job.job_id,
            nodes=len(names),
            options=tuple(leaving.ways[job.job_id]),
            node_names=names,
            ran_s=job.ran_s(context.snapshot.taken_at),
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


@dataclass(frozen=True)
class DrainLifecycle(NodesLifecycle[Drain]):
    basis: PlanningBasis

    def next_phase(self, e: Drain, cycle: CycleContext, done: AbstractSet[Command]) -> Phase | None:
        if not e.state.acting or Command.DRAIN in done:
            return None  # which jobs are there is seen when none can come any more
        snapshot = cycle.snapshot
        ours = () if Command.UNDRAIN in done else nodes_held(e, snapshot)
        missing, foreign = set(e.order.nodes) - set(ours), set(nodes_with_other_reasons(e, snapshot))
        if e.state is E.PLACING:
            if taken := sorted(missing & foreign):
                return undo(OutcomeCode.NODE_TAKEN, f"Node {taken[0]} has a Reason that is not Clearway's")
            if cycle.paused:
                return None
            return Phase(E.PLACING, Command.DRAIN) if missing else Phase(E.PREEMPTING)
        if e.state is E.PREEMPTING:
            # Another Reason keeps the node out of service as well; without any it takes jobs again.
            return _preempting(e, sorted(missing - foreign), cycle)
        if e.state is E.CANCELLING and ours:
            return Phase(e.state, Command.UNDRAIN)
        return close_phase(e, cycle.now, cycle.config.execution.watch_return, cycle.snapshot)

    def cause(self, e: Drain) -> Cause:
        return Cause(Purpose.FORCED_DRAIN if e.order.force else Purpose.DRAIN, nodes=e.order.nodes)

    def misfits(self, e: Drain, cycle: CycleContext) -> dict[str, str]:
        """The jobs on its nodes that its plan does not know, or knows no more."""
        gone = (PreemptionState.SPARED, PreemptionState.FAILED)
        leaving = {p.job.run for p in e.preemptions if p.state not in gone}
        passed = {p.job_id for p in e.preemptions if p.requeued_at is not None and p.state not in gone}
        return {
            job.job_id: f"it is on node {name}"
            for name in e.order.nodes
            for job in cycle.snapshot.jobs_on.get(name, ())
            if job.run not in leaving
            and job.job_id not in passed
            and job.state is not JobState.COMPLETING
            and not e.order.leaves_alone(job)
        }

    def step_context(self, e: Drain, p: Preemption, common: StepContext, cycle: CycleContext) -> StepContext:
        return replace(super().step_context(e, p, common, cycle), kill_when_late=e.order.force)

    def replan(self, e: Drain, stuck: Mapping[str, str], cycle: CycleContext) -> DrainPlan | Phase | None:
        """Where there can be no plan the drain is called off."""
        if cycle.snapshot.unreadable or self.basis.time.left_s(UNDER_WAY) <= 0:
            return None
        with self.basis.time.spending():
            plan = self._plan(e, under_way_for_replan(e, cycle.others, stuck.keys()), cycle)
        return call_off(e, Outcome(OutcomeCode.NOT_POSSIBLE, plan.why)) if isinstance(plan, NoPlan) else plan

    def _plan(self, e: Drain, under_way: UnderWay, cycle: CycleContext) -> DrainPlan | NoPlan:
        failed = [p.job.display_id for p in e.preemptions if p.state is PreemptionState.FAILED]
        if failed:
            return NoPlan(f"job {failed[0]} does not leave its nodes")
        open_ones = [p for p in e.preemptions if p.state.cancellable]
        # A kill was the last resort: a job past saving is not asked once more because of another one.
        killed = {p.job_id for p in open_ones if p.action is Action.KILL}
        asked = {p.job_id for p in open_ones if p.asked_at is not None}
        under_way = replace(under_way, avoid=frozenset(killed) | (under_way.avoid & asked))
        # What keeps an urgent job waiting is no matter of a drain.
        context = replace(self.basis.context(cycle, under_way, counts=False), limits=None, reservations=())
        return plan_drain(e.order, context, self.basis.planner)


def _preempting(e: Drain, lost: Sequence[str], cycle: CycleContext) -> Phase | None:
    snapshot, deadline = cycle.snapshot, e.order.deadline
    if lost:
        return undo(OutcomeCode.NODE_TAKEN, f"Node {lost[0]} was brought back outside Clearway")
    if not snapshot.unreadable and not any(snapshot.jobs_on.get(name) for name in e.order.nodes):
        outcome = Outcome(OutcomeCode.EMPTY, "The nodes are empty")
        return Phase(E.STARTED, event=outcome.sentence, outcome=outcome, started_at=cycle.now)
    if deadline is not None and cycle.now > deadline and not e.late:
        return Phase(e.state, event="The nodes were not empty by the deadline.", late=True)
    return None
