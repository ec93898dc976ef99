"""Shared nodes where bounds and sweeps leave a gap: a program (``shared_program``) for some of the deadlines.

Deadlines: the last one first, then the first, then those in the middle of what is left. A plan for an earlier deadline,
less the jobs that have ended since, is one for a later deadline; no plan for an earlier deadline loses less than the
bound of a later one. Where these two are near enough, a deadline needs no program.

Cost: that of ``shared_program`` for each deadline. What counts are the cells of all programs and the nodes of their
search, never seconds: the same problem has the same answer on every machine. Deadlines that see the same jobs and nodes
share the rows of one program.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from clearway.planning.bounds.search import Solved
from clearway.planning.bounds.shared_program import LITTLE, SharedProgram
from clearway.planning.formulation.group_sweep import thresholds
from clearway.planning.formulation.windows import Taken, Window

MOST_CELLS = 300_000  # of the matrices of all programs of a problem; some five seconds of work
SETTLED = 0.01  # a gap that is not worth a program
_MOST_CELLS_EACH = 100_000


def programs_fit(windows: Sequence[Window]) -> bool:
    """Whether a program of the largest of these windows is small enough."""
    return max(map(_cells, windows), default=0) <= _MOST_CELLS_EACH


def with_programs(windows: Sequence[Window], solved: Solved) -> Solved:
    """What was found, made better for deadlines of these windows that miss nodes; with the gap that is left."""
    programs: dict[int, SharedProgram] = {}  # by the first step of the window
    course = _Course([(step, window) for window in windows if window.missing for step in window.deadlines], solved)
    cells = 0
    for place in _halves(len(course.steps)):
        step, window = course.steps[place]
        if course.gap(place) <= SETTLED:
            continue
        cells += _cells(window)
        if cells > MOST_CELLS:
            break
        if window.first_step not in programs:
            programs[window.first_step] = SharedProgram(window)
        course.solved(place, *programs[window.first_step].solve(step))
    return course.result(solved)


class _Course:
    """What is known of each deadline, by its place in their order."""

    def __init__(self, steps: Sequence[tuple[int, Window]], solved: Solved) -> None:
        self.steps = steps
        self._plans = {place: plan for place, (step, _) in enumerate(steps) if (plan := solved.answers.get(step))}
        self._least: dict[int, float] = {}  # no plan for the deadline loses less; infinite: it has none

    def solved(self, place: int, least: float | None, plan: Taken | None) -> None:
        if least is not None:
            self._least[place] = least
        known = self._plans.get(place)
        if plan is not None and (known is None or _key(plan) < _key(known)):
            self._plans[place] = plan

    def gap(self, place: int) -> float:
        """How much of what its plan loses may be needless, as a share; 1 where nothing is known."""
        least = max((bound for at, bound in self._least.items() if at >= place), default=None)
        if least == inf:
            return 0.0
        if least is None or (plan := self._best(place)) is None:
            return 1.0
        return (plan.lost - min(least, plan.lost)) / plan.lost if plan.lost else 0.0

    def _best(self, place: int) -> Taken | None:
        """Its own plan, or that of the deadline before it that has one; it is kept."""
        before = max((at for at in self._plans if at < place), default=None)
        later = None if before is None else _later(self._plans[before], self.steps[place][1])
        found = min((plan for plan in (self._plans.get(place), later) if plan is not None), key=_key, default=None)
        if found is not None:
            self._plans[place] = found
        return found

    def result(self, solved: Solved) -> Solved:
        found = Solved(dict(solved.answers), proven=False)
        for place, (step, _) in enumerate(self.steps):
            plan = self._best(place)
            if plan is not None:
                found.answers[step] = plan
            found.gap = max(found.gap, self.gap(place))
        if found.answers.keys() == solved.answers.keys():
            found.gap = min(found.gap, solved.gap)
        found.gap = max(found.gap, LITTLE)  # nothing says that it comes first among equally good plans
        return found


def _halves(count: int) -> list[int]:
    """All places: the last, the first, and then those in the middle of what is left, level by level."""
    order = list(dict.fromkeys([count - 1, 0])) if count else []
    gaps = [(0, count - 1)]
    while gaps:
        first, last = gaps.pop(0)
        if last - first > 1:
            middle = (first + last) // 2
            order.append(middle)
            gaps += [(first, middle), (middle, last)]
    return order


def _key(plan: Taken) -> tuple[int, int, int]:
    return (plan.lost, plan.steps, len(plan.ways))


def _later(plan: Taken, window: Window) -> Taken | None:
    """The plan without jobs that have ended by this window."""
    ended = window.ended_ranks
    left = [way for way in plan.ways if way.rank not in ended]
    freed = window.freed_by(left)
    return Taken.of(left, freed) if freed >= window.missing else None


def _cells(window: Window) -> int:
    """The size of its program, about: what jobs give back, and rows of jobs without which a node is not free."""
    ways = {rank: len(each) for rank, each in window.ways.items()}
    parts = sum(ways.get(rank, 0) for each in thresholds(window) for rank in each.held)
    return sum(ways.values()) + 2 * parts
