"""The dynamic program's tables, from the last item back to the first, in bounded memory.

Model: items 0 .. N-1, of each at most one pick (nodes n, steps s, value v). ``f_i[t][k]`` is the least value
of items i .. N-1 that frees at least k nodes with at most t steps:

    f_N[t][k] = 0 if k <= 0 else INFINITY
    f_i[t][k] = min(f_{i+1}[t][k], min over picks with s <= t of f_{i+1}[t - s][max(0, k - n)] + v)

``k`` stops at what is needed, not at all the nodes of the machine as in Algorithm 1 of the paper: freeing more
is as good, and one pass answers every k up to ``needed``.

Layout: a table is one row of numbers after another, with as many columns for k <= 0 (all 0) on the left as the
widest pick has nodes. Where all tables have the same columns, a pick is one offset: f_{i+1}[t - s][k - n] lies s
rows and n columns before f_i[t][k], whatever k is, so that adding and comparing run over all rows at once; what
such an offset takes from the end of the row before lands left of k = 1, where 0 is the least anyway. Large tables
have only those columns that can matter: at least what is left of ``least`` when all items before i are taken, at
most what the items from i on can free.

Cost: O(N T K) per pick in time, as additions and minima of numpy over whole tables. In memory all N tables
when they fit into ``KEEP_BYTES``, else about 2 sqrt(N) of them: every sqrt(N)-th is kept and those between are
computed again, block by block, on the way forward. Values are 32 or 64 bits wide as they need to be, and
Python's unbounded integers (slow, but exact) when 64 bits are too few.

Source: Algorithm 1 of the CoSim paper (section III-C), turned round so that a walk from the first item on can
settle ties.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isqrt
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

KEEP_BYTES = 16 * 2**20
MOST_BYTES = 2**30
WHOLE_CELLS = 1 << 17  # of a table; up to here computing all columns is quicker than picking out those that matter

_BY_TIME = itemgetter(0)
Table = npt.NDArray[Any]  # one-dimensional: rows one after another
Cells = Any  # likewise: whatever reads one of them the quickest


class Step(NamedTuple):
    """A pick as the tables see it."""

    steps: int
    nodes: int
    value: int


class Columns(NamedTuple):
    """Those of a table: the cell of t steps and k nodes is at ``t * stride + k - first``."""

    first: int
    stride: int
    low: int  # the first to be computed
    high: int  # the last that can be reached; those above stay infinite


class SuffixTables:
    """Tables for ``items`` (picks of each) that free ``least`` .. ``needed`` nodes in 0 .. rows-1 steps."""

    def __init__(self, items: Sequence[Sequence[Step]], needed: int, least: int, rows: int) -> None:
        self._rows = rows
        every = [step for steps in items for step in steps]
        left = max([nodes for _, nodes, _ in every])
        self._whole = rows * (left + needed + 1) <= WHOLE_CELLS
        if self._whole:
            self.columns = [Columns(-left, left + needed + 1, 1, needed)] * (len(items) + 1)
        else:
            self.columns = _columns([max([step.nodes for step in steps]) for steps in items], needed, least)
        values = [value for _, _, value in every]
        self.infinity = _beyond(items, values)
        self._dtype = _dtype(2 * self.infinity)
        added = np.array(values, self._dtype)
        scalars = iter([added[place, ...] for place in range(len(values))])  # numpy adds arrays the quickest
        self._items = [[(late, nodes, next(scalars)) for late, nodes, _ in steps] for steps in items]
        for picks in self._items:
            if picks[0][0]:  # a pick that takes no time comes first: it reaches every row, which saves a copy
                picks.sort(key=_BY_TIME)
        cells = [rows * columns.stride for columns in self.columns[:-1]]
        self._block = self._block_size(cells, needed)
        starts = range(0, len(items), self._block)
        most_cells = max([sum(cells[start : start + self._block]) for start in starts])
        self._memory: Table = np.empty(most_cells, dtype=self._dtype)  # of one block, used again for each
        if self._whole:  # nothing is written there: no nodes are missing, and nobody leaves
            self._memory.reshape(-1, cells[0])[:, :left] = 0
        self._spare: Table = np.empty(max(cells), dtype=self._dtype)
        self._kept: dict[int, Table] = {len(items): self._last()}
        self._first_block: list[Table] = []
        for start in reversed(starts):
            self._first_block = self._compute(start)
            if start:
                self._kept[start] = self._first_block[0].copy()

    def values(self, needed: int) -> list[int]:
        """The least value that frees so many nodes, for every row; to be read before ``blocks``."""
        columns = self.columns[0]
        values: list[int] = self._first_block[0][needed - columns.first :: columns.stride].tolist()
        return values

    def blocks(self) -> Iterator[tuple[int, list[Cells]]]:
        """Once: for items start, start+1 ... the tables that follow each, f_{start+1}, f_{start+2} ...

        A block's tables hold until the next block is asked for.
        """
        for start in range(0, len(self._items), self._block):
            tables = self._compute(start) if start else self._first_block
            following = [*tables[1:], self._kept[min(start + self._block, len(self._items))]]
            # a buffer reads one cell quicker; Python's own integers have none
            yield start, following if self._dtype.hasobject else [table.data for table in following]

    def _block_size(self, cells: Sequence[int], needed: int) -> int:
        """How many tables are in memory together: all, or about the square root of their number."""
        count, size = len(cells), self._dtype.itemsize
        if size * sum(cells) <= KEEP_BYTES:
            return count
        block = isqrt(count - 1) + 1
        if size * min(sum(cells), max(cells) * (2 * block + 1)) > MOST_BYTES:
            raise ValueError(f"{needed} nodes (units) within {self._rows} steps are too much to plan: use larger steps")
        return block

    def _compute(self, start: int) -> list[Table]:
        """Tables f_start, f_{start+1} ... up to the end of the block."""
        end = min(start + self._block, len(self._items))
        tables: list[Table] = []
        after, used = self._kept[end], 0
        fill = self._fill_whole if self._whole else self._fill_between
        for index in reversed(range(start, end)):
            cells = self._rows * self.columns[index].stride
            table = self._memory[used : used + cells]
            used += cells
            fill(index, table, after)
            tables.append(table)
            after = table
        tables.reverse()
        return tables

    def _last(self) -> Table:
        first, stride, _, _ = self.columns[-1]
        table = np.full((self._rows, stride), self.infinity, dtype=self._dtype)
        table[:, : max(0, 1 - first)] = 0
        return table.reshape(-1)

    def _fill_whole(self, index: int, new: Table, after: Table) -> None:
        """Table f_i from f_{i+1} when both have the same columns."""
        source, cells, stride, spare = after, len(after), self.columns[0].stride, self._spare
        for late, nodes, value in self._items[index]:
            begin = late * stride + nodes
            more = spare[begin:]
            np.add(after[: cells - begin], value, out=more)
            if late and source is after:
                new[:begin] = after[:begin]
            np.minimum(source[begin:], more, out=new[begin:])
            source = new

    def _fill_between(self, index: int, new: Table, after: Table) -> None:
        """Table f_i from f_{i+1} when each has columns of its own."""
        rows, (first, stride, low, high), (before, _, _, _) = self._rows, *self.columns[index : index + 2]
        out, source = new.reshape(rows, stride), after.reshape(rows, -1)
        out[:, : max(0, 1 - first)] = 0
        out[:, max(low, high + 1) - first :] = self.infinity
        width = high - low + 1
        if width <= 0:
            return
        computed, stay = out[:, low - first : low - first + width], source[:, low - before : low - before + width]
        spare = self._spare[: rows * width].reshape(rows, width)
        unset = True
        for late, nodes, value in self._items[index]:
            if unset and late:
                computed[...] = stay
                unset = False
            begin = low - nodes - before
            np.add(source[: rows - late, begin : begin + width], value, out=spare[late:])
            np.minimum((stay if unset else computed)[late:], spare[late:], out=computed[late:])
            unset = False


def _columns(widest: Sequence[int], needed: int, least: int) -> list[Columns]:
    """Those that can matter, of each table."""
    high = [0]
    for nodes in reversed(widest):
        high.append(min(needed, high[-1] + nodes))
    high.reverse()
    first, low, last = least, least, needed
    found = []
    for index, reached in enumerate(high):
        found.append(Columns(first, last - first + 1, max(1, low), reached))
        if index < len(widest):
            first = max(1, low) - widest[index]
            low, last = max(0, low - widest[index]), reached
    return found


def _beyond(items: Sequence[Sequence[Step]], values: Sequence[int]) -> int:
    """More than any plan's value; the sum of all values will do where it is small."""
    beyond = 1 + sum(values)
    if 2 * beyond <= np.iinfo(np.int32).max:
        return beyond
    return 1 + sum([max([step.value for step in steps]) for steps in items])


def _dtype(largest: int) -> np.dtype[Any]:
    for width in (np.int32, np.int64):
        if largest <= np.iinfo(width).max:
            return np.dtype(width)
    return np.dtype(object)
