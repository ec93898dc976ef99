"""Several urgent jobs that are planned together: what each needs, and what each is given."""

from __future__ import annotations

from dataclasses import dataclass

from clearway.model.plan import Cost
from clearway.model.problem import EvictionProblem, Option


@dataclass(frozen=True, slots=True)
class Party:
    """One urgent job: its own problem, every candidate's nodes by name, and the nodes that are free for it already."""

    job_id: str
    nodes: int  # that it asks for, the free ones included
    problem: EvictionProblem
    free_nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Share:
    """What a party is given: the jobs that leave for it, those that end by themselves, and its nodes."""

    job_id: str
    leaving: tuple[tuple[str, Option], ...]  # by job_id
    ending: tuple[tuple[str, Option], ...]
    nodes: tuple[str, ...]
    done_s: int  # by when its checkpoints, and those before them, are written
    counts_on: tuple[str, ...] = ()  # jobs that leave for parties before it and have to be gone for it as well


@dataclass(frozen=True, slots=True)
class Together:
    """The shares of the parties that can be served, the most pressing first.

    ``gap``: the share of the lost work that may be lost needlessly, 0.0 when it is proven to be the least.
    """

    shares: tuple[Share, ...]
    gap: float

    @property
    def served(self) -> frozenset[str]:
        return frozenset(share.job_id for share in self.shares)

    @property
    def cost(self) -> Cost:
        """Of all parties."""
        return Cost.of(option for share in self.shares for _, option in share.leaving)
