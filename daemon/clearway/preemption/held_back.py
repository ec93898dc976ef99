"""Whether a limit would keep a preemptor from starting on the nodes that others would leave for it. Pure.

Slurm starts no job on a node that a reservation takes before the job's time limit ends, even where the job is attached
to a placement over that node (measured on 22.05.8). So such nodes are no nodes for it.

Asked before planning, where any running job may still leave: what then binds, no plan can change. And of each plan, by
the jobs that leave for it and the nodes that it gives: with every fresh look at the limits, until it is carried out.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from clearway.eligibility.context import PlanningContext
from clearway.eligibility.limits import Later, holds_back, may_be_lifted
from clearway.model.cluster import Job, JobState
from clearway.model.limits import Limits
from clearway.model.operations import Eviction, Operation
from clearway.model.plan import Plan, Preemptor
from clearway.model.problem import Action


def reserved_before_end(job: Job, start: datetime, context: PlanningContext) -> dict[str, str]:
    """Node to reservation, of nodes that are reserved before a job that starts by then has to have ended."""
    end = None if job.time_limit_s is None else start + timedelta(seconds=job.time_limit_s)
    coming = [each for each in context.reservations if each.start_time > context.now and each.name != job.reservation]
    return {name: each.name for each in coming if end is None or each.start_time < end for name in each.nodes}


def latest_start(preemptor: Preemptor, now: datetime) -> datetime:
    """By its deadline; one whose deadline has passed has its max delay once more."""
    return preemptor.deadline if preemptor.deadline > now else now + timedelta(seconds=preemptor.max_delay_s)


def before_planning(preemptor: Preemptor, partition: str, context: PlanningContext) -> str:
    """Why no plan on the nodes of this partition can help; empty where one may."""
    job, limits = preemptor.job, context.limits
    named = may_be_lifted(job.reason)
    if limits is None:
        return f"it does not wait for nodes (reason {job.reason})" if named else ""
    own = _with_it(job, preemptor.tasks, preemptor.components, context)
    now = Later(context.snapshot, coming=own + _coming(job, context.under_way.evictions, context, preemptor.components))
    # A limit of a kind that is not known here, or one that Slurm has not looked at again since it was changed.
    if named and not holds_back(job, partition, limits, now):
        return f"it does not wait for nodes (reason {job.reason})"
    running = frozenset(each.job_id for each in context.snapshot.jobs if each.state is JobState.RUNNING)
    return _told(holds_back(job, partition, limits, replace(now, leaving=running)))


def after_planning(plan: Plan, limits: Limits | None, others: Sequence[Operation], context: PlanningContext) -> str:
    """Why the preemptor would not start though this plan was carried out; empty where it would.

    ``others`` are the operations that are carried out beside it.
    """
    snapshot = context.snapshot
    job = snapshot.job_by_id.get(plan.preemptor.job_id, plan.preemptor)
    start = max(plan.deadline, plan.made_at + timedelta(seconds=plan.problem.max_delay_s))
    reserved = reserved_before_end(job, start, context)
    if taken := next((name for name in plan.placement_nodes if name in reserved), ""):
        return (
            f"reservation {reserved[taken]} takes node {taken} before the {plan.called} {job.job_id} would have ended"
        )
    if limits is None:
        return ""
    stays = {each.job_id for each in plan.chosen.actions if each.action is Action.SUSPEND}
    leaving = {each.job_id for each in plan.leaving} - stays
    for other in others:
        suspends = {p.job_id for p in other.preemptions if p.action is Action.SUSPEND}
        leaving |= other.promised_jobs - suspends
    own = _with_it(job, plan.tasks, plan.components, context)
    later = Later(snapshot, frozenset(leaving), own + _coming(job, others, context, plan.components))
    nodes = [snapshot.node_by_name[name] for name in plan.placement_nodes if name in snapshot.node_by_name]
    possible = [name for name in job.partitions if all(name in node.partitions for node in nodes)]
    of_one = nodes[: job.num_nodes] if plan.tasks > 1 else nodes
    whys = [holds_back(job, partition, limits, later, of_one) for partition in possible]
    return "" if "" in whys or not whys else _told(whys[0])


def _told(why: str) -> str:
    return f"no job leaves for it, as a limit would keep it waiting: {why}" if why else ""


def _with_it(
    job: Job, tasks: int, components: Collection[str], context: PlanningContext
) -> tuple[tuple[Job, tuple[str, ...]], ...]:
    """The other tasks of its array, or components of its heterogeneous job, that start with it on other nodes."""
    by_id = context.snapshot.job_by_id
    others = [job] * (tasks - 1) + [by_id[each] for each in components if each != job.job_id and each in by_id]
    # Which nodes they get does not matter to a limit, only how many.
    return tuple(
        (each, tuple(f"{number}/{place}" for place in range(each.num_nodes))) for number, each in enumerate(others)
    )


def _coming(
    job: Job, others: Sequence[Operation], context: PlanningContext, components: Collection[str]
) -> tuple[tuple[Job, tuple[str, ...]], ...]:
    """Preemptors that others leave for, and that do not run yet: they have a right to start first."""
    own = {job.job_id, *components}
    waits = (
        (context.snapshot.job_by_id.get(e.preemptor.job_id), e.plan.placement_nodes)
        for e in others
        if isinstance(e, Eviction) and e.state.before_start and e.preemptor.job_id not in own
    )
    return tuple((each, nodes) for each, nodes in waits if each is not None and each.state is JobState.PENDING)
