"""Curves of problems that differ in the number of nodes and in the longest delay alone, from tables that they share.

Model: the tables of ``suffix_tables`` hold the least value of every number of nodes up to the one that they were made
for, and of every number of steps. So one pass over the jobs answers every urgent job that can use the same nodes and
jobs, however many nodes it asks for: the walk from the tables back to its plan is all that each of them costs. Jobs
that no plan for the most nodes needs are in no plan for fewer (``superfluous``). Where jobs end by themselves, each set
of those that have ended has tables of its own.

Delays are of a few kinds, each twice as long as the one before, and problems of one kind have the kind's steps: at most
twice as long as their own. Such a curve is exact for these. Where it has no plan the problem is solved with its own.

Only where the tables stay in memory as a whole, nodes are not shared and checkpoints are written one after another;
every other problem is the planner's own, and so is every planner but the exact one. Of problems with needs those that
are equal are solved once.

Cost: one pass for each set of ended jobs, then O(N) look-ups for each distinct plan. Memory: the tables, at most
``suffix_tables.KEEP_BYTES`` for each set.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from clearway.model.plan import Curve, CurvePoint
from clearway.model.problem import Candidate, EvictionProblem
from clearway.planning.base import Planner
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.planning.dp.node_time_tables import NodeTimeTables
from clearway.planning.formulation.node_groups import items_of, shares_nodes
from clearway.planning.formulation.shared_bandwidth import overlaps
from clearway.planning.formulation.superfluous import without_superfluous
from clearway.planning.formulation.windows import Contest, Taken, Window

_SHORTEST_S = 60  # delays up to this are of one kind
MOST_CELLS = 4_000_000  # of all tables of a kind of problems: with more bounds are quicker


def curves_for_many(planner: Planner, most_nodes: int, steps: int) -> Planner:
    """The planner for problems of up to so many nodes and about so many steps; shares what they have in common."""
    return _Sharing(planner, most_nodes, steps) if isinstance(planner, EvictionDP) else planner


class _Sharing:
    """The exact planner, with the tables of problems that have the same candidates and steps."""

    def __init__(self, planner: EvictionDP, most_nodes: int, steps: int) -> None:
        self.name = planner.name
        self._planner, self._most_nodes, self._steps = planner, most_nodes, steps
        self._same: dict[object, tuple[EvictionProblem, Curve]] = {}  # and what its name points to stays alive
        self._by_kind: dict[tuple[int, int], tuple[tuple[Candidate, ...], _Kind | None]] = {}

    def solve(self, problem: EvictionProblem) -> Curve:
        if problem.needs is not None:
            return self._once(problem)
        if not 0 < problem.nodes_needed <= self._most_nodes or problem.busy_s:
            return self._planner.solve(problem)
        longest_s = _SHORTEST_S
        while longest_s < problem.max_delay_s:
            longest_s *= 2
        name = (id(problem.candidates), longest_s)
        if name not in self._by_kind:
            step_s = ceil(longest_s / self._steps)
            delay_s = longest_s // step_s * step_s
            most = replace(problem, nodes_needed=self._most_nodes, max_delay_s=delay_s, step_s=step_s)
            self._by_kind[name] = (problem.candidates, None if overlaps(most) else _Kind.of(Contest(most)))
        kind = self._by_kind[name][1]
        curve = None if kind is None else kind.curve(problem)
        return self._planner.solve(problem) if curve is None or curve.choose() is None else curve

    def _once(self, problem: EvictionProblem) -> Curve:
        """The planner's own curve; urgent jobs that ask for the same of the same nodes have one."""
        found_on = (id(problem.candidates), id(problem.nodes))
        name = (found_on, replace(problem, candidates=(), nodes=()))
        if name not in self._same:
            self._same[name] = problem, self._planner.solve(problem)
        return self._same[name][1]


@dataclass(frozen=True, slots=True)
class _Kind:
    """The windows with the tables of each; None: no job can leave there."""

    contest: Contest
    windows: Sequence[tuple[Window, int, NodeTimeTables | None]]  # and the most nodes that can be freed
    curves: dict[int, tuple[CurvePoint, ...]]  # by the number of nodes

    @classmethod
    def of(cls, contest: Contest) -> "_Kind | None":
        windows = list(contest.windows())
        if any(shares_nodes(window) for window in windows):
            return None
        found = []
        cells = 0
        for window in windows:
            items = (items_of(window) if window.missing else None) or []
            reach = sum([item.nodes for item in items])
            most = min(window.missing, reach)
            tables = None
            if most:
                needed = without_superfluous(items, most)
                cells += len(needed) * (window.last_step + 1) * most
                if cells > MOST_CELLS:
                    return None
                tables = NodeTimeTables(needed, [replace(window, missing=most)], least=1)
                if not tables.whole:
                    return None
            found.append((window, reach, tables))
        return cls(contest, found, {})

    def curve(self, problem: EvictionProblem) -> Curve:
        points = self.curves.get(problem.nodes_needed)
        if points is None:
            points = self.curves[problem.nodes_needed] = self._points(problem.nodes_needed)
        return Curve(EvictionDP.name, points[: problem.max_delay_s // self.contest.problem.step_s + 1])

    def _points(self, nodes: int) -> tuple[CurvePoint, ...]:
        plans: dict[int, Taken] = {}
        windows = []
        for window, reach, tables in self.windows:
            missing = max(0, nodes - window.freed)
            windows.append(replace(window, missing=missing))
            if 0 < missing <= reach and tables is not None:
                plans |= tables.answers_for(windows[-1])
        return self.contest.points(windows, lambda _: plans.get)
