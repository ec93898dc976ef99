"""The words of the product as frozen data: what is seen, what is decided. No I/O, no clock, no Slurm text.

Units are in the names: ``_s`` seconds, ``_mib`` mebibytes, ``_node_s`` node-seconds. Times are aware UTC.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from math import ceil


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
    nodes: tuple[str, ...] = ()  # allocated nodes; empty while pending
    cpus: int = 0
    memory_mib: int = 0  # allocated on (or, pending, asked of) one node; 0 when unknown
    comment: str = ""
    batch: bool = True
    requeueable: bool = True
    restart_count: int = 0
    priority: int = 0  # 0: held
    reservation: str | None = None
    dependency: str = ""
    features: str = ""
    licenses: str = ""
    gres: str = ""  # what it asks for per node or per job beside processors and memory
    # On, or asked of, each of its nodes, by type ("" where it may be any); None where that cannot be told.
    gpus: tuple[tuple[str, int], ...] | None = ()
    exclusive: bool = True  # has, or wants, whole nodes; also where that is not known
    required_nodes: tuple[str, ...] = ()
    excluded_nodes: tuple[str, ...] = ()
    contiguous: bool = False
    switches: int = 0  # under how many leaf switches its nodes must be; 0: any number
    cpus_per_node: int = 0  # smallest number of processors a node must have for it
    even_cpus: int = 0  # on each node when its tasks are spread evenly; 0: not known
    array_job_id: str | None = None
    array_task_id: int | None = None
    pending_tasks: int = 1  # array tasks that one pending record stands for
    het_job_id: str | None = None
    het_job_offset: int | None = None

    @property
    def run(self) -> tuple[str, int, datetime | None]:
        """What a decision is about: this run of the job, not the job id, which outlives a requeue."""
        return (self.job_id, self.restart_count, self.start_time)

    @property
    def display_id(self) -> str:
        """The id as users know it: 123, 123_4 (array task), 123+1 (heterogeneous component)."""
        if self.array_job_id is not None and self.array_task_id is not None:
            return f"{self.array_job_id}_{self.array_task_id}"
        if self.het_job_id is not None and self.het_job_offset is not None:
            return f"{self.het_job_id}+{self.het_job_offset}"
        return self.job_id


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

    @property
    def drained(self) -> bool:
        """Whether nothing new starts on it because somebody said so (DRAIN, DRAINING, DRAINED)."""
        return "DRAIN" in self.raw_state


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Slurm's advance reservation. Clearway's own ones (placements) are made from the same type."""

    name: str
    nodes: tuple[str, ...]
    start_time: datetime
    end_time: datetime
    users: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record that could not be read; it is counted, logged and never acted upon."""

    kind: str  # job, node, reservation
    ident: str  # as much of its id as could be read
    why: str
    holds_nodes: bool = True  # False only for a job whose state could be read and says that it holds none


@dataclass(frozen=True, slots=True)
class PreemptPriorities:
    """What Slurm's own preemption sorts jobs by: the priority of their QoS, or the tier of their partition."""

    by_name: Mapping[str, int] = field(default_factory=dict)
    of_qos: bool = False  # else of partitions

    def of(self, job: Job) -> int:
        """0 where Slurm did not tell."""
        name = job.qos if self.of_qos else next(iter(job.partitions), "")
        return self.by_name.get(name, 0)


@dataclass(frozen=True, slots=True)
class Topology:
    """Which leaf switch each node is under, where Slurm tells (``TopologyPlugin=topology/tree``)."""

    switch_of: Mapping[str, str] = field(default_factory=dict)  # node to leaf switch
    unknown: str = "nobody has asked for it"  # why it is not known; "" where it is


@dataclass(frozen=True)
class ClusterSnapshot:
    """Everything one cycle knows of the cluster."""

    taken_at: datetime
    jobs: tuple[Job, ...]
    nodes: tuple[Node, ...]
    skipped: tuple[Skipped, ...] = ()
    queries: int = 0  # Slurm queries that it took
    preempt_priorities: PreemptPriorities = PreemptPriorities()
    topology: Topology = Topology()  # read only while a waiting job asks for one leaf switch

    @cached_property
    def job_by_id(self) -> dict[str, Job]:
        return {job.job_id: job for job in self.jobs}

    @cached_property
    def node_by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def jobs_on(self) -> dict[str, tuple[Job, ...]]:
        """Node name to the jobs that hold it, COMPLETING ones included."""
        holders: dict[str, list[Job]] = defaultdict(list)
        for job in self.jobs:
            if job.state.holds_nodes:
                for name in job.nodes:
                    holders[name].append(job)
        return {name: tuple(jobs) for name, jobs in holders.items()}

    @cached_property
    def unreadable(self) -> bool:
        """Whether a job record was skipped that may hold nodes: then no node can be called free for sure."""
        return any(item.kind == "job" and item.holds_nodes for item in self.skipped)


