"""All deadlines by bounds and cores, stage by stage: what ``core`` does for some deadlines in a row.

Model: options that wait (``ready_s``), and jobs that end by themselves, make the jobs and the missing nodes differ
between deadlines; a stage is a window that misses nodes. The best prices are searched once for all stages, as if
checkpoints of all jobs could still gain time. Each stage then has bounds of its own for the best prices of its
deadlines, without the jobs that are gone. A plan for an earlier deadline, less the jobs that have ended since, is a
plan for every later one, so its cost bounds that of the best.

The deadlines of a stage are solved in parts, between which what is in doubt may change; all stages together have about
``_PIECES`` of them, and one each at least.

Cost: some dozens of prices at O(T^2 log T + N) and a few more for each stage, and a core for each part.
"""

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import compress
from math import isqrt

import numpy as np

from clearway.planning.bounds.core import JobDoubt
from clearway.planning.bounds.relaxation import OUT, Bound, Flags, Ints, Jobs, Relaxation
from clearway.planning.bounds.search import Solved
from clearway.planning.formulation.node_groups import Item
from clearway.planning.formulation.windows import Taken, Window

_PIECES = 18
_FIRST_PRICES = 16
_REFINEMENTS = 3
_REFINEMENTS_OF_MANY = 2  # stages, which look for better prices themselves
_PRICE_BITS = 7  # so precise is a stage's price: once nothing is lost, prices are thousands of times lower


def solve_by_core(items: Sequence[Item], stages: Sequence[Window]) -> Solved | None:
    """The stages over these single jobs; None where bounds do not help and the tables must hold everything.

    ``items`` hold every way of any stage.
    """
    solver = _Stages(items, stages)
    if not solver.usable or not all(solver.solve(stage) for stage in stages):
        return None
    return solver.solved


class _Stages:
    """The stages one after another; ``solved`` is what was found so far."""

    def __init__(self, items: Sequence[Item], stages: Sequence[Window]) -> None:
        self.solved = Solved()
        self._items, self._stages = items, stages
        self._tried: dict[int, Bound] = {}  # for all jobs, by price
        self._deadlines = sum(len(stage.deadlines) for stage in stages)
        self._whole = Jobs.of(items)
        self._nodes = {item.rank: item.picks[0].nodes for item in items}
        self._ready = np.array([pick.way.ready_step for item in items for pick in item.picks])
        self._job_ranks: Ints = np.array([item.rank for item in items])
        self._ranks: Ints = self._job_ranks[self._whole.owners]
        relaxation = Relaxation(self._whole, max(stage.missing for stage in stages), stages[-1].last_step)
        self.usable = relaxation.usable
        # as lost work for a node: what a price is in does not depend on the stage then
        self._prices, self._best_by_deadline = self._all_prices(relaxation, stages) if self.usable else ([], [])

    def solve(self, stage: Window) -> bool:
        """Adds the plans of the stage; False where that cannot be done by bounds."""
        ended = stage.ended_ranks
        alive: Flags = (self._ready <= stage.first_step) & ~np.isin(self._ranks, list(ended))
        if not alive.any():
            return True
        jobs, items = self._whole, self._items
        if not alive.all():
            jobs, items = jobs.only(alive), _only(items, alive.tolist())
        relaxation = Relaxation(jobs, stage.missing, stage.last_step)
        if not relaxation.usable:
            return False
        feasible = relaxation.feasible()
        deadlines = np.array([step for step in stage.deadlines if feasible[step]])
        if not len(deadlines):
            return True
        if len(self._stages) == 1 and alive.all():
            tried = [self._tried[price] for price in sorted(self._tried)]
            bounds = [tried[place] for place in sorted({self._best_by_deadline[step] for step in deadlines.tolist()})]
        else:
            bounds = self._bounds(relaxation, deadlines)
        self._forget(ended)
        pieces = min(len(deadlines), max(1, round(_PIECES * len(deadlines) / self._deadlines)))
        for steps in np.array_split(deadlines, pieces):  # in a row: with more time as many nodes can be freed
            part = replace(stage, first_step=int(steps[0]), last_step=int(steps[-1]))
            if not self.solved.search(JobDoubt(relaxation, items, part, bounds, self.solved.known)):
                return False
        return True

    def _forget(self, ended: Collection[int]) -> None:
        """The best plan without jobs that end by themselves: it frees all else that is missing, and costs no more."""
        known = self.solved.known
        if known is not None:
            left = [way for way in known.ways if way.rank not in ended]
            gone = sum(self._nodes[way.rank] for way in known.ways if way.rank in ended)
            self.solved.known = Taken.of(left, known.nodes - gone)

    def _all_prices(self, relaxation: Relaxation, stages: Sequence[Window]) -> tuple[list[float], list[int]]:
        """Prices from the least to the highest, closer to each other where they are the best of some deadline.

        With them, the place of the best one of each deadline.
        """
        fewest = min(stage.missing for stage in stages)
        low, high = min(relaxation.price_range(fewest)), max(relaxation.prices)
        prices = {low + (high - low) * part // (_FIRST_PRICES - 1) for part in range(_FIRST_PRICES)}
        by_price = {price: self._least(relaxation, price, stages) for price in prices}
        for _ in range(_REFINEMENTS if len(stages) == 1 else _REFINEMENTS_OF_MANY):
            order = sorted(by_price)
            best = set(np.array([by_price[price] for price in order]).argmax(axis=0).tolist())
            near = {(order[i] + order[j]) // 2 for i in best for j in (i - 1, i + 1) if 0 <= j < len(order)}
            by_price |= {price: self._least(relaxation, price, stages) for price in near - by_price.keys()}
        order = sorted(by_price)
        best_of_all: list[int] = np.array([by_price[price] for price in order]).argmax(axis=0).tolist()
        return [price / relaxation.per_lost for price in order], best_of_all

    def _bounds(self, relaxation: Relaxation, deadlines: Ints) -> list[Bound]:
        """Those of a stage that lacks jobs: from the prices that seem the best for three of its deadlines on.

        What is proven is concave in the price: one that proves more than those beside it is the best but for the
        distance to them.
        """
        order = [round(price * relaxation.per_lost) for price in self._prices]
        some = deadlines[[0, len(deadlines) // 2, -1]]
        near = {order[self._best_by_deadline[step]] for step in some.tolist()}
        order = sorted(set(order))
        by_price: dict[int, Bound] = {}
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
        return list(by_price.values())

    def _least(self, relaxation: Relaxation, price: int, stages: Sequence[Window]) -> Ints:
        """By deadline, what no plan costs less than, a little too low where jobs with checkpoints have ended."""
        bound = self._tried[price] = relaxation.bound(price)
        least: Ints = np.full(len(bound.least), OUT)
        for stage in stages:
            ended = list(stage.ended_ranks)
            gone = int(bound.stay[np.isin(self._job_ranks, ended)].sum()) if ended else 0
            deadlines = slice(stage.first_step, stage.last_step + 1)
            least[deadlines] = bound.least[deadlines] - price * (relaxation.missing - stage.missing) + gone
        return least


def _only(items: Sequence[Item], alive: Sequence[bool]) -> list[Item]:
    """The items with those of their picks that are alive."""
    flags, left = iter(alive), []
    for item in items:
        picks = tuple(compress(item.picks, flags))
        if picks:
            left.append(item if len(picks) == len(item.picks) else item._replace(picks=picks))
    return left
