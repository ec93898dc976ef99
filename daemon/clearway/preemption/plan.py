"""From a snapshot to a plan: one planner run, the nodes for the placement, and a reason for every job. Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from clearway.eligibility.context import PlanningContext
from clearway.estimates.costs import end_ready_s
from clearway.model.durations import format_duration
from clearway.model.plan import (
    Choice,
    Curve,
    CurvePoint,
    NoPlan,
    Plan,
    PlannedAction,
    Preemptor,
    Verdict,
    choose,
    kept_by_others,
    node_hours,
    what_becomes,
)
from clearway.model.problem import Action, Candidate, EvictionProblem, Needs, Option
from clearway.planning.base import Planner
from clearway.planning.formulation.beyond_doubt import any_plan
from clearway.planning.formulation.partial_nodes import serves_beside
from clearway.planning.formulation.shared_bandwidth import with_options
from clearway.preemption.candidates import Survey
from clearway.preemption.explanation import without
from clearway.preemption.node_needs import node_of, placement_nodes, takes_parts
from clearway.preemption.problem import PreparedProblem, eternal_jobs, frees_in_s, prepare_problem
from clearway.preemption.validation import ask_of, before_planning, latest_start, reserved_before_end

# What sparing a chosen job would have cost takes one more planner run each: worth it for as many as people read.
_EXPLAINED_JOBS = 12
_EXPLAINED_CANDIDATES = 100
_LATE = "planned for the soonest moment possible, because no plan keeps the deadline"


@dataclass(frozen=True, slots=True)
class Solution:
    """A preemptor's problem, and the best that can be done for it alone."""

    prepared: PreparedProblem
    curve: Curve
    point: CurvePoint
    rough: bool = False  # it is known that there is a plan, and one of them: not the best


def decide(preemptor: Preemptor, context: PlanningContext, planner: Planner) -> Plan | NoPlan:
    """The cheapest plan over the partitions that the preemptor may run in (ties: its own order of partitions)."""
    found = solve_alone(preemptor, context, planner)
    return found if isinstance(found, NoPlan) else plan_alone(found, planner)


def solve_alone(
    preemptor: Preemptor,
    context: PlanningContext,
    planner: Planner,
    *,
    whole: bool = False,
    rough: bool = False,
    survey: Survey | None = None,
) -> Solution | NoPlan:
    """The problem that ``decide`` chooses, and its best point. Where eternal jobs suffice, no other job leaves.

    ``whole``: whole nodes, unless it asks for GPUs. Where no plan is in time and its rule has a ``max_late``, it is the
    problem of the soonest moment that can be kept (docs/decisions/0061). Components of a heterogeneous job start
    together, by the first of their deadlines. ``rough``: of parts of nodes any plan will do, if there is one problem
    only and it has one beyond doubt. ``survey``: of several preemptors.
    """
    if preemptor.obstacle:
        return NoPlan(preemptor.obstacle.why)
    if context.snapshot.unreadable:
        return NoPlan("a job record could not be read, so no node is known to be free")
    search = _Search(context, planner, survey or Survey(), whole)
    if rough and (sure := search.beyond_doubt(preemptor)) is not None:
        return sure
    found = search.most_tasks(preemptor)
    if isinstance(found, Solution) or not preemptor.max_late_s or preemptor.components:
        return found
    latest = max(preemptor.deadline, context.now) + timedelta(seconds=preemptor.max_late_s)
    return search.most_tasks(replace(preemptor, late_until=latest))


