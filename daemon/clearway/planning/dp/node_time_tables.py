"""The dynamic program over nodes and steps for a list of single jobs: values for every deadline, then the plans.

Model: items 0 .. N-1 (jobs), of each at most one way (nodes n, steps s, value v = lost work x base + 1, so that one
number has both keys: lost work and preemptees). ``f_i[t][k]`` is the least value of items i .. N-1 that frees at least
k nodes with at most t steps:

    f_N[t][k] = 0 if k <= 0 else INFINITY
    f_i[t][k] = min(f_{i+1}[t][k], min over ways with s <= t of f_{i+1}[t - s][max(0, k - n)] + v)

``k`` stops at what is needed, not at all the nodes of the machine as in the paper. Of the rows (t) up to a deadline the
first with the least lost work has the least checkpoint time as well. Nodes and steps are divided by their common
divisors first: 4,352 nodes in jobs of multiples of 128 are 34. Some jobs can be certain to leave in one way
(``forced``, see ``bounds.core``); their nodes are taken off beforehand.

Ties: of two plans with equally many preemptees that comes first whose sorted list of (job_id, action) holds the
smallest element in which the lists differ. Items and their ways stand in that order, and the plan takes the first.

Layout: a table is one column of numbers after another, t running quickest, so that the columns that can matter lie
together: at least what is left of the least goal when all items before i are taken (and what the next ways reach back
to; 0 for k <= 0), at most what the items from i on can free. f_{i+1}[t - s][k - n] lies n columns and s rows before
f_i[t][k], whatever t and k are: a way is one offset, and adding and comparing run over all cells at once. Where t < s
the offset ends in the column before, at t - s + rows. So that nothing is gained there every number is stored with
``tilt`` x t added, and a way costs ``tilt`` x s more: what comes from a column before is too large by ``tilt`` x rows,
which is more than INFINITY.

Cost: O(N T K) per way in time, as additions, comparisons and minima of numpy over whole tables. In memory two tables,
and of all others a bit for each cell and way: whether the way is as good there as any that comes after it, or none.
That is all that the plans are read from. Values are as wide as they need to be, and Python's unbounded integers
(slow, but exact) when 64 bits are too few.

Source: Algorithm 1 of the CoSim paper (section III-C), turned round so that a walk from the first item on settles ties.
"""

from collections.abc import Mapping, Sequence
from math import gcd
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from clearway.planning.formulation.windows import NOTHING, Taken, Way, Window

_MOST_BYTES = 2**29
_BY_RANK = attrgetter("rank")


class TooMuchError(ValueError):
    """A problem whose tables would not fit into memory."""


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


class _Columns(NamedTuple):
    """Those of a table: the cell of t steps and k nodes is at ``(k - first) * rows + t``."""

    first: int
    width: int
    low: int  # the first to be computed
    high: int  # the last that can be reached; those above stay infinite


Goal = tuple[int, int, int]  # row and column of the first table, and the value there
_Table = npt.NDArray[Any]  # one-dimensional: columns one after another


