"""A program in whole numbers, over the columns that its relaxation leaves in doubt.

Model: minimise cost x, so that matrix x <= most and 0 <= x <= upper; some x are whole numbers.

Method: the relaxation, in which no x need be whole (HiGHS's dual simplex), gives a bound, and by how much at least a
solution costs more in which a column differs by one from what it is there: its reduced cost. A program in whole numbers
decides about the columns where this is at most ``DOUBT`` of the bound; no other solution costs less than the bound and
that. Where too much is left open, the solution that was found says how much more may still matter; without one,
everything may. So the first solution need not be the best one.

Where a gap may be left ``over_used`` is quicker: the relaxation is solved again without the columns that it uses in
part. What these relaxations use are few columns, and mostly hold a good solution; the others stay at nothing. Compare
E. Danna, E. Rothberg and C. Le Pape, Exploring relaxation induced neighborhoods to improve MIP solutions, Mathematical
Programming 102 (2005).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from clearway.planning.base import Seconds

if TYPE_CHECKING:
    from scipy.sparse import csc_array

Numbers = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

Cell = tuple[int, float]  # column and coefficient

DOUBT = 0.01  # as a share of the bound
_ROUGH = 0.01  # likewise of the cost, what the first solution may cost too much
_LITTLE = 1e-6  # less cost than that is none
ROUNDED = 1e-6  # how far a number may be from a whole one
_BLURRED = 1e-4  # as a share of the cost: what a number that is not quite whole may hide
_ROUNDS = 4  # of relaxations, each without the columns that the one before used in part
_SHORTEST_S = 1e-3  # that HiGHS is given
_LARGEST = 1e7  # cost of a column that it is given: its tolerances are absolute
_LIMIT, _INFEASIBLE = 1, 2  # scipy's status


@dataclass(frozen=True, slots=True)
class Program:
    """See the module."""

    cost: Numbers
    matrix: csc_array
    most: Numbers
    upper: Numbers
    whole: Flags

    @property
    def unit(self) -> float:
        """What HiGHS counts costs in."""
        return max(1.0, float(self.cost.max(initial=0.0)) / _LARGEST)


class ProgramBuilder:
    """Columns, and rows: each is a sum of coefficient x column that is at most so much."""

    def __init__(self) -> None:
        self._columns: list[tuple[float, float, bool]] = []
        self._most: list[float] = []
        self._cells: list[Cell] = []
        self._starts = [0]  # of each row, and the end of the last

    def column(self, cost: float = 0.0, upper: float = 1.0, *, whole: bool = True) -> int:
        self._columns.append((cost, upper, whole))
        return len(self._columns) - 1

    def at_most(self, cells: Iterable[Cell], most: float) -> None:
        self._cells += cells
        self._starts.append(len(self._cells))
        self._most.append(most)

    def at_least(self, cells: Iterable[Cell], least: float) -> None:
        self.at_most([(column, -value) for column, value in cells], -least)

    def program(self) -> Program:
        from scipy.sparse import csr_array  # noqa: PLC0415 - most daemons never need it

        cells = np.array(self._cells, dtype=float).reshape(-1, 2)
        shape = (len(self._most), len(self._columns))
        matrix = csr_array((cells[:, 1], cells[:, 0].astype(np.int32), self._starts), shape=shape).tocsc()
        cost, upper, whole = np.array(self._columns, dtype=float).reshape(-1, 3).T
        return Program(cost, matrix, np.array(self._most), upper, whole > 0)


class Found(NamedTuple):
    """No solution costs less than ``least`` (infinite: there is none), and the best that was found."""

    least: float
    values: Numbers | None
    cut_short: bool = False  # by a limit of time


@dataclass(frozen=True, slots=True)
class Relaxed:
    """A program with its relaxation: its bound, its solution, by column the reduced cost, and by row the price."""

    program: Program
    least: float
    values: Numbers | None = None
    reduced: Numbers = field(default_factory=lambda: np.zeros(0))  # this and prices: where there is a solution
    prices: Numbers = field(default_factory=lambda: np.zeros(0))
    cut_short: bool = False

    def differing(self, cost: float) -> Flags:
        """The columns that may differ from the relaxation's, rounded, in a solution of this cost."""
        return self.reduced <= max(cost - self.least, 0.0) + _LITTLE * max(1.0, abs(cost))

    def solved(self, seconds_left: Seconds, gap: float = 0.0, few: int | None = None) -> Found:
        """The best solution, or one that costs at most this ``gap`` more, as a share, as far as there is time.

        ``few``: no more columns are in doubt at first; where time is short a smaller program finds more.
        """
        program = self.program
        if self.values is None:
            return Found(self.least, None, self.cut_short)
        values = np.where(program.whole, np.round(self.values), self.values)
        if np.abs(self.values - values).max(initial=0.0) <= ROUNDED:
            return Found(self.least, values)
        least, room = self.least, DOUBT * self.least
        if few is not None:
            room = min(room, float(np.sort(self.reduced)[:few].max()))
        room = max(room, _LITTLE)
        best, least_cost = None, inf
        cheap = np.ones(len(values), dtype=bool)
        for tolerated in chain([gap or _ROUGH], repeat(gap)):  # a good solution soon says what is in doubt
            chosen = (self.reduced <= room) & cheap
            found = within(program, values, chosen, seconds_left, tolerated)
            least = max(least, min(self.least + room, found.least))
            costs = inf if found.values is None else float(program.cost @ found.values)
            if costs <= least_cost:
                best, least_cost = found.values, costs
            proven = costs * (1 - gap) <= least < inf or (tolerated == gap and costs - self.least <= room)
            if found.cut_short or room == inf or (proven and not _blurred(program, chosen, costs)):
                break
            room = costs - self.least  # whatever adds more is in no better solution
            if costs < inf:
                cheap = program.cost <= costs  # nor is what costs more by itself
                values = np.where(cheap, values, 0.0)
        return Found(least, best, found.cut_short)


