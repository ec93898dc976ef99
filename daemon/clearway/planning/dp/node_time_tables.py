"""The dynamic program over nodes and steps for a list of items: values for every deadline, then the plans.

Model: as in ``suffix_tables``; a pick has the value lost work x base + preemptees, one number for both keys. Of
the rows up to a deadline the first with the least lost work has the least checkpoint time as well. Nodes and steps are
divided by their common divisors first: 4,352 nodes in jobs of multiples of 128 are 34. Some items can be certain to
leave in one way (``forced``, see ``core``); their nodes are taken off beforehand.

Cost: as ``suffix_tables`` and, for the plans, ``tie_walk`` say.
"""

from collections.abc import Mapping, Sequence
from math import gcd

from clearway.planning.dp.suffix_tables import Step, SuffixTables
from clearway.planning.dp.tie_walk import Goal, walk
from clearway.planning.formulation.node_groups import Item, Pick
from clearway.planning.formulation.windows import Taken, Window


class NodeTimeTables:
    """Solves windows that have the same items; in each a node is missing at least, and enough can be freed."""

    def __init__(self, items: Sequence[Item], windows: Sequence[Window], forced: Sequence[Pick] = ()) -> None:
        self._items = items
        self._forced = forced
        nodes, steps, _, _ = zip(*[pick for item in items for pick in item.picks], strict=True)
        self._base = 1 + len(items)  # value = lost work x base + preemptees
        node_unit, self._step_unit = gcd(*set(nodes)), gcd(*set(steps)) or 1
        last_step = max([window.last_step for window in windows])
        if max(steps) < last_step:
            last_step = min(last_step, sum([max([pick.steps for pick in item.picks]) for item in items]))
        self._last_row, self._node_unit = last_step // self._step_unit, node_unit
        columns = [-(-window.missing // node_unit) for window in windows]
        self._steps = self._scaled(node_unit, max(columns))
        self._tables = SuffixTables(self._steps, max(columns), min(columns), self._last_row + 1)
        self._goals: dict[int, Goal] = {}
        for window in windows:
            self._goals |= self._goals_of(window)

    @property
    def costs(self) -> Mapping[int, tuple[int, int, int]]:
        """Lost work, steps and preemptees by deadline, forced picks included; deadlines without a plan are left out."""
        lost = sum(pick.lost for pick in self._forced)
        jobs = len(self._forced)
        base, unit = self._base, self._step_unit
        return {
            step: (value // base + lost, row * unit, value % base + jobs)
            for step, (row, _, value) in self._goals.items()
        }

    def answers(self) -> dict[int, Taken]:
        """The plan of every deadline that has one; to be called once."""
        each = list(dict.fromkeys(self._goals.values()))
        picks = walk(self._items, self._steps, self._tables, each)
        plans = {goal: _plan([*of_goal, *self._forced]) for goal, of_goal in picks.items()}
        return {step: plans[goal] for step, goal in self._goals.items()}

    def _goals_of(self, window: Window) -> dict[int, Goal]:
        by_row = _goals(self._tables, -(-window.missing // self._node_unit), self._base)
        rows = ((step, min(step // self._step_unit, self._last_row)) for step in window.deadlines)
        return {step: goal for step, row in rows if (goal := by_row[row]) is not None}

    def _scaled(self, node_unit: int, columns: int) -> list[list[Step]]:
        """The picks of each item in units of the common divisors."""
        step_unit, base = self._step_unit, self._base
        new = tuple.__new__  # a named tuple's own constructor takes more than twice as long
        return [
            [
                new(Step, (steps // step_unit, min(nodes // node_unit, columns), lost * base + 1))
                for nodes, steps, lost, _ in item.picks
            ]
            for item in self._items
        ]


def _plan(picks: Sequence[Pick]) -> Taken:
    return Taken.of([pick.way for pick in picks], sum([pick.nodes for pick in picks]))


def _goals(tables: SuffixTables, column: int, base: int) -> list[Goal | None]:
    """For each row the first row up to it with the least lost work: the one of least checkpoint time."""
    goals: list[Goal | None] = []
    goal: Goal | None = None
    for row, value in enumerate(tables.values(column)):
        if value < tables.infinity and (goal is None or value // base < goal[2] // base):
            goal = (row, column, value)
        goals.append(goal)
    return goals
