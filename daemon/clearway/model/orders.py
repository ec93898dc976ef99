"""What operators order: nodes that are emptied, at once or in turn, or promised; jobs that are moved. Frozen data."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from clearway.model.cluster import Job


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
class NodeOrder:
    """These nodes shall become empty."""

    nodes: tuple[str, ...]
    actor: str  # the user who asked for it
    request_id: int = 0  # of the request that it came from; 0: of none
    reason: str = ""  # as part of the nodes' Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainOrder(NodeOrder):
    """Nodes that stay empty until they are brought back."""

    deadline: datetime | None = None  # None: as soon as every job has been saved
    begin_at: datetime | None = None  # None: at once
    parallel: Parallel = Parallel.MIGRATE
    force: bool = False  # requeues those that cannot be saved as well
    rolling_id: int = 0  # of the rolling drain whose turn it is; 0: of none

    def leaves_alone(self, job: Job) -> bool:
        return self.parallel is Parallel.LEAVE and not set(job.nodes) <= set(self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelocationOrder(NodeOrder):
    """Running jobs that go on elsewhere, in the order in which they are saved; gain and cost in node-seconds. Its
    ``nodes``, of which there may be none, take jobs again when they are empty.
    """

    kind: MoveKind
    moves: tuple[JobMove, ...]
    gain_node_s: float
    cost_node_s: float
    power_down: bool = False  # the nodes that become empty

    @property
    def job_ids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(move.job_id for move in self.moves))

    def of(self, job_id: str) -> tuple[JobMove, ...]:
        return tuple(move for move in self.moves if move.job_id == job_id)

    def nodes_after(self, job: Job) -> tuple[str, ...]:
        """Where it goes on, sorted; ``job`` as it was when this was planned."""
        own = self.of(job.job_id)
        stays = set(job.nodes) - {move.source for move in own}
        return tuple(sorted(stays | {move.target for move in own}))


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseOrder:
    """So many nodes of a partition shall be free from a time on, for some users' jobs alone."""

    nodes: int  # how many
    partition: str
    at: datetime
    duration_s: float
    users: tuple[str, ...]  # whose jobs may run on them
    actor: str  # the user who asked for it
    request_id: int = 0
    reason: str = ""
    event: str = ""  # of the calendar that it comes from: its UID, and which of its times; empty: of none

    @property
    def until(self) -> datetime:
        return self.at + timedelta(seconds=self.duration_s)

    def overlaps(self, other: "PromiseOrder") -> bool:
        return self.at < other.until and other.at < self.until


class TurnState(StrEnum):
    WAITING = "waiting"
    EMPTYING = "emptying"  # a drain of its own has been begun
    AWAY = "away"  # empty; whatever the site does there is being done
    OVER = "over"  # terminal: it was empty, and takes jobs again
    SKIPPED = "skipped"  # terminal: it could not be emptied, or an operator left it out

    @property
    def terminal(self) -> bool:
        return self in (TurnState.OVER, TurnState.SKIPPED)


@dataclass(frozen=True, slots=True)
class Turn:
    node: str
    state: TurnState = TurnState.WAITING
    drain_id: int = 0  # the newest eviction that was to empty it; 0: none yet
    alone: bool = False  # it could not be emptied together with others: it is tried by itself
    note: str = ""


class RollingState(StrEnum):
    UNDER_WAY = "under_way"
    CANCELLING = "cancelling"  # nothing new is begun; drains that are not empty yet are being called off
    COMPLETED = "completed"  # terminal: every node's turn is over, or it was skipped
    CANCELLED = "cancelled"  # terminal

    @property
    def terminal(self) -> bool:
        return self in (RollingState.COMPLETED, RollingState.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingDrain:
    """Nodes that are emptied a few at a time, each by an ordinary drain; the next follow when those are back."""

    rolling_id: int  # 0 until the store has given it one
    order: DrainOrder  # its nodes are all of them, in the order of their turns
    at_once: int  # at most so many are away
    turns: tuple[Turn, ...]
    created_at: datetime
    state: RollingState = RollingState.UNDER_WAY
    progressed_at: datetime | None = None  # when a turn last changed its state of its own accord; None: not yet
    finished_at: datetime | None = None
    outcome: str = ""  # in sentences for people
    why: str = ""  # it was cancelled or stopped, half a sentence

    def nodes(self, *states: TurnState) -> tuple[str, ...]:
        return tuple(turn.node for turn in self.turns if turn.state in states)
