"""Which waiting jobs the simulated Slurm starts, and the reason that it gives for each of the others."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from clearway.eligibility.partitions import partition_holds_back
from clearway.model.cluster import Job, JobState, Node, Reservation
from clearway.model.limits import LimitKind, Limits, Partition
from clearway.simulation.first_fit import FreeResources, Kept, array_is_full, first_fit, open_partitions
from clearway.simulation.jobs import SimulatedJob

_DEPENDENCY = re.compile(r"after(any|ok|notok):(\d+)")
_ENDED_WELL = {"COMPLETED"}
NEVER_SATISFIED = "DependencyNeverSatisfied"


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What slurm.conf says, as far as it matters here."""

    strict: bool = False  # it gives reasons, and heeds licenses and limits
    every_s: float = 0.0  # between two looks at the queue; 0: at each event
    over_time_limit_s: float = 0.0
    limits_every_s: float = 0.0  # between two looks for jobs that are beyond their time limits
    requeue_delay_s: float = 121.0
    first_job_id: int = 1
    last_job_id: int = 2**26  # then it begins anew


class Cluster(Protocol):
    """What it looks at, and what it does."""

    now: datetime
    jobs: dict[str, SimulatedJob]
    nodes: dict[str, Node]
    reservations: dict[str, Reservation]
    limits: Limits
    licenses: dict[str, int]
    switch_of: dict[str, str]
    rules: Rules
    free: FreeResources

    def new_id(self) -> str: ...

    def begin(self, entry: SimulatedJob, nodes: tuple[str, ...]) -> None: ...

    def withdraw(self, entry: SimulatedJob, how: str) -> None: ...


class Scheduler:
    """One look at the queue: first fit in the order of priority, submit time and id."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        free = cluster.free.cpus
        self._free = {name for name, cpus in free.items() if cpus > 0 and cluster.nodes[name].available}
        self._kept = Kept(cluster.jobs.values(), cluster.reservations, cluster.now)

    def run(self) -> None:
        """Reserved nodes are for jobs of the reservation alone."""
        strict = self._cluster.rules.strict
        if strict:
            self._give_up()
        if not (self._free or strict):
            return
        for entry in self._queue():
            if not self._free and not strict:
                return
            if entry.job.het_job_id is not None:
                self._start_components(entry)
            else:
                self._start_tasks(entry)

    def _give_up(self) -> None:
        """Jobs that could not end by their deadline are removed."""
        cluster = self._cluster
        for entry in list(cluster.jobs.values()):
            if entry.job.state is not JobState.PENDING or entry.job.deadline is None:
                continue
            if cluster.now + timedelta(seconds=entry.job.time_limit_s or 0) > entry.job.deadline:
                cluster.withdraw(entry, "DEADLINE")

    def _queue(self) -> list[SimulatedJob]:
        waiting = []
        for entry in self._cluster.jobs.values():
            if entry.job.state is not JobState.PENDING:
                continue
            why = holds(self._cluster, entry)
            if why:
                self._say(entry, why)
            else:
                waiting.append(entry)
        return sorted(waiting, key=lambda e: (-e.job.priority, e.job.submit_time, int(e.job.job_id)))

    def _say(self, entry: SimulatedJob, reason: str) -> None:
        if self._cluster.rules.strict and entry.job.reason != reason:
            entry.job = replace(entry.job, reason=reason)

    def _start_tasks(self, entry: SimulatedJob) -> None:
        """As many tasks of an array as fit; of another job the one that it is."""
        cluster = self._cluster
        while entry.job.state is JobState.PENDING and entry.job.priority and (nodes := self._fit(entry, self._free)):
            cluster.begin(next_task(cluster, entry), nodes)
            self._free -= {name for name in nodes if cluster.free.cpus[name] <= 0 or not cluster.nodes[name].available}

    def _start_components(self, entry: SimulatedJob) -> None:
        """All components of a heterogeneous job, or none; with the first one."""
        cluster = self._cluster
        parts = [e for e in cluster.jobs.values() if e.job.het_job_id == entry.job.het_job_id]
        parts = [e for e in parts if e.job.state is not JobState.ENDED]
        waiting = [e for e in parts if e.job.state is JobState.PENDING and not holds(cluster, e)]
        if entry is not parts[0] or len(waiting) < len(parts):
            return
        found: list[tuple[SimulatedJob, tuple[str, ...]]] = []
        left = set(self._free)
        for part in waiting:
            nodes = self._fit(part, left)
            if not nodes:
                return
            left.difference_update(nodes)
            found.append((part, nodes))
        for part, nodes in found:
            cluster.begin(part, nodes)
        self._free &= left

    def _fit(self, entry: SimulatedJob, free: set[str]) -> tuple[str, ...]:
        job, cluster = entry.job, self._cluster
        if array_is_full(job, cluster.jobs.values()):
            self._say(entry, "JobArrayTaskLimit")
            return ()
        if why := binds(cluster, job):
            self._say(entry, why)
            return ()
        names = self._kept.open_to(job, free)
        fitting = [name for name in names if cluster.free.fits(entry, cluster.nodes[name], self._kept.memory_mib[name])]
        for partition, inside in open_partitions(job, fitting, cluster.nodes, cluster.limits):
            if nodes := tuple(first_fit(job, inside, list(cluster.nodes), cluster.switch_of)):
                entry.ran_in = partition
                return nodes
        if cluster.rules.strict:
            self._say(entry, "Resources" if job.priority >= self._first_priority() else "Priority")
        return ()

    def _first_priority(self) -> int:
        waiting = (e.job.priority for e in self._cluster.jobs.values() if e.job.state is JobState.PENDING)
        return max(waiting, default=0)


def next_task(cluster: Cluster, entry: SimulatedJob) -> SimulatedJob:
    """What starts of it: of an array a task with an id of its own, and the last one with the array's."""
    left = entry.job.pending_tasks - 1
    if not left:
        return entry
    job_id = cluster.new_id()
    job = replace(entry.job, job_id=job_id, pending_tasks=1, array_task_id=int(job_id))
    task = cluster.jobs[job_id] = replace(entry, job=job, runs=[], gpus={})
    entry.job = replace(entry.job, pending_tasks=left)
    return task


