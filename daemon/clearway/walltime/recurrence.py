"""Theorem 2 of the stochastic-jobs paper: the cheapest requests for a discrete distribution, exactly and fast.

The paper: "Reservation and Checkpointing Strategies for Stochastic Jobs", IPDPS, 2020 (hal-03029298).

Model: a job lasts ``v_1 < ... < v_n``; ``S_l`` is the probability that it lasts longer than ``v_l`` (``S_0 = 1``,
``S_n = 0``). The state (c, l) is the last checkpoint (0: none) and the last milestone that was tried. With
``A_c = alpha (R - v_c) + beta R + gamma`` (``A_0 = gamma``, ``v_0 = 0``) the paper's recurrence reads

    E(c, l) = A_c S_l + min(M_l, U_c(l))                                          without the constant beta E[Y]
    M_l     = min(alpha v_n S_l,                                                  the last request
                  min_{l<j<n} alpha (v_j + C) S_l + beta C S_j + E(j, j))         a checkpoint after the next one
    U_c(l)  = min_{l<j<n} alpha v_j S_l + beta (v_j - v_c) S_j + E(c, j)          none after the next one

As written there are n^2 states with n choices each, O(n^3). Four facts, each exact, leave little of that:

1. The terms of M_l do not depend on c. They are lines in S_l whose slopes grow with j, and S_l grows as l falls: the
   best j never grows as l falls, and the search begins where the last one ended.
2. M_l - U_c(l) grows with v_c (more is lost to a checkpoint that is further back). Once no uncheckpointed request pays
   in (c, l), none pays in (c', l) for any 0 < c' < c: l is retired. Mostly that happens at once, at c = l.
3. An uncheckpointed request to j from 0 < c, l is no better than a checkpointed one if
   ``(alpha + beta) (v_j - v_c) S_j >= alpha C S_l + beta C S_j``: the next request is shorter by v_j - v_c at least.
   Other states (c, j) are never entered.
4. For fixed c the terms of U_c are lines in S_l as well: where many l are left, their lower envelope answers all of
   them in O(n) altogether.

So the worst case is O(n^2) time; memory is O(n), besides the chain kept for each c. All numbers are in one time unit.
"""

from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from clearway.walltime.distributions import Floats
from clearway.walltime.model import Costs

Ints: TypeAlias = npt.NDArray[np.int64]

_MANY = 160  # so many states of one checkpoint are answered quicker by the envelope than one by one


class Checkpoints(StrEnum):
    """After which requests a checkpoint is allowed, as strategies say; the last request never needs one."""

    CHOSEN = "dyn-prog-count"
    ALL = "all-ckpt"
    NONE = "no-ckpt"


