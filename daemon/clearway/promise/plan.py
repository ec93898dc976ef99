"""Which nodes are promised, and how the jobs leave that would still be there then. Pure.

Model: a promise is a preemptor that is known before. It asks for so many whole nodes of a partition, its deadline is
the promised time, and its time limit is how long they are promised for. So it is the eviction problem, and the same
rules say which jobs may leave. No job waits, so the cheapest point of the curve is taken, and not the earliest.

Jobs that their time limits end by the promised time count as gone, as Slurm counts them for its reservations. Slurm
ends them up to a minute late.

Jobs are asked at ``asks_at``: the promised time less what Slurm needs to empty nodes, the time of all their checkpoints
one after another, and some spare. Until then the plan only says which nodes are held; then it is made anew, as jobs
may have ended before their limits. Where fewer jobs have to leave by then, they are asked later still.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta

from clearway.config.configuration import Config, Mode
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import UnderWay, under_way_by
from clearway.model.cluster import ClusterSnapshot, Job, JobState
from clearway.model.operations import CHECKPOINTS, Operation, Promise
from clearway.model.orders import PromiseOrder
from clearway.model.plan import Curve, CurvePoint, NoPlan, OperationPlan, Preemptor, PromisePlan
from clearway.model.problem import EvictionProblem
from clearway.planning.base import Planner
from clearway.preemption.plan import plan_alone, solve_alone

LATE_S = 600.0  # where it is not kept, the nodes shall be free within this
_SOON = timedelta(seconds=1)  # jobs that would be asked within this are asked at once


def first_plan(order: PromiseOrder, config: Config, now: datetime) -> PromisePlan:
    """A plan that holds nothing: long before its time nothing is done for a promise."""
    point = CurvePoint(0, feasible=True, lost_work_node_s=0.0, checkpoint_s=0, nodes_freed=0)
    return PromisePlan(
        made_at=now,
        deadline=order.at,
        nodes_needed=order.nodes,
        problem=EvictionProblem(0, 0, 1, (), order.nodes),
        curve=Curve(config.planning.planner, (point,)),
        chosen=point,
        placement_nodes=(),
        free_nodes=(),
        leaving=(),
        order=order,
        asks_at=order.at,
    )


def plan_promise(
    order: PromiseOrder, context: PlanningContext, planner: Planner, placement: str = ""
) -> PromisePlan | NoPlan:
    """The cheapest nodes and jobs; ``placement`` names its own reservation, where it has one."""
    snapshot, config, now = context.snapshot, context.config, context.now
    gone = {job.job_id for job in snapshot.holders if not in_the_way(job, order, placement)}
    under_way = replace(context.under_way, leaving=context.under_way.leaving | gone)
    # A suspended job would stay on the nodes, and no approval has to be waited for.
    candidates = config.candidates.model_copy(update={"allow_suspend": False})
    daemon = config.daemon.model_copy(update={"mode": Mode.AUTOMATIC})
    config = config.model_copy(update={"candidates": candidates, "daemon": daemon})
    preemptor = Preemptor(
        job=_stand_in(order, now, placement), rule="", max_delay_s=LATE_S, deadline=order.at, waits=False
    )
    coming = tuple(each for each in context.reservations if each.end_time > order.at)
    context = replace(context, under_way=under_way, config=config, reservations=coming)
    found = solve_alone(preemptor, context, planner, whole=True)
    if isinstance(found, NoPlan):
        return found
    cheapest, plan = found.point, plan_alone(found, planner)
    saving_s = sum(each.checkpoint_s for each in cheapest.actions if each.action in CHECKPOINTS)
    rounding_s = 2 * plan.problem.step_s
    needed_s = plan.problem.busy_s + saving_s + rounding_s + config.promises.spare + config.execution.kill_allowance
    asks_at = order.at - timedelta(seconds=needed_s)
    known = {each.name: getattr(plan, each.name) for each in fields(OperationPlan)}
    if now + _SOON < asks_at:
        known |= {"chosen": replace(cheapest, actions=()), "leaving": (), "eternal": ()}
    return PromisePlan(**known, order=order, asks_at=asks_at)


def in_the_way(job: Job, order: PromiseOrder, placement: str) -> bool:
    """Whether a job on promised nodes would still be there at the promised time, and is not one that they are for."""
    if job.state is JobState.COMPLETING or (placement and job.reservation == placement):
        return False
    if job.time_limit_s is None or job.start_time is None:
        return True
    return job.start_time + timedelta(seconds=job.time_limit_s) > order.at


def jobs_in_the_way(order: PromiseOrder, nodes: Sequence[str], snapshot: ClusterSnapshot, placement: str) -> list[Job]:
    """Of the jobs on these nodes, by job_id."""
    found = {job.job_id: job for name in nodes for job in snapshot.jobs_on.get(name, ())}
    return [job for _, job in sorted(found.items()) if in_the_way(job, order, placement)]


def under_way_beside(order: PromiseOrder, others: Sequence[Operation]) -> UnderWay:
    """What other operations claim; promises for other times claim no nodes."""
    apart = [each for each in others if isinstance(each, Promise) and not each.order.overlaps(order)]
    under_way = under_way_by([each for each in others if each not in apart], order.at)
    return replace(under_way, own_nodes=frozenset(name for each in apart for name in each.held_nodes))


def _stand_in(order: PromiseOrder, now: datetime, placement: str) -> Job:
    """A waiting job that asks for what is promised."""
    return Job(
        job_id="promise",
        user=order.users[0],
        name="promise",
        state=JobState.PENDING,
        raw_state="PENDING",
        reason="Resources",
        partitions=(order.partition,),
        num_nodes=order.nodes,
        submit_time=now,
        time_limit_s=int(order.duration_s),
        reservation=placement or None,
    )
