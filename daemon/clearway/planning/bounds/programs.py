"""Shared nodes where bounds and sweeps leave a gap: a mixed-integer program for some of the deadlines.

Model: x of each way of a job, y of each class of nodes. A job leaves in one way at most; the ways fit into the
deadline; where a class is used, the jobs that leave give back all that it misses of each resource:

    for each class k and resource:  sum of given_j / missing_k over the jobs that leave  >=  y_k
    for each class k and each job without which the others give back too little:  x_j  >=  y_k
    sum of nodes_k y_k  >=  missing nodes

The second kind follows from the first for whole numbers, and is what makes the program in parts tight: HiGHS mostly
needs no search. Lost work comes first; steps and preemptees count so little that they decide between plans that lose
the same. A plan is taken where it is valid in whole numbers, and costs less than the one that is known.

Deadlines: the last one first, then the first, then those in the middle of what is left. A plan for an earlier deadline,
less the jobs that have ended since, is one for a later deadline; no plan for an earlier deadline loses less than the
bound of a later one. Where these two are near enough, a deadline needs no program.

Cost: some 0.05 s for each program of 300 nodes and 1,000 jobs. What counts are the cells of all programs and the nodes
of their search, never seconds: the same problem has the same answer on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from clearway.planning.bounds.search import Solved
from clearway.planning.formulation.group_sweep import thresholds
from clearway.planning.formulation.windows import Taken, Way, Window

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_CELLS = 300_000  # of the matrices of all programs of a problem; some five seconds of work
MOST_NODES = 50  # of HiGHS's search, for each program
SETTLED = 0.01  # a gap that is not worth a program
_LITTLE = 1e-6  # of the lost work: what all other keys together count as
_MOST_CELLS_EACH = 100_000
_INFEASIBLE = 2  # scipy's number for it


def programs_fit(windows: Sequence[Window]) -> bool:
    """Whether a program of the largest of these windows is small enough."""
    return max(map(_cells, windows), default=0) <= _MOST_CELLS_EACH


def with_programs(windows: Sequence[Window], solved: Solved) -> Solved:
    """What was found, made better for deadlines of these windows that miss nodes; with the gap that is left."""
    course = _Course([(step, window) for window in windows if window.missing for step in window.deadlines], solved)
    cells = 0
    for place in _halves(len(course.steps)):
        step, window = course.steps[place]
        if course.gap(place) <= SETTLED:
            continue
        cells += _cells(window)
        if cells > MOST_CELLS:
            break
        course.solved(place, *_solve(window, step))
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
        found.gap = max(found.gap, _LITTLE)  # nothing says that it comes first among equally good plans
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


def _solve(window: Window, step: int) -> tuple[float | None, Taken | None]:
    """No plan loses less than this (None: not known, infinite: there is none), and the plan that was found."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - most daemons never need it
    from scipy.sparse import csr_array  # noqa: PLC0415

    classes = thresholds(window)
    ways = [way for rank in sorted(window.ways) for way in window.ways[rank] if way.steps <= step]
    of_job: dict[int, list[int]] = {}
    for column, way in enumerate(ways):
        of_job.setdefault(way.rank, []).append(column)
    rows: list[tuple[Mapping[int, float], float, float]] = [
        (dict.fromkeys(columns, 1.0), -np.inf, 1.0) for columns in of_job.values()
    ]
    for column, each in enumerate(classes, len(ways)):
        given = [sum(amounts) for amounts in zip(*each.held.values(), strict=True)]
        for place, short in enumerate(each.missing):
            row = {way: held[place] / short for rank, held in each.held.items() for way in of_job.get(rank, ())}
            rows.append(({**row, column: -1.0}, 0.0, np.inf))
        for rank, held in each.held.items():
            if any(all_ - own < short for all_, own, short in zip(given, held, each.missing, strict=True)):
                rows.append(({**dict.fromkeys(of_job.get(rank, ()), 1.0), column: -1.0}, 0.0, np.inf))
    nodes = {len(ways) + place: float(min(each.nodes, window.missing)) for place, each in enumerate(classes)}
    rows += [(nodes, float(window.missing), np.inf)]
    rows += [({column: float(way.steps) for column, way in enumerate(ways) if way.steps}, -np.inf, float(step))]
    cells = [(at, column, value) for at, (row, _, _) in enumerate(rows) for column, value in row.items()]
    if not ways:
        return inf, None
    unit = max(1.0, float(sum(way.lost for way in ways)) / len(ways))
    width = len(ways) + len(classes)
    little = _LITTLE / (step + len(of_job) + 1)
    cost = np.zeros(width)
    cost[: len(ways)] = [way.lost / unit + little * (way.steps + 1) for way in ways]
    at_rows, at_columns, values = zip(*cells, strict=True)
    matrix = csr_array((values, (at_rows, at_columns)), shape=(len(rows), width))
    lower, upper = (np.array([row[side] for row in rows]) for side in (1, 2))
    result = milp(
        cost,
        integrality=np.ones(width),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix, lower, upper),
        options={
            "mip_rel_gap": SETTLED / 2,
            "node_limit": MOST_NODES,
            "presolve": False,
        },  # which takes longer than it saves
    )
    if result.status == _INFEASIBLE:
        return inf, None
    bound = result.mip_dual_bound
    least = None if bound is None or not np.isfinite(bound) else max(0.0, (bound - 2 * _LITTLE) * unit)
    if result.x is None:
        return least, None
    taken = [ways[column] for column in np.flatnonzero(np.round(result.x[: len(ways)])).tolist()]
    return least, _valid(taken, window, step)


def _cells(window: Window) -> int:
    """The size of its program, about: what jobs give back, and rows of jobs without which a node is not free."""
    ways = {rank: len(each) for rank, each in window.ways.items()}
    parts = sum(ways.get(rank, 0) for each in thresholds(window) for rank in each.held)
    return sum(ways.values()) + 2 * parts


def _valid(taken: Sequence[Way], window: Window, step: int) -> Taken | None:
    """The plan in whole numbers; None where a rounding of HiGHS has spoilt it."""
    plan = Taken.of(taken, window.freed_by(taken))
    once = len({way.rank for way in taken}) == len(taken)
    return plan if once and plan.steps <= step and plan.nodes >= window.missing else None
