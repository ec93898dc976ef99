"""Whether a partition would let a waiting job start once nodes are free. Pure.

Slurm looked at who may use a partition when the job was submitted; groups are not looked at again here.
"""

from math import inf

from clearway.model.cluster import Job
from clearway.model.limits import Partition

# DRAIN takes no new jobs, but starts those that wait.
_STARTS = ("UP", "DRAIN")


def partition_holds_back(job: Job, partition: Partition, qos_flags: frozenset[str] | None) -> str:
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
    for what, value, allowed, denied in (
        ("account", job.account, partition.allow_accounts, partition.deny_accounts),
        ("QoS", job.qos, partition.allow_qos, partition.deny_qos),
    ):
        if (allowed is not None and value not in allowed) or value in denied:
            return f"{name} does not allow {what} {value}"
    return ""
