"""The eviction problem solved exactly for every deadline in one pass: the CoSim paper's dynamic program.

Model: items (single jobs, or groups linked through shared nodes) of each of which at most one pick is taken;
see ``node_groups``. A pick frees n nodes, takes s steps on the shared file system (checkpoints are written one
after another) and has the value lost work x (jobs + 1) + preemptees, so that one number holds both keys.

Recurrence: ``f_i[t][k]``, the least value of items i .. N-1 that frees at least k nodes within t steps; see
``suffix_tables``. The last column of f_0 holds the answer for every deadline: of the rows up to the deadline
the first whose lost work is the least that the deadline allows has the least checkpoint time as well.

Ties: a walk from the first item to the last takes, item by item, the first pick (in the order of ties) with
which the remaining tables still reach the optimal value; items stand in the order of job_id, so the first
difference decides, as ``planning.base`` demands. Where the job_ids of groups interleave, the walk keeps those
optimal states that are equally good in everything decided for good; see ``tie_walk``.

Nodes and steps are divided by their common divisors first: 4,352 nodes in jobs of multiples of 128 are 34.

Cost: O(N T K) per pick in time; memory as ``suffix_tables`` says. One pass serves all deadlines, unless a
``ready_s`` makes the choices of candidates differ between deadlines; then one pass for each such ``windows``.
Where only the number of missing nodes differs, because other jobs end by themselves, one pass is enough.

Jobs that end by themselves within a deadline count as freed for it and are listed, needed or not; only when
no nodes are needed at all is nothing listed. See ``windows``.

Source: the CoSim paper (the CoSim paper), Algorithm 1, with exact ties, groups and ends added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd

from clearway.model import Curve, CurvePoint, EvictionProblem
from clearway.planning.node_groups import Item, Pick, items_of
from clearway.planning.suffix_tables import Step, SuffixTables
from clearway.planning.superfluous import without_superfluous
from clearway.planning.tie_walk import Goal, walk
from clearway.planning.windows import Contest, Way, Window


class EvictionDP:
    """Exact for every deadline, unless groups of shared nodes are too large (``Curve.exact`` says so)."""

    name = "eviction-dp"

    def solve(self, problem: EvictionProblem) -> Curve:
        contest = Contest(problem)
        points: list[CurvePoint] = []
        exact = True
        for windows in _passes(contest.windows()):
            answers, proven = _solve(windows)
            exact = exact and proven
            for window in windows:
                for step in window.deadlines:
                    answer = answers.get(step)
                    points.append(
                        contest.infeasible(step)
                        if answer is None
                        else contest.point(window, step, answer.lost, answer.steps, answer.nodes, answer.ways)
                    )
        return Curve(planner=self.name, points=tuple(points), exact=exact)


@dataclass(frozen=True, slots=True)
class _Answer:
    lost: int
    steps: int
    nodes: int
    ways: list[Way]


def _passes(windows: Iterable[Window]) -> Iterator[list[Window]]:
    """Windows in a row that one pass answers."""
    together: list[Window] = []
    for window in windows:
        if together and not together[0].differs_by_ends_alone(window):
            yield together
            together = []
        together.append(window)
    yield together


def _solve(windows: Sequence[Window]) -> tuple[dict[int, _Answer], bool]:
    """The best for each deadline (in steps) where enough nodes can be freed, and whether that is proven."""
    whole = replace(windows[0], last_step=windows[-1].last_step)  # of all, the first misses the most nodes
    items, exact = items_of(whole)
    reach = sum(max(pick.nodes for pick in item.picks) for item in items)
    answers = {step: _Answer(0, 0, 0, []) for window in windows if not window.missing for step in window.deadlines}
    windows = [window for window in windows if 0 < window.missing <= reach]
    if not windows:
        return answers, exact
    items = without_superfluous(items, min(whole.missing, reach))
    scale = _Scale.of(whole, items)
    steps = [[scale.step(pick) for pick in item.picks] for item in items]
    columns = [scale.column(window.missing) for window in windows]
    tables = SuffixTables(steps, max(columns), min(columns), scale.rows)
    goals: dict[int, Goal] = {}
    for window, column in zip(windows, columns, strict=True):
        by_row = _goals(tables, column, scale.base)
        rows = ((step, scale.row(step)) for step in window.deadlines)
        goals |= {step: goal for step, row in rows if (goal := by_row[row]) is not None}
    picks = walk(items, steps, tables, list(dict.fromkeys(goals.values())))
    plans = {goal: scale.answer(goal, of_goal) for goal, of_goal in picks.items()}
    return answers | {step: plans[goal] for step, goal in goals.items()}, exact


@dataclass(frozen=True, slots=True)
class _Scale:
    """Nodes and steps in units of their common divisors, and values that hold two keys."""

    node_unit: int
    step_unit: int
    rows: int
    columns: int
    base: int  # value = lost work x base + preemptees

    @classmethod
    def of(cls, window: Window, items: Sequence[Item]) -> _Scale:
        node_unit = gcd(*(pick.nodes for item in items for pick in item.picks))
        step_unit = gcd(*(pick.steps for item in items for pick in item.picks)) or 1
        longest = sum(max(pick.steps for pick in item.picks) for item in items)
        return cls(
            node_unit=node_unit,
            step_unit=step_unit,
            rows=min(window.last_step, longest) // step_unit + 1,
            columns=-(-window.missing // node_unit),
            base=len(window.ways) + 1,
        )

    def column(self, nodes: int) -> int:
        return -(-nodes // self.node_unit)

    def row(self, step: int) -> int:
        return min(step // self.step_unit, self.rows - 1)

    def step(self, pick: Pick) -> Step:
        return Step(
            min(pick.nodes // self.node_unit, self.columns),
            pick.steps // self.step_unit,
            pick.lost * self.base + len(pick.ways),
        )

    def answer(self, goal: Goal, picks: Iterable[Pick]) -> _Answer:
        row, _, value = goal  # the row is the least with this value: exactly the checkpoint time
        return _Answer(
            lost=value // self.base,
            steps=row * self.step_unit,
            nodes=sum([pick.nodes for pick in picks]),
            ways=[way for pick in picks for way in pick.ways],
        )


def _goals(tables: SuffixTables, column: int, base: int) -> list[Goal | None]:
    """For each row the first row up to it with the least lost work: the one of least checkpoint time."""
    goals: list[Goal | None] = []
    goal: Goal | None = None
    for row, value in enumerate(tables.values(column)):
        if value < tables.infinity and (goal is None or value // base < goal[2] // base):
            goal = (row, column, value)
        goals.append(goal)
    return goals
