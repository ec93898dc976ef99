"""What the joint planner is asked for several preemptors, and its allocations as one plan for each. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil

from clearway.model.plan import Choice, Cost, Curve, CurvePoint, NoPlan, Plan, PlannedAction, Verdict
from clearway.model.problem import Action, EvictionProblem, Option
from clearway.planning.formulation.shared_bandwidth import after_others, one_after_another
from clearway.planning.joint.requests import Allocation, Request
from clearway.preemption.plan import Solution, plan_of, too_late, why_chosen

_PLANNER = "joint"


def requests_of(solutions: Mapping[str, Solution]) -> list[Request]:
    """What each of these preemptors asks of the joint planner."""
    busy_s = _busy_s(solutions)
    return [
        Request(
            job_id,
            each.prepared.preemptor.nodes,
            after_others(one_after_another(each.prepared.problem), busy_s),
            each.prepared.free_nodes,
        )
        for job_id, each in solutions.items()
    ]


def plans_of(solutions: Mapping[str, Solution], allocations: Sequence[Allocation]) -> dict[str, Plan | NoPlan]:
    """A plan for each allocation, by the preemptor's job_id; a NoPlan for each preemptor without one."""
    goes_for = {job_id: allocation.job_id for allocation in allocations for job_id, _ in allocation.leaving}
    busy_s = _busy_s(solutions)
    spared: dict[tuple[str, str], Verdict] = {}
    plans: dict[str, Plan | NoPlan] = {}
    for allocation in allocations:
        others = tuple(sorted(other.job_id for other in allocations if other is not allocation))
        solution = solutions[allocation.job_id]
        point = _point(allocation, solution, busy_s)
        if solution.rough:  # of its curve no more is known
            solution = replace(solution, curve=Curve(_PLANNER, (point,), exact=False))
        verdicts = _verdicts(allocation, point, solution, goes_for, spared)
        plans[allocation.job_id] = plan_of(solution, point, allocation.nodes, verdicts, others, allocation.depends_on)
    names = ", ".join(sorted(plans))
    for job_id, solution in solutions.items():
        if job_id not in plans:
            called = solution.prepared.preemptor.called
            why = f"its nodes could be freed in time, but not beside those of the {called}s before it ({names})"
            plans[job_id] = NoPlan(why, solution.curve)
    return plans


def cost_of_all(chosen: Iterable[tuple[EvictionProblem, CurvePoint]]) -> Cost:
    """As ``JointPlan.cost``: checkpoint times are not rounded up to steps."""
    used = []
    for problem, point in chosen:
        options = {(each.job_id, way.action): way for each in problem.candidates for way in each.options}
        for planned in point.actions:
            own = Option(planned.action, planned.lost_work_node_s, planned.checkpoint_s, 0, planned.return_node_s)
            used.append(options.get((planned.job_id, planned.action), own))
    return Cost.of(used)


def least_cost(solutions: Mapping[str, Solution]) -> Cost:
    """A lower bound of what a plan for all of them costs.

    That is what each costs alone: added up where no job can make room for two, else the largest.
    """
    points = [(each.prepared.problem, each.curve.choose() if each.curve.exact else None) for each in solutions.values()]
    alone = [Cost() if point is None else cost_of_all([(problem, point)]) for problem, point in points]
    nodes: dict[str, set[str]] = defaultdict(set)
    for each in solutions.values():
        for candidate in each.prepared.problem.candidates:
            nodes[candidate.job_id] |= set(candidate.node_names)
    if any(len(names) > 1 for names in nodes.values()):
        return max(alone)
    return sum(alone, Cost())


def _busy_s(solutions: Mapping[str, Solution]) -> int:
    """Seconds that checkpoints of other evictions keep the file system: the longest of all, as any may come first."""
    return max(each.prepared.problem.busy_s for each in solutions.values())


def _point(allocation: Allocation, solution: Solution, busy_s: int) -> CurvePoint:
    """The allocation as a point of a curve; freed are the nodes of its placement that were not free.

    ``busy_s`` is not in its times: it was planned as though that had passed.
    """
    problem = solution.prepared.problem
    ready_s = {(each.job_id, way.action): ceil(way.ready_s) for each in problem.candidates for way in each.options}
    passed_s = busy_s if allocation.done_s or allocation.ending else 0
    planned = [
        PlannedAction(
            job_id,
            option.action,
            option.lost_work_node_s,
            ceil(option.checkpoint_s),
            ready_s.get((job_id, option.action), ceil(option.ready_s)),
            0 if option.action is Action.END else option.return_node_s,
        )
        for job_id, option in sorted((*allocation.leaving, *allocation.ending), key=lambda each: each[0])
    ]
    return CurvePoint(
        max_delay_s=min(allocation.done_s + passed_s, problem.max_delay_s) if busy_s else allocation.done_s,
        feasible=True,
        lost_work_node_s=sum(each.lost_work_node_s for each in planned),
        checkpoint_s=sum(each.checkpoint_s for each in planned),
        nodes_freed=len(set(allocation.nodes) - set(solution.prepared.free_nodes)),
        actions=tuple(planned),
        return_node_s=sum(each.return_node_s for each in planned),
    )


def _verdicts(
    allocation: Allocation,
    point: CurvePoint,
    solution: Solution,
    goes_for: Mapping[str, str],
    spared: dict[tuple[str, str], Verdict],
) -> list[Verdict]:
    """``spared``: those on jobs that no plan needs, which all plans have in common."""
    chosen = {planned.job_id: planned for planned in point.actions}
    called, only_end = solution.prepared.preemptor.called, solution.prepared.only_end
    verdicts = []
    for candidate in solution.prepared.problem.candidates:
        job_id = candidate.job_id
        planned, owner = chosen.get(job_id), goes_for.get(job_id, allocation.job_id)
        if planned is not None:
            together = "" if planned.action is Action.END else f"; planned together with other {called}s"
            verdicts.append(why_chosen(planned, solution.prepared, together))
        elif owner != allocation.job_id:
            reason = f"it leaves for {called} {owner}, once for all of them"
            verdicts.append(Verdict(job_id, Choice.SPARED, "leaves_for_another", reason))
        elif job_id in only_end and (exempt := too_late(candidate, solution.prepared)):
            verdicts.append(exempt)
        elif (known := spared.get((called, job_id))) is not None:
            verdicts.append(known)
        else:
            reason = f"not needed: all {called}s together are served at less cost without it"
            spared[called, job_id] = Verdict(job_id, Choice.SPARED, "not_needed", reason)
            verdicts.append(spared[called, job_id])
    return verdicts