class Action(StrEnum):
    """How a preemptee leaves its nodes. ``end`` is no preemption: its own time limit ends it in time."""

    END = "end"
    KILL = "kill"
    APP_CHECKPOINT = "app_checkpoint"
    SYS_CHECKPOINT = "sys_checkpoint"
    SUSPEND = "suspend"

    __hash__ = str.__hash__  # it equals its text; Enum's own hash is not that of the text, and slow


# Ties between actions of one job go to the first (the CoSim paper: application before system level).
ACTION_ORDER: dict[Action, int] = {action: rank for rank, action in enumerate(Action)}


@dataclass(frozen=True, slots=True)
class Option:
    """One way a candidate can leave.

    ``checkpoint_s`` is time on the shared file system (checkpoints are written one after another, the CoSim paper
    section III-B); for an application checkpoint it holds the wait for the application as well.
    ``ready_s`` counts from now: no deadline before it can use this option (``end`` needs nothing else).
    ``file_system_s`` is how long its data would take with the whole file system, where checkpoints share it; None: it
    leaves no room for others (see ``planning.shared_bandwidth``).
    ``return_node_s`` is what coming back costs the job: its nodes x the time until it computes again.
    """

    action: Action
    lost_work_node_s: float = 0.0
    checkpoint_s: float = 0.0
    ready_s: float = 0.0
    return_node_s: int = 0
    file_system_s: float | None = None


@dataclass(frozen=True, slots=True)
class Amounts:
    """What a node has, what a job holds on one node, or what a preemptor needs on each node."""

    cores: int = 0
    memory_mib: int = 0
    gpus: tuple[tuple[str, int], ...] = ()  # by type; "" where no type is told

    def gpus_of(self, gpu_type: str) -> int:
        """GPUs of one type; "" counts every type."""
        return sum(count for name, count in self.gpus if gpu_type in ("", name))


@dataclass(frozen=True, slots=True)
class NodeResources:
    """A node as the planner sees it when jobs share nodes; nodes stand in Slurm's own order."""

    name: str
    has: Amounts
    held: Amounts = Amounts()  # by jobs that are no candidates: they stay
    features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    switch: str = ""  # the leaf switch; "" where Slurm does not know it


