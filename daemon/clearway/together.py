"""Plans for several preemptors that wait in the same cycle: made together, none at another's expense. Pure.

Each is considered alone first: who cannot be served alone cannot be beside others either. The rest are planned by
``planning.several``, and each gets a plan of its own again: its share of the jobs that leave and of the nodes. Where a
job's nodes serve several, it belongs to the plan of the first of them by time; the others count on it. When that one
disappears before the job has left, the others find their nodes held, and only they are planned anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from math import ceil

from clearway.decision import Considered, NoPlan, plan_alone, plan_of, why_chosen
from clearway.detection import Preemptor
from clearway.model import Action, Choice, ClusterSnapshot, CurvePoint, Plan, PlannedAction, Verdict
from clearway.planning.base import Planner
from clearway.planning.parties import Party, Share
from clearway.planning.several import plan_together
from clearway.planning.shared_bandwidth import one_after_another

Decisions = Sequence[tuple[Preemptor, Plan | NoPlan]]


def decide_together(
    found: Sequence[Preemptor],
    consider: Callable[[Preemptor], Considered | NoPlan],
    snapshot: ClusterSnapshot,
    planner: Planner,
    now: datetime,
    seconds_left: Callable[[], float],
) -> Decisions:
    """A decision for each; who counts on another one's jobs comes after it.

    ``seconds_left``: see ``plan_together``.
    """
    considered = {preemptor.job.job_id: consider(preemptor) for preemptor in found}
    able = {job_id: each for job_id, each in considered.items() if isinstance(each, Considered)}
    decided: dict[str, Plan | NoPlan] = {}
    later = _in_later_cycles(found, able)
    able = {job_id: each for job_id, each in able.items() if job_id not in later}
    if len(able) > 1:
        decided = _shared_out(able, snapshot, planner, now, seconds_left)
    else:
        decided = {job_id: plan_alone(each, snapshot, planner, now) for job_id, each in able.items()}
    by_id = {preemptor.job.job_id: preemptor for preemptor in found}
    none = later | {job_id: each for job_id, each in considered.items() if isinstance(each, NoPlan)}
    return [(by_id[job_id], each) for job_id, each in (*decided.items(), *none.items())]


def _in_later_cycles(found: Sequence[Preemptor], able: dict[str, Considered]) -> dict[str, NoPlan]:
    """Who waits for a cycle, because it or the first by time asks for a part of, or for certain, nodes.

    What such a job leaves of its nodes cannot be told by nodes alone, and the joint program knows nothing else.
    """
    first = next((preemptor.job.job_id for preemptor in found if preemptor.job.job_id in able), "")
    alone = {job_id for job_id, each in able.items() if each.situation.problem.needs is not None}
    later = able.keys() - {first} if first in alone else alone
    if not later:
        return {}
    why = f"it is planned for in a cycle of its own, after {able[first].situation.preemptor.called} {first}"
    return {job_id: NoPlan(why, able[job_id].situation, able[job_id].curve) for job_id in sorted(later)}


def _shared_out(
    able: dict[str, Considered],
    snapshot: ClusterSnapshot,
    planner: Planner,
    now: datetime,
    seconds_left: Callable[[], float],
) -> dict[str, Plan | NoPlan]:
    parties = [
        Party(
            job_id,
            each.situation.preemptor.job.num_nodes,
            one_after_another(each.situation.problem),
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
        point = _point(share, each)
        verdicts = _verdicts(share, point, each, goes_for)
        decided[share.job_id] = plan_of(each, point, share.nodes, verdicts, snapshot, now, others)
    names = ", ".join(sorted(decided))
    for job_id, each in able.items():
        if job_id not in decided:
            called = each.situation.preemptor.called
            why = f"its nodes could be freed in time, but not beside those of the {called}s before it ({names})"
            decided[job_id] = NoPlan(why, each.situation, each.curve)
    return decided


def _point(share: Share, considered: Considered) -> CurvePoint:
    """The share as a point of a curve; freed are the nodes of its placement that were not free."""
    planned = [
        PlannedAction(
            job_id,
            option.action,
            option.lost_work_node_s,
            ceil(option.checkpoint_s),
            ceil(option.ready_s),
            0 if option.action is Action.END else option.return_node_s,
        )
        for job_id, option in sorted((*share.leaving, *share.ending), key=lambda each: each[0])
    ]
    return CurvePoint(
        max_delay_s=share.done_s,
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
