"""Counts the nodes that are free, or still can be, while a search decides job by job.

Model: a class of nodes (see ``windows``) is free once all its jobs have left, and lost as soon as one stays. Of
nodes that jobs share by parts (see ``partial_nodes``) one is free once what is missing has been given back, and
lost as soon as the jobs that were not told to stay hold less than that.

Cost: time in the number of classes that a job belongs to for each decision, undone by the opposite call.
"""

from collections import defaultdict
from collections.abc import Mapping

from clearway.planning.formulation.partial_nodes import NodeClasses, PartialNodes, Vector


class NodeCount:
    """``freed`` by the jobs that leave; ``reachable`` if all jobs left that were not told to stay."""

    def __init__(self, classes: NodeClasses, partial: PartialNodes) -> None:
        self.freed = 0
        self.reachable = sum(classes.values()) + sum(partial.values())
        held: list[Mapping[int, Vector]] = [dict.fromkeys(jobs, (1,)) for jobs in classes]
        held += [dict(node.held) for node in partial]
        self.jobs: list[int] = sorted({rank for jobs in held for rank in jobs})
        self._nodes = [*classes.values(), *partial.values()]
        self._missing = [[len(jobs)] for jobs in classes] + [list(node.missing) for node in partial]  # given back: less
        self._spare = [
            [sum(column) - short for column, short in zip(zip(*jobs.values(), strict=True), missing, strict=True)]
            for jobs, missing in zip(held, self._missing, strict=True)
        ]
        self._held_by: dict[int, list[tuple[int, tuple[int, ...]]]] = defaultdict(list)
        for index, jobs in enumerate(held):
            for rank, amounts in jobs.items():
                self._held_by[rank].append((index, amounts))

    def leave(self, rank: int) -> None:
        for index, amounts in self._held_by[rank]:
            before = max(self._missing[index]) <= 0
            self._missing[index] = [short - gave for short, gave in zip(self._missing[index], amounts, strict=True)]
            if not before and max(self._missing[index]) <= 0:
                self.freed += self._nodes[index]

    def leave_not(self, rank: int) -> None:
        """Undoes ``leave``."""
        for index, amounts in self._held_by[rank]:
            before = max(self._missing[index]) <= 0
            self._missing[index] = [short + gave for short, gave in zip(self._missing[index], amounts, strict=True)]
            if before and max(self._missing[index]) > 0:
                self.freed -= self._nodes[index]

    def frees(self, rank: int) -> bool:
        """Whether any node is free because this job, maybe among others, has left."""
        return any(max(self._missing[index]) <= 0 for index, _ in self._held_by[rank])

    def stay(self, rank: int) -> None:
        for index, amounts in self._held_by[rank]:
            before = min(self._spare[index]) >= 0
            self._spare[index] = [left - mine for left, mine in zip(self._spare[index], amounts, strict=True)]
            if before and min(self._spare[index]) < 0:
                self.reachable -= self._nodes[index]

    def stay_not(self, rank: int) -> None:
        """Undoes ``stay``."""
        for index, amounts in self._held_by[rank]:
            before = min(self._spare[index]) >= 0
            self._spare[index] = [left + mine for left, mine in zip(self._spare[index], amounts, strict=True)]
            if not before and min(self._spare[index]) >= 0:
                self.reachable += self._nodes[index]
