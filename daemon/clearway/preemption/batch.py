"""Plans for several preemptors that wait in the same cycle: made together, none at another's expense. Pure.

Each is considered alone first: who cannot be served alone cannot be beside others either. The rest are planned by
``planning.joint.several``, and each gets a plan of its own again: the jobs that leave for it, and its nodes. Where a
job's nodes serve several, it belongs to the plan of the first of them by time; the others count on it. When that one
disappears before the job has left, the others find their nodes held, and only they are planned anew.

Where one of them asks for parts of nodes, or for certain ones, they have turns: it is planned for alone, and the others
after it. An urgent job that could have whole nodes as well has parts only where everybody else can still be served
beside it, as far as there is time to look; else all of them are given whole nodes, together. How these turns would go
on is looked at as well, and a plan for all of them at once is made (``planning.joint.several.at_once``). That one is
taken where it serves more of them (who comes first counts more), or loses less, by the order of ``planning.base``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import ceil
from typing import Protocol

from clearway.config.configuration import Mode
from clearway.eligibility.under_way import UnderWay
from clearway.execution.progress import fresh_operation
from clearway.model.cluster import ClusterSnapshot
from clearway.model.operations import Eviction, EvictionState
from clearway.model.plan import Choice, Cost, CurvePoint, NoPlan, Plan, PlannedAction, Verdict
from clearway.model.preemptor import Preemptor
from clearway.model.problem import Action, EvictionProblem, Option
from clearway.planning.base import Planner
from clearway.planning.formulation.shared_bandwidth import after_others, one_after_another
from clearway.planning.joint.requests import Allocation, Request, Together
from clearway.planning.joint.several import at_once, plan_together, unserved
from clearway.preemption.plan import Considered, plan_alone, plan_of, why_chosen


def beside_plans(under_way: UnderWay, plans: Iterable[Plan], deadline: datetime) -> UnderWay:
    """The same with what these plans claim as well, none of which is carried out yet."""
    for number, plan in enumerate(plans, 1):
        leaving = {job.job_id for job in plan.leaving}
        under_way = replace(
            under_way,
            jobs=under_way.jobs | leaving | {plan.preemptor.job_id},
            nodes=under_way.nodes | set(plan.placement_nodes),
            promised=under_way.promised | (leaving if plan.deadline <= deadline else set()),
            evictions=(*under_way.evictions, _as_begun(plan, -number)),
        )
    return under_way


def _as_begun(plan: Plan, number: int) -> Eviction:
    return fresh_operation(
        Eviction, plan, Mode.AUTOMATIC.value, EvictionState.PREEMPTING, plan.made_at, eviction_id=number
    )


_NO_TIME = "planned in its turn; there was no time to find out whether a plan for all of them at once is better"
_NONE_BETTER = "planned in its turn; no better plan for all of them at once was found, but there may be one"
_BETTER = "planned at once with others; that is better than in turns, but not proven to be the best"


class Consider(Protocol):
    """What can be done for one preemptor alone; ``whole``: see ``needs_of``; ``beside`` are plans for others."""

    def __call__(
        self, preemptor: Preemptor, *, whole: bool = False, beside: Sequence[Plan] = ()
    ) -> Considered | NoPlan: ...


@dataclass(frozen=True, slots=True)
class Decided:
    """Decisions in an order in which who counts on another one's jobs comes after it; and who has to wait for them."""

    plans: tuple[tuple[Preemptor, Plan | NoPlan], ...]
    later: tuple[Preemptor, ...] = ()
    why_later: str = ""


def decide_together(
    found: Sequence[Preemptor],
    consider: Consider,
    snapshot: ClusterSnapshot,
    planner: Planner,
    now: datetime,
    seconds_left: Callable[[], float],
) -> Decided:
    """A decision for each, or for those whose turn it is.

    ``seconds_left``: see ``plan_together``.
    """
    cycle = _Cycle(consider, snapshot, planner, now, seconds_left)
    turns = cycle.turns(found)
    return cycle.at_once(found, turns) if turns.later or cycle.saw_needs else turns


