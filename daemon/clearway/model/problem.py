"""The eviction problem: which jobs could leave, in which ways, at what cost. Frozen data; units are in the names."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self


class Action(StrEnum):
    """How a preemptee leaves its nodes. ``end`` is no preemption: its own time limit ends it in time."""

    END = "end"
    KILL = "kill"
    APP_CHECKPOINT = "app_checkpoint"
    SYS_CHECKPOINT = "sys_checkpoint"
    SUSPEND = "suspend"

    @property
    def shown(self) -> str:
        """As people read it: Slurm's users take "kill" for cancelling."""
        return "requeue without checkpoint" if self is Action.KILL else self.value

    __hash__ = str.__hash__  # it equals its text; Enum's own hash is not that of the text, and slow


# Ties between actions of one job go to the first (the CoSim paper: application before system level).
ACTION_ORDER: dict[Action, int] = {action: rank for rank, action in enumerate(Action)}


@dataclass(frozen=True, slots=True)
class Option:
    """One way a candidate can leave.

    ``checkpoint_s`` is time on the shared file system (checkpoints are written one after another, the CoSim paper
    section III-B); for an application checkpoint it holds the wait for the application as well.
    ``ready_s`` counts from now: no deadline before it can use this option (``end`` needs nothing else; a job that gives
    no answer has a time that is not the file system's).
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

    @property
    def takes_s(self) -> float:
        """Until the job is saved, or has ended, where nothing else is written."""
        return max(self.checkpoint_s, self.ready_s)


@dataclass(frozen=True, slots=True)
class Amounts:
    """What a node has, what a job holds on one node, or what a preemptor needs on each node."""

    cores: int = 0
    memory_mib: int = 0
    # By type; "" where no type is known. Other generic resources stand beside them as "fpga:TYPE" or "fpga:".
    gpus: tuple[tuple[str, int], ...] = ()

    def gpus_of(self, gpu_type: str) -> int:
        """GPUs of one type; "" counts every type of GPU, "fpga:" every type of that resource."""
        of_any_type = gpu_type == gres_kind(gpu_type)
        found = 0
        for name, count in self.gpus:
            if name == gpu_type or (of_any_type and gres_kind(name) == gpu_type):
                found += count
        return found


def gres_kind(name: str) -> str:
    """The generic resource that a key of ``Amounts.gpus`` is of: "" for GPUs, "fpga:" for one named fpga."""
    return name[: name.find(":") + 1]


@dataclass(frozen=True, slots=True)
class NodeResources:
    """A node as the planner sees it when jobs share nodes; nodes stand in Slurm's own order."""

    name: str
    has: Amounts
    held: Amounts = Amounts()  # by jobs that are no candidates: they stay
    features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    switch: str = ""  # the leaf switch; "" where Slurm does not know it
    # A pool that belongs to no node, as of licenses: so much is asked of it, and it is one of the required nodes.
    pool: Amounts | None = None


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
    switches: int = 0  # at most so many leaf switches, 2 or more; 0: any number
    same_feature: tuple[str, ...] = ()  # all nodes have the same one of these; empty: that is not asked

    @property
    def together(self) -> bool:
        """Whether it matters which nodes are taken beside which."""
        return self.contiguous or self.one_switch or self.switches > 0 or bool(self.same_feature)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running job that policy allows to preempt, with its options.

    ``nodes`` counts the nodes that its leaving frees when no other job shares them. With ``node_names`` a node counts
    as freed only when every candidate that names it leaves, or, where the problem says what is needed on a node, when
    enough of it is free; ``holds`` is then what the job holds on each of them, in this order; without it, whole nodes.
    What follows is for the rules that sites use instead of the exact planners.
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
    job_nodes: int = 0  # that it holds, usable by the preemptor or not; 0: as many as ``nodes``


@dataclass(frozen=True, slots=True)
class EvictionProblem:
    """The CoSim paper's eviction problem: free ``nodes_needed`` nodes within 0, step, 2 step ... max_delay seconds.
    Nodes that are idle or on their way out are already taken off ``nodes_needed``. With ``needs`` and ``nodes`` a node
    counts as freed when what is free on it meets the need; nodes that meet it at once are found here.
    """

    nodes_needed: int
    max_delay_s: int
    step_s: int
    candidates: tuple[Candidate, ...]
    preemptor_nodes: int = 0  # that the preemptor asks for, idle ones included; 0: as many as ``nodes_needed``
    needs: Needs | None = None  # None: whole nodes
    nodes: tuple[NodeResources, ...] = ()  # with ``needs``: every node that a candidate names, and idle ones
    busy_s: int = 0  # time for which earlier checkpoints keep the file system
    first_delay_s: int = 0  # the first deadline that is asked about, in whole steps

    @property
    def pools(self) -> tuple[NodeResources, ...]:
        return tuple([node for node in self.nodes if node.pool is not None])

    @property
    def waiting_nodes(self) -> int:
        return self.preemptor_nodes or self.nodes_needed

    @property
    def first_step(self) -> int:
        return min(self.first_delay_s // self.step_s, self.last_step)

    @property
    def last_step(self) -> int:
        return self.max_delay_s // self.step_s

    def within(self, delay_s: int) -> Self:
        return replace(self, max_delay_s=delay_s, first_delay_s=delay_s // self.step_s * self.step_s)

    def in_time(self, options: tuple[Option, ...]) -> tuple[Option, ...]:
        last_s, busy_s = self.last_step * self.step_s, self.busy_s
        return tuple(
            [
                option
                for option in options
                if option.ready_s <= last_s and (not option.checkpoint_s or option.checkpoint_s + busy_s <= last_s)
            ]
        )

    def switch_of(self, placement: tuple[str, ...]) -> str:
        """The leaf switch that these nodes are under; "" where the preemptor does not ask for one."""
        if self.needs is None or not self.needs.one_switch:
            return ""
        return next((node.switch for node in self.nodes if node.name in placement), "")
