"""Whether a partition would let a waiting job start once nodes are free. Pure.

Slurm takes a job that names several partitions if one of them admits it (EnforcePartLimits=NO, the default), and newer
releases let an owner name any afterwards. So each partition is asked again for all that it says of who may start.
"""

from collections.abc import Iterator
from math import inf

from clearway.model.cluster import Job
from clearway.model.limits import Limits, Partition

# DRAIN takes no new jobs, but starts those that wait.
_STARTS = ("UP", "DRAIN")


def partition_holds_back(job: Job, partition: Partition, qos_flags: frozenset[str] | None, limits: Limits) -> str:
    """Why the partition would not start the job; empty where it would.

    ``qos_flags`` are those of the job's QoS, in lower case: with some of them it is above the partition's limits.
    None where they are not known: then the partition's limits count.
    """
    name, above = f"partition {partition.name}", qos_flags or frozenset()
    if partition.state.upper() not in _STARTS:
        return f"{name} is {partition.state}"
    if partition.max_nodes is not None and job.num_nodes > partition.max_nodes and "partitionmaxnodes" not in above:
        return f"{name} has the limit MaxNodes={partition.max_nodes}, and the job asks for {job.num_nodes}"
    if job.num_nodes < partition.min_nodes and "partitionminnodes" not in above:
        return f"{name} has the limit MinNodes={partition.min_nodes}, and the job asks for {job.num_nodes}"
    limit_s = inf if job.time_limit_s is None else job.time_limit_s
    if partition.max_time_s is not None and limit_s > partition.max_time_s and "partitiontimelimit" not in above:
        asks = "no time limit" if job.time_limit_s is None else f"{job.time_limit_s / 60:.0f} minutes"
        return f"{name} has the limit MaxTime of {partition.max_time_s / 60:.0f} minutes, and the job asks for {asks}"
    most, cpus = partition.max_cpus_per_node, max(job.cpus_per_node, job.even_cpus)
    if most is not None and cpus > most:
        return f"{name} has the limit MaxCPUsPerNode={most}, and the job asks for {cpus}"
    if partition.max_memory_mib is not None and job.memory_mib > partition.max_memory_mib:
        return f"{name} has the limit MaxMemPerNode={partition.max_memory_mib}, and the job asks for {job.memory_mib}"
    return next(_shuts_out(job, partition, limits), "")


def _shuts_out(job: Job, partition: Partition, limits: Limits) -> Iterator[str]:
    """Why the partition does not admit the job, whatever it asks for."""
    name, allowed = f"partition {partition.name}", partition.allow_accounts
    above = {job.account, *_above(job.account, limits)}
    admitted = above if limits.sub_accounts else {job.account}
    denied = {job.account} if limits.sub_accounts is False else above
    if (allowed is not None and admitted.isdisjoint(allowed)) or not denied.isdisjoint(partition.deny_accounts):
        yield f"{name} does not allow account {job.account}"
    if (partition.allow_qos is not None and job.qos not in partition.allow_qos) or job.qos in partition.deny_qos:
        yield f"{name} does not allow QoS {job.qos}"
    if job.user == "root":
        return
    groups = partition.allow_groups
    if groups is not None and groups.isdisjoint(limits.groups.get(job.user, ())):
        yield f"{name} does not allow user {job.user}, who is in none of the groups {', '.join(sorted(groups))}"
    if partition.root_only:
        yield f"{name} is for root only"
    if partition.reservations_only:
        yield f"{name} takes only jobs that ask for a reservation"
    # Of a job that names no other one Slurm has looked.
    if partition.allow_alloc_nodes and len(job.partitions) > 1:
        yield f"{name} takes only jobs from {partition.allow_alloc_nodes}, and where this one came from is not known"


def _above(account: str, limits: Limits) -> Iterator[str]:
    seen = {account}
    while (account := limits.parents.get(account, "")) and account not in seen:
        seen.add(account)
        yield account
