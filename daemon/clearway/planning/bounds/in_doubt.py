"""A program in whole numbers, over the columns that its parts leave in doubt.

Model: minimise cost x, so that matrix x <= most and 0 <= x <= upper; some x are whole numbers.

Method: the program in parts (HiGHS's dual simplex) gives a bound, and by how much at least a solution costs more in
which a column differs by one from what it is there: its reduced cost. Whole numbers where this is more than ``DOUBT``
of the bound stay as they are; a program in whole numbers decides about all other columns. No other solution costs less
than the bound and ``DOUBT``. Where that leaves too much open, the solution that was found says how much more may still
matter. Where there is none, everything may.

Cost: that of the program in parts, which has no search, and of a program of the columns in doubt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt
    from scipy.optimize import OptimizeResult
    from scipy.sparse import csc_array

    Numbers = npt.NDArray[np.float64]
    Flags = npt.NDArray[np.bool_]

DOUBT = 0.01  # as a share of the bound
MOST_NODES = 50  # of HiGHS's search
_LITTLE = 1e-6  # less cost than that is none
ROUNDED = 1e-6  # how far a number may be from a whole one
_SHORTEST_S = 1e-3  # that HiGHS is given
_LIMIT, _INFEASIBLE = 1, 2  # scipy's status


@dataclass(frozen=True, slots=True)
class Program:
    """See the module."""

    cost: Numbers
    matrix: csc_array
    most: Numbers
    upper: Numbers
    whole: Flags


class Found(NamedTuple):
    """No solution costs less than ``least`` (infinite: there is none), and the best that was found."""

    least: float
    values: Numbers | None
    cut_short: bool = False  # by a limit of time or of the search


def solved(program: Program, gap: float, seconds_left: Callable[[], float] = lambda: inf) -> Found:
    """A solution that costs at most this ``gap`` more, as a share, than any other, as far as the limits allow."""
    parts = in_parts(program, seconds_left())
    if parts.status:
        return Found(inf if parts.status == _INFEASIBLE else -inf, None, parts.status == _LIMIT)
    values = np.where(program.whole, np.round(parts.x), parts.x)
    if np.abs(parts.x - values).max() <= ROUNDED:
        return Found(parts.fun, values)
    # A column that may be in parts can differ by as little as one likes, and add as little.
    adds = np.where(program.whole, np.abs(parts.lower.marginals + parts.upper.marginals), 0.0)
    least, room = parts.fun, max(DOUBT * parts.fun, _LITTLE)
    while True:
        found = decided(program, values, adds <= room, gap, seconds_left())
        least = max(least, min(parts.fun + room, found.least))
        costs = inf if found.values is None else float(program.cost @ found.values)
        if costs * (1 - gap) <= least < inf or costs - parts.fun <= room or found.cut_short:
            return found._replace(least=least)
        room = costs - parts.fun  # whatever adds more is in no better solution


def in_parts(program: Program, limit_s: float) -> OptimizeResult:
    """HiGHS's solution of the program in parts."""
    from scipy.optimize import linprog  # noqa: PLC0415 - most daemons never need it

    return linprog(
        program.cost,
        A_ub=program.matrix,
        b_ub=program.most,
        bounds=np.array([np.zeros(len(program.upper)), program.upper]).T,
        method="highs-ds",
        options={"presolve": False, "time_limit": max(_SHORTEST_S, limit_s)},
    )


def decided(program: Program, others: Numbers, chosen: Flags, gap: float, limit_s: float) -> Found:
    """The best solution in which only the chosen columns may differ from ``others``."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415

    values = np.where(chosen, 0.0, others)
    part = program.matrix[:, np.flatnonzero(chosen)]
    rows = np.flatnonzero(np.bincount(part.indices, minlength=len(program.most)))
    found = milp(
        program.cost[chosen],
        integrality=program.whole[chosen].astype(float),
        bounds=Bounds(0, program.upper[chosen]),
        constraints=LinearConstraint(part[rows], -np.inf, (program.most - program.matrix @ values)[rows]),
        options={"mip_rel_gap": gap, "node_limit": MOST_NODES, "time_limit": max(_SHORTEST_S, limit_s)},
    )
    if found.status == _INFEASIBLE:
        return Found(inf, None)
    least = -inf if found.mip_dual_bound is None else float(program.cost @ values) + found.mip_dual_bound
    if found.x is None:
        return Found(least, None, found.status == _LIMIT)
    values[chosen] = np.where(program.whole[chosen], np.round(found.x), found.x)
    return Found(least, values, found.status == _LIMIT)
