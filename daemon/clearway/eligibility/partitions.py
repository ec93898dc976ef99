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
    exceeded = (
        f"{name} has the limit {limit}, and the job asks for {asks}"
        for flag, limit, binds, asks in _limits(job, partition)
        if binds and flag not in above
    )
    return next(exceeded, "") or next(_shuts_out(job, partition, limits), "")


def _limits(job: Job, partition: Partition) -> tuple[tuple[str, str, bool, object], ...]:
    """The flag of a QoS that is above a limit ("" for none), the limit, whether it binds, and what the job asks for."""
    limit_s = inf if job.time_limit_s is None else job.time_limit_s
    asks = "no time limit" if job.time_limit_s is None else f"{limit_s / 60:.0f} minutes"
    cpus, nodes, memory_mib = max(job.cpus_per_node, job.even_cpus), job.num_nodes, job.memory_mib
    most_s, most, least = partition.max_time_s, partition.max_nodes, partition.min_nodes
    most_cpus, most_mib = partition.max_cpus_per_node, partition.max_memory_mib
    most_minutes = f"MaxTime of {(most_s or 0) / 60:.0f} minutes"
    return (
        ("partitionmaxnodes", f"MaxNodes={most}", _above_limit(nodes, most), nodes),
        ("partitionminnodes", f"MinNodes={least}", nodes < least, nodes),
        ("partitiontimelimit", most_minutes, _above_limit(limit_s, most_s), asks),
        ("", f"MaxCPUsPerNode={most_cpus}", _above_limit(cpus, most_cpus), cpus),
        ("", f"MaxMemPerNode={most_mib}", _above_limit(memory_mib, most_mib), memory_mib),
    )


def _above_limit(asked: float, most: float | None) -> bool:
    return most is not None and asked > most


def _shuts_out(job: Job, partition: Partition, limits: Limits) -> Iterator[str]:
    """Why the partition does not admit the job, whatever it asks for."""
    name = f"partition {partition.name}"
    if not _admits_account(job.account, partition, limits):
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


def _admits_account(account: str, partition: Partition, limits: Limits) -> bool:
    """Releases differ in whether an account stands for those below it (``limits.sub_accounts``)."""
    above = {account, *accounts_above(account, limits)}
    admitted = above if limits.sub_accounts else {account}
    denied = {account} if limits.sub_accounts is False else above
    allowed = partition.allow_accounts is None or not admitted.isdisjoint(partition.allow_accounts)
    return allowed and denied.isdisjoint(partition.deny_accounts)


def accounts_above(account: str, limits: Limits) -> Iterator[str]:
    seen = {account}
    while (account := limits.parents.get(account, "")) and account not in seen:
        seen.add(account)
        yield account
