"""What the joint planner is asked for several preemptors, and its allocations as one plan for each. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil

from clearway.model.plan import Choice, Curve, CurvePoint, NoPlan, Plan, PlannedAction, Verdict
from clearway.model.problem import Action, Candidate, EvictionProblem
from clearway.planning.formulation.shared_bandwidth import after_others, one_after_another
from clearway.planning.joint.requests import Allocation, Request
from clearway.preemption.plan import Solution, plan_of, too_late, why_chosen

_PLANNER = "joint"


def requests_of(solutions: Mapping[str, Solution]) -> list[Request]:
    """What each of these preemptors asks of the joint planner."""
    serial = _Serial(_busy_s(solutions))
    return [
        Request(job_id, each.prepared.preemptor.nodes, serial.of(each.prepared.problem), each.prepared.free_nodes)
        for job_id, each in solutions.items()
    ]


def plans_of(solutions: Mapping[str, Solution], allocations: Sequence[Allocation]) -> dict[str, Plan | NoPlan]:
    """A plan for each allocation, by the preemptor's job_id; a NoPlan for each preemptor without one."""
    goes_for = {job_id: allocation.job_id for allocation in allocations for job_id, _ in allocation.leaving}
    busy_s = _busy_s(solutions)
    told = _Told(goes_for)
    plans: dict[str, Plan | NoPlan] = {}
    for allocation in allocations:
        others = tuple(sorted(other.job_id for other in allocations if other is not allocation))
        solution = solutions[allocation.job_id]
        point = _point(allocation, solution, busy_s)
        # What it would be alone, and for other deadlines, is worked out later.
        solution = replace(solution, curve=Curve(_PLANNER, (point,), exact=False, complete=False))
        verdicts = told.verdicts(point, solution)
        plans[allocation.job_id] = plan_of(solution, point, allocation.nodes, verdicts, others, allocation.depends_on)
    names = ", ".join(sorted(plans))
    for job_id, solution in solutions.items():
        if job_id not in plans:
            called = solution.prepared.preemptor.called
            why = f"its nodes could be freed in time, but not beside those of the {called}s before it ({names})"
            plans[job_id] = NoPlan(why, solution.curve)
    return plans


def _busy_s(solutions: Mapping[str, Solution]) -> int:
    """Seconds that checkpoints of other evictions keep the file system: the longest of all, as any may come first."""
    return max(each.prepared.problem.busy_s for each in solutions.values())


def _point(allocation: Allocation, solution: Solution, busy_s: int) -> CurvePoint:
    """The allocation as a point of a curve; freed are the nodes of its placement that were not free.

    ``busy_s`` is not in its times: it was planned as though that had passed.
    """
    problem = solution.prepared.problem
    going = (*allocation.leaving, *allocation.ending)
    names = {job_id for job_id, _ in going}
    own = [each for each in problem.candidates if each.job_id in names]
    ready_s = {(each.job_id, way.action): ceil(way.ready_s) for each in own for way in each.options}
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
        for job_id, option in sorted(going, key=lambda each: each[0])
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


class _Serial:
    """Problems in the serial model, after what is under way; those with the same candidates keep them the same."""

    def __init__(self, busy_s: int) -> None:
        self._busy_s = busy_s
        self._known: dict[tuple[int, ...], tuple[EvictionProblem, EvictionProblem]] = {}

    def of(self, problem: EvictionProblem) -> EvictionProblem:
        serial = self._once((problem.busy_s,), problem, one_after_another)
        problem = replace(problem, candidates=serial.candidates)
        times = (problem.max_delay_s, problem.step_s)
        after = self._once(times, problem, lambda each: after_others(each, self._busy_s))
        return replace(problem, candidates=after.candidates, max_delay_s=after.max_delay_s, busy_s=after.busy_s)

    def _once(
        self, name: tuple[int, ...], problem: EvictionProblem, change: Callable[[EvictionProblem], EvictionProblem]
    ) -> EvictionProblem:
        """A problem with these candidates, changed; it is kept as it was too, so that no others have their id."""
        name = (id(problem.candidates), *name)
        if name not in self._known:
            self._known[name] = problem, change(problem)
        return self._known[name][1]


class _Told:
    """The verdicts of plans that are made together; most are the same in all of them, and are made once."""

    def __init__(self, goes_for: Mapping[str, str]) -> None:
        """``goes_for``: by each job that leaves, the preemptor that it leaves for."""
        self._goes_for = goes_for
        self._spared: dict[tuple[str, int], tuple[Sequence[Candidate], dict[str, Verdict]]] = {}

    def verdicts(self, point: CurvePoint, solution: Solution) -> list[Verdict]:
        """Those of one plan, on each candidate."""
        prepared = solution.prepared
        called = prepared.preemptor.called
        found = dict(self._of_no_plan(called, prepared.problem.candidates))
        for candidate in prepared.problem.candidates if prepared.only_end else ():
            job_id = candidate.job_id
            if job_id in prepared.only_end and job_id not in self._goes_for:
                found[job_id] = too_late(candidate, prepared) or found[job_id]
        for planned in point.actions:
            if planned.job_id in found:  # not one that only others may preempt: on it there is a verdict already
                together = "" if planned.action is Action.END else f"; planned together with other {called}s"
                found[planned.job_id] = why_chosen(planned, prepared, together)
        return list(found.values())

    def _of_no_plan(self, called: str, candidates: Sequence[Candidate]) -> dict[str, Verdict]:
        """On jobs that do not leave for the plan that is told of; the candidates are kept, as above."""
        name = (called, id(candidates))
        if name not in self._spared:
            self._spared[name] = candidates, {each.job_id: self._spares(each.job_id, called) for each in candidates}
        return self._spared[name][1]

    def _spares(self, job_id: str, called: str) -> Verdict:
        if (owner := self._goes_for.get(job_id)) is not None:
            reason = f"it leaves for {called} {owner}, once for all of them"
            return Verdict(job_id, Choice.SPARED, "leaves_for_another", reason)
        reason = f"not needed: all {called}s together are served at less cost without it"
        return Verdict(job_id, Choice.SPARED, "not_needed", reason)
