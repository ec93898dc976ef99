"""The dynamic program over nodes and steps for a list of single jobs: values for every deadline, then the plans.

Model: as in ``suffix_tables``; a way has the value lost work x base + preemptees, one number for both keys. Of the rows
up to a deadline the first with the least lost work has the least checkpoint time as well. Nodes and steps are divided
by their common divisors first: 4,352 nodes in jobs of multiples of 128 are 34. Some jobs can be certain to leave in one
way (``forced``, see ``bounds.core``); their nodes are taken off beforehand.

Ties: of two plans with equally many preemptees that comes first whose sorted list of (job_id, action) holds the
smallest element in which the lists differ. Items and their ways stand in that order, and the plan takes the first.
"""

from collections.abc import Mapping, Sequence
from math import gcd
from operator import attrgetter
from typing import NamedTuple

from clearway.planning.dp.suffix_tables import Step, SuffixTables
from clearway.planning.formulation.windows import NOTHING, Taken, Way, Window

_BY_RANK = attrgetter("rank")


class Item(NamedTuple):
    """A job, of which at most one way is taken; these stand in the order in which ties prefer them."""

    rank: int
    nodes: int
    ways: tuple[Way, ...]


def items_of(window: Window) -> list[Item]:
    """The jobs of a window in which no nodes are shared, in the order of their job_id.

    They hold for any smaller number of missing nodes and any earlier deadline as well.
    """
    last_step = window.last_step
    new = tuple.__new__  # a named tuple's own constructor takes more than twice as long
    items = []
    for demand, nodes in window.demands.items():
        ((rank, _),) = demand.held
        ways = tuple([way for way in window.ways[rank] if way[0] <= last_step])  # in the order of preference
        if ways:
            items.append(new(Item, (rank, nodes, ways)))
    return sorted(items, key=_BY_RANK)


Goal = tuple[int, int, int]  # row and column of the first table, and the value there


class NodeTimeTables:
    """Solves windows that have the same items; in each a node is missing at least, and enough can be freed."""

    def __init__(self, items: Sequence[Item], windows: Sequence[Window], forced: Taken = NOTHING) -> None:
        self._items, self._forced = items, forced
        nodes, steps = [item.nodes for item in items], [way.steps for item in items for way in item.ways]
        self._base = 1 + len(items)  # value = lost work x base + preemptees
        node_unit, self._step_unit = gcd(*set(nodes)), gcd(*set(steps)) or 1
        last_step = max([window.last_step for window in windows])
        if max(steps) < last_step:
            last_step = min(last_step, sum([max([way.steps for way in item.ways]) for item in items]))
        self._last_row, self._node_unit = last_step // self._step_unit, node_unit
        columns = [-(-window.missing // node_unit) for window in windows]
        steps_of = self._scaled(max(columns))
        self._tables = SuffixTables(steps_of, max(columns), min(columns), self._last_row + 1)
        self._goals: dict[int, Goal] = {}
        for window in windows:
            self._goals |= self._goals_of(window)

    @property
    def costs(self) -> Mapping[int, tuple[int, int, int]]:
        """Lost work, steps and preemptees by deadline, forced ways included; deadlines without a plan are left out."""
        lost, jobs = self._forced.lost, len(self._forced.ways)
        base, unit = self._base, self._step_unit
        return {
            step: (value // base + lost, row * unit, value % base + jobs)
            for step, (row, _, value) in self._goals.items()
        }

    def answers(self) -> dict[int, Taken]:
        """The plan of every deadline that has one."""
        plans = {goal: self._plan(goal) for goal in set(self._goals.values())}
        return {step: plans[goal] for step, goal in self._goals.items()}

    def _plan(self, goal: Goal) -> Taken:
        row, column, _ = goal
        taken = [(self._items[index], number) for index, number in self._tables.plan(row, column)]
        freed = sum([item.nodes for item, _ in taken])
        return Taken.of(
            [*[item.ways[number] for item, number in taken], *self._forced.ways], freed + self._forced.nodes
        )

    def _goals_of(self, window: Window) -> dict[int, Goal]:
        """By deadline, the first row up to it with the least lost work: the one of least checkpoint time."""
        column, base, infinity = -(-window.missing // self._node_unit), self._base, self._tables.infinity
        by_row: list[Goal | None] = []
        goal: Goal | None = None
        for row, value in enumerate(self._tables.values(column)):
            if value < infinity and (goal is None or value // base < goal[2] // base):
                goal = (row, column, value)
            by_row.append(goal)
        rows = ((step, min(step // self._step_unit, self._last_row)) for step in window.deadlines)
        return {step: goal for step, row in rows if (goal := by_row[row]) is not None}

    def _scaled(self, columns: int) -> list[list[Step]]:
        """The ways of each item in units of the common divisors."""
        node_unit, step_unit, base = self._node_unit, self._step_unit, self._base
        new = tuple.__new__  # a named tuple's own constructor takes more than twice as long
        return [
            [
                new(Step, (way[0] // step_unit, min(item.nodes // node_unit, columns), way[1] * base + 1))
                for way in item.ways
            ]
            for item in self._items
        ]
