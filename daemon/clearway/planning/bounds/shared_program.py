"""The program of a window in which jobs share nodes, for each of its deadlines: relaxed first, then what is in doubt.

Model: x of each way of a job, y of each class of nodes. A job leaves in one way at most; the ways fit into the
deadline; where a class is used, the jobs that leave give back all that it misses of each resource:

    for each class k and resource:  y_k - sum of given_j / missing_k over the jobs that leave  <=  0
    for each class k and each job without which the others give back too little:  y_k - x_j  <=  0
    sum of nodes_k y_k  >=  missing nodes

The second kind follows from the first for whole numbers, and makes the program in parts tight: mostly it is within
0.2 % of the best plan, and a third of its solutions are whole. Lost work comes first; steps and preemptees count so
little that they decide between plans that lose the same.

Method: ``in_doubt``. A plan is taken where it is valid in whole numbers.

Cost: 0.02 s for the program in parts of 300 nodes and 600 jobs, and as much again where it is not whole at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from clearway.planning.bounds.in_doubt import Program, solved
from clearway.planning.formulation.group_sweep import Threshold, thresholds
from clearway.planning.formulation.windows import Taken, Way, Window

if TYPE_CHECKING:
    import numpy.typing as npt
    from scipy.sparse import csc_array

    _Numbers = npt.NDArray[np.float64]

LITTLE = 1e-6  # of the lost work: what all other keys together count as
_GAP = 0.001  # with so little left it looks no further


class SharedProgram:
    """The rows of one window; only the deadline changes from one solution to the next."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._ways = [way for rank in sorted(window.ways) for way in window.ways[rank]]
        self._steps: _Numbers = np.array([way.steps for way in self._ways], dtype=float)
        self._lost: _Numbers = np.array([way.lost for way in self._ways], dtype=float)
        self._classes = thresholds(window)
        self._matrix, self._most = _rows(window, self._classes, self._ways)

    def solve(self, step: int) -> tuple[float | None, Taken | None]:
        """No plan loses less than this (None: not known, infinite: there is none), and the plan that was found."""
        in_time = np.flatnonzero(self._steps <= step)
        if not len(in_time) or self._window.missing > sum(each.nodes for each in self._classes):
            return inf, None
        matrix = self._matrix[:, np.append(in_time, np.arange(len(self._ways), self._matrix.shape[1]))]
        self._most[-1] = step
        unit = max(1.0, float(self._lost[in_time].mean()))
        little = LITTLE / (step + len(self._window.ways) + 1)
        cost = np.zeros(matrix.shape[1])
        cost[: len(in_time)] = self._lost[in_time] / unit + little * (self._steps[in_time] + 1)
        ones = np.ones(len(cost))
        found = solved(Program(cost, matrix, self._most, ones, ones.astype(bool)), _GAP)
        plan = None if found.values is None else self._plan(found.values, in_time, step)
        return (None if found.least == -inf else max(0.0, (found.least - 2 * LITTLE) * unit)), plan

    def _plan(self, solution: _Numbers, in_time: npt.NDArray[np.intp], step: int) -> Taken | None:
        """The plan of a solution; None where a rounding of HiGHS has spoilt it."""
        chosen = np.flatnonzero(solution[: len(in_time)])
        taken = [self._ways[way] for way in in_time[chosen].tolist()]
        plan = Taken.of(taken, self._window.freed_by(taken))
        once = len({way.rank for way in taken}) == len(taken)
        return plan if once and plan.steps <= step and plan.nodes >= self._window.missing else None


def _rows(window: Window, classes: Sequence[Threshold], ways: Sequence[Way]) -> tuple[csc_array, _Numbers]:
    """The matrix, and what each of its rows may be at most; the last row is that of the steps."""
    from scipy.sparse import csc_array, hstack, vstack  # noqa: PLC0415

    ranks = sorted(window.ways)
    job_of = {rank: job for job, rank in enumerate(ranks)}
    most = [1.0] * len(ranks)
    of_jobs = [(job, job, 1.0) for job in range(len(ranks))]  # row, job, value
    of_classes: list[tuple[int, int, float]] = []  # row, class, value
    for number, each in enumerate(classes):
        given = [sum(amounts) for amounts in zip(*each.held.values(), strict=True)]
        for resource, short in enumerate(each.missing):
            of_jobs += [(len(most), job_of[rank], -held[resource] / short) for rank, held in each.held.items()]
            of_classes.append((len(most), number, 1.0))
            most.append(0.0)
        for rank, held in each.held.items():
            if any(all_ - own < short for all_, own, short in zip(given, held, each.missing, strict=True)):
                of_jobs.append((len(most), job_of[rank], -1.0))
                of_classes.append((len(most), number, 1.0))
                most.append(0.0)
    of_classes += [(len(most), number, -float(min(each.nodes, window.missing))) for number, each in enumerate(classes)]
    most.append(-float(window.missing))

    def sparse(cells: Sequence[tuple[int, int, float]], shape: tuple[int, int]) -> csc_array:
        rows, columns, values = zip(*cells, strict=True) if cells else ((), (), ())
        return csc_array((values, (rows, columns)), shape=shape)

    ways_of = sparse([(job_of[way.rank], column, 1.0) for column, way in enumerate(ways)], (len(ranks), len(ways)))
    left = sparse(of_jobs, (len(most), len(ranks))) @ ways_of
    right = sparse(of_classes, (len(most), len(classes)))
    steps = np.append([way.steps for way in ways], np.zeros(len(classes)))
    return vstack([hstack([left, right]), csc_array(steps[np.newaxis])], format="csc"), np.append(most, 0.0)
