"""What all moves of running jobs have in common: what jobs hold, what a move costs, when it is worth it. Pure.

A job holds processors on nodes, a part on each. To move a part the whole job is saved, requeued and restarted: all of
its processors stand still for ``move_s``. It keeps its shape: a part stays whole, on a node of its own. Jobs are saved
one after another, since they share a file system, and run until their turn comes.

A plan is made only when its gain in node-seconds exceeds its cost: the processors that stand still meanwhile, in nodes,
times how long they do. What is not known is not moved: neither a job without an expected end nor one that cannot be
saved. Fitting goes by processors alone; the caller names the nodes that a job may use in all other respects.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Host:
    """A node that jobs may be moved off and onto; nodes that are not told of are left alone."""

    name: str
    processors: int  # at least 1
    rank: int = 0  # higher is better: the tier of its partition, or its weight
    scarce: bool = False  # has what few nodes have


@dataclass(frozen=True, slots=True)
class Part:
    """What a job holds on one node."""

    node: str
    processors: int


@dataclass(frozen=True, slots=True)
class Resident:
    """A job that holds nodes, as the planning of moves sees it."""

    job_id: str
    parts: tuple[Part, ...]  # each on a node of its own
    remaining_s: float | None  # until its expected end; None: not known
    move_s: float | None  # without progress while it is saved, requeued and restarted; None: it cannot be saved
    may_use: frozenset[str] | None = None  # the nodes where it can go on; None: any
    needs_scarce: bool = False

    @property
    def movable(self) -> bool:
        return self.move_s is not None and self.remaining_s is not None and bool(self.parts)

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(part.node for part in self.parts)

    def may_go_to(self, node: str) -> bool:
        return self.may_use is None or node in self.may_use


@dataclass(frozen=True, slots=True)
class Move:
    """One part of a job to another node."""

    job_id: str
    source: str
    target: str
    processors: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What a plan may do at most, and when it is worth it."""

    jobs: int  # to move: what is left of this hour's
    worth: float = 1.0  # how many times the cost the gain must exceed; at least 1
    tries: int = 20_000  # of placing a part while one node is emptied

    def __post_init__(self) -> None:
        if self.jobs < 0 or self.worth < 1 or self.tries < 1:
            raise ValueError(f"limits of moves: jobs {self.jobs}, worth {self.worth}, tries {self.tries}")


@dataclass(frozen=True, slots=True)
class MovePlan:
    """Jobs to move, in the order in which they are saved; parts of one job follow each other."""

    moves: tuple[Move, ...] = ()
    emptied: tuple[str, ...] = ()  # nodes that no job holds afterwards, in the order in which they become empty
    gain_node_s: float = 0.0
    cost_node_s: float = 0.0
    exact: bool = True  # False: a search was cut short, so a better placement may have been missed

    @property
    def job_ids(self) -> tuple[str, ...]:
        """Those that are saved and restarted, in order."""
        return tuple(dict.fromkeys(move.job_id for move in self.moves))


def free_processors(hosts: Iterable[Host], residents: Iterable[Resident]) -> dict[str, int]:
    """By node; 0 where jobs hold more than it has."""
    free = {host.name: host.processors for host in hosts}
    for resident in residents:
        for part in resident.parts:
            if part.node in free:
                free[part.node] -= part.processors
    return {name: max(0, count) for name, count in free.items()}


def cost_node_s(resident: Resident, processors: Mapping[str, int]) -> float:
    """What stands still while a movable job is moved; ``processors`` are the nodes', by name.

    A part on a node that is not known counts as a whole node.
    """
    share = sum(part.processors / processors.get(part.node, part.processors) for part in resident.parts)
    return share * (resident.move_s or 0.0)
