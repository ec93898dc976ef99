"""Plans for several preemptors that wait in the same cycle: made together, none at another's expense. Pure.

Each preemptor is solved for alone first: one without a plan alone has none beside others either. The rest are planned
by ``planning.joint.several``, and each gets a plan of its own again: the jobs that leave for it, and its nodes. Where
the nodes of one job serve several preemptors, the job belongs to the plan of the first of them by time, and the plans
of the others depend on it. When the first one disappears before the job has left, the others find their nodes held, and
only they are planned anew.

Where one of them asks for parts of nodes, or for certain nodes, they take turns: it is planned for alone, and the
others after it. An urgent job that could have whole nodes as well has parts only where all others can still be served
beside it, as far as there is time to find out; else all of them are given whole nodes, together. The plans of all later
turns are made as well, and compared with a plan for all of them at once (``planning.joint.several.at_once``). That one
is taken where it serves more preemptors (earlier ones count more), or costs less, by the order of ``planning.base``;
and without a look at later turns where preemptors are many. Of many, and of fewer whose curves would take too long, it
is enough to know that each has a plan alone (``Solution.rough``): those plans are made at once before anybody's turn.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from clearway.config.configuration import Mode
from clearway.eligibility.under_way import UnderWay
from clearway.execution.progress import fresh_operation
from clearway.model.operations import Eviction, EvictionState
from clearway.model.plan import NoPlan, Plan, Preemptor
from clearway.planning.base import Planner
from clearway.planning.joint.cheapest_nodes import FEW_NODES
from clearway.planning.joint.program import Best
from clearway.planning.joint.requests import JointPlan
from clearway.planning.joint.several import MANY, at_once, gap_of, plan_together, unserved
from clearway.preemption.joint_plans import cost_of_all, least_cost, plans_of, requests_of
from clearway.preemption.node_needs import takes_parts
from clearway.preemption.plan import Solution, plan_alone
from clearway.preemption.turns import LATER

_NO_TIME = "planned in its turn; there was no time to find out whether a plan for all of them at once is better"
_NONE_BETTER = "planned in its turn; no better plan for all of them at once was found, but there may be one"
_WITH_GAP = "planned together with others; of what they all lose there may be needless at most"
_BEST_FOUND = "planned at once with others; that is not proven to be the best"
_BETTER = "planned at once with others; that is better than in turns, but not proven to be the best"


class SolveAlone(Protocol):
    """The best for one preemptor alone; ``whole``: see ``solve_alone``; ``beside`` are plans for other preemptors."""

    def __call__(
        self, preemptor: Preemptor, *, whole: bool = False, beside: Sequence[Plan] = ()
    ) -> Solution | NoPlan: ...


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """Plans, each after those that it depends on; and the preemptors that have to wait for another cycle."""

    plans: tuple[tuple[Preemptor, Plan | NoPlan], ...]
    later: tuple[Preemptor, ...] = ()
    why_later: str = ""


Answers = dict[str, Solution | NoPlan]  # by job_id of the preemptor


def decide_batch(
    found: Sequence[Preemptor],
    solve: SolveAlone,
    planner: Planner,
    seconds_left: Callable[[], float],
    known: Mapping[str, Solution | NoPlan] | None = None,
) -> BatchDecision:
    """A decision for each preemptor, or for those whose turn it is.

    ``seconds_left``: see ``plan_together``; ``known``: what ``solve`` has answered for some of them alone.
    """
    batch = _Batch(solve, planner, seconds_left, dict(known or {}))
    first = found[0]
    if first.components:
        group = [each for each in found if each.job.job_id in first.components]
        return batch.all_or_none(group, [each for each in found if each not in group])
    alone = [each for each in found if not each.components]
    decided = batch.decide(alone)
    later = (*decided.later, *(each for each in found if each.components))
    return replace(decided, later=later, why_later=decided.why_later or "heterogeneous jobs have a turn of their own")


def under_way_beside(under_way: UnderWay, plans: Iterable[Plan], deadline: datetime) -> UnderWay:
    """What is under way, with what these plans claim as well, none of which is carried out yet."""
    for number, plan in enumerate(plans, 1):
        leaving = {job.job_id for job in plan.leaving}
        under_way = replace(
            under_way,
            jobs=under_way.jobs | leaving | {plan.preemptor.job_id},
            nodes=under_way.nodes | set(plan.placement_nodes),
            promised=under_way.promised | (leaving if plan.due <= deadline else set()),
            evictions=(*under_way.evictions, _as_begun(plan, -number)),
        )
    return under_way


def _as_begun(plan: Plan, number: int) -> Eviction:
    return fresh_operation(
        Eviction, plan, Mode.AUTOMATIC.value, EvictionState.PREEMPTING, plan.made_at, eviction_id=number
    )


@dataclass(frozen=True, slots=True)
class _Batch:
    """What all decisions of one batch are made from."""

    solve: SolveAlone
    planner: Planner
    seconds_left: Callable[[], float]
    known: Answers = field(default_factory=dict)  # answers for preemptors alone

    def alone(self, preemptor: Preemptor) -> Solution | NoPlan:
        """The best for one preemptor, beside no other plan; found once."""
        job_id = preemptor.job.job_id
        if job_id not in self.known:
            self.known[job_id] = self.solve(preemptor)
        return self.known[job_id]

    @property
    def has_needs(self) -> bool:
        """Whether one of several preemptors asks for parts of nodes, or for certain nodes, and could have them."""
        found = [each for each in self.known.values() if isinstance(each, Solution)]
        return len(found) > 1 and any(each.prepared.problem.needs is not None for each in found)

    @property
    def has_slots(self) -> bool:
        """Whether tasks of an array take parts of nodes: the joint planner knows not how many fit on one."""
        found = [each.prepared for each in self.known.values() if isinstance(each, Solution)]
        return any(each.preemptor.tasks > 1 and takes_parts(each.problem) for each in found)

    def turns(
        self, found: Sequence[Preemptor], earlier: Sequence[Plan] = (), *, explained: bool = True
    ) -> BatchDecision:
        """Decisions for the preemptors whose turn it is beside the plans of ``earlier`` turns."""

        def solve(preemptor: Preemptor, *, whole: bool = False, beside: Sequence[Plan] = ()) -> Solution | NoPlan:
            if whole or earlier or beside:
                return self.solve(preemptor, whole=whole, beside=(*earlier, *beside))
            return self.alone(preemptor)

        answers: Answers = {}
        others = list(found)
        first: Solution | None = None
        while others and first is None:
            preemptor = others.pop(0)
            answers[preemptor.job.job_id] = answer = solve(preemptor)
            if isinstance(answer, Solution):
                first = answer
        if first is not None and first.prepared.problem.needs is not None:
            plan = plan_alone(first, self.planner, explained=explained)
            decided = self._beside(plan, found, others, solve, answers)
        else:
            answers |= {preemptor.job.job_id: solve(preemptor) for preemptor in others}
            able = _on_whole_nodes(answers)
            if len(able) > 1:
                decided = self._together(able)
            else:
                decided = {key: plan_alone(each, self.planner, explained=explained) for key, each in able.items()}
        decided |= {job_id: each for job_id, each in answers.items() if isinstance(each, NoPlan)}
        after = "" if first is None else f"{first.prepared.preemptor.called} {first.prepared.preemptor.job.job_id}"
        return _decision(decided, found, f"it is planned for in a cycle of its own, after {after}")

    def decide(self, found: Sequence[Preemptor]) -> BatchDecision:
        """For those whose turn it is, or for all of them where that is better."""
        if (crowd := self._crowd(found)) is not None:
            return crowd
        turns = self.turns(found)
        return self.at_once(found, turns) if (turns.later or self.has_needs) and not self.has_slots else turns

    def _crowd(self, found: Sequence[Preemptor]) -> BatchDecision | None:
        """A plan for many at once, of which it is known that they have one alone; None where none was found.

        Then they are solved for alone as their turn comes.
        """
        answers = {each.job.job_id: self.known.get(each.job.job_id) for each in found}
        able = {job_id: each for job_id, each in answers.items() if isinstance(each, Solution)}
        rough = [job_id for job_id, each in able.items() if each.rough]
        if rough and len(able) > 1 and not self.has_slots and not any(_alone(each) for each in able.values()):
            told = [(each, why) for each in found if isinstance(why := answers[each.job.job_id], NoPlan)]
            if (decision := self._many_at_once(found, able, BatchDecision(tuple(told), (), LATER))) is not None:
                return decision
        for job_id in rough:
            del self.known[job_id]
        return None

    def all_or_none(self, group: Sequence[Preemptor], others: Sequence[Preemptor]) -> BatchDecision:
        """Plans for all components of a heterogeneous job, which count on each other, or for none."""
        first = group[0]
        whys: list[str] = []
        plans: Sequence[Plan] = ()
        if len(group) < len(first.components):
            whys = ["not all of its components could be looked at in this cycle"]
        else:
            decided = self.decide(group)
            whys = [f"component {p.job.display_id}: {no.why}" for p, no in decided.plans if isinstance(no, NoPlan)]
            plans = () if whys else self._all_turns(decided) or ()
        by_id = {each.job.job_id: each for each in group}
        found: list[tuple[Preemptor, Plan | NoPlan]] = []
        for plan in plans:
            own = plan.preemptor.job_id
            found.append((by_id[own], replace(plan, together=tuple(sorted(by_id.keys() - {own})))))
        if len(plans) < len(group):
            why = next(iter(whys), "not all components can be served in time beside each other")
            found = [(each, NoPlan(why)) for each in group]
        return BatchDecision(tuple(found), tuple(others), "heterogeneous jobs have a turn of their own")

    def at_once(self, found: Sequence[Preemptor], turns: BatchDecision) -> BatchDecision:
        """A plan for all that can be served, where it is better than all turns to their end; else the turns."""
        for preemptor in found:
            if self.seconds_left() > 0:
                self.alone(preemptor)
        order = [preemptor.job.job_id for preemptor in found]
        able = {job_id: each for job_id in order if isinstance(each := self.known.get(job_id), Solution)}
        if any(_alone(each) for each in able.values()):
            return turns
        large = any(len(each.prepared.problem.nodes) > FEW_NODES for each in able.values())
        if large and len(able) >= MANY and len(self.known) == len(found):
            return self._many_at_once(found, able, turns) or _noted(turns, _NO_TIME)
        plans = self._all_turns(turns)
        if plans is None or len(self.known) < len(found):
            return _noted(turns, _NO_TIME)
        if len(able) < 2:
            return turns
        served = {plan.preemptor.job_id for plan in plans}
        cost = cost_of_all((plan.problem, plan.chosen) for plan in plans)
        if served == able.keys() and cost <= least_cost(able):
            return turns
        best = at_once(requests_of(able), self.seconds_left)
        if best is None:
            return _noted(turns, _NO_TIME)
        instead = JointPlan(best.allocations, gap=0.0)
        if (unserved(instead.served, order), instead.cost) < (unserved(served, order), cost):
            return _noted(self._instead(turns, found, able, best), "" if best.proven else _BETTER)
        if best.proven:
            return turns
        note = _NONE_BETTER
        least_node_s = max(best.least_node_s, least_cost(able).lost_work_node_s)
        lost_node_s = cost.lost_work_node_s
        if lost_node_s and instead.served == served == able.keys():
            needless = 100 * max(0.0, lost_node_s - least_node_s) / lost_node_s
            note += f"; at most {needless:.1f} % of what they lose is needless"
        return _noted(turns, note)

    def _many_at_once(
        self, found: Sequence[Preemptor], able: Mapping[str, Solution], turns: BatchDecision
    ) -> BatchDecision | None:
        """A plan for all at once without all the turns to compare it with, which would take far longer; None: none."""
        best = at_once(requests_of(able), self.seconds_left, in_a_hurry=True)
        if best is None or not best.allocations:
            return None
        gap = gap_of(best.allocations, best.least_node_s) if len(best.allocations) == len(able) else 0.0
        note = f"{_WITH_GAP} {100 * gap:.1f} %" if gap else "" if best.proven else _BEST_FOUND
        return _noted(self._instead(turns, found, able, best), note)

    @staticmethod
    def _instead(
        turns: BatchDecision, found: Sequence[Preemptor], able: Mapping[str, Solution], best: Best
    ) -> BatchDecision:
        """The plans of ``best``; of the turns only what is said of other preemptors."""
        decided = plans_of({key: each for key, each in able.items() if key not in best.later}, best.allocations)
        told = {each.job.job_id: plan for each, plan in turns.plans}
        decided |= {job_id: plan for job_id, plan in told.items() if job_id not in decided}
        return _decision(decided, found, turns.why_later)

    def _all_turns(self, turns: BatchDecision) -> list[Plan] | None:
        """The plans of these turns and of all later ones; None when there was no time to make them."""
        plans = [plan for _, plan in turns.plans if isinstance(plan, Plan)]
        later = turns.later
        while later:
            if self.seconds_left() <= 0:
                return None
            following = self.turns(later, plans, explained=False)
            plans += [plan for _, plan in following.plans if isinstance(plan, Plan)]
            later = following.later
        return plans

    def _together(self, able: dict[str, Solution]) -> dict[str, Plan | NoPlan]:
        together = plan_together(requests_of(able), self.planner, self.seconds_left)
        plans = plans_of(able, together.allocations)
        note = f"{_WITH_GAP} {100 * together.gap:.1f} %" if together.gap else ""
        return {key: _with_note(each, note) if isinstance(each, Plan) else each for key, each in plans.items()}

    def _beside(
        self, plan: Plan, found: Sequence[Preemptor], others: Sequence[Preemptor], solve: SolveAlone, answers: Answers
    ) -> dict[str, Plan | NoPlan]:
        """This plan for the first preemptor; or plans on whole nodes, where those serve others that it blocks."""
        first = plan.preemptor.job_id
        blocked = self._blocked(plan, others, solve, answers)
        if blocked and not plan.preemptor.gpus:
            able = [each for each in found if not isinstance(answers.get(each.job.job_id), NoPlan)]
            whole = _on_whole_nodes({each.job.job_id: solve(each, whole=True) for each in able})
            if first in whole and blocked & whole.keys():
                instead = self._together(whole)
                served = {job_id for job_id, each in instead.items() if isinstance(each, Plan)}
                if first in served and blocked & served:
                    return instead
        return {first: plan}

    def _blocked(self, plan: Plan, others: Sequence[Preemptor], solve: SolveAlone, answers: Answers) -> set[str]:
        """Preemptors with a plan alone, but none beside this one; those without a plan alone join the ``answers``."""
        blocked = set()
        for preemptor in others:
            if self.seconds_left() <= 0:
                break
            if isinstance(solve(preemptor, beside=[plan]), NoPlan):
                alone = solve(preemptor)
                if isinstance(alone, NoPlan):
                    answers[preemptor.job.job_id] = alone
                else:
                    blocked.add(preemptor.job.job_id)
        return blocked


def _alone(solution: Solution) -> bool:
    """Whether the joint planner does not know its needs: licenses, few leaf switches, one of some features."""
    problem = solution.prepared.problem
    return problem.needs is not None and bool(problem.pools or problem.needs.switches or problem.needs.same_feature)


def _on_whole_nodes(answers: Answers) -> dict[str, Solution]:
    """The solutions that whole nodes are for."""
    return {
        job_id: each
        for job_id, each in answers.items()
        if isinstance(each, Solution) and each.prepared.problem.needs is None
    }


def _decision(decided: Mapping[str, Plan | NoPlan], found: Sequence[Preemptor], why_later: str) -> BatchDecision:
    by_id = {preemptor.job.job_id: preemptor for preemptor in found}
    plans = tuple((by_id[job_id], each) for job_id, each in decided.items())
    return BatchDecision(plans, tuple(each for each in found if each.job.job_id not in decided), why_later)


def _noted(decision: BatchDecision, note: str) -> BatchDecision:
    plans = [(each, _with_note(plan, note) if isinstance(plan, Plan) else plan) for each, plan in decision.plans]
    return replace(decision, plans=tuple(plans))


def _with_note(plan: Plan, note: str) -> Plan:
    return replace(plan, note="; ".join(filter(None, (plan.note, note))))