@dataclass(frozen=True, slots=True)
class Needs:
    """What the preemptor asks of each of its nodes, and of them together."""

    per_node: Amounts = Amounts()
    features: tuple[str, ...] = ()
    partition: str = ""  # "": any
    required_nodes: tuple[str, ...] = ()
    excluded_nodes: tuple[str, ...] = ()
    contiguous: bool = False
    one_switch: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running job that policy lets go, with its options.

    ``nodes`` counts the nodes that its leaving frees when nobody shares them. With ``node_names`` those
    nodes are known by name, and a node counts as freed only when every candidate that names it leaves,
    or, where the problem says what is needed on a node, when enough of it is free; ``holds`` then tells
    what the job holds on each of them, in the same order, and without it the job holds whole nodes.

    The exact planners need nothing else; what follows ``node_names`` is for the rules
    that sites use instead.
    """

    job_id: str
    nodes: int
    options: tuple[Option, ...]
    node_names: tuple[str, ...] = ()
    holds: tuple[Amounts, ...] = ()
    ran_s: float = 0.0  # since this run began
    remaining_s: float | None = None  # until its time limit; None: unlimited, or not known
    waited_s: float = 0.0  # from submission to the start of this run
    preempt_priority: int = 0  # of its QoS or its partition's tier; Slurm's own preemption takes the lowest first
    job_nodes: int = 0  # that it holds, whoever could use them; 0: as many as ``nodes``


@dataclass(frozen=True, slots=True)
class EvictionProblem:
    """The CoSim paper's eviction problem: free ``nodes_needed`` nodes within 0, step, 2 step ... max_delay seconds.

    Nodes that are idle or on their way out are already taken off ``nodes_needed``. With ``needs`` and ``nodes``
    a node counts as freed when what is free on it meets the need; nodes that meet it at once are found here.
    """

    nodes_needed: int
    max_delay_s: int
    step_s: int
    candidates: tuple[Candidate, ...]
    preemptor_nodes: int = 0  # that the preemptor asks for, idle ones included; 0: as many as ``nodes_needed``
    needs: Needs | None = None  # None: whole nodes
    nodes: tuple[NodeResources, ...] = ()  # with ``needs``: every node that a candidate names, and idle ones
    busy_s: int = 0  # checkpoints that were promised before keep the file system for so long

    @property
    def last_step(self) -> int:
        return self.max_delay_s // self.step_s

    @property
    def waiting_nodes(self) -> int:
        """Those that the preemptor asks for, all of which wait until it starts."""
        return self.preemptor_nodes or self.nodes_needed

    def in_time(self, options: tuple[Option, ...]) -> tuple[Option, ...]:
        """Those that the longest deadline has time for."""
        last_s = self.last_step * self.step_s
        return tuple(
            option
            for option in options
            if max(option.checkpoint_s and option.checkpoint_s + self.busy_s, option.ready_s) <= last_s
        )

    def switch_of(self, placement: tuple[str, ...]) -> str:
        """The leaf switch that these nodes are under; "" where the preemptor does not ask for one."""
        if self.needs is None or not self.needs.one_switch:
            return ""
        return next((node.switch for node in self.nodes if node.name in placement), "")


@dataclass(frozen=True, slots=True)
class PlannedAction:
    job_id: str
    action: Action
    lost_work_node_s: float
    checkpoint_s: int  # rounded up to whole steps
    ready_s: int = 0
    return_node_s: int = 0
    file_system_s: float | None = None  # as the option's


@dataclass(frozen=True, slots=True, order=True)
class Cost:
    """What a plan costs. Plans are compared by these keys, one after another; the smaller cost is the better plan."""

    lost_work_node_s: float = 0.0
    return_node_s: int = 0  # what coming back costs
    checkpoint_s: int = 0  # seconds on the file system
    preemptees: int = 0  # jobs that end by themselves are none

    @classmethod
    def of(cls, options: Iterable[Option]) -> Cost:
        """Of jobs that leave by these options; lost work is rounded, so that the order of a sum decides nothing."""
        used = [option for option in options if option.action is not Action.END]
        return cls(
            round(sum(option.lost_work_node_s for option in used), 6),
            sum(option.return_node_s for option in used),
            sum(ceil(option.checkpoint_s) for option in used),
            len(used),
        )

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            round(self.lost_work_node_s + other.lost_work_node_s, 6),
            self.return_node_s + other.return_node_s,
            self.checkpoint_s + other.checkpoint_s,
            self.preemptees + other.preemptees,
        )


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The best that can be done within ``max_delay_s``; without ``feasible`` the other numbers are None."""

    max_delay_s: int
    feasible: bool
    lost_work_node_s: float | None = None
    checkpoint_s: int | None = None
    nodes_freed: int | None = None
    actions: tuple[PlannedAction, ...] = ()
    return_node_s: int = 0  # of all actions

    @property
    def cost(self) -> Cost:
        """Of the plan of a feasible point."""
        preemptees = sum(1 for planned in self.actions if planned.action is not Action.END)
        return Cost(self.lost_work_node_s or 0.0, self.return_node_s, self.checkpoint_s or 0, preemptees)


SAME_RETURN = 0.01  # of the lost work: what coming back costs counts as equal within this


@dataclass(frozen=True, slots=True)
class Curve:
    """The trade-off between delay and lost work: one point a step from 0 to the max delay."""

    planner: str
    points: tuple[CurvePoint, ...]
    exact: bool = True  # proven optimal for the problem as given
    gap: float = 0.0  # unless exact: the share of its lost work that a point may lose needlessly; 0.0: not known

    def choose(self, waiting_nodes: int | None = None) -> CurvePoint | None:
        """The point to be carried out, as the function ``choose`` says; None when no point is feasible."""
        return choose(self.points, waiting_nodes)


def choose(points: Iterable[CurvePoint], waiting_nodes: int | None = None) -> CurvePoint | None:
    """The point to be carried out; None when no point is feasible.

    Without ``waiting_nodes`` no job waits: the point of the least cost, and of equally cheap points the earliest.

    An urgent job that asks for so many nodes waits longer only for less lost work or for much cheaper returns: of the
    points that lose the least work, the one is chosen whose returns and wait (``waiting_nodes`` x ``max_delay_s``) add
    up to the least node-seconds. Returns count as equal as far as they exceed the least of these points by no more than
    ``SAME_RETURN`` of the lost work. Ties: checkpoint time, preemptees, then the earliest point.
    Source: docs/decisions/0032.
    """
    able = [(point.cost, point) for point in points if point.feasible]
    if not able:
        return None
    if waiting_nodes is None:
        return min(able, key=lambda each: (each[0], each[1].max_delay_s))[1]
    lost_node_s = min(cost.lost_work_node_s for cost, _ in able)
    able = [each for each in able if each[0].lost_work_node_s == lost_node_s]
    same_node_s = min(cost.return_node_s for cost, _ in able) + SAME_RETURN * lost_node_s

    def rank(each: tuple[Cost, CurvePoint]) -> tuple[float, int, int, int]:
        cost, point = each
        node_s = max(cost.return_node_s, same_node_s) + waiting_nodes * point.max_delay_s
        return (node_s, cost.checkpoint_s, cost.preemptees, point.max_delay_s)

    return min(able, key=rank)[1]


