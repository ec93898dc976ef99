"""The few jobs about which a deadline's optimal plan is in doubt, found and proven by the bounds of ``relaxation``.

Model: a job all of whose picks are worse than a known plan is out; a job that can neither stay nor leave but in one way
that takes no time is certain; the others are the core. See ``search`` for the method. The tables of a trial are the
answer when its core holds every pick that may be optimal; else the tables over exactly these picks are.

Cost: tables over a core that in practice has some dozens of jobs, be there a thousand or five thousand. A core whose
tables stay larger than ``MOST_CELLS`` is not solved.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Self

import numpy as np

from clearway.planning.bounds.alike import first_alike
from clearway.planning.bounds.relaxation import NEVER, Bound, Flags, Ints, Relaxation
from clearway.planning.bounds.search import Doubt
from clearway.planning.dp.node_time_tables import NodeTimeTables
from clearway.planning.formulation.group_sweep import Pick
from clearway.planning.formulation.node_groups import Item
from clearway.planning.formulation.windows import Taken, Window

TRIAL_JOBS = 24
MOST_CELLS = 2_000_000_000  # of all tables of a core together; about ten seconds of work
FEW_CELLS = 4_000_000  # not worth a larger trial core


class _Core:
    """What is in doubt, what is certain, and the tables over it."""

    def __init__(self, items: Sequence[Item], relaxation: Relaxation, part: Window, picks: Flags, stay: Flags) -> None:
        picks = picks & (relaxation.steps <= part.last_step)
        self.picks, self.stay = picks, stay
        owners = relaxation.owners
        numbers = np.bincount(owners[picks], minlength=len(items))
        timed = np.bincount(owners[picks & relaxation.timed], minlength=len(items))
        certain = (numbers == 1) & ~stay & (timed == 0)
        alive, firsts = picks.tolist(), relaxation.firsts.tolist()

        def left(index: int) -> Item:
            item = items[index]
            if numbers[index] == len(item.picks):
                return item
            flags = alive[firsts[index] : firsts[index] + len(item.picks)]
            return item._replace(picks=tuple(compress(item.picks, flags)))

        self.forced: list[Pick] = [left(index).picks[0] for index in np.flatnonzero(certain).tolist()]
        self._freed = sum([pick.nodes for pick in self.forced])
        self._part = replace(part, missing=part.missing - self._freed)
        needed = first_alike(relaxation, picks & ~certain[owners], self._part)
        self.items: list[Item] = [left(index) for index in needed.tolist()]
        self._tables: NodeTimeTables | None = None
        self.cells = len(self.items) * (part.last_step + 1) * max(0, self._part.missing)

    def holds(self, other: Self) -> bool:
        return not (np.any(other.picks & ~self.picks) or np.any(other.stay & ~self.stay))

    def solve(self) -> bool:
        """Whether there are tables, or none are needed."""
        if self._part.missing <= 0:
            return True
        if sum([item.picks[0].nodes for item in self.items]) < self._part.missing or self.cells > MOST_CELLS:
            return False
        self._tables = NodeTimeTables(self.items, [self._part], self.forced)
        return True

    def costs(self) -> Mapping[int, tuple[int, int, int]]:
        if self._tables is not None:
            return self._tables.costs
        return dict.fromkeys(self._part.deadlines, (sum(pick.lost for pick in self.forced), 0, len(self.forced)))

    def answers(self) -> Mapping[int, Taken]:
        if self._tables is not None:
            return self._tables.answers()
        ways = [way for pick in self.forced for way in pick.ways]
        return dict.fromkeys(self._part.deadlines, Taken.of(ways, self._freed))


class JobDoubt(Doubt):
    """The jobs in doubt: the core for some deadlines."""

    def __init__(
        self, relaxation: Relaxation, items: Sequence[Item], part: Window, bounds: Sequence[Bound], known: Taken | None
    ) -> None:
        deadlines = np.array(part.deadlines)
        self.deadlines, self.first_size = deadlines, TRIAL_JOBS
        self._relaxation, self._items, self._part, self._bounds = relaxation, items, part, bounds
        best = np.array([bound.least[deadlines] for bound in bounds]).argmax(axis=0)
        self._parts = [(np.flatnonzero(best == index), bounds[index]) for index in np.unique(best)]
        self._stay: Ints = np.min([bound.stay for _, bound in self._parts], axis=0)
        self._reduced: Ints = np.min(
            [bound.reduced(deadlines[places], relaxation.steps) for places, bound in self._parts], axis=0
        )
        self._known_costs: Ints = np.full(len(deadlines), NEVER if known is None else self.cost(known))
        self._best: _Core | None = None
        self._left: _Core | None = None

    def trial(self, size: int) -> bool:
        trial = self._core(*self._trial(size))
        if trial.solve():
            self._best = trial
            self._known_costs = np.minimum(self._known_costs, self._costs(trial))
        self._left = left = self._core(*self._alive(self._known_costs))
        if self._best is trial and trial.holds(left):
            self._left = None
            return False
        return left.cells > max(FEW_CELLS, 2 * trial.cells) and size < len(self._items)

    def prove(self) -> Iterator[tuple[Ints, Mapping[int, Taken], bool]]:
        """Nothing where the tables of every core are too large."""
        if self._left is not None and self._left.solve():
            yield self.deadlines, self._left.answers(), True
        elif self._best is not None:
            yield self.deadlines, self._best.answers(), self._left is None

    def cost(self, plan: Taken) -> int:
        return self._relaxation.cost(plan.lost, plan.steps, len(plan.ways))

    def least_lost(self, deadline: int) -> int:
        return max(int(bound.least[deadline]) for bound in self._bounds) // self._relaxation.per_lost

    def _core(self, picks: Flags, stay: Flags) -> _Core:
        return _Core(self._items, self._relaxation, self._part, picks, stay)

    def _costs(self, core: _Core) -> Ints:
        found = core.costs()
        return np.array(
            [self._relaxation.cost(*found[step]) if step in found else NEVER for step in self.deadlines.tolist()]
        )

    def _trial(self, size: int) -> tuple[Flags, Flags]:
        """The picks of, and whether may stay, the jobs in doubt the most; every other job as the bounds prefer it."""
        rel = self._relaxation
        killed = np.minimum.reduceat(np.where(rel.timed, NEVER, self._reduced), rel.firsts)
        doubt: Flags = np.zeros(len(self._items), dtype=bool)
        doubt[np.argsort(np.maximum(killed, self._stay), kind="stable")[:size]] = True
        timed = np.flatnonzero(rel.timed)
        picks: Flags = np.zeros(len(rel.owners), dtype=bool)
        picks[timed[np.argsort(self._reduced[timed], kind="stable")[: size + size // 2]]] = True
        picks |= ~rel.timed & (doubt | (killed <= self._stay))[rel.owners]
        return picks, doubt | (self._stay <= killed)

    def _alive(self, costs: Ints) -> tuple[Flags, Flags]:
        """The picks that an optimal plan may hold, and the jobs that it may spare."""
        rel = self._relaxation
        picks: Flags = np.zeros(len(rel.owners), dtype=bool)
        stay: Flags = np.zeros(len(self._items), dtype=bool)
        for places, bound in self._parts:
            room = costs[places] - bound.least[self.deadlines[places]]
            stay |= bound.stay <= room.max()
            picks |= ~rel.timed & (bound.surplus <= room.max())
            picks |= rel.timed & bound.within(self.deadlines[places], rel.steps, room)
        return picks, stay
