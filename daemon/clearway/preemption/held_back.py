"""Whether a limit would keep a preemptor from starting on the nodes that others would leave for it. Pure.

Slurm starts no job on a node that a reservation takes before the job's time limit ends, even where the job is attached
to a placement over that node (measured on 22.05.8). So such nodes are no nodes for it.

Asked before planning, where any running job may still leave: what then binds, no plan can change. And of each plan, by
the jobs that leave for it and the nodes that it gives: with every fresh look at the limits, until it is carried out.
"""

from collections.abc import Sequence
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
    # Of an array squeue tells the reasons of all its waiting tasks.
    named = all(may_be_lifted(reason) for reason in job.reason.split(","))
    if limits is None:
        return f"it does not wait for nodes (reason {job.reason})" if named else ""
    now = Later(context.snapshot, coming=_coming(job, preemptor.components, context.under_way.evictions, context))
    # A limit of a kind that is not known here, or one that Slurm has not looked at again since it was changed.
    if named and not holds_back(job, partition, limits, now, tasks=preemptor.tasks):
        return f"it does not wait for nodes (reason {job.reason})"
    now = replace(now, leaving=context.snapshot.running)
    return _told(holds_back(job, partition, limits, now, tasks=preemptor.tasks))


def after_planning(
    plan: Plan,
    limits: Limits | None,
    others: Sequence[Operation],
    context: PlanningContext,
    group: Sequence[Plan] = (),
    *,
    begun: bool = False,
) -> str:
    """Why the preemptor would not start though this plan was carried out; empty where it would.

    ``others`` are the operations that are carried out beside it, ``group`` the plans that are carried out with it
    or not at all. Where it has ``begun``, some tasks of an array may run: then it is for one more.
    """
    snapshot = context.snapshot
    job = snapshot.job_by_id.get(plan.preemptor.job_id, plan.preemptor)
    reserved = reserved_before_end(job, plan.due, context)
    if taken := next((name for name in plan.placement_nodes if name in reserved), ""):
        return (
            f"reservation {reserved[taken]} takes node {taken} before the {plan.called} {job.job_id} would have ended"
        )
    if limits is None:
        return ""
    later = Later(snapshot, _gone(plan, others, group), _coming(job, plan.components, others, context))
    nodes = [snapshot.node_by_name[name] for name in plan.placement_nodes if name in snapshot.node_by_name]
    tasks = 1 if begun else plan.tasks
    nodes = nodes if tasks == plan.tasks else nodes[: job.num_nodes]
    possible = [plan.partition] if plan.partition else list(job.partitions)
    whys = [holds_back(job, partition, limits, later, nodes, tasks=tasks) for partition in possible]
    return "" if "" in whys or not whys else _told(whys[0])


def _gone(plan: Plan, others: Sequence[Operation], group: Sequence[Plan]) -> frozenset[str]:
    """Jobs that give back what they have; one that is suspended keeps it, as far as limits go."""
    gone = {each.job_id for one in (plan, *group) for each in one.chosen.actions if each.action is not Action.SUSPEND}
    for other in others:
        gone |= other.promised_jobs - {p.job_id for p in other.preemptions if p.action is Action.SUSPEND}
    return frozenset(gone)


def _told(why: str) -> str:
    return f"no job leaves for it, as a limit would keep it waiting: {why}" if why else ""


def _coming(
    job: Job, components: Sequence[str], others: Sequence[Operation], context: PlanningContext
) -> tuple[tuple[Job, tuple[str, ...]], ...]:
    """Jobs that are to start as well: preemptors that others leave for, and the other ``components`` of the job."""
    found: dict[str, tuple[int, tuple[str, ...]]] = dict.fromkeys(components, (1, ()))
    for e in others:
        if isinstance(e, Eviction) and e.state.before_start:
            found[e.preemptor.job_id] = e.plan.tasks, e.plan.placement_nodes
    found.pop(job.job_id, None)
    by_id = context.snapshot.job_by_id
    return tuple(
        (by_id[job_id], nodes)
        for job_id, (tasks, nodes) in found.items()
        if job_id in by_id and by_id[job_id].state is JobState.PENDING
        for _ in range(tasks)
    )
