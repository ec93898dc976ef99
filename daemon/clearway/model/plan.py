"""What is decided: the trade-off curve, the plan, the reason for every job; or why a job is left to Slurm. Frozen."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from math import ceil
from typing import Self

from clearway.model.cluster import Job
from clearway.model.durations import format_duration
from clearway.model.limits import Partition
from clearway.model.orders import DrainOrder, PromiseOrder, RelocationOrder
from clearway.model.pledge import Pledge
from clearway.model.problem import Action, EvictionProblem, Option


class ObstacleCode(StrEnum):
    """The kinds of obstacles; each is a label of a metric, so they stay few."""

    HELD = "held"
    LATER = "later"  # by its owner: it waits for other jobs, or for a time
    OTHER_REASON = "other_reason"  # it does not wait for what leaving jobs give back
    RESERVATION = "reservation"  # it asks for one that is not Clearway's
    ARRAY = "array"  # none of its tasks may start yet
    HETEROGENEOUS = "heterogeneous"  # not all of its components can be planned for
    GRES = "gres"  # what it asks of each node does not follow from its generic resources
    CONSTRAINT = "constraint"  # of its features
    LICENSES = "licenses"
    REQUIRED_NODES = "required_nodes"  # more of them than it asks for in all
    SWITCHES = "switches"  # the leaf switches are not known


@dataclass(frozen=True, slots=True)
class Obstacle:
    """``why`` is a sentence without its end."""

    code: ObstacleCode
    why: str


@dataclass(frozen=True, slots=True)
class PlannedAction:
    job_id: str
    action: Action
    lost_work_node_s: float
    checkpoint_s: int  # rounded up to whole steps
    ready_s: int = 0
    return_node_s: int = 0
    file_system_s: float | None = None  # as the option's

    @property
    def takes_s(self) -> int:
        """As the option's."""
        return max(self.checkpoint_s, self.ready_s)


