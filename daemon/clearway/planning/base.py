"""What a planner is."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from math import inf
from operator import attrgetter
from typing import Protocol

from clearway.model.plan import Curve
from clearway.model.problem import EvictionProblem
from clearway.planning.formulation.places import over_places
from clearway.planning.formulation.shared_bandwidth import after_others, as_asked, one_after_another, with_options

_BY_DELAY = attrgetter("max_delay_s")

Seconds = Callable[[], float]  # that are left for planning; what has begun may take a little longer


def unlimited() -> float:
    return inf


class Planner(Protocol):
    """Solves the eviction problem.

    Minimises, in this order: lost work, the cost of coming back (``Option.return_node_s``), checkpoint time (whole
    steps), preemptees (see ``model.Cost``), then, on whole nodes, the list of (job_id, action) of the preemptees sorted
    by job_id, compared as text and by ``ACTION_ORDER``. The answer does not depend on the order of the candidates.
    """

    @property
    def name(self) -> str: ...

    def solve(self, problem: EvictionProblem) -> Curve:
        """One point for each deadline, from the first that is asked about to the last.

        Raises:
            ValueError: the problem contradicts itself, or is more than this planner takes.
        """
        ...

    def decide(self, problem: EvictionProblem, seconds_left: Seconds = unlimited, waiting_nodes: int = 0) -> Curve:
        """The one point that is carried out within the longest deadline, as ``model.choose`` says.

        It ends when its nodes are free. ``waiting_nodes``: those of a job that waits for them; 0: no job waits.
        """
        ...

    def soonest_s(self, problem: EvictionProblem) -> int | None:
        """The first moment, in whole steps, at which the nodes can be free; None where they cannot in time."""
        ...


class PlainPlanner(ABC):
    """A planner that need only know plain problems.

    In these nodes may lie anywhere and checkpoints are written one after another, beside no others. Every other problem
    is reduced to plain ones here (see ``formulation.places`` and ``formulation.shared_bandwidth``).
    """

    def solve(self, problem: EvictionProblem) -> Curve:
        """The curve of any problem; see ``Planner``."""
        serial = one_after_another(problem)
        if serial is problem and not problem.busy_s:
            return over_places(problem, self.solve_plain)
        # Until others have written theirs, no checkpoint is complete.
        after = after_others(serial, problem.busy_s)
        gone_s = problem.max_delay_s - after.max_delay_s
        at_once = with_options(serial, lambda option: None if option.checkpoint_s else option)
        soon = over_places(replace(at_once, busy_s=0, max_delay_s=gone_s), self.solve_plain)
        late = over_places(after, self.solve_plain)
        points = [each for each in soon.points if each.max_delay_s < gone_s]
        points += [as_asked(each, problem, gone_s) for each in late.points]
        exact = soon.exact and late.exact and serial is problem
        return replace(late, points=tuple(points), exact=exact, gap=max(soon.gap, late.gap))

    @abstractmethod
    def solve_plain(self, problem: EvictionProblem) -> Curve:
        """The curve of a plain problem."""

    def decide(
        self,
        problem: EvictionProblem,
        seconds_left: Seconds = unlimited,  # noqa: ARG002 - a rule takes little time
        waiting_nodes: int = 0,  # noqa: ARG002 - and weighs no wait
    ) -> Curve:
        """Its plan for the longest deadline."""
        return self.solve(problem.within(problem.max_delay_s))

    def soonest_s(self, problem: EvictionProblem) -> int | None:
        """By bisection: what is in time for a deadline is in time for every later one."""
        possible, impossible = problem.last_step, -1
        if not self.decide(problem).points[0].feasible:
            return None
        while possible - impossible > 1:
            step = (possible + impossible) // 2
            if self.decide(problem.within(step * problem.step_s)).points[0].feasible:
                possible = step
            else:
                impossible = step
        return possible * problem.step_s


FURTHER = 8  # deadlines of a curve beside the one that is carried out


def further_deadlines(problem: EvictionProblem) -> list[int]:
    """Those of a curve, from zero to the longest, in seconds."""
    steps = {problem.last_step * part // FURTHER for part in range(FURTHER + 1)}
    return sorted(step * problem.step_s for step in steps)


def with_point(curve: Curve, further: Curve, deadline_s: int) -> Curve:
    """The curve with the best plan of another deadline, which ``further`` has found."""
    point = replace(further.points[-1], max_delay_s=deadline_s)
    others = [each for each in curve.points if each.max_delay_s != deadline_s]
    points = tuple(sorted([*others, point] if len(others) == len(curve.points) else curve.points, key=_BY_DELAY))
    return replace(curve, points=points, exact=curve.exact and further.exact, gap=max(curve.gap, further.gap))
