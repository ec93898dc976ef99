"""Counts the nodes that are free, or still can be, while a search decides job by job.

Model: a class of nodes (see ``windows``) is free once all its jobs have left, and lost as soon as one stays.
Cost: time in the number of classes that a job belongs to for each decision, undone by the opposite call.
"""

from __future__ import annotations

from collections import defaultdict

from clearway.planning.windows import NodeClasses


class NodeCount:
    """``freed`` by the jobs that leave; ``reachable`` if all jobs left that were not told to stay."""

    def __init__(self, classes: NodeClasses) -> None:
        self.freed = 0
        self.reachable = sum(classes.values())
        self.jobs: list[int] = sorted({rank for jobs in classes for rank in jobs})
        self._nodes = list(classes.values())
        self._on = [len(jobs) for jobs in classes]
        self._staying = [0] * len(classes)
        self._classes_of: dict[int, list[int]] = defaultdict(list)
        for index, jobs in enumerate(classes):
            for rank in jobs:
                self._classes_of[rank].append(index)

    def leave(self, rank: int) -> None:
        for index in self._classes_of[rank]:
            self._on[index] -= 1
            if not self._on[index]:
                self.freed += self._nodes[index]

    def leave_not(self, rank: int) -> None:
        """Undoes ``leave``."""
        for index in self._classes_of[rank]:
            if not self._on[index]:
                self.freed -= self._nodes[index]
            self._on[index] += 1

    def frees(self, rank: int) -> bool:
        """Whether any node is free because this job, maybe among others, has left."""
        return any(not self._on[index] for index in self._classes_of[rank])

    def stay(self, rank: int) -> None:
        for index in self._classes_of[rank]:
            if not self._staying[index]:
                self.reachable -= self._nodes[index]
            self._staying[index] += 1

    def stay_not(self, rank: int) -> None:
        """Undoes ``stay``."""
        for index in self._classes_of[rank]:
            self._staying[index] -= 1
            if not self._staying[index]:
                self.reachable += self._nodes[index]
