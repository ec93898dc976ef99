"""Plans for several preemptors that wait in the same cycle: made together, none at another's expense. Pure.

One without a plan alone has none beside others either. There is one program for all of the rest
(``planning.joint.several``). What it does not know (licenses, tasks of an array on parts of nodes), and what it has no
time for, is planned in turn: each beside the plans before it.

Where the nodes of one job serve several preemptors, the job belongs to the plan of the first of them by time, and the
plans of the others depend on it. When the first one disappears before the job has left, only the others are planned
anew.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import ceil
from typing import Protocol

from clearway.config.configuration import Mode
from clearway.eligibility.under_way import UnderWay
from clearway.execution.progress import fresh_operation
from clearway.model.operations import Eviction, EvictionState
from clearway.model.plan import Choice, Curve, CurvePoint, NoPlan, Plan, PlannedAction, Preemptor, Verdict
from clearway.model.problem import Action, EvictionProblem
from clearway.planning.base import Planner
from clearway.planning.formulation.shared_bandwidth import after_others, one_after_another
from clearway.planning.joint.requests import Allocation, Best, Request
from clearway.planning.joint.several import gap_of, plan_together
from clearway.preemption.candidates import Survey
from clearway.preemption.node_needs import takes_parts
from clearway.preemption.plan import Solution, plan_alone, plan_of, too_late, why_chosen

_WITH_GAP = "planned together with others; of what they all lose there may be needless at most"
_IN_TURN = "planned in its turn; there was no time to find out whether a plan for all of them at once is better"
_NOT_PROVEN = "planned at once with others; that is not proven to be the best"
_NO_TIME = "there was no time for it in this cycle"
_OF_THEIR_OWN = "heterogeneous jobs have a turn of their own"


class SolveAlone(Protocol):
    """The best for one preemptor alone; ``beside`` are plans for other preemptors."""

    def __call__(self, preemptor: Preemptor, *, beside: Sequence[Plan] = ()) -> Solution | NoPlan: ...


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """Plans, each after those that it depends on; and the preemptors that have to wait for another cycle."""

    plans: tuple[tuple[Preemptor, Plan | NoPlan], ...]
    later: tuple[Preemptor, ...] = ()
    why_later: str = ""


Answers = dict[str, Solution | NoPlan]  # by job_id of the preemptor
Plans = dict[str, Plan | NoPlan]


def decide_batch(
    found: Sequence[Preemptor],
    solve: SolveAlone,
    planner: Planner,
    seconds_left: Callable[[], float],
    known: Mapping[str, Solution | NoPlan] | None = None,
) -> BatchDecision:
    """A decision for each preemptor, or for those that there is time for.

    The components of a heterogeneous job are decided on together, and apart from others: all of them, or none.
    ``seconds_left``: see ``plan_together``; ``known``: what ``solve`` has answered for some of them alone.
    """
    batch = _Batch(solve, planner, seconds_left, dict(known or {}))
    components = found[0].components
    if components:
        group = [each for each in found if each.job.job_id in components]
        others = tuple(each for each in found if each not in group)
        return BatchDecision(tuple(batch.all_or_none(group)), others, _OF_THEIR_OWN)
    plans = batch.decide([each for each in found if not each.components])
    by_id = {each.job.job_id: each for each in found}
    decided = tuple((by_id[job_id], plan) for job_id, plan in plans.items())
    later = tuple(each for each in found if each.job.job_id not in plans)
    return BatchDecision(decided, later, _OF_THEIR_OWN if all(each.components for each in later) else _NO_TIME)


def under_way_beside(under_way: UnderWay, plans: Iterable[Plan], deadline: datetime) -> UnderWay:
    """What is under way, with what these plans claim as well, none of which is carried out yet."""
    for number, plan in enumerate(plans, 1):
        leaving = {job.job_id for job in plan.leaving}
        mode, state = Mode.AUTOMATIC.value, EvictionState.PREEMPTING
        begun = fresh_operation(Eviction, plan, mode, state, plan.made_at, eviction_id=-number)
        under_way = replace(
            under_way,
            jobs=under_way.jobs | leaving | {plan.preemptor.job_id},
            nodes=under_way.nodes | set(plan.placement_nodes),
            promised=under_way.promised | (leaving if plan.due <= deadline else set()),
            evictions=(*under_way.evictions, begun),
        )
    return under_way


@dataclass(frozen=True, slots=True)
class _Batch:
    """What all decisions of one batch are made from."""

    solve: SolveAlone
    planner: Planner
    seconds_left: Callable[[], float]
    known: Answers  # for preemptors alone

    def all_or_none(self, group: Sequence[Preemptor]) -> Iterable[tuple[Preemptor, Plan | NoPlan]]:
        """Plans for all components of a heterogeneous job, which count on each other, or for none."""
        by_id = {each.job.job_id: each for each in group}
        whys = ["not all of its components could be looked at in this cycle"]
        plans: Plans = {}
        if len(group) == len(group[0].components):
            plans = self.decide(group)
            refused = ((by_id[job_id], each) for job_id, each in plans.items() if isinstance(each, NoPlan))
            whys = [f"component {each.job.display_id}: {no.why}" for each, no in refused]
        if whys or len(plans) < len(group):
            why = next(iter(whys), "not all components can be served in time beside each other")
            return [(each, NoPlan(why)) for each in group]
        together = {own: tuple(sorted(by_id.keys() - {own})) for own in by_id}
        made = ((by_id[own], each) for own, each in plans.items() if isinstance(each, Plan))
        return [(each, replace(plan, together=together[each.job.job_id])) for each, plan in made]

    def decide(self, found: Sequence[Preemptor]) -> Plans:
        """Each plan after those that it depends on; for some there may have been no time."""
        answers = self._answers(found)
        able = {job_id: each for job_id, each in answers.items() if isinstance(each, Solution)}
        with_plan = [each for each in found if each.job.job_id in able]
        if len(able) < 2:
            plans = self._in_turn(with_plan)
        elif any(map(_not_in_programs, able.values())):
            plans = self._in_turn(with_plan, _IN_TURN)
        else:
            plans = self._by_program(with_plan, able)
        return plans | {job_id: each for job_id, each in answers.items() if isinstance(each, NoPlan)}

    def _answers(self, found: Sequence[Preemptor]) -> Answers:
        """For each alone, as far as there is time; the first in any case."""
        answers: Answers = {}
        for each in found:
            job_id = each.job.job_id
            if job_id not in self.known and (not answers or self.seconds_left() > 0):
                self.known[job_id] = self.solve(each)
            if job_id in self.known:
                answers[job_id] = self.known[job_id]
        return answers

    def _by_program(self, found: Sequence[Preemptor], able: Mapping[str, Solution]) -> Plans:
        best = plan_together(requests_of(able), self.seconds_left)
        if best is None or not best.allocations:
            return self._in_turn(found, _IN_TURN)
        plans = plans_of({key: each for key, each in able.items() if key not in best.later}, best.allocations)
        return _noted(plans, _not_proven(best, len(able)))

    def _in_turn(self, found: Sequence[Preemptor], note: str = "") -> Plans:
        """Each beside the plans of those before it; the first in any case, the others while there is time."""
        plans: Plans = {}
        for each in found:
            beside = [plan for plan in plans.values() if isinstance(plan, Plan)]
            if plans and self.seconds_left() <= 0:
                break
            answer = self.known.get(each.job.job_id)
            if beside or answer is None or (isinstance(answer, Solution) and answer.rough):
                answer = self.solve(each, beside=beside)
            plans[each.job.job_id] = plan_alone(answer, self.planner) if isinstance(answer, Solution) else answer
        return _noted(plans, note)


def _not_in_programs(solution: Solution) -> bool:
    """Whether the joint programs do not know its needs."""
    problem = solution.prepared.problem
    return bool(problem.pools) or (solution.prepared.preemptor.tasks > 1 and takes_parts(problem))


def _not_proven(best: Best, asked: int) -> str:
    if best.proven:
        return ""
    gap = gap_of(best.allocations, best.least_node_s) if len(best.allocations) == asked and best.least_node_s else 0.0
    return f"{_WITH_GAP} {100 * gap:.1f} %" if gap else _NOT_PROVEN


def _noted(plans: Plans, note: str) -> Plans:
    return {
        key: replace(each, note="; ".join(filter(None, (each.note, note)))) if isinstance(each, Plan) else each
        for key, each in plans.items()
    }


def requests_of(solutions: Mapping[str, Solution]) -> list[Request]:
    """What each asks of the joint planner, in the serial model; candidates that are the same stay so."""
    busy_s, survey = _busy_s(solutions), Survey()

    def serial(problem: EvictionProblem) -> EvictionProblem:
        name = (id(problem.candidates), problem.busy_s)
        own = replace(problem, candidates=survey.once(name, lambda: one_after_another(problem).candidates))
        times = (id(own.candidates), own.max_delay_s, own.step_s)
        after = survey.once(times, lambda: after_others(own, busy_s))
        return replace(own, candidates=after.candidates, max_delay_s=after.max_delay_s, busy_s=after.busy_s)

    return [
        Request(job_id, each.prepared.preemptor.nodes, serial(each.prepared.problem), each.prepared.free_nodes)
        for job_id, each in solutions.items()
    ]


def plans_of(solutions: Mapping[str, Solution], allocations: Sequence[Allocation]) -> Plans:
    """A plan for each allocation, by the preemptor's job_id; a NoPlan for each preemptor without one."""
    goes_for = {job_id: allocation.job_id for allocation in allocations for job_id, _ in allocation.leaving}
    busy_s, survey = _busy_s(solutions), Survey()
    plans: Plans = {}
    for allocation in allocations:
        others = tuple(sorted(other.job_id for other in allocations if other is not allocation))
        solution = solutions[allocation.job_id]
        point = _point(allocation, solution, busy_s)
        # What it would be alone, and for other deadlines, is worked out later.
        solution = replace(solution, curve=Curve("joint", (point,), exact=False, complete=False))
        verdicts = _verdicts(point, solution, goes_for, survey)
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
    """The allocation as a point of a curve; it was planned as though ``busy_s`` had passed."""
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


