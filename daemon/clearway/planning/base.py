"""What a planner is."""

from abc import ABC, abstractmethod
from typing import Protocol

from clearway.model.plan import Curve
from clearway.model.problem import EvictionProblem
from clearway.planning.formulation.places import over_places


class Planner(Protocol):
    """Solves the eviction problem for every deadline at once.

    Minimises, in this order: lost work, the cost of coming back (``Option.return_node_s``), checkpoint time (whole
    steps), preemptees (see ``model.Cost``), then the list of (job_id, action) of the preemptees sorted by job_id,
    compared as text and by ``ACTION_ORDER``. The answer does not depend on the order of the candidates.
    """

    @property
    def name(self) -> str: ...

    def solve(self, problem: EvictionProblem) -> Curve: ...


class PlainPlanner(ABC):
    """A planner that need only know plain problems.

    In these nodes may lie anywhere and checkpoints are written one after another. Every other problem is reduced to
    plain ones here (see ``formulation.places`` and ``formulation.shared_bandwidth``).
    """

    def solve(self, problem: EvictionProblem) -> Curve:
        """The curve of any problem.

        Raises:
            ValueError: the problem contradicts itself, or is more than this planner takes.
        """
        return over_places(problem, self.solve_plain)

    @abstractmethod
    def solve_plain(self, problem: EvictionProblem) -> Curve:
        """The curve of a plain problem."""