class Choice(StrEnum):
    CHOSEN = "chosen"
    SPARED = "spared"  # a candidate that is not needed
    EXEMPT = "exempt"  # policy does not let it go


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a running job goes or stays; ``code`` is short and stable, ``reason`` a sentence for people."""

    job_id: str
    choice: Choice
    code: str
    reason: str


class AdminLevel(StrEnum):
    """What Slurm's accounting says of a user's rights."""

    NONE = "none"
    OPERATOR = "operator"
    ADMINISTRATOR = "administrator"


class Parallel(StrEnum):
    """What a drain does with jobs that also run on other nodes than its own."""

    MIGRATE = "migrate"
    LEAVE = "leave"  # they stay until they end by themselves


class MoveKind(StrEnum):
    """What running jobs are moved for."""

    COMPACTION = "compaction"  # whole nodes become empty
    PROMOTION = "promotion"  # jobs get on better nodes, or off scarce ones


@dataclass(frozen=True, slots=True)
class JobMove:
    """What a job holds on one node goes to another one; for each node that the job leaves there is one of these."""

    job_id: str
    source: str
    target: str
    processors: int = 0  # that it holds there; 0: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOrder:
    """Running jobs that go on elsewhere, in the order in which they are saved; gain and cost in node-seconds."""

    kind: MoveKind
    moves: tuple[JobMove, ...]
    gain_node_s: float
    cost_node_s: float
    power_down: bool = False  # the nodes that become empty

    @property
    def job_ids(self) -> tuple[str, ...]:
        """In the order in which they are saved."""
        return tuple(dict.fromkeys(move.job_id for move in self.moves))

    def of(self, job_id: str) -> tuple[JobMove, ...]:
        return tuple(move for move in self.moves if move.job_id == job_id)

    def nodes_after(self, job: Job) -> tuple[str, ...]:
        """Where it goes on, sorted; ``job`` as it was when this was planned."""
        own = self.of(job.job_id)
        stays = set(job.nodes) - {move.source for move in own}
        return tuple(sorted(stays | {move.target for move in own}))


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainOrder:
    """These nodes shall be empty: the goal of an eviction that has no preemptor.

    With a ``move`` its jobs go where that says, and the nodes, of which there may be none, take jobs again afterwards.
    """

    nodes: tuple[str, ...]
    actor: str
    request_id: int = 0  # of the request that it came from; 0: of none
    reason: str = ""
    deadline: datetime | None = None  # None: as soon as everybody has been saved
    begin_at: datetime | None = None  # None: at once
    parallel: Parallel = Parallel.MIGRATE
    force: bool = False  # requeues those that cannot be saved as well
    move: MoveOrder | None = None
    rolling_id: int = 0  # of the rolling drain whose turn it is; 0: of none

    def leaves_alone(self, job: Job) -> bool:
        return self.parallel is Parallel.LEAVE and not set(job.nodes) <= set(self.nodes)


def called(*, ordinary: bool) -> str:
    """What messages call a preemptor."""
    return "ordinary job" if ordinary else "urgent job"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A decision: which jobs leave how, on which nodes the preemptor shall start, and why.

    A drain's plan has an order and, for a preemptor, a stand-in that no cluster knows; its ``placement_nodes`` are
    those to be emptied.
    """

    preemptor: Job
    made_at: datetime
    deadline: datetime
    nodes_needed: int  # as the preemptor asks, before idle nodes are taken off
    problem: EvictionProblem
    curve: Curve
    chosen: CurvePoint
    placement_nodes: tuple[str, ...]
    free_nodes: tuple[str, ...]  # idle or on their way out when the plan was made
    leaving: tuple[Job, ...]  # the jobs of chosen.actions in that order, as seen when the plan was made
    verdicts: tuple[Verdict, ...] = ()
    drain: DrainOrder | None = None
    together: tuple[str, ...] = ()  # job_ids of the other preemptors that it was planned with
    eternal: tuple[str, ...] = ()  # job_ids of the preemptees that are eternal jobs
    staying: tuple[str, ...] = ()  # job_ids of those that keep their parts of placement nodes
    ordinary: bool = False  # the preemptor is not urgent: eternal jobs make room for it
    note: str = ""  # "it was ...": what is not proven of how it was planned beside others

    @property
    def called(self) -> str:
        """What messages call the preemptor."""
        return called(ordinary=self.ordinary)

    @property
    def switch(self) -> str:
        """The leaf switch that the preemptor's nodes are under; "" where it does not ask for one."""
        return self.problem.switch_of(self.placement_nodes)

    @property
    def preemptees(self) -> tuple[Job, ...]:
        """Those that are preempted; the others in ``leaving`` end by themselves."""
        ends = {planned.job_id for planned in self.chosen.actions if planned.action is Action.END}
        return tuple(job for job in self.leaving if job.job_id not in ends)