@dataclass(frozen=True, slots=True)
class _Search:
    """For the best problem of a preemptor: over numbers of tasks, who may leave, partitions, and kinds of nodes."""

    context: PlanningContext
    planner: Planner
    survey: Survey
    whole: bool

    def beyond_doubt(self, preemptor: Preemptor) -> Solution | None:
        """A plan that is found without search; None where there may be none, or where it is not the only problem."""
        partitions, context = preemptor.partitions, self.context
        # Where eternal jobs might suffice, no other job may leave.
        if len(partitions) != 1 or eternal_jobs(context, self.survey):
            return None
        if before_planning(preemptor, partitions[0], context):
            return None
        prepared, *others = self._problems(preemptor, partitions[0])
        curve = None if others else any_plan(prepared.problem, self.survey.once)
        return None if curve is None else Solution(prepared, curve, curve.points[0], rough=True)

    def most_tasks(self, preemptor: Preemptor) -> Solution | NoPlan:
        """Of an array it is the problem of as many tasks as can start in time; fewer need no more, so by bisection."""
        best = self._solution(preemptor)
        if isinstance(best, Solution):
            return best
        possible, impossible = 0, preemptor.tasks
        while impossible - possible > 1:
            tasks = (possible + impossible) // 2
            found = self._solution(replace(preemptor, tasks=tasks))
            if isinstance(found, Solution):
                best, possible = found, tasks
            else:
                best, impossible = (best if possible else found), tasks
        return best

    def _solution(self, preemptor: Preemptor) -> Solution | NoPlan:
        if not preemptor.only_opportunistic and eternal_jobs(self.context, self.survey):
            found = self._best_partition(replace(preemptor, only_opportunistic=True))
            if isinstance(found, Solution):
                return found
        return self._best_partition(preemptor)

    def _best_partition(self, preemptor: Preemptor) -> Solution | NoPlan:
        found: list[Solution] = []
        last, held_back = NoPlan("it names no partition"), False
        for partition in preemptor.partitions:
            if why := before_planning(preemptor, partition, self.context):
                last, held_back = NoPlan(why), True
                continue
            for prepared in self._problems(preemptor, partition):
                solution = _best_of(prepared, self.planner)
                if isinstance(solution, NoPlan):
                    last = solution
                    continue
                found.append(solution)
                if not solution.point.actions:  # nothing is better than that no job leaves
                    break
        if preemptor.late_until:
            soonest_s = min((each.point.max_delay_s for each in found), default=0)
            found = [each for each in found if each.point.max_delay_s == soonest_s]
        best = choose([each.point for each in found], preemptor.nodes)
        # Where a limit has a part in it, it is not known how long there is none: limits are looked at each time.
        return next((each for each in found if each.point is best), NoPlan(last.why) if held_back else last)

    def _problems(self, preemptor: Preemptor, partition: str) -> Iterator[PreparedProblem]:
        """Nodes that are switched off are a problem of their own: their boot leaves less time for jobs that leave."""
        context, job = self.context, preemptor.job
        prepare = partial(prepare_problem, preemptor, partition, context, survey=self.survey)
        prepared = prepare(whole=self.whole)
        yield prepared
        some_off = self.survey.once("off", lambda: any(node.boot_s is not None for node in context.snapshot.nodes))
        booting = prepare(whole=self.whole, booting=True) if some_off else prepared
        if booting.ground.eligible != prepared.ground.eligible:
            yield booting
        # No job is suspended for parts of nodes: to suspend all jobs of whole nodes may still lose less.
        if context.config.candidates.allow_suspend and takes_parts(prepared.problem) and not job.gpus:
            yield prepare(whole=True)


def _best_of(prepared: PreparedProblem, planner: Planner) -> Solution | NoPlan:
    """The best plan of a problem; of one that may be late, the best of those for the soonest moment possible."""
    problem, preemptor = prepared.problem, prepared.preemptor
    if preemptor.late_until:
        soonest_s = planner.soonest_s(problem)
        if soonest_s is None:
            return NoPlan(_infeasible(prepared), planner.decide(problem))
        problem = replace(problem, max_delay_s=soonest_s)
        prepared = replace(prepared, problem=problem)
    waiting_nodes = preemptor.nodes if preemptor.waits else 0
    curve = in_seconds(planner.decide(problem, waiting_nodes=waiting_nodes), problem, planner)
    point = curve.choose()
    return NoPlan(_infeasible(prepared), curve) if point is None else Solution(prepared, curve, point)


