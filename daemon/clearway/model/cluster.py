"""What is seen of the cluster: jobs, nodes, reservations, and the snapshot of one cycle. Frozen data, no Slurm text."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from math import ceil
from typing import NamedTuple, TypeVar

from clearway.model.site import ClusterIdentity, License, PowerSaving, Topology, Vouched

T = TypeVar("T")


class JobState(StrEnum):
    """What a job's Slurm state means to a planner; ``Job.raw_state`` keeps Slurm's own word."""

    PENDING = "pending"
    CONFIGURING = "configuring"  # has its nodes, they are still booting
    RUNNING = "running"
    SUSPENDED = "suspended"
    COMPLETING = "completing"  # on its way out, still on its nodes
    ENDED = "ended"
    UNKNOWN = "unknown"  # resizing, signaling, staging out ...: on its nodes, never acted upon

    @property
    def holds_nodes(self) -> bool:
        return self not in (JobState.PENDING, JobState.ENDED)


FIRST = 4_294_967_290  # the highest priority that a job is given, less a few that Slurm keeps for itself
LOWEST_NICE = -2_147_483_645  # that Slurm takes


Counts = tuple[tuple[str, int], ...]  # of generic resources, as in ``model.problem.Amounts``


def only_gpus(counts: Counts) -> int:
    return sum(count for name, count in counts if ":" not in name)


@dataclass(frozen=True, slots=True)
class Spread:
    """What a waiting job asks for in total. Slurm spreads it over the job's nodes; plans count with an even share."""

    tasks: int = 0
    cpus_per_task: int = 0
    gpus_per_node: Counts = ()
    gpus_per_job: Counts = ()
    gpus_per_task: Counts = ()
    per_socket: bool = False  # ``gpus_per_node`` are those of one socket, and how many a node has is not told
    cpus_per_gpu: int = 0  # at least; 0: not asked for
    memory_per_gpu_mib: int = 0  # 0: not asked for

    def gpus_on_each(self, nodes: int) -> Counts:
        found = {name: ceil(count / nodes) for name, count in self.gpus_per_job}
        for name, count in self.gpus_per_task:
            found[name] = max(found.get(name, 0), ceil(self.tasks / nodes) * count)
        return tuple(sorted((found | dict(self.gpus_per_node)).items()))

    def cpus_on_each(self, nodes: int) -> int:
        of_gpus = self.cpus_per_gpu * only_gpus(self.gpus_on_each(nodes))
        return max(ceil(self.tasks / nodes) * self.cpus_per_task, of_gpus)

    def memory_on_each(self, nodes: int) -> int:
        """MiB on each node, where the job asks for memory per GPU; 0: it does not."""
        return self.memory_per_gpu_mib * only_gpus(self.gpus_on_each(nodes))

    def cpus_for_gpus(self, nodes: int) -> int:
        of_tasks = max(self.tasks * only_gpus(self.gpus_per_task), nodes * only_gpus(self.gpus_per_node))
        return self.cpus_per_gpu * max(of_tasks, only_gpus(self.gpus_per_job))


class Submission(NamedTuple):
    """What tells a job from another one that Slurm gives the same id, once it has counted to MaxJobId or begun anew.

    Slurm has nothing that stays: with each requeue SubmitTime becomes the time of the requeue, and Restarts one more.
    """

    user: str
    at: datetime  # of the last requeue, where there was one
    restarts: int

    def leads_to(self, later: "Submission") -> bool:
        """Whether the later one may be of the same job: in the same run, or after requeues."""
        requeued = later.restarts > self.restarts
        return later.user == self.user and (requeued or (later.restarts, later.at) == (self.restarts, self.at))


