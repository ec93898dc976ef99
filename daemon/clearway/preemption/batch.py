"""Plans for several preemptors that wait in the same cycle: made together, none at another's expense. Pure.

One without a plan alone has none beside others either. There is one program for all of the rest
(``planning.joint.several``). What it does not know (licenses, tasks of an array on parts of nodes), and what it has no
time for, is planned in turn: each beside the plans before it.

Each gets a plan of its own again: the jobs that leave for it, and its nodes. Where the nodes of one job serve several
preemptors, the job belongs to the plan of the first of them by time, and the plans of the others depend on it. When the
first one disappears before the job has left, the others find their nodes held, and only they are planned anew.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from clearway.config.configuration import Mode
from clearway.eligibility.under_way import UnderWay
from clearway.execution.progress import fresh_operation
from clearway.model.operations import Eviction, EvictionState
from clearway.model.plan import NoPlan, Plan, Preemptor
from clearway.planning.base import Planner
from clearway.planning.joint.requests import Best
from clearway.planning.joint.several import gap_of, plan_together
from clearway.preemption.joint_plans import plans_of, requests_of
from clearway.preemption.node_needs import takes_parts
from clearway.preemption.plan import Solution, plan_alone

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
    decided = tuple((each, plans[each.job.job_id]) for each in _in_order(plans, found))
    later = tuple(each for each in found if each.job.job_id not in plans)
    return BatchDecision(decided, later, _OF_THEIR_OWN if all(each.components for each in later) else _NO_TIME)


def under_way_beside(under_way: UnderWay, plans: Iterable[Plan], deadline: datetime) -> UnderWay:
    """What is under way, with what these plans claim as well, none of which is carried out yet."""
    for number, plan in enumerate(plans, 1):
        leaving = {job.job_id for job in plan.leaving}
        begun = fresh_operation(
            Eviction, plan, Mode.AUTOMATIC.value, EvictionState.PREEMPTING, plan.made_at, eviction_id=-number
        )
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


def _in_order(plans: Plans, found: Sequence[Preemptor]) -> list[Preemptor]:
    by_id = {each.job.job_id: each for each in found}
    return [by_id[job_id] for job_id in plans]


def _gap(gap: float) -> str:
    return f"{_WITH_GAP} {100 * gap:.1f} %" if gap else ""


def _not_proven(best: Best, asked: int) -> str:
    if best.proven:
        return ""
    gap = gap_of(best.allocations, best.least_node_s) if len(best.allocations) == asked and best.least_node_s else 0.0
    return _gap(gap) or _NOT_PROVEN


def _noted(plans: Plans, note: str) -> Plans:
    return {
        key: replace(each, note="; ".join(filter(None, (each.note, note)))) if isinstance(each, Plan) else each
        for key, each in plans.items()
    }
