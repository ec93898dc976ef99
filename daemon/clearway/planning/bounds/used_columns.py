"""A program in whole numbers, over the columns that its parts use.

Model: that of ``in_doubt``.

Method: the program in parts is solved, and again without the columns of which it uses a part only. What these programs
use is a small share of all columns, and mostly holds a solution that costs little more than the best one. A program in
whole numbers decides about these columns; all others stay at nothing. The first program in parts is the bound.

Source: a price-and-branch heuristic, with a second relaxation in the place of branching. Compare E. Danna, E. Rothberg
and C. Le Pape, Exploring relaxation induced neighborhoods to improve MIP solutions, Mathematical Programming 102
(2005), which frees the columns in which a relaxation and a solution differ.

Cost: mostly two programs in parts, ``ROUNDS`` at most. The programs in whole numbers are so small that they take less.
"""

from collections.abc import Callable
from dataclasses import replace
from math import inf

import numpy as np

from clearway.planning.bounds.in_doubt import ROUNDED, Found, Program, decided, in_parts

ROUNDS = 4


def over_used(program: Program, gap: float, most_gap: float, seconds_left: Callable[[], float]) -> Found | None:
    """A solution that costs at most ``most_gap`` more, as a share, than any other; None where none was found.

    Where the first one is within ``gap``, it looks no further.
    """
    nothing, upper, used = np.zeros(len(program.upper)), program.upper, ~program.whole
    best, costs, least = None, inf, -inf
    for number in range(ROUNDS):
        parts = in_parts(replace(program, upper=upper), seconds_left())
        if parts.status:
            break
        least = least if number else parts.fun
        used |= parts.x > ROUNDED
        found = decided(program, nothing, used, gap / 2, seconds_left()).values
        if found is not None and program.cost @ found < costs:
            best, costs = found, float(program.cost @ found)
        if costs * (1 - (most_gap if number else gap)) <= least:
            break
        in_part = program.whole & (np.abs(parts.x - np.round(parts.x)) > ROUNDED)
        upper = np.where(in_part, np.floor(parts.x), upper)
    return None if best is None or costs * (1 - most_gap) > least else Found(least, best)
