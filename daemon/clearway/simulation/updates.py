"""``scontrol update`` and its like, by users and administrators, of what a simulated cluster has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from clearway.model.cluster import FIRST, JobState
from clearway.model.errors import SlurmRefusedError
from clearway.model.limits import Partition
from clearway.simulation.cluster import SimulatedCluster
from clearway.simulation.jobs import SimulatedJob

# Of a job that runs, Slurm changes these alone.
_RUNNING_TOO = frozenset({"time_limit_s", "nice", "priority", "comment", "requeueable"})


def update_job(cluster: SimulatedCluster, job_id: str, **asked: Any) -> None:
    """By the names of ``model.Job``'s fields; also ``nice``, ``deadline``, ``held`` ("user", "admin" or "")."""
    entry = cluster.jobs.get(job_id)
    if entry is None or entry.job.state is JobState.ENDED:
        raise SlurmRefusedError(f"job {job_id}: Invalid job id specified")
    if entry.job.state is not JobState.PENDING and not asked.keys() <= _RUNNING_TOO:
        raise SlurmRefusedError(f"job {job_id}: Job is no longer pending execution")
    for name, value in asked.items():
        _set(cluster, entry, name, value)
    cluster.schedule()


def _set(cluster: SimulatedCluster, entry: SimulatedJob, name: str, value: Any) -> None:
    match name:
        case "nice":
            set_nice(entry, value)
        case "priority":
            set_priority(entry, value)
        case "held":
            hold(entry, value) if value else release(entry)
        case "eligible_time":
            cluster.begin_later(entry, value)
        case "time_limit_s":
            cluster.set_time_limit(entry, value)
        case "num_nodes":
            entry.job = replace(entry.job, num_nodes=value, cpus=entry.cpus_per_node * value)
        case _:
            entry.job = replace(entry.job, **{name: value})


def set_nice(entry: SimulatedJob, nice: int) -> None:
    """It is taken off the priority at once. Slurm ignores it where the priority was set."""
    if entry.priority_is_set:
        return
    priority = entry.job.priority
    if priority:
        priority = min(max(priority + entry.job.nice - nice, 2), FIRST)
    entry.job = replace(entry.job, nice=nice, priority=priority)


def set_priority(entry: SimulatedJob, priority: int) -> None:
    """It stands until the job is released, and takes the job's Nice away."""
    entry.priority_is_set = True
    entry.job = replace(entry.job, nice=0, priority=priority)


def hold(entry: SimulatedJob, by: str = "user") -> None:
    entry.held_by_admin = by == "admin"
    entry.job = replace(entry.job, priority=0)


def release(entry: SimulatedJob) -> None:
    """Slurm works its priority out anew, and takes its Nice off."""
    entry.held_by_admin = entry.priority_is_set = False
    entry.job = replace(entry.job, priority=min(max(entry.usual_priority - entry.job.nice, 2), FIRST))


def update_partition(cluster: SimulatedCluster, name: str, **asked: Any) -> None:
    found: Mapping[str, Partition] = cluster.limits.partitions
    changed = replace(found.get(name, Partition(name=name)), **asked)
    cluster.limits = replace(cluster.limits, partitions={**found, name: changed})
    cluster.schedule()


def update_node(cluster: SimulatedCluster, name: str, state: str, reason: str = "") -> None:
    """DRAIN, RESUME or DOWN."""
    if state == "RESUME":
        cluster.bring_back(name)
    elif state == "DOWN":
        cluster.nodes[name] = replace(cluster.nodes[name], available=False, raw_state="DOWN", reason=reason)
        for entry in [e for e in cluster.jobs.values() if name in e.job.nodes and e.job.state.holds_nodes]:
            lose_run(cluster, entry)
    else:
        cluster.drain(name, reason)
    cluster.schedule()


def lose_run(cluster: SimulatedCluster, entry: SimulatedJob) -> None:
    """A node of its has gone: it is back in the queue at once, or has failed where it cannot be."""
    if entry.job.state is JobState.SUSPENDED:
        cluster.free.take_cpus(entry)
    cluster.stop_running(entry)
    leaves = entry.job.state is JobState.COMPLETING
    if not (entry.requeued if leaves else entry.job.can_be_requeued):
        cluster.leave_nodes(entry, "CANCELLED" if leaves else "NODE_FAIL")
        return
    if not leaves:
        entry.lost_s += entry.base_s - entry.saved_s
        entry.job = replace(entry.job, restart_count=entry.job.restart_count + 1)
    cluster.back_in_queue(entry, "REQUEUED" if leaves else "NODE_FAIL_REQUEUED", 0.0)
