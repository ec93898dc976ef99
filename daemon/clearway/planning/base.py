"""What a planner is."""

from __future__ import annotations

from typing import Protocol

from clearway.model.plan import Curve
from clearway.model.problem import EvictionProblem


class Planner(Protocol):
    """Solves the eviction problem for every deadline at once.

    Minimises, in this order: lost work, the cost of coming back (``Option.return_node_s``), checkpoint time (whole
    steps), preemptees, then the list of (job_id, action) of the preemptees sorted by job_id, compared as text and by
    ``ACTION_ORDER``.
    Pure: the answer depends on the problem alone, never on the order of its candidates.
    """

    @property
    def name(self) -> str: ...

    def solve(self, problem: EvictionProblem) -> Curve: ...