def holds(cluster: Cluster, entry: SimulatedJob) -> str:
    """Why this job would not be started were all nodes free, in Slurm's word; empty where it would be."""
    job = entry.job
    if job.priority == 0:
        return "JobHeldAdmin" if entry.held_by_admin else "JobHeldUser"
    if job.eligible_time is not None and job.eligible_time > cluster.now:
        return "BeginTime"
    if cluster.rules.strict and (why := depends(cluster, entry)):
        return why
    if job.reservation and job.reservation not in cluster.reservations:
        return "Reservation"
    return partition_shuts_out(cluster, job)


def depends(cluster: Cluster, entry: SimulatedJob) -> str:
    """A dependency that is fulfilled is forgotten, as Slurm forgets it."""
    never = False
    for how, job_id in _DEPENDENCY.findall(entry.job.dependency):
        other = cluster.jobs.get(job_id)
        if other is not None and other.job.state is not JobState.ENDED:
            return "Dependency"
        well = other is None or other.job.raw_state in _ENDED_WELL
        never |= (how == "ok" and not well) or (how == "notok" and well)
    if never:
        return NEVER_SATISFIED
    if entry.job.dependency:
        entry.job = replace(entry.job, dependency="")
    return ""


def partition_shuts_out(cluster: Cluster, job: Job) -> str:
    """Slurm's word where none of its partitions would start it."""
    limits = cluster.limits
    if not cluster.rules.strict or not limits.partitions:
        return ""
    told = ""
    for name in job.partitions:
        partition = limits.partitions.get(name)
        why = "" if partition is None else partition_holds_back(job, partition, None, limits)
        if not why or partition is None:
            return ""
        told = _word(partition, why)
    return told


def _word(partition: Partition, why: str) -> str:
    if partition.state in ("DOWN", "INACTIVE"):
        return f"Partition{partition.state.capitalize()}"
    known = (("MaxTime", "PartitionTimeLimit"), ("Nodes=", "PartitionNodeLimit"), ("account", "AccountNotAllowed"))
    return next((word for mark, word in known if mark in why), "QOSNotAllowed")


def binds(cluster: Cluster, job: Job) -> str:
    """Licenses and numbers of jobs that are in use."""
    if not cluster.rules.strict:
        return ""
    running = [e.job for e in cluster.jobs.values() if e.job.state.holds_nodes]
    if any(in_use(running, name) + count > cluster.licenses.get(name, 0) for name, count in licenses_of(job)):
        return "Licenses"
    qos = cluster.limits.qos.get(job.qos)
    if qos is None or not cluster.limits.enforced:
        return ""
    counted: tuple[tuple[LimitKind, str, Callable[[Job], bool]], ...] = (
        (LimitKind.GROUP, "QOSGrpJobsLimit", lambda _: True),
        (LimitKind.USER, "QOSMaxJobsPerUserLimit", lambda other: other.user == job.user),
    )
    for kind, word, counts in counted:
        cap = qos.caps.get((kind, "jobs"))
        if cap is not None and sum(o.qos == job.qos and counts(o) for o in running) >= cap.limit:
            return word
    return ""


def licenses_of(job: Job) -> list[tuple[str, int]]:
    """Names and counts of "matlab:2,abaqus"."""
    asked = (each.partition(":") for each in job.licenses.split(",") if each)
    return [(name, int(count or 1)) for name, _, count in asked]


def in_use(running: list[Job], name: str) -> int:
    return sum(count for job in running for each, count in licenses_of(job) if each == name)
