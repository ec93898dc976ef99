"""The eviction problem as a mixed-integer program, solved by HiGHS for each deadline: exact, and slow.

Model: a binary variable for each way of each job, at most one way a job; a variable for each class of nodes that
jobs share, at most 1 and at most what each of its jobs leaves, or of each resource at most the share of what is
missing that the jobs that leave give back; enough nodes; checkpoints within the deadline.
The keys are minimised one after another, each held while the next is: lost work, what coming back costs, checkpoint
time, preemptees.
Of plans equal in all of them HiGHS may return any, so the last key of ``planning.base``, the list of jobs, is not
kept to. It needs no dynamic program, which makes it an independent answer to compare with.

Proof: HiGHS computes with tolerances. The rounded answer is therefore checked in whole numbers; where it breaks a
constraint or misses the minimum that HiGHS named, or the numbers are too large for the check, the curve says that
it is not exact.

Cost: up to four programs a deadline with N ways and C classes; exponential at worst.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from clearway.model.plan import Curve
from clearway.model.problem import EvictionProblem
from clearway.planning.formulation.places import over_places
from clearway.planning.formulation.windows import Contest, Way, Window

_Row = npt.NDArray[np.float64]
_SURE_UNITS = 10**12  # sums up to here are told apart by HiGHS's double arithmetic


class Milp:
    """HiGHS, one key after another, for each deadline anew."""

    name = "milp"

    def solve(self, problem: EvictionProblem) -> Curve:
        return over_places(problem, self._solve)

    def _solve(self, problem: EvictionProblem) -> Curve:
        contest = Contest(problem)
        points, exact = [], True
        for window in contest.windows():
            program = _Program(window, contest.losses.base) if window.missing else None
            for step in window.deadlines:
                taken = program.best(step) if program else []
                if taken is None:
                    points.append(contest.infeasible(step))
                    continue
                nodes = program.nodes(taken) if program else 0
                points.append(contest.point(window, step, _lost(taken), _steps(taken), nodes, taken))
            exact = exact and (program is None or program.proven)
        return Curve(planner=self.name, points=tuple(points), exact=exact)


def _lost(taken: Sequence[Way]) -> int:
    return sum(way.lost for way in taken)


def _steps(taken: Sequence[Way]) -> int:
    return sum(way.steps for way in taken)


class _Program:
    """The program of one window; only the deadline changes from one solution to the next."""

    def __init__(self, window: Window, base: int) -> None:
        self.proven = True
        self._window, self._base = window, base
        self._ways: list[Way] = [way for rank in sorted(window.ways) for way in window.ways[rank]]
        # In an order of their own: which of equally good plans HiGHS finds hangs on that of its rows and columns.
        self._classes = sorted(window.classes.items(), key=lambda each: sorted(each[0]))
        self._partial = sorted(window.partial.items())
        counts = [nodes for _, nodes in [*self._classes, *self._partial]]
        columns = len(self._ways) + len(counts)
        self._lost, self._return, self._steps, self._jobs, self._nodes = (np.zeros(columns) for _ in range(5))
        self._lost[: len(self._ways)] = [way.lost // base for way in self._ways]
        self._return[: len(self._ways)] = [way.lost % base for way in self._ways]
        self._steps[: len(self._ways)] = [way.steps for way in self._ways]
        self._jobs[: len(self._ways)] = 1
        self._nodes[len(self._ways) :] = counts
        self._links = self._leaving_links(columns)

    def best(self, deadline: int) -> list[Way] | None:
        """The plan for one deadline in steps; None when there is none."""
        if not self._ways or self._nodes.sum() < self._window.missing:
            return None
        held = [
            *self._links,
            LinearConstraint(self._nodes[np.newaxis], lb=self._window.missing),
            LinearConstraint(self._steps[np.newaxis], ub=deadline),
        ]
        taken: list[Way] = []
        keys: list[tuple[_Row, Callable[[Sequence[Way]], int]]] = [
            (self._lost, lambda ways: _lost(ways) // self._base),
            (self._return, lambda ways: _lost(ways) % self._base),
            (self._steps, _steps),
            (self._jobs, len),
        ]
        for key, total in keys:
            if not key.any():
                continue
            found = self._minimum(key, held)
            if found is None:
                self.proven = self.proven and not taken  # a plan was there a moment ago
                return taken or None
            taken, least = found
            self.proven = self.proven and self._keeps_to(taken, deadline) and total(taken) == least < _SURE_UNITS
            # Keys are whole: half a unit more lets no other plan in.
            held.append(LinearConstraint(key[np.newaxis], ub=least + 0.5))
        return taken

    def nodes(self, taken: Sequence[Way]) -> int:
        gone = {way.rank for way in taken}
        return sum(nodes for jobs, nodes in self._classes if jobs <= gone) + sum(
            nodes for node, nodes in self._partial if not any(node.without(gone).missing)
        )

    def _minimum(self, key: _Row, held: Sequence[LinearConstraint]) -> tuple[list[Way], int] | None:
        result = milp(
            key,
            integrality=np.ones(len(key)),
            bounds=Bounds(0, 1),
            constraints=held,
            options={"mip_rel_gap": 0},
        )
        if result.x is None:
            return None
        chosen = result.x[: len(self._ways)] > 0.5
        return [way for way, taken in zip(self._ways, chosen, strict=True) if taken], round(result.fun)

    def _keeps_to(self, taken: Sequence[Way], deadline: int) -> bool:
        """Whether a rounded answer satisfies the constraints in whole numbers."""
        return (
            self.nodes(taken) >= self._window.missing
            and _steps(taken) <= deadline
            and len({way.rank for way in taken}) == len(taken)
        )

    def _leaving_links(self, columns: int) -> list[LinearConstraint]:
        """At most one way a job, and no class of nodes is free before each of its jobs has left."""
        ways_of: dict[int, list[int]] = {}
        for column, way in enumerate(self._ways):
            ways_of.setdefault(way.rank, []).append(column)
        rows, ups = [], []
        for mine in ways_of.values():
            rows.append(dict.fromkeys(mine, 1.0))
            ups.append(1.0)
        for number, (jobs, _) in enumerate(self._classes):
            for rank in sorted(jobs):
                rows.append({len(self._ways) + number: 1.0} | dict.fromkeys(ways_of[rank], -1.0))
                ups.append(0.0)
        for number, (node, _) in enumerate(self._partial, len(self._ways) + len(self._classes)):
            for resource, missing in enumerate(node.missing):
                row = {number: 1.0}
                for rank, amounts in node.held:
                    row |= dict.fromkeys(ways_of[rank], -amounts[resource] / missing)
                rows.append(row)
                ups.append(0.0)
        entries = [(row, column, value) for row, cells in enumerate(rows) for column, value in cells.items()]
        if not entries:
            return []
        at_rows, at_columns, values = zip(*entries, strict=True)
        matrix = csr_array((values, (at_rows, at_columns)), shape=(len(rows), columns))
        return [LinearConstraint(matrix, ub=np.array(ups))]
