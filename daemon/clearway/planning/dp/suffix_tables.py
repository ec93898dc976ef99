"""The dynamic program's tables, from the last item back to the first, in bounded memory.

Model: items 0 .. N-1, of each at most one pick (nodes n, steps s, value v). ``f_i[t][k]`` is the least value of items i
.. N-1 that frees at least k nodes with at most t steps:

    f_N[t][k] = 0 if k <= 0 else INFINITY
    f_i[t][k] = min(f_{i+1}[t][k], min over picks with s <= t of f_{i+1}[t - s][max(0, k - n)] + v)

``k`` stops at what is needed, not at all the nodes of the machine as in the paper.

Layout: a table is one column of numbers after another, t running quickest, so that the columns that can matter lie
together: at least what is left of ``least`` when all items before i are taken (and what the next picks reach back to; 0
for k <= 0), at most what the items from i on can free. f_{i+1}[t - s][k - n] lies n columns and s rows before
f_i[t][k], whatever t and k are: a pick is one offset, and adding and comparing run over all cells at once. Where t < s
the offset ends in the column before, at t - s + rows. So that nothing is gained there every number is stored with
``tilt`` x t added, and a pick costs ``tilt`` x s more: what comes from a column before is too large by ``tilt`` x rows,
which is more than INFINITY.

Cost: O(N T K) per pick in time, as additions, comparisons and minima of numpy over whole tables. In memory two tables,
and of every other a bit for each cell and pick: whether the pick is as good there as any that comes after it, or none.
That is all that the way forward asks for. Values are 32 or 64 bits wide as they need to be, and Python's unbounded
integers (slow, but exact) when 64 bits are too few.

Source: Algorithm 1 of the CoSim paper (section III-C), turned round so that a walk from the first item on settles ties.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

_MOST_BYTES = 2**29
_SMALL = 1 << 28  # four times that fits into 32 bits

Table = npt.NDArray[Any]  # one-dimensional: columns one after another
_Pick = tuple[int, int, Table]  # its place among those of its item, how many cells it goes back, what it adds


class TooMuchError(ValueError):
    """A problem whose tables would not fit into memory."""


class Step(NamedTuple):
    """A pick as the tables see it."""

    steps: int
    nodes: int
    value: int


class Columns(NamedTuple):
    """Those of a table: the cell of t steps and k nodes is at ``(k - first) * rows + t``."""

    first: int
    width: int
    low: int  # the first to be computed
    high: int  # the last that can be reached; those above stay infinite


class SuffixTables:
    """Tables for ``items`` (picks of each) that free ``least`` .. ``needed`` nodes in 0 .. rows-1 steps."""

    def __init__(self, items: Sequence[Sequence[Step]], needed: int, least: int, rows: int) -> None:
        self._items, self._rows = items, rows
        widest = [max([nodes for _, nodes, _ in steps]) for steps in items]
        self._columns = _columns(widest, needed, least)
        every = [step for steps in items for step in steps]
        self.infinity = _beyond(items, [value for _, _, value in every])
        self._tilt = self.infinity // rows + 1
        dtype = _dtype(4 * (self.infinity + rows))
        picks = self._picks(
            np.array([value + self._tilt * late if late < rows else 0 for late, _, value in every], dtype)
        )
        cells = [rows * columns.width for columns in self._columns]
        most, most_cells = max(*widest, needed - self._columns[0].high) + 2, max(cells)
        bits = sum([len(some) * size for some, size in zip(picks, cells, strict=False)])
        if dtype.itemsize * (2 * rows * most + 3 * most_cells) + bits // 8 > _MOST_BYTES:
            told = f"{needed} nodes (units) within {rows} steps"
            raise TooMuchError(f"{told} are too much to plan: use larger steps")
        zero: Table = np.empty((most, rows), dtype)
        zero[:] = np.array([self._tilt * row for row in range(rows)], dtype)
        self._zero: Table = zero.reshape(-1)
        self._infinite: Table = self._zero + self.infinity
        tables = [np.empty(most_cells, dtype) for _ in range(2)]  # used in turn
        self._spare: Table = np.empty(most_cells, dtype)
        self._better = np.empty(most_cells, bool)
        self._taken: list[list[tuple[int, memoryview]]] = [[] for _ in items]  # of each item, the last pick first
        self._first: Table = tables[1]
        for index in reversed(range(len(cells))):
            new, after = tables[index % 2][: cells[index]], self._first
            self._fill(index, new, after, picks[index] if index < len(items) else ())
            self._first = new

    def _picks(self, costs: Table) -> list[list[_Pick]]:
        """Of each item those that are in time."""
        scalars = iter([costs[place, ...] for place in range(len(costs))])  # numpy adds arrays the quickest
        every = [
            [(number, nodes * self._rows + late, next(scalars), late) for number, (late, nodes, _) in enumerate(steps)]
            for steps in self._items
        ]
        return [[(number, back, cost) for number, back, cost, late in some if late < self._rows] for some in every]

    def values(self, needed: int) -> list[int]:
        """The least value that frees so many nodes, for every row."""
        begin = (needed - self._columns[0].first) * self._rows
        values: Table = self._first[begin : begin + self._rows] - self._zero[: self._rows]
        return list(values.tolist())

    def plan(self, row: int, column: int) -> Iterator[tuple[int, int]]:
        """The items and picks of the best plan for a row and column in which there is one; O(N) look-ups.

        Of each item the first pick with which a best plan goes on, as no later item can change what is decided here.
        """
        for index, taken in enumerate(self._taken):
            if column <= 0:
                break
            place = (column - self._columns[index].low) * self._rows + row
            for number, bits in taken:
                if bits[place >> 3] >> (place & 7) & 1:
                    yield index, number
                    late, nodes, _ = self._items[index][number]
                    row -= late
                    column -= nodes
                    break

    def _fill(self, index: int, new: Table, after: Table, picks: Sequence[_Pick]) -> None:
        """Table f_i from f_{i+1}; f_N from nothing."""
        rows, (first, width, low, high) = self._rows, self._columns[index]
        known = max(low - first, 0) * rows  # nothing is missing; or only what comes from a column before reaches it
        if known:
            new[:known] = self._zero[:known] if first < 1 else self._infinite[:known]
        end = max((high + 1 - first) * rows, known)
        beyond = width * rows - end
        if beyond > 0:
            new[end:] = self._infinite[:beyond]
        size = end - known
        if not size:
            return
        stays = (low - self._columns[index + 1].first) * rows
        computed, more, source = new[known:end], self._spare[:size], after[stays : stays + size]
        for number, back, cost in reversed(picks):
            np.add(after[stays - back : stays - back + size], cost, out=more)
            better = np.packbits(np.less_equal(more, source, out=self._better[:size]), bitorder="little")
            self._taken[index].insert(0, (number, better.data))  # a buffer reads one byte quicker
            np.minimum(source, more, out=computed)
            source = computed
        if source is not computed:
            computed[...] = source


def _beyond(items: Sequence[Sequence[Step]], values: Sequence[int]) -> int:
    """More than any plan's value; the sum of all values will do where it is small."""
    beyond = 1 + sum(values)
    if beyond < _SMALL:
        return beyond
    return 1 + sum([max([step.value for step in steps]) for steps in items])


def _columns(widest: Sequence[int], needed: int, least: int) -> list[Columns]:
    """Those that can matter, of each table; all but the first begin with one that only a pick's wrong rows reach."""
    high = [0]
    for nodes in reversed(widest):
        high.append(min(needed, high[-1] + nodes))
    high.reverse()
    first, low, last = least, least, needed
    found: list[Columns] = []
    new = tuple.__new__  # a named tuple's own constructor takes more than twice as long
    for index, reached in enumerate(high):
        found.append(new(Columns, (first, last - first + 1, max(1, low), reached)))
        if index < len(widest):
            first = max(1, low) - widest[index] - 1
            low, last = max(0, low - widest[index]), reached
    return found


def _dtype(largest: int) -> np.dtype[Any]:
    for width in (np.int32, np.int64):
        if largest <= np.iinfo(width).max:
            return np.dtype(width)
    return np.dtype(object)
