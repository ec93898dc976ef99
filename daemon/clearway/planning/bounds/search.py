"""The search by bounds that single jobs and shared nodes have in common: one driver for two kinds of doubt.

Model: a plan whose cost is known, and a bound on every plan that holds a part (a pick of a job, or a class of nodes).
Where the bound is above the known cost, no optimal plan holds the part; the parts that are left are in doubt. Only
strictly worse parts go, so that ties are decided among all plans that are equally good. A plan for an earlier deadline
is a plan for every later one.

Method, for some deadlines in a row at once (prices differ little between them):
1. A trial over the parts that are in doubt the most gives a valid plan for each deadline.
2. The cost of these plans, or of the plan for an earlier deadline, decides which parts may be in an optimal plan.
3. While these are many more than those of the trial, the trial grows to twice its size: better plans prove more.
4. What is left is solved exactly, or as far as the limits of the doubt allow. What stays unproven has a gap to the
   bound on lost work.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from clearway.planning.bounds.relaxation import Ints
from clearway.planning.formulation.windows import Taken


class Doubt(ABC):
    """What is in doubt about some deadlines in a row; made with a plan for all of them, where one is known."""

    deadlines: Ints
    first_size: int  # of a trial, in parts

    @abstractmethod
    def trial(self, size: int) -> bool:
        """Look for plans among so many parts; whether it is worth to try twice as many."""

    @abstractmethod
    def prove(self) -> Iterator[tuple[Ints, Mapping[int, Taken], bool]]:
        """The best plans: for some deadlines each time, by deadline, and whether they are proven."""

    @abstractmethod
    def cost(self, plan: Taken) -> float:
        """All keys of a plan in one number."""

    @abstractmethod
    def least_lost(self, deadline: int) -> float:
        """No plan for this deadline loses less."""


@dataclass(slots=True)
class Solved:
    """Plans by deadline, and how far from the optimum they may be at most; 0 when they are proven."""

    answers: dict[int, Taken] = field(default_factory=dict)
    proven: bool = True
    gap: float = 0.0
    known: Taken | None = None  # the best plan so far: it serves every later deadline

    def search(self, doubt: Doubt) -> bool:
        """Adds the plans for the deadlines of a doubt; whether each of them has one."""
        size = doubt.first_size
        while doubt.trial(size):
            size *= 2
        for deadlines, plans, proven in doubt.prove():
            self.proven = self.proven and proven
            for step in deadlines.tolist():
                plan = plans.get(step)
                if plan is not None and (self.known is None or doubt.cost(plan) <= doubt.cost(self.known)):
                    self.known = plan
                if self.known is None:
                    self.gap = self.gap if proven else 1.0
                    continue
                self.answers[step] = self.known
                if not proven and self.known.lost:
                    needless = self.known.lost - max(0, doubt.least_lost(step))
                    self.gap = max(self.gap, needless / self.known.lost)
        return all(step in self.answers for step in doubt.deadlines.tolist())