class NodeTimeTables:
    """Solves windows that have the same items; in each a node is missing at least, and enough can be freed."""

    def __init__(self, items: Sequence[Item], windows: Sequence[Window], forced: Taken = NOTHING) -> None:
        self._items, self._forced, self._base = items, forced, 1 + len(items)
        self._node_unit = gcd(*[item.nodes for item in items])
        self._step_unit = gcd(*[way.steps for item in items for way in item.ways]) or 1
        most_steps = sum([max([way.steps for way in item.ways]) for item in items])
        rows = self._rows = min(max([window.last_step for window in windows]), most_steps) // self._step_unit + 1
        columns = [self._column(window) for window in windows]
        self._nodes = [min(item.nodes // self._node_unit, max(columns)) for item in items]
        self._columns = _columns(self._nodes, max(columns), min(columns))
        self._infinity = 1 + sum([max([way.lost for way in item.ways]) * self._base + 1 for item in items])
        self._tilt = self._infinity // rows + 1
        self._taken: list[list[tuple[Way, int, memoryview]]] = [[] for _ in items]  # ways and their steps, in units
        self._compute(max(columns))
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
        """Of each item the first way with which a best plan goes on: no later item can change what is decided here."""
        row, column, _ = goal
        ways, freed = [*self._forced.ways], self._forced.nodes
        for item, nodes, columns, taken in zip(self._items, self._nodes, self._columns, self._taken, strict=False):
            if column <= 0:
                break
            place = (column - columns.low) * self._rows + row
            for way, late, bits in taken:
                if bits[place >> 3] & 128 >> (place & 7):
                    ways.append(way)
                    freed += item.nodes
                    row, column = row - late, column - nodes
                    break
        return Taken.of(ways, freed)

    def _column(self, window: Window) -> int:
        return -(-window.missing // self._node_unit)

    def _goals_of(self, window: Window) -> dict[int, Goal]:
        """By deadline, the first row up to it with the least lost work: the one of least checkpoint time."""
        column, base, rows = self._column(window), self._base, self._rows
        begin = (column - self._columns[0].first) * rows
        by_row: list[Goal | None] = []
        goal: Goal | None = None
        for row, value in enumerate((self._first[begin : begin + rows] - self._zero[:rows]).tolist()):
            if value < self._infinity and (goal is None or value // base < goal[2] // base):
                goal = (row, column, value)
            by_row.append(goal)
        steps = ((step, min(step // self._step_unit, rows - 1)) for step in window.deadlines)
        return {step: goal for step, row in steps if (goal := by_row[row]) is not None}

    def _compute(self, needed: int) -> None:
        """All tables, of which the first stays, and which ways are taken in them."""
        rows, dtype = self._rows, np.min_scalar_type(-4 * (self._infinity + self._rows))
        cells = [rows * each.width for each in self._columns]
        beyond, most = max(*self._nodes, needed - self._columns[0].high) + 2, max(cells)
        bits = sum([len(item.ways) * size for item, size in zip(self._items, cells, strict=False)])
        if dtype.itemsize * (2 * rows * beyond + 3 * most) + bits // 8 > _MOST_BYTES:
            raise TooMuchError(f"{needed} nodes (units) within {rows} steps are too much to plan: use larger steps")
        self._zero: _Table = np.tile(np.array([self._tilt * row for row in range(rows)], dtype), beyond)
        self._infinite: _Table = self._zero + self._infinity
        self._spare: _Table = np.empty(most, dtype)
        in_turn: list[_Table] = [np.empty(most, dtype) for _ in range(2)]
        self._first = in_turn[0]
        for index, size in reversed(list(enumerate(cells))):
            self._first = self._filled(index, in_turn[index % 2][:size], self._first)

    def _filled(self, index: int, new: _Table, after: _Table) -> _Table:
        """Table f_i from f_{i+1}; f_N from nothing."""
        rows, (first, width, low, high) = self._rows, self._columns[index]
        known = max(low - first, 0) * rows  # nothing is missing; or only what comes from a column before reaches it
        new[:known] = self._zero[:known] if first < 1 else self._infinite[:known]
        end = max((high + 1 - first) * rows, known)
        new[end:] = self._infinite[: width * rows - end]
        size = end - known
        if not size:
            return new
        stays = (low - self._columns[index + 1].first) * rows
        computed, more, source = new[known:end], self._spare[:size], after[stays : stays + size]
        taken = self._taken[index]
        for way in reversed(self._items[index].ways):
            late = way.steps // self._step_unit
            if late < rows:
                back, cost = stays - self._nodes[index] * rows - late, way.lost * self._base + 1 + self._tilt * late
                np.add(after[back : back + size], cost, out=more)
                taken.insert(0, (way, late, np.packbits(more <= source).data))  # a buffer reads one byte quicker
                np.minimum(source, more, out=computed)
                source = computed
        if source is not computed:
            computed[...] = source
        return new


def _columns(widest: Sequence[int], needed: int, least: int) -> list[_Columns]:
    """Those that can matter, of each table; all but the first begin with one that only a way's wrong rows reach."""
    high = [0]
    for nodes in reversed(widest):
        high.append(min(needed, high[-1] + nodes))
    high.reverse()
    first, low, last = least, least, needed
    found = []
    for index, reached in enumerate(high):
        found.append(_Columns(first, last - first + 1, max(1, low), reached))
        if index < len(widest):
            first = max(1, low) - widest[index] - 1
            low, last = max(0, low - widest[index]), reached
    return found
