"""The few jobs about which an optimal plan is in doubt, found and proven by the bounds of ``relaxation``.

Model: a job all of whose picks are worse than a known plan is out; one that must leave in one way is certain; the rest
are the core. Only what is strictly worse goes, so that ties are decided among all plans that are equally good. A plan
for an earlier deadline, less the jobs that have ended since, is a plan for every later one.

Method, for some deadlines in a row at once (prices differ little between them):
1. A trial over the jobs that are in doubt the most gives a valid plan for each deadline.
2. The cost of these plans, or of the plan for an earlier deadline, decides which picks may be in an optimal plan.
3. While these are many more than those of the trial, the trial grows to twice its size: better plans prove more. Where
   it would have to grow large, half of the deadlines come first, and then the other half.
4. The tables of the trial are the answer where its core holds all of these, else the tables over exactly these picks
   are. What stays unproven, because these would be larger than ``MOST_CELLS``, has a gap to the bound on lost work.

Cost: one or two dozen prices at O(T^2 log T + N) for each window, and tables over a core of some dozens of jobs.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from math import isqrt
from typing import Self

import numpy as np

from clearway.planning.bounds.relaxation import NEVER, Bound, Flags, Ints, Relaxation
from clearway.planning.dp.node_time_tables import Item, NodeTimeTables, items_of
from clearway.planning.formulation.windows import Taken, Window

TRIAL_JOBS = 24
MOST_CELLS = 2_000_000_000  # of all tables of a core together; about ten seconds of work
FEW_CELLS = 4_000_000  # not worth a larger trial
_MOST_OF_SOME = 8 * TRIAL_JOBS  # jobs of a trial for more deadlines than one
_PARTS = 10  # of all deadlines, between which what is in doubt may change; and one for each window at least
_PRICE_BITS = 7  # so precise is a price: once nothing is lost, prices are thousands of times lower


@dataclass(slots=True)
class Solved:
    """Plans by deadline, and how far from the optimum they may be at most; 0 when they are proven."""

    answers: dict[int, Taken] = field(default_factory=dict)
    proven: bool = True
    gap: float = 0.0
    known: Taken | None = None  # the best plan so far: it serves every later deadline

    def forget(self, ended: set[int], nodes: Mapping[int, int]) -> None:
        """The best plan goes on without jobs that end by themselves: it frees all else, and costs no more."""
        if self.known is not None:
            left = [way for way in self.known.ways if way.rank not in ended]
            gone = sum(nodes[way.rank] for way in self.known.ways if way.rank in ended)
            self.known = Taken.of(left, self.known.nodes - gone)

    def add(self, doubt: "_Doubt", plans: Mapping[int, Taken], *, proven: bool) -> bool:
        """Adds the plans for some deadlines; whether each of them has one."""
        self.proven = self.proven and proven
        for step in doubt.deadlines.tolist():
            plan = plans.get(step)
            if plan is not None and (self.known is None or doubt.cost(plan) <= doubt.cost(self.known)):
                self.known = plan
            if self.known is None:
                return False
            self.answers[step] = self.known
            if not proven and self.known.lost:
                needless = self.known.lost - max(0, doubt.least_lost(step))
                self.gap = max(self.gap, needless / self.known.lost)
        return True


def solve_by_core(windows: Sequence[Window]) -> Solved | None:
    """Windows that miss nodes; None where bounds do not help and the tables must hold everything."""
    solved = Solved()
    nodes: dict[int, int] = {}
    tried: list[float] = []  # prices of the window before, as lost work for a node; and the best of them
    best: list[float] = []
    parts_of_step = _PARTS / sum(len(window.deadlines) for window in windows)
    for window in windows:
        items = items_of(window)
        if not items:
            continue
        nodes |= {item.rank: item.nodes for item in items}
        relaxation = Relaxation(items, window.missing, window.last_step)
        if not relaxation.usable:
            return None
        feasible = relaxation.feasible()
        deadlines = np.array([step for step in window.deadlines if feasible[step]])
        if not len(deadlines):
            continue
        by_price, best_prices = _bounds(relaxation, deadlines, tried, best)
        tried, best = ([price / relaxation.per_lost for price in some] for some in (by_price, best_prices))
        solved.forget({way.rank for way in window.ended}, nodes)
        parts = min(len(deadlines), max(1, round(parts_of_step * len(deadlines))))
        left = np.array_split(deadlines, parts)[::-1]  # in a row: with more time as many nodes can be freed
        while left:
            steps = left.pop()
            part = replace(window, first_step=int(steps[0]), last_step=int(steps[-1]))
            doubt = _Doubt(relaxation, items, part, list(by_price.values()), solved.known)
            found = doubt.plans()
            if found is None:
                left += np.array_split(steps, 2)[::-1]
            elif not solved.add(doubt, found[0], proven=found[1]):
                return None
    return solved


def _bounds(
    relaxation: Relaxation, deadlines: Ints, known: Sequence[float], good: Sequence[float]
) -> tuple[dict[int, Bound], list[int]]:
    """By price; and about the best prices for three of the deadlines: what is proven is concave in the price."""
    some = deadlines[[0, len(deadlines) // 2, -1]]
    low, high = sorted(relaxation.prices)
    near = {round(price * relaxation.per_lost) for price in good} or {low, isqrt((low + 1) * (high + 1)), high}
    order = sorted({low, high, *near, *[round(price * relaxation.per_lost) for price in known]})
    by_price: dict[int, Bound] = {}
    best: list[int] = []
    while near:
        by_price |= {price: relaxation.bound(price) for price in near}
        tried = sorted(by_price)
        proven = np.array([by_price[price].least[some] for price in tried])
        best = [tried[place] for place in np.unique(proven.argmax(axis=0)).tolist()]
        near = set()
        for price in best:
            place = bisect_left(order, price)
            beside = set(order[max(0, place - 1) : place + 2])
            if beside <= by_price.keys():
                apart = [other for other in beside if abs(price - other) > max(price, other) >> _PRICE_BITS]
                beside = {isqrt((price + 1) * (other + 1)) for other in apart}
            near |= beside - by_price.keys()
        order = sorted({*order, *near})
    return by_price, best


class _Doubt:
    """What is in doubt about some deadlines in a row; with the best plan that is known for all of them."""

    def __init__(
        self, relaxation: Relaxation, items: Sequence[Item], part: Window, bounds: Sequence[Bound], known: Taken | None
    ) -> None:
        self.deadlines: Ints = np.array(part.deadlines)
        self._relaxation, self._items, self._part, self._bounds = relaxation, items, part, bounds
        self._pair = relaxation.pair(part.last_step) if relaxation.timed.any() else None
        best = np.array([bound.least[self.deadlines] for bound in bounds]).argmax(axis=0)
        self._best = [(np.flatnonzero(best == index), bounds[index]) for index in np.unique(best)]
        self._costs: Ints = np.full(len(self.deadlines), NEVER if known is None else self.cost(known))

    def plans(self) -> tuple[Mapping[int, Taken], bool] | None:
        """The best plans by deadline, and whether they are proven; none where all tables are too large.

        None where fewer deadlines are proven sooner: a pair of prices proves the most for the last of them.
        """
        rel, size, best = self._relaxation, TRIAL_JOBS, None
        while True:
            trial = _Core(self._items, rel, self._part, *self._trial(size))
            if trial.solve():
                best, found = trial, trial.costs()
                costs = [rel.cost(*found[step]) if step in found else NEVER for step in self.deadlines.tolist()]
                self._costs = np.minimum(self._costs, costs)
            left = _Core(self._items, rel, self._part, *self._alive())
            if best is trial and trial.holds(left):
                return trial.answers(), True
            if left.cells <= max(FEW_CELLS, 2 * trial.cells) or size >= len(self._items):
                break
            if size >= _MOST_OF_SOME and best is not None and len(self.deadlines) > 1:
                return None
            size *= 2
        if left.solve():
            return left.answers(), True
        return ({} if best is None else best.answers()), False

    def cost(self, plan: Taken) -> int:
        """All keys in one number."""
        return self._relaxation.cost(plan.lost, plan.steps, len(plan.ways))

    def least_lost(self, deadline: int) -> int:
        """No plan for this deadline loses less."""
        return max(int(bound.least[deadline]) for bound in self._bounds) // self._relaxation.per_lost

    def _trial(self, size: int) -> tuple[Flags, Flags]:
        """The picks of, and whether may stay, the jobs in doubt the most; every other job as the bounds prefer it."""
        rel = self._relaxation
        stay = np.min([bound.stay for _, bound in self._best], axis=0)
        reduced = np.min([bound.more(self.deadlines[at], rel.steps).min(axis=1) for at, bound in self._best], axis=0)
        killed = np.minimum.reduceat(np.where(rel.timed, NEVER, reduced), rel.firsts)
        doubt: Flags = np.zeros(len(self._items), dtype=bool)
        doubt[np.argsort(np.maximum(killed, stay), kind="stable")[:size]] = True
        timed = np.flatnonzero(rel.timed)
        picks: Flags = ~rel.timed & (doubt | (killed <= stay))[rel.owners]
        taken = int(np.count_nonzero(reduced[timed] <= 0))
        picks[timed[np.argsort(reduced[timed], kind="stable")[: max(taken, size) + size // 2]]] = True
        return picks, doubt | (stay <= killed)

    def _alive(self) -> tuple[Flags, Flags]:
        """The picks that an optimal plan may hold, and the jobs that it may spare."""
        rel = self._relaxation
        picks: Flags = np.zeros(len(rel.owners), dtype=bool)
        stay: Flags = np.zeros(len(self._items), dtype=bool)
        for places, bound in self._best:
            room = self._costs[places] - bound.least[self.deadlines[places]]
            stay |= bound.stay <= room.max()
            picks |= (bound.more(self.deadlines[places], rel.steps) <= room[None]).any(axis=1)
        if self._pair is not None:
            most = int((self._costs - self._pair.least[self.deadlines]).max())
            stay &= self._pair.stay <= most
            picks &= self._pair.surplus <= most
        return picks, stay


class _Core:
    """What is in doubt, what is certain, and the tables over it."""

    def __init__(self, items: Sequence[Item], relaxation: Relaxation, part: Window, picks: Flags, stay: Flags) -> None:
        picks = picks & (relaxation.steps <= part.last_step)
        self._picks, self._stay = picks, stay
        numbers = np.add.reduceat(picks, relaxation.firsts, dtype=int)
        certain = (numbers == 1) & ~stay
        alive, firsts = picks.tolist(), relaxation.firsts.tolist()

        def left(index: int) -> Item:
            item = items[index]
            if numbers[index] == len(item.ways):
                return item
            flags = alive[firsts[index] : firsts[index] + len(item.ways)]
            return item._replace(ways=tuple(compress(item.ways, flags)))

        forced = [left(index) for index in np.flatnonzero(certain).tolist()]
        self._forced = Taken.of([item.ways[0] for item in forced], sum([item.nodes for item in forced]))
        late = self._forced.steps
        self._part = replace(
            part,
            missing=part.missing - self._forced.nodes,
            first_step=max(0, part.first_step - late),
            last_step=part.last_step - late,
        )
        needed = np.flatnonzero((numbers > 0) & ~certain) if self._part.missing > 0 else ()
        self._items: list[Item] = [left(index) for index in map(int, needed)]
        self._tables: NodeTimeTables | None = None
        self.cells = len(self._items) * max(0, self._part.last_step + 1) * max(0, self._part.missing)

    def holds(self, other: Self) -> bool:
        return not (np.any(other._picks & ~self._picks) or np.any(other._stay & ~self._stay))

    def solve(self) -> bool:
        """Whether there are tables, or none are needed."""
        if self._part.last_step < 0 or self._part.missing <= 0:
            return self._part.last_step >= 0
        if sum([item.nodes for item in self._items]) < self._part.missing or self.cells > MOST_CELLS:
            return False
        self._tables = NodeTimeTables(self._items, [self._part], self._forced)
        return True

    def costs(self) -> Mapping[int, tuple[int, int, int]]:
        late = self._forced.steps
        if self._tables is None:
            return {step: (plan.lost, plan.steps, len(plan.ways)) for step, plan in self.answers().items()}
        return {step + late: (lost, steps + late, n) for step, (lost, steps, n) in self._tables.costs.items()}

    def answers(self) -> Mapping[int, Taken]:
        forced, late = self._forced, self._forced.steps
        if self._tables is not None:
            return {step + late: plan for step, plan in self._tables.answers().items()}
        return {step + late: forced for step in self._part.deadlines}
