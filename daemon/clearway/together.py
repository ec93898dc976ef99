"""Plans for several preemptors that wait in the same cycle: made together, none at another's expense. Pure.

Each is considered alone first: who cannot be served alone cannot be beside others either. The rest are planned by
``planning.several``, and each gets a plan of its own again: its share of the jobs that leave and of the nodes. Where a
job's nodes serve several, it belongs to the plan of the first of them by time; the others count on it. When that one
disappears before the job has left, the others find their nodes held, and only they are planned anew.

Parts of nodes, and certain nodes, are unknown to ``planning.several``: who asks for them is planned for alone, in its
turn, and the others after it. An urgent job that could have whole nodes as well has parts only where everybody else can
still be served beside it, as far as there is time to look; else all of them are given whole nodes, together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import ceil
from typing import Protocol

from clearway.config import Mode
from clearway.decision import Considered, NoPlan, plan_alone, plan_of, why_chosen
from clearway.detection import Preemptor
from clearway.execution.progress import fresh_eviction
from clearway.execution.records import Eviction, EvictionState
from clearway.model import Action, Choice, ClusterSnapshot, CurvePoint, Plan, PlannedAction, Verdict
from clearway.planning.base import Planner
from clearway.planning.parties import Party, Share
from clearway.planning.several import plan_together
from clearway.planning.shared_bandwidth import after_others, one_after_another
from clearway.policy import UnderWay


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
    return fresh_eviction(plan, Mode.AUTOMATIC.value, EvictionState.PREEMPTING, plan.made_at, eviction_id=number)


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
    none: dict[str, Plan | NoPlan] = {}
    able: dict[str, Considered] = {}
    others = list(found)
    while others and not able:
        preemptor = others.pop(0)
        _sort(preemptor, consider(preemptor), able, none)
    first = next(iter(able), "")
    if able and able[first].situation.problem.needs is not None:
        plan = plan_alone(able[first], snapshot, planner, now)
        blocked = _blocked(plan, others, consider, seconds_left, none)
        decided: dict[str, Plan | NoPlan] = {first: plan}
        if blocked and not plan.preemptor.gpus:
            whole = _on_whole_nodes([each for each in found if each.job.job_id not in none], consider)
            if first in whole and blocked & whole.keys():
                instead = _shared_out(whole, snapshot, planner, now, seconds_left)
                served = {job_id for job_id, each in instead.items() if isinstance(each, Plan)}
                if first in served and blocked & served:
                    decided = instead
    else:
        for preemptor in others:
            _sort(preemptor, consider(preemptor), able, none)
        able = {job_id: each for job_id, each in able.items() if each.situation.problem.needs is None}
        if len(able) > 1:
            decided = _shared_out(able, snapshot, planner, now, seconds_left)
        else:
            decided = {job_id: plan_alone(each, snapshot, planner, now) for job_id, each in able.items()}
    by_id = {preemptor.job.job_id: preemptor for preemptor in found}
    called = by_id[first].called if first else ""
    return Decided(
        plans=tuple((by_id[job_id], each) for job_id, each in (*decided.items(), *none.items())),
        later=tuple(by_id[job_id] for job_id in by_id if job_id not in decided and job_id not in none),
        why_later=f"it is planned for in a cycle of its own, after {called} {first}",
    )


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
        if isinstance(each, Considered) and each.situation.problem.needs is None
    }


def _shared_out(
    able: dict[str, Considered],
    snapshot: ClusterSnapshot,
    planner: Planner,
    now: datetime,
    seconds_left: Callable[[], float],
) -> dict[str, Plan | NoPlan]:
    # The longest wait for all of them: each would else be in time alone, but not in the order in which they are due.
    busy_s = max(each.situation.problem.busy_s for each in able.values())
    parties = [
        Party(
            job_id,
            each.situation.preemptor.job.num_nodes,
            after_others(one_after_another(each.situation.problem), busy_s),
            each.situation.free_nodes,
        )
        for job_id, each in able.items()
    ]
    shares = plan_together(parties, planner, seconds_left).shares
    goes_for = {job_id: share.job_id for share in shares for job_id, _ in share.leaving}
    decided: dict[str, Plan | NoPlan] = {}
    for share in shares:
        others = tuple(sorted(other.job_id for other in shares if other is not share))
        each = able[share.job_id]
        point = _point(share, each, busy_s)
        verdicts = _verdicts(share, point, each, goes_for)
        decided[share.job_id] = plan_of(each, point, share.nodes, verdicts, snapshot, now, others)
    names = ", ".join(sorted(decided))
    for job_id, each in able.items():
        if job_id not in decided:
            called = each.situation.preemptor.called
            why = f"its nodes could be freed in time, but not beside those of the {called}s before it ({names})"
            decided[job_id] = NoPlan(why, each.situation, each.curve)
    return decided


def _point(share: Share, considered: Considered, busy_s: int) -> CurvePoint:
    """The share as a point of a curve; freed are the nodes of its placement that were not free.

    ``busy_s`` is not in its times: it was planned as though that had passed.
    """
    problem = considered.situation.problem
    ready_s = {(each.job_id, way.action): ceil(way.ready_s) for each in problem.candidates for way in each.options}
    passed_s = busy_s if share.done_s or share.ending else 0
    planned = [
        PlannedAction(
            job_id,
            option.action,
            option.lost_work_node_s,
            ceil(option.checkpoint_s),
            ready_s[job_id, option.action],
            0 if option.action is Action.END else option.return_node_s,
        )
        for job_id, option in sorted((*share.leaving, *share.ending), key=lambda each: each[0])
    ]
    return CurvePoint(
        max_delay_s=min(share.done_s + passed_s, problem.max_delay_s) if busy_s else share.done_s,
        feasible=True,
        lost_work_node_s=sum(each.lost_work_node_s for each in planned),
        checkpoint_s=sum(each.checkpoint_s for each in planned),
        nodes_freed=len(set(share.nodes) - set(considered.situation.free_nodes)),
        actions=tuple(planned),
        return_node_s=sum(each.return_node_s for each in planned),
    )


def _verdicts(share: Share, point: CurvePoint, considered: Considered, goes_for: dict[str, str]) -> list[Verdict]:
    chosen = {planned.job_id: planned for planned in point.actions}
    called = considered.situation.preemptor.called
    verdicts = []
    for candidate in considered.situation.problem.candidates:
        job_id = candidate.job_id
        planned, owner = chosen.get(job_id), goes_for.get(job_id, share.job_id)
        if planned is not None:
            together = "" if planned.action is Action.END else f"; planned together with other {called}s"
            verdicts.append(why_chosen(planned, considered.situation, together))
        elif owner != share.job_id:
            reason = f"it leaves for {called} {owner}, once for all of them"
            verdicts.append(Verdict(job_id, Choice.SPARED, "leaves_for_another", reason))
        else:
            reason = f"not needed: all {called}s together are served at less cost without it"
            verdicts.append(Verdict(job_id, Choice.SPARED, "not_needed", reason))
    return verdicts