@dataclass(frozen=True, slots=True, order=True)
class Cost:
    """What a plan costs. Plans are compared by these keys, one after another; the smaller cost is the better plan."""

    lost_work_node_s: float = 0.0
    return_node_s: int = 0  # what coming back costs
    checkpoint_s: int = 0  # seconds on the file system
    preemptees: int = 0  # jobs that end by themselves are none

    @classmethod
    def of(cls, options: Iterable[Option]) -> Self:
        """Of jobs that leave by these options; lost work is rounded, so that the order of a sum decides nothing."""
        used = [option for option in options if option.action is not Action.END]
        return cls(
            round(sum(option.lost_work_node_s for option in used), 6),
            sum(option.return_node_s for option in used),
            sum(ceil(option.checkpoint_s) for option in used),
            len(used),
        )

    def __add__(self, other: Self) -> Self:
        return type(self)(
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
        preemptees = sum(1 for planned in self.actions if planned.action is not Action.END)
        return Cost(self.lost_work_node_s or 0.0, self.return_node_s, self.checkpoint_s or 0, preemptees)

    @property
    def preemptees(self) -> int:
        return self.cost.preemptees


@dataclass(frozen=True, slots=True)
class Curve:
    """The trade-off between delay and lost work, by the delay; of a plan first of all the point that is chosen."""

    planner: str
    points: tuple[CurvePoint, ...]
    exact: bool = True  # proven that no plan loses less
    gap: float = 0.0  # unless exact: the share of its lost work that a point may lose needlessly; 0.0: not known
    complete: bool = True  # False: further points are being worked out

    def choose(self, waiting_nodes: int | None = None) -> CurvePoint | None:
        return choose(self.points, waiting_nodes)


def choose(points: Iterable[CurvePoint], waiting_nodes: int | None = None) -> CurvePoint | None:
    """The point to be carried out; None when no point is feasible. Source: docs/decisions/0032.

    Without ``waiting_nodes`` no job waits: the point of the least cost, and of equally cheap points the earliest. Else
    of the points that lose the least work: the earliest without a preemptee, and where each has one, that whose returns
    and wait (``waiting_nodes`` x ``max_delay_s``) add up to the least node-seconds. Ties: checkpoint time, preemptees,
    then the earliest point.
    """
    able = [(point.cost, point) for point in points if point.feasible]
    if not able:
        return None
    if waiting_nodes is None:
        return min(able, key=lambda each: (each[0], each[1].max_delay_s))[1]
    lost_node_s = min(cost.lost_work_node_s for cost, _ in able)
    able = [each for each in able if each[0].lost_work_node_s == lost_node_s]
    spares_all = [point for cost, point in able if not cost.preemptees]
    if spares_all:
        return min(spares_all, key=lambda point: point.max_delay_s)

    def rank(each: tuple[Cost, CurvePoint]) -> tuple[float, int, int, int]:
        cost, point = each
        node_s = cost.return_node_s + waiting_nodes * point.max_delay_s
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


@dataclass(frozen=True, slots=True)
class Preemptor:
    """A waiting job that room is made for. ``obstacle`` says why no plan can be made; None where one can."""

    job: Job
    rule: str
    max_delay_s: float
    deadline: datetime
    obstacle: Obstacle | None = None
    ordinary: bool = False  # an ordinary job, for which eternal jobs make room (see clearway.preemption.detection)
    only_opportunistic: bool = False  # only eternal jobs leave for it
    takes_free: bool = True  # whether it may count on idle nodes; not while a job before it waits for them
    max_late_s: float = 0.0  # how late nodes may be freed for it where no plan is in time
    max_kill_loss_s: float | None = None  # what a job may lose that leaves without a checkpoint; None: no limit
    late_until: datetime | None = None  # where no plan keeps the deadline: by when nodes are freed all the same
    tasks: int = 1  # of an array: how many of its waiting tasks shall start at once
    components: tuple[str, ...] = ()  # job_ids of a heterogeneous job, its own among them: all start, or none
    waits: bool = True  # False: nodes are wanted by its deadline, and no job waits for them meanwhile
    only_in: tuple[str, ...] = ()  # the partitions in which it is urgent; (): all that its job names

    @property
    def nodes(self) -> int:
        return self.job.num_nodes * self.tasks

    @property
    def partitions(self) -> tuple[str, ...]:
        """Where room may be made for it."""
        return self.only_in or self.job.partitions

    @property
    def called(self) -> str:
        return "ordinary job" if self.ordinary else "urgent job"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """All of an urgent job, its rule and its partitions that a plan for it follows from. Of the job every field counts
    that ``preemption.validation`` does not set to the same for all: a new field counts by itself.
    """

    job: Job
    rule: str
    max_delay_s: float
    since: datetime | None  # from when on the delay counts; None: from whatever moment it is planned at
    max_late_s: float = 0.0
    max_kill_loss_s: float | None = None
    only_in: tuple[str, ...] = ()
    ordinary: bool = False
    components: tuple[str, ...] = ()
    tasks: int = 1
    takes_free: bool = True
    partitions: tuple[Partition, ...] = ()  # of these, as far as they were looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationPlan:
    """What the plans of all operations have in common: which jobs leave how, from which nodes, and why."""

    made_at: datetime
    deadline: datetime
    nodes_needed: int  # before idle nodes are taken off
    problem: EvictionProblem
    curve: Curve
    chosen: CurvePoint
    placement_nodes: tuple[str, ...]
    free_nodes: tuple[str, ...]  # idle or on their way out when the plan was made
    leaving: tuple[Job, ...]  # the jobs of chosen.actions in that order, as seen when the plan was made
    verdicts: tuple[Verdict, ...] = ()
    eternal: tuple[str, ...] = ()  # job_ids of the preemptees that are eternal jobs
    begins_in_s: float = 0.0  # counted from ``made_at`` until it is begun, which Slurm's commands take
    frees_in_s: float = 0.0  # counted beside the delay until all nodes are free: for an approval, and to end jobs

    @property
    def free_at(self) -> datetime:
        """When all nodes are free by the plan, at the latest."""
        begins_in_s = self.begins_in_s + self.frees_in_s if self.chosen.actions else 0.0
        return self.made_at + timedelta(seconds=self.chosen.max_delay_s + begins_in_s)

    @property
    def kills_wait_s(self) -> float:
        """Jobs without a checkpoint leave last: until all others are safe, or have ended, they may be spared."""
        waits = any(each.action not in (Action.KILL, Action.SUSPEND) for each in self.chosen.actions)
        return self.chosen.max_delay_s if waits else 0.0

    @property
    def losses(self) -> dict[str, float]:
        """By job_id, what each job will have lost when its turn to leave has come, in node-seconds."""
        waits_s = self.kills_wait_s
        return {
            each.job_id: each.lost_work_node_s + (max(1, job.num_nodes) * waits_s if each.action is Action.KILL else 0)
            for each, job in zip(self.chosen.actions, self.leaving, strict=True)
        }

    @property
    def lost_node_s(self) -> float:
        return sum(self.losses.values())

    @property
    def unsaved_nodes(self) -> int:
        """Of jobs that leave without a checkpoint: what is lost grows by so many node-hours with each hour."""
        both = zip(self.chosen.actions, self.leaving, strict=True)
        return sum(max(1, job.num_nodes) for each, job in both if each.action is Action.KILL)

    @property
    def due(self) -> datetime:
        """The deadline; where the plan does not keep it, when it expects all jobs to have begun to leave."""
        return max(self.deadline, self.made_at + timedelta(seconds=self.problem.max_delay_s))

    @property
    def preemptees(self) -> tuple[Job, ...]:
        ends = {planned.job_id for planned in self.chosen.actions if planned.action is Action.END}
        return tuple(job for job in self.leaving if job.job_id not in ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(OperationPlan):
    """A decision for a preemptor, which starts on the ``placement_nodes``; it asks for ``nodes_needed``."""

    preemptor: Job
    together: tuple[str, ...] = ()  # job_ids of the other preemptors that it was planned with
    staying: tuple[str, ...] = ()  # job_ids of those that keep their parts of placement nodes
    ordinary: bool = False  # the preemptor is not urgent: eternal jobs make room for it
    rule: str = ""  # that made it a preemptor; empty in plans from before it was kept
    tasks: int = 1  # of an array: how many of its tasks start on the placement nodes
    components: tuple[str, ...] = ()  # job_ids of a heterogeneous job, the preemptor's among them
    note: str = ""  # "it was ...": that it is late, and what is not proven of how it was planned beside others
    partition: str = ""  # that room is made in; empty in plans from before it was kept
    ask: Ask | None = None  # what it follows from on the job's side; None in plans from before it was kept
    pledge: Pledge | None = None  # what may leave for its job in all; None: as it is planned here
    same_since: int = 0  # the revision since which nothing but time has changed it

    @property
    def pin(self) -> str:
        """The only partition that the preemptor may start in while room is made for it; "" where its own will do. Of
        several partitions Slurm takes the first that fits: on nodes of both that would be another than was judged.
        """
        return self.partition if len(self.preemptor.partitions) > 1 and not self.ordinary else ""

    @property
    def called(self) -> str:
        return "ordinary job" if self.ordinary else "urgent job"

    @property
    def switch(self) -> str:
        return self.problem.switch_of(self.placement_nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPlan(OperationPlan):
    """How the jobs leave the nodes of a drain, which are its ``placement_nodes``."""

    order: DrainOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class RelocationPlan(OperationPlan):
    """Which jobs are moved where; its ``placement_nodes`` are those to be emptied and the targets."""

    order: RelocationOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class PromisePlan(OperationPlan):
    """Which nodes are promised, its ``placement_nodes``, and how the jobs leave that would still be there."""

    order: PromiseOrder
    asks_at: datetime  # before then no job leaves: the plan only says which nodes are held


@dataclass(frozen=True, slots=True)
class NoPlan:
    """Why nothing can be done for a preemptor, in one sentence; with the curve, where there is one."""

    why: str
    curve: Curve | None = None
    verdicts: tuple[Verdict, ...] = ()  # why jobs stay, where a plan would have moved them


def what_becomes(planned: PlannedAction) -> str:
    """What the action means for its job, as a sentence without its end."""
    match planned.action:
        case Action.KILL:
            return f"requeued without a checkpoint, losing {node_hours(planned.lost_work_node_s)}"
        case Action.APP_CHECKPOINT:
            return f"saves itself within {format_duration(planned.takes_s)}, to go on from there"
        case Action.SYS_CHECKPOINT:
            return f"is checkpointed within {format_duration(planned.takes_s)}, to go on from there"
        case Action.SUSPEND:
            return "is suspended in memory, to go on from there"
        case Action.END:
            return "ends by itself"


def node_hours(node_s: float) -> str:
    hours = node_s / 3_600
    return f"{hours:,.1f} node-hours" if hours >= 1 else f"{node_s:,.0f} node-seconds"


def kept_by_others(problem: EvictionProblem) -> str:
    """The end of a sentence on what cannot be done in time."""
    busy = format_duration(problem.busy_s)
    return f", of which checkpoints of other evictions keep the file system for {busy}" if problem.busy_s else ""
