"""Whether a running job would run again once it was requeued, as far as Slurm tells it. Pure.

A requeue is a return only where Slurm starts the job again. It removes a job that cannot end by its ``--deadline`` any
more. It leaves a job waiting whose partition has been shut or takes no such jobs any more, which asks for nodes or
features that are gone, or whose reservation ends meanwhile (measured on 22.05.8, 24.11.5 and 26.05.5). Dependencies
are over once a job has run, and ``max_batch_requeue`` does not count requeues by operators.

Partitions and reservations are known while Clearway plans for a job that waits. For a question "what if", for drains
and for moves they are not asked for: an operator who shuts a partition and drains its nodes wants its jobs to leave.
"""

import math
from dataclasses import replace

from clearway.eligibility.constraint import alternatives, satisfied
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.partitions import partition_holds_back
from clearway.model.cluster import Job, Node
from clearway.model.limits import Limits
from clearway.model.plan import Preemptor


def why_no_return(job: Job, context: PlanningContext, preemptor: Preemptor | None = None) -> str:
    """Why Slurm would not run it again; empty where it would, or nothing is known against it.

    ``preemptor``: the job that it would leave for, which may then have its nodes up to its own time limit.
    """
    return (
        past_deadline(job, context, preemptor)
        or _shut_out(job, context.limits)
        or _no_nodes(job, context)
        or _reservation_ends(job, context, preemptor)
    )


def past_deadline(job: Job, context: PlanningContext, preemptor: Preemptor | None = None) -> str:
    if job.deadline is None:
        return ""
    takes_s = math.inf if job.time_limit_s is None else job.time_limit_s
    if (job.deadline - context.now).total_seconds() >= takes_s + _away_s(job, context, preemptor):
        return ""
    return f"Slurm would remove it once it waits: it could not end by its deadline, {job.deadline:%Y-%m-%d %H:%M} UTC"


def _away_s(job: Job, context: PlanningContext, preemptor: Preemptor | None) -> float:
    """Seconds from now until it runs again, where all goes slowly."""
    queueing_s = context.history.queueing_s(max(1, job.num_nodes))
    if preemptor is None:
        return queueing_s
    leaves_s, limit_s = (preemptor.deadline - context.now).total_seconds(), preemptor.job.time_limit_s
    return max(0.0, leaves_s) + max(queueing_s, math.inf if limit_s is None else limit_s)


def _shut_out(job: Job, limits: Limits | None) -> str:
    partition = limits.partitions.get(job.partitions[0]) if limits is not None and job.partitions else None
    qos = None if limits is None else limits.qos.get(job.qos)
    flags = None if qos is None else qos.flags
    if limits is None or partition is None or not partition_holds_back(job, partition, flags, limits):
        return ""
    # Of users and accounts that do not wait not all is read: what is not known does not shut out.
    if job.user not in limits.groups:
        partition = replace(partition, allow_groups=None)
    if limits.sub_accounts is not False and not limits.parents:
        partition = replace(partition, allow_accounts=None)
    if job.reservation is not None:
        partition = replace(partition, reservations_only=False)
    why = partition_holds_back(job, partition, flags, limits)
    return f"requeued it would not start again: {why}" if why else ""


def _no_nodes(job: Job, context: PlanningContext) -> str:
    nodes = context.snapshot.node_by_name
    shut = [name for name in job.required_nodes if name not in nodes or not nodes[name].available]
    if shut and nodes:
        return f"requeued it would not start again: it asks for node {shut[0]}, which takes no jobs"
    return _too_few_nodes(job, context) if nodes else ""


def _too_few_nodes(job: Job, context: PlanningContext) -> str:
    nodes, sizes = context.snapshot.node_by_name, context.snapshot.partition_sizes
    partitions = frozenset(name for name in job.partitions if sizes.get(name))  # others are not known
    if all(name in nodes and _suits(nodes[name], job, partitions) for name in job.nodes):
        return ""
    usable = [node for node in nodes.values() if node.name not in job.excluded_nodes]
    found = sum(_suits(node, job, partitions) for node in usable)
    if found >= job.num_nodes:
        return ""
    asked = f" with {job.features}" if job.features else ""
    return f"requeued it would not start again: its partition has only {found} nodes{asked} for it by now"


def _suits(node: Node, job: Job, partitions: frozenset[str]) -> bool:
    if partitions and partitions.isdisjoint(node.partitions):
        return False
    if not job.features:
        return True
    wanted, features = alternatives(job.features), frozenset(node.features)
    return wanted is None or any(satisfied(each, features) for each in wanted)


def _reservation_ends(job: Job, context: PlanningContext, preemptor: Preemptor | None) -> str:
    """Slurm lets a job go that it requeues when its reservation is over already, and none that waits when that ends."""
    found = next((each for each in context.reservations if each.name == job.reservation), None)
    if found is None or not 0 < (found.end_time - context.now).total_seconds() < _away_s(job, context, preemptor):
        return ""
    return f"requeued it might not start again before its reservation {found.name} ends"
