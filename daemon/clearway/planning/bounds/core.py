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

from clearway.planning.bounds.relaxation import NEVER, Bound, Flags, Ints, PairBound, Relaxation
from clearway.planning.bounds.search import Doubt
from clearway.planning.dp.node_time_tables import NodeTimeTables
from clearway.planning.formulation.node_groups import Item, Pick
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
        certain = (numbers == 1) & ~stay
        alive, firsts = picks.tolist(), relaxation.firsts.tolist()

        def left(index: int) -> Item:
            item = items[index]
            if numbers[index] == len(item.picks):
                return item
            flags = alive[firsts[index] : firsts[index] + len(item.picks)]
            return item._replace(picks=tuple(compress(item.picks, flags)))

        self.forced: list[Pick] = [left(index).picks[0] for index in np.flatnonzero(certain).tolist()]
        self._freed = sum([pick.nodes for pick in self.forced])
        self._late = late = sum([pick.steps for pick in self.forced])
        self._part = replace(
            part,
            missing=part.missing - self._freed,
            first_step=max(0, part.first_step - late),
            last_step=part.last_step - late,
        )
        needed = np.flatnonzero((numbers > 0) & ~certain) if self._part.missing > 0 else ()
        self.items: list[Item] = [left(index) for index in map(int, needed)]
        self._tables: NodeTimeTables | None = None
        self.cells = len(self.items) * max(0, self._part.last_step + 1) * max(0, self._part.missing)

    def holds(self, other: Self) -> bool:
        return not (np.any(other.picks & ~self.picks) or np.any(other.stay & ~self.stay))

    def solve(self) -> bool:
        """Whether there are tables, or none are needed."""
        if self._part.last_step < 0:
            return False
        if self._part.missing <= 0:
            return True
        if sum([item.picks[0].nodes for item in self.items]) < self._part.missing or self.cells > MOST_CELLS:
            return False
        self._tables = NodeTimeTables(self.items, [self._part], self.forced)
        return True

    def costs(self) -> Mapping[int, tuple[int, int, int]]:
        late = self._late
        if self._tables is not None:
            return {step + late: (lost, steps + late, n) for step, (lost, steps, n) in self._tables.costs.items()}
        cost = (sum(pick.lost for pick in self.forced), late, len(self.forced))
        return {step + late: cost for step in self._part.deadlines}

    def answers(self) -> Mapping[int, Taken]:
        if self._tables is not None:
            return {step + self._late: plan for step, plan in self._tables.answers().items()}
        plan = Taken.of([pick.way for pick in self.forced], self._freed)
        return {step + self._late: plan for step in self._part.deadlines}


class JobDoubt(Doubt):
    """The jobs in doubt: the core for some deadlines."""

    def __init__(
        self, relaxation: Relaxation, items: Sequence[Item], part: Window, bounds: Sequence[Bound], known: Taken | None
    ) -> None:
        deadlines = np.array(part.deadlines)
        self.deadlines, self.first_size = deadlines, TRIAL_JOBS
        self._relaxation, self._items, self._part, self._bounds = relaxation, items, part, bounds
        self._pair = relaxation.pair(part.last_step) if relaxation.timed.any() else None
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
        pair, last = self._pair, int(self.deadlines[-1])
        if pair is not None and pair.least[last] >= max(int(bound.least[last]) for _, bound in self._parts):
            return self._trial_at(pair, size)
        return self._trial_in_time(size)

    def _trial_at(self, pair: PairBound, size: int) -> tuple[Flags, Flags]:
        """By the prices of a node and of a step: a job is in doubt as its second best choice is nearly as good."""
        rel = self._relaxation
        least = np.minimum.reduceat(pair.surplus, rel.firsts)
        best = np.flatnonzero((pair.surplus == least[rel.owners]) & (least < pair.stay)[rel.owners])
        best = best[np.unique(rel.owners[best], return_index=True)[1]]
        others = pair.surplus.copy()
        others[best] = NEVER
        second = np.maximum(np.minimum(np.minimum.reduceat(others, rel.firsts), NEVER), 0)
        second = np.where(least < pair.stay, np.minimum(second, pair.stay), least)
        doubt: Flags = np.zeros(len(self._items), dtype=bool)
        doubt[np.argsort(second, kind="stable")[:size]] = True
        picks = doubt[rel.owners]
        picks[best] = True
        return picks, doubt | (least >= pair.stay)

    def _trial_in_time(self, size: int) -> tuple[Flags, Flags]:
        """By the price of a node alone."""
        rel = self._relaxation
        killed = np.minimum.reduceat(np.where(rel.timed, NEVER, self._reduced), rel.firsts)
        doubt: Flags = np.zeros(len(self._items), dtype=bool)
        doubt[np.argsort(np.maximum(killed, self._stay), kind="stable")[:size]] = True
        timed = np.flatnonzero(rel.timed)
        picks: Flags = np.zeros(len(rel.owners), dtype=bool)
        taken = int(np.count_nonzero(self._reduced[timed] <= 0))
        picks[timed[np.argsort(self._reduced[timed], kind="stable")[: max(taken, size) + size // 2]]] = True
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
        if self._pair is not None:
            most = int((costs - self._pair.least[self.deadlines]).max())
            stay &= self._pair.stay <= most
            picks &= self._pair.surplus <= most
        return picks, stay
