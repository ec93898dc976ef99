"""Bounds for single jobs: the node count relaxed by a price, the checkpoint time kept exact.

Model: job i has n_i nodes; its pick p takes s_p steps and costs c_p, one number for the keys of ``planning.base`` up to
the preemptees: c = lost work x C1 + steps x C2 + 1. A missing node costs ``price`` instead of being forbidden (a
Lagrangian relaxation). A job that takes no time then costs ``b_i = min(0, c_kill - price n_i)``, and a checkpoint p
gains ``g_p = b_i - (c_p - price n_i)`` over that:

    H[t] = the most that checkpoints can gain within t steps      (a knapsack over time alone)
    bound[t] = price x missing + sum of b_i - H[t]

No plan for deadline t costs less than bound[t], whatever the price. A plan that holds pick p, or that spares job i,
costs at least this much more (its reduced cost; H is the gain without i as well, or more):

    kill p:        (c_p - price n_i) - b_i
    checkpoint p:  H[t] - H[t - s_p] - g_p
    job i stays:   -b_i

A pick whose bound is above the cost of some plan is in no optimal plan. Time has no price of its own: few checkpoints
fit into a deadline, and half a checkpoint would make the bound useless.

H lets a job checkpoint twice if it has two ways to, and is a bound all the same. Everything is a whole number.

Where many checkpoints fit into a deadline, a price w of a step as well proves more (``pair``): then

    bound[t] = price x missing - w t + sum of b_i      with b_i = the least of 0 and of c_p - price n_i + w s_p

and what a pick or a spared job costs more is its own price less b_i.

Cost: of picks with s steps each only the t // s best can be used, so H takes O(T log T) picks of T steps each: O(T^2
log T) time at most, and O(N) for the rest.

Source: the Lagrangian relaxation and variable fixing that the literature on knapsack problems describes (Kellerer,
Pferschy, Pisinger: Knapsack Problems, 2004), applied to the CoSim paper's problem.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt, log2

import numpy as np
import numpy.typing as npt

from clearway.planning.dp.node_time_tables import Item

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

NEVER = 2**62  # no cost is as high
OUT = 2**63 - 1  # what no plan can pay
_PRICE_BITS = 12  # of a unit of lost work for a node
_STEP_PRICE_BITS = 10  # so precise is one that is searched for
_PRECISE = 1 / 256  # likewise the logarithm of a node's price
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True, slots=True)
class Bound:
    """What one price proves, or a price of a node and one of a step."""

    least: Ints  # by deadline: no plan costs less
    stay: Ints  # by job: how much more sparing it costs at least
    surplus: Ints  # by pick: likewise; with one price only for those without steps, of others the gain, negative
    time_gain: Ints  # H; empty with two prices

    def more(self, deadlines: Ints, steps: Ints) -> Ints:
        """By pick (with so many steps) and deadline, how much more a plan with it costs at least."""
        late = deadlines[None] - steps[:, None]
        lost_gain = self.time_gain[deadlines][None] - self.time_gain[np.maximum(late, 0)]
        more: Ints = np.where(late >= 0, lost_gain + self.surplus[:, None], OUT)
        return more


class Relaxation:
    """Single jobs as arrays, by job and by pick; ``usable`` is False where the numbers are too large for it."""

    def __init__(self, items: Sequence[Item], missing: int, last_step: int) -> None:
        self.missing, self.last_step = missing, last_step
        numbers = [len(item.ways) for item in items]
        self.owners: Ints = np.repeat(np.arange(len(items)), numbers)
        self.firsts: Ints = np.cumsum([0, *numbers[:-1]])
        self.nodes: Ints = np.minimum([item.nodes for item in items], missing)
        self.steps: Ints = np.array([way.steps for item in items for way in item.ways])
        self.timed: Flags = self.steps > 0
        self.usable = False
        all_lost = [way.lost for item in items for way in item.ways]  # which may exceed 64 bits
        count, most_lost = len(items), max(all_lost)
        # All keys in one number where that fits; else lost work alone, which proves a little less, in units so small
        # that a price of a node can be precise.
        for self.per_lost, self.per_step, self.per_job in (
            ((count + 1) * (last_step + 1), count + 1, 1),
            *((1 << bits, 0, 0) for bits in range(_PRICE_BITS, -1, -1)),
        ):
            if most_lost * self.per_lost + last_step * self.per_step < NEVER:
                lost = np.array(all_lost, dtype=np.int64)
                self.costs: Ints = lost * self.per_lost + self.steps * self.per_step + self.per_job
                self.prices = self._price_range()
                in_all = sum(self.costs.tolist()) + (max(self.prices) + 1) * int(self.nodes.sum() + missing)
                self.usable = in_all < NEVER
                if self.usable:
                    break

    def cost(self, lost: int, steps: int, jobs: int) -> int:
        return lost * self.per_lost + steps * self.per_step + jobs * self.per_job

    def feasible(self) -> Flags:
        """By deadline, whether enough nodes can be freed at all: the knapsack over time with nodes as the gain."""
        soonest = np.minimum.reduceat(self.steps, self.firsts)
        late = np.flatnonzero(soonest)
        most = self._most_within(soonest[late], self.nodes[late])
        return most + int(self.nodes[soonest == 0].sum()) >= self.missing

    def _price_range(self) -> tuple[int, int]:
        """Prices between which the best one of every deadline lies: with all the time there is, and with none."""
        cheapest = np.minimum.reduceat(self.costs, self.firsts)
        killed = np.minimum.reduceat(np.where(self.timed, NEVER, self.costs), self.firsts)
        killed = np.where(killed < NEVER, killed, int(self.costs.max()))
        return self._critical(cheapest), self._critical(killed)

    def bound(self, price: int) -> Bound:
        relaxed = self.costs - price * self.nodes[self.owners]
        base = np.minimum(0, np.minimum.reduceat(np.where(self.timed, 0, relaxed), self.firsts))
        surplus = relaxed - base[self.owners]
        useful = np.flatnonzero(self.timed & (surplus < 0))
        time_gain = self._most_within(self.steps[useful], -surplus[useful])
        return Bound(
            least=price * self.missing + int(base.sum()) - time_gain, stay=-base, surplus=surplus, time_gain=time_gain
        )

    def pair(self, deadline: int) -> Bound:
        """The bound that proves about the most for this deadline.

        What it proves is concave in both prices: golden sections find that of a node, the sign of the steps that are
        left that of a step.
        """
        known: dict[int, Bound] = {}

        def proven(exponent: float) -> int:
            price = round(2**exponent)
            if price not in known:
                known[price] = self._best_pair(price, deadline)
            return int(known[price].least[deadline])

        low, high = 0.0, log2(2 * max(self.prices) + 2)
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        while high - low > _PRECISE:
            if proven(left) < proven(right):
                low, left, right = left, right, left + _GOLDEN * (high - left)
            else:
                high, right, left = right, left, right - _GOLDEN * (right - low)
        return max(known.values(), key=lambda bound: int(bound.least[deadline]))

    def _best_pair(self, price: int, deadline: int) -> Bound:
        """What is proven at most with this price of a node and some price of a step."""
        relaxed = self.costs - price * self.nodes[self.owners]
        if self._steps_taken(relaxed) <= deadline:
            return self._pair_bound(price, 0)
        low, high = 1, 2 - int(relaxed.min())
        while high - low > 1 + (low >> _STEP_PRICE_BITS):
            step_price = max(low + 1, isqrt(low * high))
            if self._steps_taken(relaxed + step_price * self.steps) <= deadline:
                high = step_price
            else:
                low = step_price
        both = (self._pair_bound(price, low), self._pair_bound(price, high))
        return max(both, key=lambda bound: int(bound.least[deadline]))

    def _steps_taken(self, relaxed: Ints) -> int:
        """By the jobs that are worth their prices, each in its best way."""
        least = np.minimum.reduceat(relaxed, self.firsts)
        return int(self.steps[(relaxed == least[self.owners]) & (relaxed < 0)].sum())

    def _pair_bound(self, price: int, step_price: int) -> Bound:
        relaxed = self.costs - price * self.nodes[self.owners] + step_price * self.steps
        base = np.minimum(0, np.minimum.reduceat(relaxed, self.firsts))
        deadlines = np.arange(self.last_step + 1)
        return Bound(
            least=price * self.missing + int(base.sum()) - step_price * deadlines,
            stay=-base,
            surplus=relaxed - base[self.owners],
            time_gain=deadlines[:0],
        )

    def _critical(self, costs: Ints) -> int:
        """Cost per node of the last job that is needed when the cheapest go first."""
        order = np.argsort(costs / self.nodes, kind="stable")
        place = int(np.searchsorted(np.cumsum(self.nodes[order]), self.missing))
        last = order[min(place, len(order) - 1)]
        return int(costs[last] // self.nodes[last])

    def _most_within(self, steps: Ints, gains: Ints) -> Ints:
        """The most gain within 0 .. last_step steps, each of these taken at most once."""
        most: Ints = np.zeros(self.last_step + 1, dtype=np.int64)
        order = np.lexsort((-gains, steps))
        steps, gains = steps[order], gains[order]
        new = np.flatnonzero(np.diff(steps, prepend=-1))
        place = np.arange(len(steps)) - np.repeat(new, np.diff(np.append(new, len(steps))))
        useful = place < self.last_step // np.maximum(steps, 1)
        for late, gain in zip(steps[useful].tolist(), gains[useful].tolist(), strict=True):
            np.maximum(most[late:], most[:-late] + gain, out=most[late:])
        return most
