"""Counts the nodes that are free, or still can be, while a search decides job by job.

Model: a class of nodes (``Threshold``) is free once its jobs that left have given back what is missing, and
lost as soon as the jobs that were not told to stay hold less than that.

Cost: time in the number of classes that a job belongs to for each decision, undone by the opposite call.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from operator import add, sub
from typing import NamedTuple

from clearway.planning.formulation.partial_nodes import Vector
from clearway.planning.formulation.windows import Window


class Threshold(NamedTuple):
    """So many nodes are free once the jobs on them gave back what is missing."""

    number: int  # of the class in its window
    nodes: int
    missing: Vector
    held: Mapping[int, Vector]


class NodeCount:
    """``freed`` by the jobs that leave; ``reachable`` if all jobs left that were not told to stay."""

    def __init__(self, window: Window) -> None:
        classes = thresholds(window)
        self._nodes = [each.nodes for each in classes]
        self._all_missing: list[Sequence[int]] = [each.missing for each in classes]
        self._all_lacking: list[Sequence[int]] = [
            [short - sum(held) for short, held in zip(each.missing, zip(*each.held.values(), strict=True), strict=True)]
            for each in classes
        ]
        self._held_by: dict[int, list[tuple[int, Vector]]] = defaultdict(list)
        for each in classes:
            for rank, amounts in each.held.items():
                self._held_by[rank].append((each.number, amounts))
        self.jobs = sorted(self._held_by)
        self.begin()

    def begin(self) -> None:
        """No job has left, and none was told to stay."""
        self.freed, self.reachable = 0, sum(self._nodes)
        self._missing = self._all_missing.copy()  # what was given back is taken off: 0 or less where nodes are free
        self._lacking = self._all_lacking.copy()  # likewise, if all jobs leave that were not told to stay

    def leave(self, rank: int) -> None:
        self.freed += self._moved(self._missing, rank, sub)

    def leave_not(self, rank: int) -> None:
        """Undoes ``leave``."""
        self.freed += self._moved(self._missing, rank, add)

    def frees(self, rank: int) -> bool:
        """Whether any node is free because this job, maybe among others, has left."""
        return any(max(self._missing[index]) <= 0 for index, _ in self._held_by[rank])

    def stay(self, rank: int) -> None:
        self.reachable += self._moved(self._lacking, rank, add)

    def stay_not(self, rank: int) -> None:
        """Undoes ``stay``."""
        self.reachable += self._moved(self._lacking, rank, sub)

    def _moved(self, short: list[Sequence[int]], rank: int, change: Callable[[int, int], int]) -> int:
        """What the job holds changes what its classes are short of; how many nodes more are short of nothing then."""
        more = 0
        for index, amounts in self._held_by[rank]:
            before = short[index]
            short[index] = after = tuple(map(change, before, amounts))
            free = max(after) <= 0
            if free is not (max(before) <= 0):
                more += self._nodes[index] if free else -self._nodes[index]
        return more


def thresholds(window: Window) -> list[Threshold]:
    """The classes of a window in one form."""
    whole = [
        Threshold(number, nodes, (len(jobs),), dict.fromkeys(jobs, (1,)))
        for number, (jobs, nodes) in enumerate(window.classes.items())
    ]
    return whole + [
        Threshold(number, nodes, node.missing, dict(node.held))
        for number, (node, nodes) in enumerate(window.partial.items(), len(whole))
    ]