def of_one_job(seen: Iterable[tuple[T, Submission]], latest: Submission | None) -> Iterator[T]:
    """Those of the records of an id, the newest first, that belong to the job that is ``latest`` there.

    Where there is none any more (None): to that of the newest record. A record is tied to the one after it, so that of
    two jobs of one user each keeps its own, however often both were requeued.
    """
    for what, each in seen:
        if latest is not None and not each.leads_to(latest):
            return
        latest = each
        yield what


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job as Slurm schedules it: an array task or a heterogeneous component is a job of its own."""

    job_id: str  # Slurm's own numeric id as text, never the "123_4" form
    user: str
    state: JobState
    raw_state: str
    partitions: tuple[str, ...]  # several only while pending
    num_nodes: int
    submit_time: datetime
    name: str = ""
    account: str = ""
    qos: str = ""
    reason: str = ""  # Slurm's state reason, "None" when there is none
    eligible_time: datetime | None = None
    start_time: datetime | None = None
    time_limit_s: int | None = None  # None: unlimited
    end_time: datetime | None = None  # at its limit, as Slurm says: what the run stood suspended is added
    over_time_s: int | None = 0  # that Slurm lets it run on beyond that (OverTimeLimit); None: as long as it likes
    deadline: datetime | None = None  # ``--deadline``: waiting, it is removed once it could not end by then
    nodes: tuple[str, ...] = ()  # allocated nodes; empty while pending
    cpus: int = 0
    memory_mib: int = 0  # allocated on (or, pending, asked of) one node; 0 when unknown
    comment: str = ""
    batch: bool = True
    requeueable: bool = True
    restart_count: int = 0
    priority: int = 0  # 0: held
    nice: int = 0  # what its owner, or an administrator, takes off its priority
    reservation: str | None = None
    dependency: str = ""
    features: str = ""
    licenses: str = ""
    gres: str = ""  # what it asks for per node or per job beside processors and memory
    # On, or asked of, each of its nodes, by type ("" where it may be any); None where that is not known.
    gpus: tuple[tuple[str, int], ...] | None = ()
    exclusive: bool = True  # has, or wants, whole nodes; also where that is not known
    required_nodes: tuple[str, ...] = ()
    excluded_nodes: tuple[str, ...] = ()
    spread: Spread | None = None  # of a waiting job; None: not known
    contiguous: bool = False
    switches: int = 0  # under how many leaf switches its nodes must be; 0: any number
    cpus_per_node: int = 0  # smallest number of processors a node must have for it
    even_cpus: int = 0  # on each node when its tasks are spread evenly; 0: not known
    array_job_id: str | None = None
    array_task_id: int | None = None
    pending_tasks: int = 1  # array tasks that one pending record stands for
    array_limit: int = 0  # at most so many tasks of the array run at once; 0: as many as can
    het_job_id: str | None = None
    het_job_offset: int | None = None

    @property
    def ends_by(self) -> datetime | None:
        """When Slurm ends this run at the latest, but for its half-minute look; None: never, or not known.

        Of one that stands suspended it is what it was before: that time is added once it is resumed.
        """
        if self.time_limit_s is None or self.start_time is None or self.over_time_s is None:
            return None
        end = self.end_time or self.start_time + timedelta(seconds=self.time_limit_s)
        return end + timedelta(seconds=self.over_time_s)

    @property
    def stood_s(self) -> float:
        """How long this run stood suspended, as its end tells; 0 as well where it has no limit."""
        if self.end_time is None or self.start_time is None or self.time_limit_s is None:
            return 0.0
        return max(0.0, (self.end_time - self.start_time).total_seconds() - self.time_limit_s)

    def ran_s(self, now: datetime) -> float:
        """Since this run began, without what it stood suspended."""
        return 0.0 if self.start_time is None else max(0.0, (now - self.start_time).total_seconds() - self.stood_s)

    @property
    def run(self) -> tuple[str, int, datetime | None]:
        """What a decision is about: this run of the job, not the job id, which outlives a requeue."""
        return (self.job_id, self.restart_count, self.start_time)

    @property
    def submission(self) -> Submission:
        return Submission(self.user, self.submit_time, self.restart_count)

    @property
    def can_be_requeued(self) -> bool:
        """Whether Slurm can start it again: interactive jobs and those with --no-requeue it cannot."""
        return self.requeueable and self.batch

    @property
    def display_id(self) -> str:
        """The id as users know it: 123, 123_4 (array task), 123+1 (heterogeneous component)."""
        if self.array_job_id is not None and self.array_task_id is not None:
            return f"{self.array_job_id}_{self.array_task_id}"
        if self.het_job_id is not None and self.het_job_offset is not None:
            return f"{self.het_job_id}+{self.het_job_offset}"
        return self.job_id


def first_nice(job: Job) -> int:
    """The Nice that gives a waiting job the first place in the queue, or as near to it as a Nice can."""
    return max(LOWEST_NICE, job.nice - (FIRST - job.priority))


def wanted_features(job: Job) -> frozenset[str]:
    return frozenset(part for part in job.features.split("&") if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A compute node; ``available`` means that Slurm would start a job on it once it is empty."""

    name: str
    available: bool
    raw_state: str
    cpus: int
    memory_mib: int
    partitions: tuple[str, ...]
    alloc_cpus: int = 0  # processors that Slurm says are taken; a cross-check of the jobs' own node lists
    alloc_memory_mib: int = 0  # likewise; 0 as well where Slurm does not share out memory
    gpus: tuple[tuple[str, int], ...] = ()  # by type; "" where it has none
    alloc_gpus: tuple[tuple[str, int], ...] | None = None  # of these, taken; None: not known
    cpus_per_core: int = 1  # jobs are given whole cores
    features: tuple[str, ...] = ()
    reason: str = ""
    reservation: str | None = None  # an active reservation that covers it; "" when Slurm does not tell which
    weight: int = 1  # Slurm gives jobs the nodes of the lowest weight first
    # Power saving has it, and boots it for a job that it is given: within so many seconds at most. None: it is awake,
    # or cannot be used. Not ``available`` meanwhile.
    boot_s: float | None = None

    @property
    def drained(self) -> bool:
        return "DRAIN" in self.raw_state

    @property
    def silent(self) -> bool:
        """Whether Slurm waits for an answer of it, as it does of every node after a start of slurmctld."""
        waits = self.raw_state.startswith("UNKNOWN") or "*" in self.raw_state or "NOT_RESPONDING" in self.raw_state
        return waits and not any(word in self.raw_state for word in ("DOWN", "DRAIN", "FAIL", "POWERING_UP"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Slurm's advance reservation. Clearway's own ones (placements) are made from the same type."""

    name: str
    nodes: tuple[str, ...]
    start_time: datetime
    end_time: datetime
    users: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    licenses: str = ""  # as a job asks for them; "" for none


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record that could not be read; it is counted, logged and never acted upon."""

    kind: str  # job, node, reservation
    ident: str  # as much of its id as could be read
    why: str
    holds_nodes: bool = True  # False only for a job whose state could be read and says that it holds none
    # The nodes that a job holds, where they could be read: so that they stay occupied, the job is among the jobs then,
    # in the state UNKNOWN.
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PreemptPriorities:
    """Slurm's own preemption: what it sorts jobs by, the priority of their QoS or the tier of their partition."""

    by_name: Mapping[str, int] = field(default_factory=dict)
    of_qos: bool = False  # else of partitions
    preempts: Mapping[str, frozenset[str]] = field(default_factory=dict)  # for the jobs of each, those of these others
    grace_s: float = 0.0  # the longest that a job may run on once Slurm preempts it

    def of(self, job: Job) -> int:
        """0 where Slurm did not tell."""
        return self.by_name.get(next(iter(self._names(job)), ""), 0)

    def takes(self, job: Job, waiting: Job) -> bool:
        """Whether Slurm itself would take this running job off its nodes for one that waits."""
        return any(
            not self.preempts.get(name, frozenset()).isdisjoint(self._names(job)) for name in self._names(waiting)
        )

    def _names(self, job: Job) -> tuple[str, ...]:
        return (job.qos,) if self.of_qos else job.partitions


@dataclass(frozen=True)
class ClusterSnapshot:
    taken_at: datetime
    jobs: tuple[Job, ...]
    nodes: tuple[Node, ...]
    skipped: tuple[Skipped, ...] = ()
    queries: int = 0  # Slurm queries that it took
    preempt_priorities: PreemptPriorities = PreemptPriorities()
    topology: Topology = field(default_factory=Topology)  # read only while a waiting job asks for few leaf switches
    licenses: Mapping[str, License] = field(default_factory=dict)  # read only while a waiting job asks for some
    slurm_version: str = ""  # slurmctld's, "24.11.5"; empty: not known, and then nothing is done
    power_saving: PowerSaving = field(default_factory=PowerSaving)
    vouched: Vouched = field(default_factory=lambda: Vouched(accounts=True, qos=True))  # simulated users do not lie
    cluster: ClusterIdentity | None = None  # None: a simulated one, or it has not been read yet

    def take_indexes(self, before: "ClusterSnapshot | None") -> None:
        """Take over the indexes that an earlier snapshot of the very same jobs has made."""
        if before is not None and before.jobs is self.jobs:
            known = vars(before)
            vars(self).update((name, known[name]) for name in _OF_JOBS if name in known)

    @cached_property
    def job_by_id(self) -> dict[str, Job]:
        return {job.job_id: job for job in self.jobs}

    @cached_property
    def node_by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def partition_sizes(self) -> dict[str, int]:
        return Counter(name for node in self.nodes for name in set(node.partitions))

    @cached_property
    def holders(self) -> tuple[Job, ...]:
        """The jobs that hold nodes, COMPLETING ones included: few beside those that wait."""
        return tuple(job for job in self.jobs if job.state.holds_nodes)

    @cached_property
    def running(self) -> frozenset[str]:
        return frozenset(job.job_id for job in self.holders if job.state is JobState.RUNNING)

    @cached_property
    def pending(self) -> tuple[Job, ...]:
        return tuple(job for job in self.jobs if job.state is JobState.PENDING)

    @cached_property
    def jobs_in(self) -> dict[str, tuple[Job, ...]]:
        return _grouped((job.reservation, job) for job in self.jobs if job.reservation is not None)

    @cached_property
    def jobs_on(self) -> dict[str, tuple[Job, ...]]:
        """Node name to the jobs that hold it, COMPLETING ones included."""
        return _grouped((name, job) for job in self.holders for name in job.nodes)

    @cached_property
    def awaited(self) -> frozenset[tuple[str, str]]:
        """Ids of jobs, or of arrays, that other jobs wait for, each with these jobs' user."""
        return frozenset((j.user, each) for j in self.pending if j.dependency for each in _IDS.findall(j.dependency))

    def hides(self, job_id: str) -> bool:
        """Whether this job may be there though it was not read: its own record was skipped, or one without an id."""
        return job_id not in self.job_by_id and any(
            item.kind == "job" and (item.ident == job_id or not item.ident.isdigit()) for item in self.skipped
        )

    def is_another(self, job_id: str, submission: Submission) -> bool:
        """Whether the id of this job is another one's by now; of a record that could not be read that is not known."""
        seen = self.job_by_id.get(job_id)
        return seen is not None and job_id not in self.unread_jobs and not submission.leads_to(seen.submission)

    @cached_property
    def components(self) -> dict[str, tuple[Job, ...]]:
        """By the id of a heterogeneous job, its components that have not ended, in their order."""
        alive = ((j.het_job_id, j) for j in self.jobs if j.het_job_id is not None and j.state is not JobState.ENDED)
        found = _grouped(alive)
        return {het: tuple(sorted(jobs, key=lambda job: job.het_job_offset or 0)) for het, jobs in found.items()}

    @cached_property
    def unreadable(self) -> bool:
        """Whether a job record was skipped that may hold any node: then no node can be called free for sure."""
        return any(item.kind == "job" and item.holds_nodes and not item.nodes for item in self.skipped)

    @cached_property
    def unread_jobs(self) -> frozenset[str]:
        """Jobs of which only the nodes could be read. Nothing else that is noted of them counts."""
        return frozenset(item.ident for item in self.skipped if item.kind == "job" and item.nodes)


def _grouped(named: Iterable[tuple[str, Job]]) -> dict[str, tuple[Job, ...]]:
    found: dict[str, list[Job]] = defaultdict(list)
    for name, job in named:
        found[name].append(job)
    return {name: tuple(jobs) for name, jobs in found.items()}


# What a snapshot finds out when it is first asked, and by its jobs alone.
_OF_JOBS = ("job_by_id", "holders", "pending", "jobs_in", "jobs_on", "components", "awaited")
_IDS = re.compile(r"[0-9]+")


class AdminLevel(StrEnum):
    NONE = "none"
    OPERATOR = "operator"
    ADMINISTRATOR = "administrator"
