"""The dynamic program's tables, from the last item back to the first, in bounded memory.

Model: items 0 .. N-1, of each at most one pick (nodes n, steps s, value v). ``f_i[t][k]`` is the least value
of items i .. N-1 that frees at least k nodes with at most t steps:

    f_N[t][k] = 0 if k <= 0 else INFINITY
    f_i[t][k] = min(f_{i+1}[t][k], min over picks with s <= t of f_{i+1}[t - s][max(0, k - n)] + v)

``k`` stops at what is needed, not at all the nodes of the machine as in Algorithm 1 of the paper: freeing more
is as good, and one pass answers every k between ``least`` and ``needed``. Of table i only those columns are
computed that can matter: at least what is left of ``least`` when all items before i are taken, at most what
the items from i on can free.

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
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

KEEP_BYTES = 16 * 2**20
MOST_BYTES = 2**30

Table = npt.NDArray[Any]
_BY_TIME = attrgetter("steps")


class Step(NamedTuple):
    """A pick as the tables see it."""

    nodes: int
    steps: int
    value: int


class SuffixTables:
    """Tables for ``items`` (picks of each) that free ``least`` .. ``needed`` nodes in 0 .. rows-1 steps."""

    def __init__(self, items: Sequence[Sequence[Step]], needed: int, least: int, rows: int) -> None:
        self._rows = rows
        widest = [max(step.nodes for step in steps) for steps in items]
        self.low = [least]  # the first column that matters, of each table
        for nodes in widest:
            self.low.append(max(0, self.low[-1] - nodes))
        high = [0]  # the last column that can be reached, of each table
        for nodes in reversed(widest):
            high.append(min(needed, high[-1] + nodes))
        self._high = high[::-1]
        top = [needed, *self._high[:-1]]  # the last column that is read
        self._widths = [last - first + 1 for first, last in zip(self.low, top, strict=True)]
        self.infinity = 1 + sum(max(step.value for step in steps) for steps in items)
        self._dtype = _dtype(2 * self.infinity)
        # a pick that takes no time comes first: it reaches every row, which saves a copy of the table
        self._items = [
            [(step.steps, step.nodes, np.array(step.value, self._dtype)) for step in sorted(steps, key=_BY_TIME)]
            for steps in items
        ]
        self._block = self._block_size(needed)
        starts = range(0, len(items), self._block)
        most_cells = rows * max(sum(self._widths[start : start + self._block]) for start in starts)
        self._memory: Table = np.empty(most_cells, dtype=self._dtype)  # of one block, used again for each
        self._spare: Table = np.empty((rows, needed + 1), dtype=self._dtype)
        self._kept: dict[int, Table] = {len(items): self._last()}
        self._first_block: list[Table] = []
        for start in reversed(starts):
            self._first_block = self._compute(start)
            if start:
                self._kept[start] = self._first_block[0].copy()

    def values(self, needed: int) -> list[int]:
        """The least value that frees so many nodes, for every row; to be read before ``blocks``."""
        values: list[int] = self._first_block[0][:, needed - self.low[0]].tolist()
        return values

    def blocks(self) -> Iterator[tuple[int, list[Table]]]:
        """Once: for items start, start+1 ... the tables that follow each, f_{start+1}, f_{start+2} ...

        A block's tables hold until the next block is asked for.
        """
        for start in range(0, len(self._items), self._block):
            tables = self._compute(start) if start else self._first_block
            yield start, [*tables[1:], self._kept[min(start + self._block, len(self._items))]]

    def _block_size(self, needed: int) -> int:
        """How many tables are in memory together: all, or about the square root of their number."""
        count, cell = len(self._items), self._rows * self._dtype.itemsize
        if cell * sum(self._widths) <= KEEP_BYTES:
            return count
        block = isqrt(count - 1) + 1
        if cell * min(sum(self._widths), (needed + 1) * (2 * block + 1)) > MOST_BYTES:
            raise ValueError(f"{needed} nodes (units) within {self._rows} steps are too much to plan: use larger steps")
        return block

    def _compute(self, start: int) -> list[Table]:
        """Tables f_start, f_{start+1} ... up to the end of the block."""
        end = min(start + self._block, len(self._items))
        tables: list[Table] = []
        after, used = self._kept[end], 0
        for index in reversed(range(start, end)):
            cells = self._rows * self._widths[index]
            table = self._memory[used : used + cells].reshape(self._rows, self._widths[index])
            used += cells
            self._fill(index, table, after)
            tables.append(table)
            after = table
        tables.reverse()
        return tables

    def _last(self) -> Table:
        table = np.full((self._rows, self._widths[-1]), self.infinity, dtype=self._dtype)
        if self.low[-1] == 0:
            table[:, 0] = 0
        return table

    def _fill(self, index: int, out: Table, after: Table) -> None:
        """Table f_index from f_{index+1}; columns of a table are counted from its ``low``."""
        low, high = self.low[index], self._high[index]
        shift, rows = self.low[index + 1], self._rows
        width = max(0, high - low + 1)
        if width < out.shape[1]:
            out[:, width:] = self.infinity
        if not width:
            return
        new, source = out[:, :width], after[:, low - shift : high - shift + 1]
        if self._items[index][0][0]:  # no pick reaches every row
            new[...] = source
            source = new
        for late, nodes, value in self._items[index]:
            enough = min(nodes, high) - low + 1  # columns for which this pick alone is enough
            if enough > 0:
                np.minimum(source[late:, :enough], value, out=new[late:, :enough])
            else:
                enough = 0
            if enough < width:
                spare = self._spare[late:, : width - enough]
                begin = low + enough - nodes - shift
                np.add(after[: rows - late, begin : begin + width - enough], value, out=spare)
                np.minimum(source[late:, enough:], spare, out=new[late:, enough:])
            source = new


def _dtype(largest: int) -> np.dtype[Any]:
    for width in (np.int32, np.int64):
        if largest <= np.iinfo(width).max:
            return np.dtype(width)
    return np.dtype(object)