@dataclass(frozen=True, slots=True)
class _Cycle:
    """What all of these decisions go by."""

    consider: Consider
    snapshot: ClusterSnapshot
    planner: Planner
    now: datetime
    seconds_left: Callable[[], float]
    alone: dict[str, Considered | NoPlan] = field(default_factory=dict)  # what was considered already

    def considered(self, preemptor: Preemptor) -> Considered | NoPlan:
        """What can be done for one alone."""
        job_id = preemptor.job.job_id
        if job_id not in self.alone:
            self.alone[job_id] = self.consider(preemptor)
        return self.alone[job_id]

    def turns(self, found: Sequence[Preemptor], beside: Sequence[Plan] = (), *, explained: bool = True) -> Decided:
        """Decisions for those whose turn it is ``beside`` plans for others."""

        def consider(preemptor: Preemptor, *, whole: bool = False, beside: Sequence[Plan] = ()) -> Considered | NoPlan:
            if whole or earlier or beside:
                return self.consider(preemptor, whole=whole, beside=(*earlier, *beside))
            return self.considered(preemptor)

        earlier = tuple(beside)
        none: dict[str, Plan | NoPlan] = {}
        able: dict[str, Considered] = {}
        others = list(found)
        while others and not able:
            preemptor = others.pop(0)
            _sort(preemptor, consider(preemptor), able, none)
        first = next(iter(able), "")
        if able and able[first].prepared.problem.needs is not None:
            plan = plan_alone(able[first], self.snapshot, self.planner, self.now, explained=explained)
            blocked = _blocked(plan, others, consider, self.seconds_left, none)
            decided: dict[str, Plan | NoPlan] = {first: plan}
            if blocked and not plan.preemptor.gpus:
                whole = _on_whole_nodes([each for each in found if each.job.job_id not in none], consider)
                if first in whole and blocked & whole.keys():
                    instead = self._shared_out(whole)
                    served = {job_id for job_id, each in instead.items() if isinstance(each, Plan)}
                    if first in served and blocked & served:
                        decided = instead
        else:
            for preemptor in others:
                _sort(preemptor, consider(preemptor), able, none)
            able = {job_id: each for job_id, each in able.items() if each.prepared.problem.needs is None}
            if len(able) > 1:
                decided = self._shared_out(able)
            else:
                decided = {
                    job_id: plan_alone(each, self.snapshot, self.planner, self.now, explained=explained)
                    for job_id, each in able.items()
                }
        by_id = {preemptor.job.job_id: preemptor for preemptor in found}
        called = by_id[first].called if first else ""
        return Decided(
            plans=tuple((by_id[job_id], each) for job_id, each in (*decided.items(), *none.items())),
            later=tuple(by_id[job_id] for job_id in by_id if job_id not in decided and job_id not in none),
            why_later=f"it is planned for in a cycle of its own, after {called} {first}",
        )

    @property
    def saw_needs(self) -> bool:
        """Whether anybody who was considered has needs that it could have."""
        found = [each for each in self.alone.values() if isinstance(each, Considered)]
        return len(found) > 1 and any(each.prepared.problem.needs is not None for each in found)

    def at_once(self, found: Sequence[Preemptor], turns: Decided) -> Decided:
        """A plan for all who can be served where it is better than the turns to their end, else the turns."""
        able: dict[str, Considered] = {}
        for preemptor in found:
            if preemptor.job.job_id in self.alone or self.seconds_left() > 0:
                _sort(preemptor, self.considered(preemptor), able, {})
        plans = self._to_the_end(turns)
        if plans is None or len(self.alone) < len(found):
            return _noted(turns, _NO_TIME)
        if len(able) < 2:
            return turns
        order = [preemptor.job.job_id for preemptor in found]
        served = {plan.preemptor.job_id for plan in plans}
        cost = _cost((plan.problem, plan.chosen) for plan in plans)
        if served == able.keys() and cost <= _least(able):
            return turns
        best = at_once(_requests(able), self.seconds_left)
        if best is None:
            return _noted(turns, _NO_TIME)
        instead = Together(best.allocations, gap=0.0)
        if (unserved(instead.served, order), instead.cost) < (unserved(served, order), cost):
            return self._decided(able, best.allocations, found, turns, "" if best.proven else _BETTER)
        if best.proven:
            return turns
        note = _NONE_BETTER
        least_node_s = max(best.least_node_s, _least(able).lost_work_node_s)
        lost_node_s = cost.lost_work_node_s
        if lost_node_s and instead.served == served == able.keys():
            needless = 100 * max(0.0, lost_node_s - least_node_s) / lost_node_s
            note += f"; at most {needless:.1f} % of what they lose is needless"
        return _noted(turns, note)

    def _to_the_end(self, turns: Decided) -> list[Plan] | None:
        """All plans that these turns come to; None when there was no time to look."""
        plans = [plan for _, plan in turns.plans if isinstance(plan, Plan)]
        later = turns.later
        while later:
            if self.seconds_left() <= 0:
                return None
            following = self.turns(later, plans, explained=False)
            plans += [plan for _, plan in following.plans if isinstance(plan, Plan)]
            later = following.later
        return plans

    def _shared_out(self, able: dict[str, Considered]) -> dict[str, Plan | NoPlan]:
        allocations = plan_together(_requests(able), self.planner, self.seconds_left).allocations
        return self._as_plans(able, allocations)

    def _decided(
        self,
        able: dict[str, Considered],
        allocations: Sequence[Allocation],
        found: Sequence[Preemptor],
        turns: Decided,
        note: str,
    ) -> Decided:
        decided = self._as_plans(able, allocations)
        by_id = {preemptor.job.job_id: preemptor for preemptor in found}
        none = [(each, plan) for each, plan in turns.plans if each.job.job_id not in decided]
        told = {each.job.job_id for each, _ in none}
        left = tuple(each for each in found if each.job.job_id not in decided and each.job.job_id not in told)
        at_once = tuple((by_id[job_id], each) for job_id, each in decided.items())
        return _noted(Decided((*at_once, *none), left, turns.why_later), note)

    def _as_plans(self, able: dict[str, Considered], allocations: Sequence[Allocation]) -> dict[str, Plan | NoPlan]:
        goes_for = {job_id: allocation.job_id for allocation in allocations for job_id, _ in allocation.leaving}
        decided: dict[str, Plan | NoPlan] = {}
        for allocation in allocations:
            others = tuple(sorted(other.job_id for other in allocations if other is not allocation))
            each = able[allocation.job_id]
            point = _point(allocation, each, _busy_s(able))
            verdicts = _verdicts(allocation, point, each, goes_for)
            decided[allocation.job_id] = plan_of(
                each, point, allocation.nodes, verdicts, self.snapshot, self.now, others, allocation.depends_on
            )
        names = ", ".join(sorted(decided))
        for job_id, each in able.items():
            if job_id not in decided:
                called = each.prepared.preemptor.called
                why = f"its nodes could be freed in time, but not beside those of the {called}s before it ({names})"
                decided[job_id] = NoPlan(why, each.curve)
        return decided