class Recurrence:
    """``values`` are v_1 .. v_n, ``survival`` S_1 .. S_n; S must fall, and S_n be 0."""

    def __init__(self, values: Floats, survival: Floats, costs: Costs, checkpoints: Checkpoints) -> None:
        self.n = len(values)
        self.v: Floats = np.concatenate(([0.0], values))
        self.s: Floats = np.concatenate(([1.0], survival))
        self.costs, self.checkpoints = costs, checkpoints
        self.lost = costs.beta * self.v * self.s  # paid for work that an uncheckpointed request throws away
        # M_l, and the milestone that it goes to; n, the last request, until a checkpoint is found to pay
        self.best: Floats = costs.alpha * self.v[-1] * self.s
        self.checkpoint_at: Ints = np.full(self.n + 1, self.n, dtype=np.int64)
        # beta C S_j + E(j, j): what a checkpoint at j leads to, without the terms that hold S_l
        self.after: Floats = np.zeros(self.n + 1)
        self.without_after = self.best + self.lost  # M_j + beta v_j S_j
        self.active: list[int] = []  # milestones not yet retired, largest first

    def solve(self, proceed: Callable[[], None] = lambda: None) -> list[tuple[int, bool]]:
        """The best milestones, as (index into ``values`` from 1, checkpoint after it).

        ``proceed`` is called for each checkpoint that is looked at, and may raise to give up.
        """
        chains: list[tuple[int, ...]] = [()] * self.n
        if self.checkpoints is not Checkpoints.NONE:
            furthest = self.n - 1
            for c in range(self.n - 1, 0, -1):
                proceed()
                furthest = self._find_best(c, furthest)
                chains[c], cost = self._chain(c)
                self.after[c] = self.costs.beta * self.costs.checkpoint * self.s[c] + cost
            self._find_best(0, furthest)
        chains[0], _ = self._chain(0)
        return self._follow(chains)

    def _find_best(self, at: int, furthest: int) -> int:
        """M_l by fact 1; returns the j from which the next search begins."""
        if at + 1 > furthest:
            return furthest
        window = slice(at + 1, furthest + 1)
        terms = self.costs.alpha * self.s[at] * (self.v[window] + self.costs.checkpoint) + self.after[window]
        j = int(np.argmin(terms))
        if terms[j] < self.best[at]:
            self.best[at] = terms[j]
            self.checkpoint_at[at] = at + 1 + j
            self.without_after[at] = self.best[at] + self.lost[at]
        return at + 1 + j

    def _chain(self, c: int) -> tuple[tuple[int, ...], float]:
        """E(c, c), see ``_walk``: by facts 2 to 4; before the first checkpoint (c = 0) facts 2 and 3 do not hold."""
        costs = self.costs
        each = costs.gamma
        if c > 0:
            each += costs.alpha * (costs.restart - self.v[c]) + costs.beta * costs.restart
        if self.checkpoints is Checkpoints.ALL:
            return self._walk({}, c, each)
        if c == 0:
            return self._walk(self._by_envelope(0, range(self.n), each), c, each)
        near = self._near(c)
        search = self._by_envelope if len(near) > _MANY else self._one_by_one
        found = search(c, [*near, c], each - costs.beta * self.v[c])
        retired = {at for at in (*near, c) if at not in found}
        self.active = [at for at in (*self.active, c) if at not in retired]
        return self._walk(found, c, each)

    def _walk(self, found: dict[int, tuple[float, int]], c: int, each: float) -> tuple[tuple[int, ...], float]:
        """The milestones after c that are tried without a checkpoint, and E(c, c); M goes on from the last of them."""
        without: list[int] = []
        at = c
        while at in found:
            at = found[at][1]
            without.append(at)
        least = found[c][0] if c in found else float(self.best[c])
        return tuple(without), each * self.s[c] + least

    def _near(self, c: int) -> list[int]:
        """Fact 3: the milestones not retired to which an uncheckpointed request from c can pay, largest first."""
        if not self.active:
            return []
        costs, at = self.costs, np.array(self.active)
        gained = ((costs.alpha + costs.beta) * (self.v[at] - self.v[c]) - costs.beta * costs.checkpoint) * self.s[at]
        return [int(each) for each in at[gained < costs.alpha * costs.checkpoint * self.s[c]]]

    def _one_by_one(self, c: int, milestones: Sequence[int], each: float) -> dict[int, tuple[float, int]]:
        """U_c(l) and its j for those of ``milestones`` (largest first) where it is less than M_l."""
        alpha, found = self.costs.alpha, dict[int, tuple[float, int]]()
        ends = [self._end(at) for at in milestones]
        end = max(ends)
        after = self.without_after[c:end] + each * self.s[c:end]
        for at, last in zip(milestones, ends, strict=True):
            if last <= at + 1:
                continue
            terms = alpha * self.s[at] * self.v[at + 1 : last] + after[at + 1 - c : last - c]
            j = int(np.argmin(terms))
            if terms[j] < self.best[at]:
                found[at] = float(terms[j]), at + 1 + j
                after[at - c] += terms[j] - self.best[at]
        return found

    def _end(self, at: int) -> int:
        """No request beyond it can cost less than M_l, as it alone costs as much."""
        share = self.costs.alpha * self.s[at]
        return min(int(np.searchsorted(self.v, self.best[at] / share, side="right")), self.n)

    def _by_envelope(self, c: int, milestones: Sequence[int], each: float) -> dict[int, tuple[float, int]]:
        """The same by the lower envelope of the lines in S_l; it falls in slope, and is asked for growing S_l."""
        asked, found = set(milestones), dict[int, tuple[float, int]]()
        slopes = (self.costs.alpha * self.v[c:]).tolist()
        s, best = self.s[c:].tolist(), self.best[c:].tolist()
        after = (self.without_after[c:] + each * self.s[c:]).tolist()
        lines: deque[tuple[float, float, int]] = deque()
        for i in range(self.n - c - 1, -1, -1):
            x, height = s[i], after[i]
            if lines and i + c in asked:
                slope, intercept, j = lines[0]
                value = slope * x + intercept
                while len(lines) > 1:
                    slope, intercept, following = lines[1]
                    other = slope * x + intercept
                    if other > value:
                        break
                    lines.popleft()
                    value, j = other, following
                if value < best[i]:
                    found[i + c] = value, j
                    height += value - best[i]
            slope = slopes[i]
            while len(lines) > 1:
                (below, low, _), (above, high, _) = lines[-2], lines[-1]
                if (height - low) * (below - above) < (high - low) * (below - slope):
                    lines.pop()
                else:
                    break
            lines.append((slope, height, i + c))
        return found

    def _follow(self, chains: Sequence[tuple[int, ...]]) -> list[tuple[int, bool]]:
        milestones: list[tuple[int, bool]] = []
        at = 0
        while at < self.n:
            milestones += [(j, False) for j in chains[at]]
            last = chains[at][-1] if chains[at] else at
            at = int(self.checkpoint_at[last])
            milestones.append((at, at < self.n))
        return milestones