def in_seconds(curve: Curve, problem: EvictionProblem, planner: Planner) -> Curve:
    """A curve of one point, with what steps longer than a second may have cost it."""
    # No plan loses less than the best one where every duration is rounded down.
    (point,), step_s = curve.points, problem.step_s
    if step_s == 1 or not curve.exact or not point.feasible or not point.lost_work_node_s:
        return curve

    def rounded_down(option: Option) -> Option:
        checkpoint_s, ready_s = (each // step_s * step_s for each in (option.checkpoint_s, option.ready_s))
        return replace(option, checkpoint_s=checkpoint_s, ready_s=ready_s)

    quicker = replace(with_options(problem, rounded_down), busy_s=problem.busy_s // step_s * step_s)
    (least,) = planner.decide(quicker).points
    needless = point.lost_work_node_s - (least.lost_work_node_s or 0.0)
    gap = needless / point.lost_work_node_s
    return replace(curve, exact=needless <= 0, gap=max(0.0, gap))


def plan_alone(solution: Solution, planner: Planner) -> Plan:
    """The plan that serves a preemptor best, beside no other, with the reason for every job."""
    prepared, point = solution.prepared, solution.point
    nodes = _placement_nodes(prepared, point)
    return plan_of(solution, point, nodes, _explain(prepared, point, nodes, planner))


def plan_of(
    solution: Solution,
    point: CurvePoint,
    nodes: tuple[str, ...],
    verdicts: Sequence[Verdict],
    together: tuple[str, ...] = (),
    depends_on: Sequence[str] = (),
) -> Plan:
    """A plan from what was chosen: ``verdicts`` are those of the candidates, ``depends_on`` leave for others."""
    prepared, preemptor = solution.prepared, solution.prepared.preemptor
    snapshot = prepared.context.snapshot
    preempted = [planned.job_id for planned in point.actions if planned.action is not Action.END]
    gone = prepared.ground.leaving | {planned.job_id for planned in point.actions} | set(depends_on)
    # Jobs that may keep their parts of the nodes.
    placement = nodes if takes_parts(prepared.problem) else ()
    sharing = {job.job_id for name in placement for job in snapshot.jobs_on.get(name, ())}
    return Plan(
        preemptor=preemptor.job,
        made_at=prepared.context.now,
        deadline=preemptor.deadline,
        nodes_needed=preemptor.nodes,
        problem=prepared.problem,
        curve=solution.curve,
        chosen=point,
        placement_nodes=nodes,
        free_nodes=tuple(dict.fromkeys(node_of(name) for name in prepared.free_nodes)),
        leaving=tuple(snapshot.job_by_id[planned.job_id] for planned in point.actions),
        verdicts=tuple(sorted((*prepared.verdicts, *verdicts), key=lambda verdict: verdict.job_id)),
        together=together or tuple(each for each in preemptor.components if each != preemptor.job.job_id),
        eternal=tuple(job_id for job_id in preempted if job_id in prepared.ground.eternal),
        staying=tuple(sorted(sharing - gone)),
        ordinary=preemptor.ordinary,
        rule=preemptor.rule,
        note=_note(prepared),
        tasks=preemptor.tasks,
        components=preemptor.components,
        partition=prepared.partition,
        ask=ask_of(preemptor, prepared.context.limits),
        begins_in_s=prepared.context.begins_in_s,
        frees_in_s=frees_in_s(preemptor, prepared.context),
    )


def _note(prepared: PreparedProblem) -> str:
    begins_s = prepared.context.begins_in_s
    notes = [_LATE] if prepared.preemptor.late_until else []
    if begins_s >= 1:  # long enough to be seen in a plan
        notes.append(f"counted on being begun within {format_duration(begins_s)}: so long a cycle takes here")
    return "; ".join(notes)


def _placement_nodes(prepared: PreparedProblem, point: CurvePoint) -> tuple[str, ...]:
    """Exactly as many nodes as asked: free ones first, then those that are freed soonest and surest."""
    rank = {Action.KILL: 0, Action.SUSPEND: 0, Action.APP_CHECKPOINT: 1, Action.SYS_CHECKPOINT: 1, Action.END: 2}
    when = {planned.job_id: rank[planned.action] for planned in point.actions}
    slots = placement_nodes(prepared.problem, prepared.preemptor.nodes, when, prepared.free_nodes)
    return tuple(sorted({node_of(name) for name in slots}))


def _explain(
    prepared: PreparedProblem, point: CurvePoint, placement: tuple[str, ...], planner: Planner
) -> list[Verdict]:
    problem = prepared.problem
    switch = problem.switch_of(placement)
    near = {node.name for node in problem.nodes if node.switch == switch}
    chosen = {planned.job_id: planned for planned in point.actions}
    counterfactual = len(chosen) <= _EXPLAINED_JOBS and len(problem.candidates) <= _EXPLAINED_CANDIDATES

    def leaves(planned: PlannedAction) -> Verdict:
        asked = counterfactual and planned.action is not Action.END
        more = f"; {_without(problem, planned.job_id, point, planner)}" if asked else ""
        return why_chosen(planned, prepared, more)

    def spared(candidate: Candidate) -> Verdict:
        if exempt := too_late(candidate, prepared):
            return exempt
        if not chosen:
            reason = "not needed: enough nodes are free already"
        elif switch and near.isdisjoint(candidate.node_names):
            reason = f"not needed: all nodes of the plan are under leaf switch {switch}, and it has none there"
        elif in_time := problem.in_time(candidate.options):
            reason = f"not needed: {_cheapest(in_time)}, and the chosen set costs less without it"
        else:
            reason = f"not possible in time: {_cheapest(candidate.options)}"
        return Verdict(candidate.job_id, Choice.SPARED, "not_needed", reason)

    return [leaves(chosen[c.job_id]) if c.job_id in chosen else spared(c) for c in problem.candidates]


def why_chosen(planned: PlannedAction, prepared: PreparedProblem, more: str = "") -> Verdict:
    """The verdict on a job that leaves; ``more`` is added to the reason."""
    look, context = prepared.ground.jobs.looks[planned.job_id], prepared.context
    if planned.action is Action.END:
        within = format_duration(planned.ready_s)
        limit_s = end_ready_s(context.snapshot.job_by_id[planned.job_id], context.now, 0.0)
        reason = f"its own time limit empties its nodes within {within}"
        if limit_s is None or look.ends_s < limit_s:
            reason = f"it will have ended within {within}, by how long earlier jobs of its user and name took"
        return Verdict(planned.job_id, Choice.CHOSEN, "ends_in_time", reason)
    reason = what_becomes(planned)
    if planned.action is Action.KILL and look.unsaved:
        reason += f" ({look.unsaved})"
    return Verdict(planned.job_id, Choice.CHOSEN, planned.action.value, reason + more)


def too_late(candidate: Candidate, prepared: PreparedProblem) -> Verdict | None:
    """The verdict on a job that may not be preempted, and whose own end comes too late; None for any other."""
    exempt = prepared.ground.jobs.only_end.get(candidate.job_id)
    return None if exempt is None or prepared.problem.in_time(candidate.options) else exempt


def _without(problem: EvictionProblem, job_id: str, point: CurvePoint, planner: Planner) -> str:
    """What the plan would cost were this job spared: the planner's own answer to the problem without it."""
    other_plan = planner.decide(without(problem, job_id), waiting_nodes=problem.waiting_nodes).choose()
    if other_plan is None:
        return "without it the nodes cannot be freed in time"
    own, other = point.cost, other_plan.cost
    differences: tuple[tuple[float, Callable[[float], str], str], ...] = (
        (other.lost_work_node_s - own.lost_work_node_s, node_hours, "{} more would be lost"),
        (other.return_node_s - own.return_node_s, node_hours, "coming back would cost {} more"),
        (other.checkpoint_s - own.checkpoint_s, format_duration, "checkpoints would take {} longer"),
        (other.preemptees - own.preemptees, str, "{} more job(s) would have to go"),
        (other_plan.max_delay_s - point.max_delay_s, format_duration, "the wait would be {} longer"),
    )
    for more, in_words, text in differences:
        if more > 0:
            return f"without it {text.format(in_words(more))}"
    return "others would do as well; ties go to the smaller job id"


def _cheapest(options: tuple[Option, ...]) -> str:
    best = min(options, key=lambda option: (option.lost_work_node_s, option.checkpoint_s, option.ready_s))
    match best.action:
        case Action.KILL:
            return f"requeueing it would lose {node_hours(best.lost_work_node_s)}"
        case Action.END:
            return f"it ends by itself within {format_duration(best.ready_s)}"
        case Action.SUSPEND:
            return "it could be suspended in memory"
        case _:
            return f"saving it would take {format_duration(best.takes_s)}"


def _infeasible(prepared: PreparedProblem) -> str:
    problem = prepared.problem
    within = format_duration(problem.max_delay_s)
    needs = problem.needs or Needs()
    if scarce := [pool.name for pool in problem.pools if not serves_beside(pool, needs)]:
        return f"jobs that may leave do not hold enough of {', '.join(scarce)}, and too little of it is free"
    where = "with the same one of its features " if needs.same_feature else ""
    if needs.one_switch or needs.switches:
        where = "under one leaf switch " if needs.one_switch else f"under {needs.switches} leaf switches "
    pools = {pool.name for pool in problem.pools}
    possible = {name for candidate in problem.candidates for name in candidate.node_names} - pools
    preemptor, context = prepared.preemptor, prepared.context
    reserved = reserved_before_end(preemptor.job, latest_start(preemptor, context.now), context)
    names = ", ".join(sorted(set(reserved.values()))[:3])
    taken = f"; {len(reserved)} are reserved ({names}) before the job would have ended" if reserved else ""
    return (
        f"{preemptor.nodes} nodes asked, {len(prepared.free_nodes)} free, and at most "
        f"{len(possible)} more could be freed; not enough {where}within {within}{kept_by_others(problem)}{taken}"
    )
