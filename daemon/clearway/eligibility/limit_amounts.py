"""How much of what Slurm limits a job has or would be given, and what the limits are called. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from clearway.model.cluster import Job, Node
from clearway.model.limits import LimitKind


def held(job: Job, resource: str) -> int:
    """What the job has of a resource, or asks for, on all of its nodes; ``billing`` as if it was its processors."""
    if resource == "jobs":
        return 1
    if resource in ("cpu", "billing"):
        return job.cpus
    if resource == "mem":
        return job.memory_mib * job.num_nodes
    if resource == "node":
        return job.num_nodes
    _, _, gpu_type = resource.removeprefix("gres/gpu").partition(":")
    return job.num_nodes * sum(count for name, count in job.gpus or () if gpu_type in ("", name))


@dataclass(frozen=True)
class Asked:
    """What the job would be given: whole nodes where it asks for them, as far as the nodes are chosen."""

    job: Job
    nodes: Sequence[Node]  # of all tasks together
    tasks: int  # of an array; of what the job asks for each has as much
    weighted: bool

    @property
    def node_names(self) -> frozenset[str]:
        return frozenset(node.name for node in self.nodes)

    @property
    def minutes(self) -> float:
        return math.inf if self.job.time_limit_s is None else self.job.time_limit_s / 60

    def in_all(self, resource: str, of_each: float) -> float:
        """Of all tasks; of a node that tasks share Slurm counts one."""
        if resource != "node":
            return self.tasks * of_each
        if self.nodes:
            return len(self.nodes)
        return self.tasks * of_each if self.job.exclusive else of_each

    def of(self, resource: str) -> float | None:
        """Of one task; None where it is not known."""
        job = self.job
        if resource == "wall":
            return self.minutes
        if resource == "billing" and self.weighted:
            return None
        if not resource.startswith("gres/gpu") and resource not in ("jobs", "cpu", "billing", "mem", "node"):
            kind, _, name = resource.partition("/")
            named = job.gres if kind == "gres" else job.licenses
            return None if name.partition(":")[0] in named else 0
        asked = held(job, resource)
        if not (job.exclusive and self.nodes):
            return asked
        cpus = math.ceil(sum(node.cpus for node in self.nodes) / self.tasks)
        if resource in ("cpu", "billing"):
            return max(asked, cpus)
        if resource == "mem":  # so much for each processor, or for each node: Slurm does not tell which
            most = math.ceil(sum(node.memory_mib for node in self.nodes) / self.tasks)
            return max(asked, min(most, math.ceil(asked * cpus / max(job.cpus, 1))))
        if resource.startswith("gres/gpu"):
            _, _, gpu_type = resource.removeprefix("gres/gpu").partition(":")
            gpus = sum(count for node in self.nodes for name, count in node.gpus if gpu_type in ("", name))
            return max(asked, math.ceil(gpus / self.tasks))
        return asked


def limit_name(kind: LimitKind, resource: str, *, of_qos: bool) -> str:
    """The limit as sacctmgr takes it: "GrpTRES=cpu"."""
    if resource == "jobs":
        per = {LimitKind.GROUP: "GrpJobs", LimitKind.ACCOUNT: "MaxJobsPerAccount"}
        return per.get(kind, "MaxJobsPerUser" if of_qos else "MaxJobs")
    if resource == "wall":
        return "GrpWall" if kind is LimitKind.GROUP else "MaxWall"
    words = {
        LimitKind.GROUP: "GrpTRES",
        LimitKind.USER: "MaxTRESPerUser",
        LimitKind.ACCOUNT: "MaxTRESPerAccount",
        LimitKind.JOB: "MaxTRESPerJob",
        LimitKind.NODE: "MaxTRESPerNode",
        LimitKind.LEAST: "MinTRES",
        LimitKind.GROUP_MINUTES: "GrpTRESMins",
        LimitKind.GROUP_RUN_MINUTES: "GrpTRESRunMins",
        LimitKind.USER_RUN_MINUTES: "MaxTRESRunMinsPerUser",
        LimitKind.ACCOUNT_RUN_MINUTES: "MaxTRESRunMinsPerAccount",
        LimitKind.JOB_MINUTES: "MaxTRESMinsPerJob",
    }
    return f"{words[kind]}={resource}"