def _blurred(program: Program, chosen: Flags, costs: float) -> bool:
    """Whether a number of a dear column that is not quite whole may hide much of what a solution costs."""
    dearest = float(program.cost[chosen].max(initial=0.0))
    return dearest > costs > 0 and ROUNDED * dearest > _BLURRED * costs


def relaxed(program: Program, limit_s: float, *, presolve: bool = False) -> Relaxed:
    """HiGHS's solution of the program in which no number need be whole."""
    from scipy.optimize import linprog  # noqa: PLC0415

    if not len(program.cost):
        possible = bool(np.all(program.most >= 0))
        return Relaxed(program, 0.0 if possible else inf, np.zeros(0) if possible else None)
    unit = program.unit
    found = linprog(
        program.cost / unit,
        A_ub=program.matrix,
        b_ub=program.most,
        bounds=np.array([np.zeros(len(program.upper)), program.upper]).T,
        method="highs-ds",
        options={"presolve": presolve, "time_limit": max(_SHORTEST_S, limit_s)},
    )
    if found.status:
        return Relaxed(program, inf if found.status == _INFEASIBLE else -inf, cut_short=found.status == _LIMIT)
    # A column that need not be whole can differ by as little as one likes, and add as little.
    reduced = np.where(program.whole, np.abs(found.lower.marginals + found.upper.marginals), 0.0)
    prices = np.maximum(0.0, -found.ineqlin.marginals)
    return Relaxed(program, found.fun * unit, found.x, reduced * unit, prices * unit)


def within(program: Program, others: Numbers, chosen: Flags, seconds_left: Seconds, gap: float = 0.0) -> Found:
    """The best solution in which only the chosen columns may differ from ``others``."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415

    values = np.where(chosen, 0.0, others)
    part = program.matrix[:, np.flatnonzero(chosen)]
    rows = np.flatnonzero(np.bincount(part.indices, minlength=len(program.most)))
    for presolve in (True, False):  # HiGHS comes upon a few programs that its presolving spoils
        found = milp(
            program.cost[chosen] / program.unit,
            integrality=program.whole[chosen].astype(float),
            bounds=Bounds(0, program.upper[chosen]),
            constraints=LinearConstraint(part[rows], -np.inf, (program.most - program.matrix @ values)[rows]),
            options={"mip_rel_gap": gap, "time_limit": max(_SHORTEST_S, seconds_left()), "presolve": presolve},
        )
        if found.status in (0, _LIMIT, _INFEASIBLE):
            break
    if found.status == _INFEASIBLE:
        return Found(inf, None)
    bound = -inf if found.mip_dual_bound is None else found.mip_dual_bound
    least = float(program.cost @ values) + bound * program.unit
    if found.x is None:
        return Found(least, None, cut_short=True)
    values[chosen] = np.where(program.whole[chosen], np.round(found.x), found.x)
    return Found(least, values, found.status == _LIMIT)


def over_used(program: Program, gap: float, most_gap: float, seconds_left: Seconds) -> Found | None:
    """A solution that costs at most ``most_gap`` more, as a share, than any other; None where none was found.

    Where the first one is within ``gap``, it looks no further.
    """
    nothing, upper, used = np.zeros(len(program.upper)), program.upper, ~program.whole
    best, costs, least = None, inf, -inf
    for number in range(_ROUNDS):
        parts = relaxed(replace(program, upper=upper), seconds_left())
        if parts.values is None:
            break
        least = least if number else parts.least
        used |= parts.values > ROUNDED
        found = within(program, nothing, used, seconds_left, gap / 2).values
        if found is not None and program.cost @ found < costs:
            best, costs = found, float(program.cost @ found)
        if costs * (1 - (most_gap if number else gap)) <= least:
            break
        in_part = program.whole & (np.abs(parts.values - np.round(parts.values)) > ROUNDED)
        upper = np.where(in_part, np.floor(parts.values), upper)
    return None if best is None or costs * (1 - most_gap) > least else Found(least, best)