def _verdicts(point: CurvePoint, solution: Solution, goes_for: Mapping[str, str], survey: Survey) -> list[Verdict]:
    """Those of one plan, on each candidate; ``goes_for``: by each job that leaves, the preemptor that it leaves for."""
    prepared, candidates = solution.prepared, solution.prepared.problem.candidates
    called, only_end = prepared.preemptor.called, prepared.ground.jobs.only_end

    def spares(job_id: str) -> Verdict:
        if (owner := goes_for.get(job_id)) is not None:
            reason = f"it leaves for {called} {owner}, once for all of them"
            return Verdict(job_id, Choice.SPARED, "leaves_for_another", reason)
        reason = f"not needed: all {called}s together are served at less cost without it"
        return Verdict(job_id, Choice.SPARED, "not_needed", reason)

    # Most are the same in all plans that are made together.
    spared = survey.once((called, id(candidates)), lambda: {each.job_id: spares(each.job_id) for each in candidates})
    found = dict(spared)
    for candidate in candidates if only_end else ():
        job_id = candidate.job_id
        if job_id in only_end and job_id not in goes_for:
            found[job_id] = too_late(candidate, prepared) or found[job_id]
    for planned in point.actions:
        if planned.job_id in found:  # not one that only others may preempt: on it there is a verdict already
            together = "" if planned.action is Action.END else f"; planned together with other {called}s"
            found[planned.job_id] = why_chosen(planned, prepared, together)
    return list(found.values())