def _noted(decided: Decided, note: str) -> Decided:
    plans = [(each, replace(plan, note=note) if isinstance(plan, Plan) else plan) for each, plan in decided.plans]
    return replace(decided, plans=tuple(plans))


def _cost(chosen: Iterable[tuple[EvictionProblem, CurvePoint]]) -> Cost:
    """As ``Together.cost``: checkpoint times are not rounded up to steps."""
    used = []
    for problem, point in chosen:
        options = {(each.job_id, way.action): way for each in problem.candidates for way in each.options}
        for planned in point.actions:
            own = Option(planned.action, planned.lost_work_node_s, planned.checkpoint_s, 0, planned.return_node_s)
            used.append(options.get((planned.job_id, planned.action), own))
    return Cost.of(used)


def _least(able: Mapping[str, Considered]) -> Cost:
    """No plan for all of them costs less: what each costs alone, added up where no job can make room for two."""
    alone = []
    for each in able.values():
        point = each.curve.choose() if each.curve.exact else None
        alone.append(Cost() if point is None else _cost([(each.prepared.problem, point)]))
    nodes: dict[str, set[str]] = defaultdict(set)
    for each in able.values():
        for candidate in each.prepared.problem.candidates:
            nodes[candidate.job_id] |= set(candidate.node_names)
    if any(len(names) > 1 for names in nodes.values()):
        return max(alone)
    return sum(alone, Cost())


