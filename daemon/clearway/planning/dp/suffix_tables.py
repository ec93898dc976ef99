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

Cost: O(N T K) per pick in time, as additions and minima of numpy over whole tables. In memory all N tables when they
fit into ``KEEP_BYTES``, else about 2 sqrt(N): every sqrt(N)-th is kept, those between are computed again, block by
block, on the way forward. Values are 32 or 64 bits wide as they need to be, and Python's unbounded integers (slow, but
exact) when 64 bits are too few.

Source: Algorithm 1 of the CoSim paper (section III-C), turned round so that a walk from the first item on settles ties.
"""

from collections.abc import Iterator, Sequence
from math import isqrt
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

KEEP_BYTES = 16 * 2**20
MOST_BYTES = 2**30
_SMALL = 1 << 28  # four times that fits into 32 bits

Table = npt.NDArray[Any]  # one-dimensional: columns one after another
Cells = Any  # likewise: whatever reads one of them the quickest


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
        self.rows = rows
        widest = [max([nodes for _, nodes, _ in steps]) for steps in items]
        self.columns = _columns(widest, needed, least)
        every = [step for steps in items for step in steps]
        self.infinity = _beyond(items, [value for _, _, value in every])
        self.tilt = self.infinity // rows + 1
        self._dtype = _dtype(4 * (self.infinity + rows))
        self._items = self._offsets(items, every)
        cells = [rows * columns.width for columns in self.columns[:-1]]
        most = max(*widest, needed - self.columns[0].high) + 2
        self._block = self._block_size(cells, 2 * rows * most, needed)
        self._zero: Table = np.empty((most, rows), self._dtype)
        self._zero[:] = np.array([self.tilt * row for row in range(rows)], self._dtype)
        self._zero = self._zero.reshape(-1)
        self._infinite: Table = self._zero + self.infinity
        starts = range(0, len(items), self._block)
        most_cells = max([sum(cells[start : start + self._block]) for start in starts])
        self._memory: Table = np.empty(most_cells, dtype=self._dtype)  # of one block, used again for each
        self._spare: Table = np.empty(max(cells), dtype=self._dtype)
        last = np.empty(rows * self.columns[-1].width, dtype=self._dtype)
        self._fill(len(items), last, last)
        self._kept: dict[int, Table] = {len(items): last}
        self._first_block: list[Table] = []
        for start in reversed(starts):
            self._first_block = self._compute(start)
            if start:
                self._kept[start] = self._first_block[0].copy()

    def _offsets(self, items: Sequence[Sequence[Step]], every: Sequence[Step]) -> list[list[tuple[int, Table]]]:
        """Of each item's picks that are in time: how many cells back, and what is added; ``every`` pick in a row."""
        rows, tilt = self.rows, self.tilt
        costs = np.array([value + tilt * late if late < rows else 0 for late, _, value in every], self._dtype)
        scalars = iter([costs[place, ...] for place in range(len(every))])  # numpy adds arrays the quickest
        back = [[(nodes * rows + late, next(scalars), late) for late, nodes, _ in steps] for steps in items]
        return [[(cells, cost) for cells, cost, late in picks if late < rows] for picks in back]

    def values(self, needed: int) -> list[int]:
        """The least value that frees so many nodes, for every row; to be read before ``blocks``."""
        begin = (needed - self.columns[0].first) * self.rows
        values: Table = self._first_block[0][begin : begin + self.rows] - self._zero[: self.rows]
        return list(values.tolist())

    def blocks(self) -> Iterator[tuple[int, list[Cells]]]:
        """For items start, start+1 ... the tables that follow each, f_{start+1} ...; once.

        A block's tables hold until the next block is asked for.
        """
        for start in range(0, len(self._items), self._block):
            tables = self._compute(start) if start else self._first_block
            following = [*tables[1:], self._kept[min(start + self._block, len(self._items))]]
            # a buffer reads one cell quicker; Python's own integers have none
            yield start, following if self._dtype.hasobject else [table.data for table in following]

    def _block_size(self, cells: Sequence[int], besides: int, needed: int) -> int:
        """How many tables are in memory together, with ``besides`` cells: all, or about their number's square root."""
        count, size = len(cells), self._dtype.itemsize
        block = count if size * sum(cells) <= KEEP_BYTES else isqrt(count - 1) + 1
        if size * (besides + min(sum(cells), max(cells) * (2 * block + 1))) > MOST_BYTES:
            told = f"{needed} nodes (units) within {self.rows} steps"
            raise TooMuchError(f"{told} are too much to plan: use larger steps")
        return block

    def _compute(self, start: int) -> list[Table]:
        """Tables f_start, f_{start+1} ... up to the end of the block."""
        end = min(start + self._block, len(self._items))
        tables: list[Table] = []
        after, used = self._kept[end], 0
        for index in reversed(range(start, end)):
            cells = self.rows * self.columns[index].width
            table = self._memory[used : used + cells]
            used += cells
            self._fill(index, table, after)
            tables.append(table)
            after = table
        tables.reverse()
        return tables

    def _fill(self, index: int, new: Table, after: Table) -> None:
        """Table f_i from f_{i+1}; f_N from nothing."""
        rows, (first, width, low, high) = self.rows, self.columns[index]
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
        stays = (low - self.columns[index + 1].first) * rows
        computed, more, source = new[known:end], self._spare[:size], after[stays : stays + size]
        for back, cost in self._items[index]:
            np.add(after[stays - back : stays - back + size], cost, out=more)
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
