"""What any plan costs at least where jobs share nodes: prices of nodes and of time, and jobs paid node by node.

Model: cost = lost work x L + steps x S + jobs, with L and S so large that the keys of ``planning.base`` come one after
another. At a price of mu per step each job costs at least c = min over its ways of (cost + mu x steps). That is split
over its nodes in shares that add up to one. A class of nodes then costs at least the shares of the jobs that must
leave, or, where fewer jobs do, the fractional cover of what is missing (the most over the resources). The cheapest
classes that make up the missing nodes, the last one in part, less mu x deadline, are a bound on every plan. It is
Lagrange's, with a price for time, for nodes (what the last one costs), and for each pair of job and node.

Shares: from equal ones, those of the classes that are taken grow by a factor, again and again, so that a job is paid
where it is needed. Any shares give a bound; the best of some dozens of rounds is kept.

Cost: time in the number of pairs for each round, in numpy. Numbers are floating point: comparisons leave ``MARGIN``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from clearway.planning.bounds.relaxation import Ints
from clearway.planning.formulation.group_sweep import Guide, Pick, Threshold
from clearway.planning.formulation.partial_nodes import Vector, all_must_leave
from clearway.planning.formulation.windows import Way

MARGIN = 1e-9
_FIRST_ROUNDS = 60
_ROUNDS = 40
_FIRST_PRICES = 12
_REFINEMENTS = 3
_SMALLEST_PRICE = 1e-4  # of the highest

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SharedBound:
    """The bound at one price of a step; ``at`` gives it for a deadline."""

    step_price: float
    node_price: float
    in_all: float
    surplus: Floats  # by class: how much more a plan that frees it costs at least
    paid: Floats  # by pair of class and job: the share of the job's cost

    def at(self, deadlines: Any) -> Any:
        return self.in_all - self.step_price * deadlines


class SharedRelaxation:
    """Classes of nodes and the jobs on them as arrays; every way is one that the last deadline has time for."""

    def __init__(
        self, classes: Sequence[Threshold], ways: Mapping[int, Sequence[Way]], missing: int, last_step: int
    ) -> None:
        self.classes = classes
        self.missing = missing
        self.nodes: Ints = np.array([min(of_class.nodes, missing) for of_class in classes])
        ranks = sorted({rank for of_class in classes for rank in of_class.held})
        place_of = {rank: place for place, rank in enumerate(ranks)}
        mine = [ways[rank] for rank in ranks]
        self._firsts: Ints = np.cumsum([0, *map(len, mine[:-1])])
        self._steps: Floats = np.array([way.steps for each in mine for way in each], dtype=float)
        self.per_step = len(ranks) + 1
        self.per_lost = self.per_step * (last_step + 1)
        lost: Floats = np.array([way.lost for each in mine for way in each], dtype=float)
        self._costs = lost * self.per_lost + self._steps * self.per_step + 1
        self.most = float(np.maximum.reduceat(self._costs, self._firsts).sum())  # no plan costs more
        self._pairs: Ints = np.array([place_of[rank] for each in classes for rank in each.held])
        counts = [len(of_class.held) for of_class in classes]
        self._class_of: Ints = np.repeat(np.arange(len(classes)), counts)
        self.first_pairs: Ints = np.cumsum([0, *counts[:-1]])
        self._jobs = len(ranks)
        self._covers = _Covers(classes, self.first_pairs)

    def cost(self, lost: int, steps: int, jobs: int) -> float:
        return float(lost) * self.per_lost + steps * self.per_step + jobs

    def bounds(self, deadlines: Ints) -> list[SharedBound]:
        """Bounds for prices from nothing to where no job takes time, finer where they are the best of a deadline."""
        highest = self._highest_price()
        equal = 1.0 / np.bincount(self._pairs, minlength=self._jobs)[self._pairs]
        free, shares = self._bound(0.0, equal, _FIRST_ROUNDS)
        found = {0.0: (free, shares)}
        grid = [highest * _SMALLEST_PRICE ** (part / (_FIRST_PRICES - 1)) for part in range(_FIRST_PRICES)]
        for price in [*reversed(grid), self.most + 1]:
            found[price] = self._bound(price, shares, _ROUNDS)
            shares = found[price][1]
        for _ in range(_REFINEMENTS):
            order = sorted(found)
            best = np.unique(np.array([found[price][0].at(deadlines) for price in order]).argmax(axis=0))
            near = {(i, j) for i in best for j in (i - 1, i + 1) if 0 <= j < len(order)}
            for price, start in {(order[i] + order[j]) / 2: found[order[i]][1] for i, j in sorted(near)}.items():
                if price not in found:
                    found[price] = self._bound(price, start, _ROUNDS)
        return [found[price][0] for price in sorted(found)]

    def _highest_price(self) -> float:
        """Above it every job would rather lose its work than take a step."""
        killed = np.minimum.reduceat(np.where(self._steps == 0, self._costs, inf), self._firsts)
        fastest = np.minimum.reduceat(np.where(self._steps > 0, self._steps, inf), self._firsts)
        both = np.isfinite(killed) & np.isfinite(fastest)
        return float((killed[both] / fastest[both]).max(initial=1.0))

    def _bound(self, step_price: float, shares: Floats, rounds: int) -> tuple[SharedBound, Floats]:
        per_job = np.minimum.reduceat(self._costs + step_price * self._steps, self._firsts)[self._pairs]
        best = -inf
        for number in range(rounds):
            paid = shares * per_job
            costs, taken_jobs = self._covers.least(paid)
            order = np.argsort(costs / self.nodes, kind="stable")
            so_far = np.cumsum(self.nodes[order])
            last = int(np.searchsorted(so_far, self.missing))
            marginal = order[last]
            node_price = float(costs[marginal] / self.nodes[marginal])
            surplus = costs - node_price * self.nodes
            in_all = node_price * self.missing + float(np.minimum(surplus, 0).sum())
            if in_all > best:
                best, kept = in_all, shares
                bound = SharedBound(step_price, node_price, in_all, np.maximum(surplus, 0), paid)
            taken = np.zeros(len(costs))
            taken[order[:last]] = 1
            taken[marginal] = 1 - (so_far[last] - self.missing) / self.nodes[marginal]
            shares = shares * np.exp(taken[self._class_of] * taken_jobs / (1 + number / 10))
            shares /= np.bincount(self._pairs, shares, minlength=self._jobs)[self._pairs]
        return bound, kept


class _Covers:
    """The least cost of freeing each class, when jobs are paid by shares: their sum, or a fractional cover."""

    def __init__(self, classes: Sequence[Threshold], first_pairs: Ints) -> None:
        self._first_pairs = first_pairs
        self._partial: list[int] = []
        rows: list[list[tuple[int, int]]] = []  # for each class and resource, pairs and what they give back
        missing: list[int] = []
        first_rows: list[int] = []
        for index, of_class in enumerate(classes):
            if all_must_leave(list(of_class.held.values()), of_class.missing):
                continue
            self._partial.append(index)
            first_rows.append(len(rows))
            for resource, short in enumerate(of_class.missing):
                held = [amounts[resource] for amounts in of_class.held.values()]
                rows.append([(pair, gives) for pair, gives in enumerate(held, int(first_pairs[index])) if gives])
                missing.append(short)
        width = max(map(len, rows), default=0)
        padded = [row + [(0, 0)] * (width - len(row)) for row in rows]
        self._pairs: Ints = np.array([[pair for pair, _ in row] for row in padded], dtype=np.int64)
        self._amounts: Floats = np.array([[gives for _, gives in row] for row in padded], dtype=float)
        self._missing: Floats = np.array(missing, dtype=float)[:, np.newaxis]
        self._first_rows: Ints = np.array(first_rows, dtype=np.int64)
        self._rows_of: Ints = np.diff(np.append(self._first_rows, len(missing)))

    def least(self, paid: Floats) -> tuple[Floats, Floats]:
        """By class what it costs, and by pair how much of the job that takes."""
        costs = np.add.reduceat(paid, self._first_pairs)
        taken = np.ones(len(paid))
        if not self._partial:
            return costs, taken
        cost = paid[self._pairs]
        rate = np.full(cost.shape, inf)  # what fills up a row is never taken
        np.divide(cost, self._amounts, out=rate, where=self._amounts > 0)
        order = rate.argsort(axis=1)
        amounts = np.take_along_axis(self._amounts, order, axis=1)
        before = np.cumsum(amounts, axis=1) - amounts
        part = np.clip((self._missing - before) / np.maximum(amounts, 1), 0, 1) * (amounts > 0)
        by_row = (part * np.take_along_axis(cost, order, axis=1)).sum(axis=1)
        most = np.maximum.reduceat(by_row, self._first_rows)
        costs[self._partial] = most
        mine = by_row >= np.repeat(most, self._rows_of)
        pairs = np.take_along_axis(self._pairs, order, axis=1)
        taken[self._pairs[self._amounts > 0]] = 0
        there = mine[:, np.newaxis] & (amounts > 0)
        taken[pairs[there]] = part[there]
        return costs, taken


def guide_of(bound: SharedBound, relaxation: SharedRelaxation, group: Sequence[Threshold], slack: float) -> Guide:
    """How the labels of a group are judged at the prices of a bound, when a plan above it by ``slack`` is known."""
    node_price, step_price = bound.node_price, bound.step_price + relaxation.per_step
    per_lost = relaxation.per_lost
    offers: dict[int, dict[int, tuple[float, Vector]]] = {}  # by class and job: its share, and what it gives back
    for of_class in group:
        first = relaxation.first_pairs[of_class.number]
        paid = bound.paid[first : first + len(of_class.held)].tolist()
        offers[of_class.number] = dict(zip(of_class.held, zip(paid, of_class.held.values(), strict=True), strict=True))
    known: dict[tuple[int, Vector, Sequence[int]], float] = {}

    def least(number: int, missing: Vector, jobs: Sequence[int]) -> float:
        key = (number, missing, jobs)
        if key not in known:
            cost = _cover(missing, [offers[number][rank] for rank in jobs])
            known[key] = min(0.0, cost - node_price * int(relaxation.nodes[number]))
        return known[key]

    def price(pick: Pick) -> float:
        return pick.lost * per_lost + pick.steps * step_price + len(pick.ways) - node_price * pick.nodes

    base = sum([least(of_class.number, of_class.missing, tuple(of_class.held)) for of_class in group])
    return Guide(price, least, base + slack)


def _cover(missing: Vector, offers: Sequence[tuple[float, Vector]]) -> float:
    """The least that a fractional cover costs in the resource where that is most."""
    most = 0.0
    for resource, short in enumerate(missing):
        cost, left = 0.0, float(short)
        for _, paid, held in sorted((paid / held[resource], paid, held) for paid, held in offers if held[resource]):
            part = min(1.0, left / held[resource])
            cost += part * paid
            left -= part * held[resource]
            if left <= 0:
                break
        most = max(most, cost)
    return most