def _sort(
    preemptor: Preemptor, each: Considered | NoPlan, able: dict[str, Considered], none: dict[str, Plan | NoPlan]
) -> None:
    if isinstance(each, NoPlan):
        none[preemptor.job.job_id] = each
    else:
        able[preemptor.job.job_id] = each


def _blocked(
    plan: Plan,
    others: Sequence[Preemptor],
    consider: Consider,
    seconds_left: Callable[[], float],
    none: dict[str, Plan | NoPlan],
) -> set[str]:
    """Who has a plan alone, but none beside this one; who has none at all is told in ``none``."""
    found = set()
    for preemptor in others:
        if seconds_left() <= 0:
            break
        if isinstance(consider(preemptor, beside=[plan]), NoPlan):
            alone = consider(preemptor)
            if isinstance(alone, NoPlan):
                none[preemptor.job.job_id] = alone
            else:
                found.add(preemptor.job.job_id)
    return found


def _on_whole_nodes(preemptors: Sequence[Preemptor], consider: Consider) -> dict[str, Considered]:
    """Those that can do with whole nodes."""
    considered = {preemptor.job.job_id: consider(preemptor, whole=True) for preemptor in preemptors}
    return {
        job_id: each
        for job_id, each in considered.items()
        if isinstance(each, Considered) and each.prepared.problem.needs is None
    }


def _busy_s(able: Mapping[str, Considered]) -> int:
    """The longest wait of any: else each would be in time alone, but not in the order in which they are due."""
    return max(each.prepared.problem.busy_s for each in able.values())


def _requests(able: Mapping[str, Considered]) -> list[Request]:
    busy_s = _busy_s(able)
    return [
        Request(
            job_id,
            each.prepared.preemptor.job.num_nodes,
            after_others(one_after_another(each.prepared.problem), busy_s),
            each.prepared.free_nodes,
        )
        for job_id, each in able.items()
    ]


def _point(allocation: Allocation, considered: Considered, busy_s: int) -> CurvePoint:
    """The allocation as a point of a curve; freed are the nodes of its placement that were not free.

    ``busy_s`` is not in its times: it was planned as though that had passed.
    """
    problem = considered.prepared.problem
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
        nodes_freed=len(set(allocation.nodes) - set(considered.prepared.free_nodes)),
        actions=tuple(planned),
        return_node_s=sum(each.return_node_s for each in planned),
    )


def _verdicts(
    allocation: Allocation, point: CurvePoint, considered: Considered, goes_for: dict[str, str]
) -> list[Verdict]:
    chosen = {planned.job_id: planned for planned in point.actions}
    called = considered.prepared.preemptor.called
    verdicts = []
    for candidate in considered.prepared.problem.candidates:
        job_id = candidate.job_id
        planned, owner = chosen.get(job_id), goes_for.get(job_id, allocation.job_id)
        if planned is not None:
            together = "" if planned.action is Action.END else f"; planned together with other {called}s"
            verdicts.append(why_chosen(planned, considered.prepared, together))
        elif owner != allocation.job_id:
            reason = f"it leaves for {called} {owner}, once for all of them"
            verdicts.append(Verdict(job_id, Choice.SPARED, "leaves_for_another", reason))
        else:
            reason = f"not needed: all {called}s together are served at less cost without it"
            verdicts.append(Verdict(job_id, Choice.SPARED, "not_needed", reason))
    return verdicts
