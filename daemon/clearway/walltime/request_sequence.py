"""Which walltimes to request, and after which to checkpoint: the strategies of the stochastic-jobs paper.

The paper: "Reservation and Checkpointing Strategies for Stochastic Jobs", IPDPS, 2020 (hal-03029298).

A request is paid ``alpha`` for each second asked for, ``beta`` for each second used, and ``gamma`` for being made. A
sequence is given by its milestones (Equations 3 and 4): milestone k is the work that is done at the end of request k,
counted from the last checkpoint before it. Times are in one unit; only ``SequencePlan`` names seconds.

DYN-PROG-COUNT(X, eps) (Algorithm 1) cuts the support [a, b] into n = ceil(c0 / eps) equal chunks and solves Theorem 2
on them; its expected cost is at most 1 + eps times the least possible (Theorem 3). ALL-CKPT and NO-CKPT are the same
with the checkpoints fixed. The periodic strategies (Algorithm 2) end their requests at equal distances. A discrete
distribution (samples) needs no chunks: its own times are the only milestones worth having, and the answer is exact.

Theorem 2 (``Recurrence``): a job lasts ``v_1 < ... < v_n``; ``S_l`` is the probability that it lasts longer than
``v_l`` (``S_0 = 1``, ``S_n = 0``). The state (c, l) is the last checkpoint (0: none) and the last milestone that was
tried. With ``A_c = alpha (R - v_c) + beta R + gamma`` (``A_0 = gamma``, ``v_0 = 0``) the paper's recurrence reads

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

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from clearway.model.errors import WalltimeError
from clearway.walltime.distributions import Discrete, Distribution, Floats

Ints: TypeAlias = npt.NDArray[np.int64]
Proceed: TypeAlias = Callable[[], None]

MOST_PERIODS = 1_000
_MANY = 160  # so many states of one checkpoint are answered quicker by the envelope than one by one


class Strategy(StrEnum):
    DYN_PROG_COUNT = "dyn-prog-count"
    ALL_CKPT = "all-ckpt"
    NO_CKPT = "no-ckpt"
    ALL_CKPT_PER = "all-ckpt-per"
    NO_CKPT_PER = "no-ckpt-per"

    @property
    def periodic(self) -> bool:
        return self in {Strategy.ALL_CKPT_PER, Strategy.NO_CKPT_PER}


@dataclass(frozen=True, slots=True)
class Costs:
    """alpha, beta, gamma of Equation 1; the time of one checkpoint (C) and of one restart (R)."""

    checkpoint: float
    restart: float
    alpha: float = 1.0
    beta: float = 0.0
    gamma: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not (math.isfinite(value) and value >= 0):
                raise WalltimeError(f"{name} must be a number that is not negative, not {value:g}")
        if self.alpha == 0:
            raise WalltimeError("alpha must be more than 0: where asking costs nothing, ask for all")


@dataclass(frozen=True, slots=True)
class Milestone:
    """``at``: work done when the request ends; ``checkpoint``: whether it is saved then."""

    at: float
    checkpoint: bool


@dataclass(frozen=True, slots=True)
class WalltimeRequest:
    """One walltime request of a sequence, seconds."""

    request_s: float
    checkpoint: bool
    milestone_s: float


@dataclass(frozen=True, slots=True)
class SequencePlan:
    """What to ask for, one request after the other until the job has ended."""

    strategy: str
    expected_cost: float
    omniscient_cost: float
    sequence: tuple[WalltimeRequest, ...]


class Recurrence:
    """``values`` are v_1 .. v_n, ``survival`` S_1 .. S_n; S must fall, and S_n be 0."""

    def __init__(self, values: Floats, survival: Floats, costs: Costs, strategy: Strategy) -> None:
        self.n = len(values)
        self.v: Floats = np.concatenate(([0.0], values))
        self.s: Floats = np.concatenate(([1.0], survival))
        self.costs, self.strategy = costs, strategy
        self.lost = costs.beta * self.v * self.s  # paid for work that an uncheckpointed request throws away
        # M_l, and the milestone that it goes to; n, the last request, until a checkpoint is found to pay
        self.best: Floats = costs.alpha * self.v[-1] * self.s
        self.checkpoint_at: Ints = np.full(self.n + 1, self.n, dtype=np.int64)
        # beta C S_j + E(j, j): what a checkpoint at j leads to, without the terms that hold S_l
        self.after: Floats = np.zeros(self.n + 1)
        self.without_after = self.best + self.lost  # M_j + beta v_j S_j
        self.active: list[int] = []  # milestones not yet retired, largest first

    def solve(self, proceed: Proceed = lambda: None) -> list[tuple[int, bool]]:
        """The best milestones, as (index into ``values`` from 1, checkpoint after it).

        ``proceed`` is called for each checkpoint that is looked at, and may raise to give up.
        """
        chains: list[tuple[int, ...]] = [()] * self.n
        if self.strategy is not Strategy.NO_CKPT:
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
        if self.strategy is Strategy.ALL_CKPT:
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


def requests(milestones: Sequence[Milestone], costs: Costs) -> tuple[WalltimeRequest, ...]:
    """Equation 4: each request holds the restart, the work since the last checkpoint, and its own checkpoint."""
    made: list[WalltimeRequest] = []
    saved: float | None = None
    for milestone in milestones:
        restart = 0.0 if saved is None else costs.restart
        length = restart + milestone.at - (saved or 0.0) + (costs.checkpoint if milestone.checkpoint else 0.0)
        made.append(WalltimeRequest(length, milestone.checkpoint, milestone.at))
        if milestone.checkpoint:
            saved = milestone.at
    return tuple(made)


def expected_cost(milestones: Sequence[Milestone], distribution: Distribution, costs: Costs) -> float:
    """Theorem 1 (Equation 7). Raises ``WalltimeError``: milestones that do not ascend, or end too early."""
    if not milestones:
        raise WalltimeError("a sequence needs at least one request")
    at = np.array([milestone.at for milestone in milestones])
    saved = np.array([milestone.checkpoint for milestone in milestones])
    if at[0] < 0 or (np.diff(at) <= 0).any() or at[-1] < distribution.high * (1 - 1e-12):
        raise WalltimeError("milestones must ascend, and the last must cover the longest job")
    return _expected_cost(at, saved, distribution, costs)


def _expected_cost(at: Floats, saved: npt.NDArray[np.bool_], distribution: Distribution, costs: Costs) -> float:
    base = np.append(0.0, np.maximum.accumulate(np.where(saved, at, 0.0))[:-1])
    restart = np.where(np.append(False, np.logical_or.accumulate(saved)[:-1]), costs.restart, 0.0)
    work, checkpoint = at - base, np.where(saved, costs.checkpoint, 0.0)
    begun = np.append(1.0, distribution.survival(at[:-1]))  # P(X > t_{k-1}): request k is made
    asked = costs.alpha * (restart + work + checkpoint) + costs.beta * restart + costs.gamma
    wasted = costs.beta * (np.where(saved, 0.0, work) + checkpoint)
    return costs.beta * distribution.mean + float(asked @ begun + wasted[:-1] @ begun[1:])


def omniscient_cost(distribution: Distribution, costs: Costs) -> float:
    """One request of exactly the right length; nothing costs less."""
    return (costs.alpha + costs.beta) * distribution.mean + costs.gamma


def chunks(distribution: Distribution, costs: Costs, epsilon: float) -> int:
    """How many chunks Algorithm 1 takes (its n). Raises ``WalltimeError`` where no number of them is enough."""
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise WalltimeError(f"epsilon must be more than 0, not {epsilon:g}")
    shortest = min(max(distribution.low, epsilon * distribution.mean / 3), costs.restart, costs.checkpoint)
    factor = min(
        1 / shortest if shortest > 0 else math.inf,
        (costs.alpha + costs.beta) / costs.gamma if costs.gamma > 0 else math.inf,
    )
    count = 3 * (distribution.high - distribution.low) * factor / epsilon
    if not math.isfinite(count):
        raise WalltimeError(
            "free checkpoints or restarts have no best sequence: give both a time, or gamma, or --chunks"
        )
    return max(math.ceil(count), 1)


def discretised(distribution: Distribution, count: int) -> Discrete:
    """Equation 9: chunk i gathers the probability of (v_{i-1}, v_i]; chunks without any are left out."""
    edges = np.linspace(distribution.low, distribution.high, count + 1)
    tail = distribution.survival(edges)
    tail[0], tail[-1] = 1.0, 0.0
    mass = tail[:-1] - tail[1:]
    return Discrete(edges[1:][mass > 0], mass[mass > 0])


def dynamic(
    distribution: Distribution, costs: Costs, strategy: Strategy, count: int, proceed: Proceed = lambda: None
) -> tuple[Milestone, ...]:
    """DYN-PROG-COUNT, ALL-CKPT or NO-CKPT over ``count`` chunks; of a discrete distribution, exact."""
    steps = distribution if isinstance(distribution, Discrete) else discretised(distribution, count)
    chosen = Recurrence(steps.values, steps.tail, costs, strategy).solve(proceed)
    return tuple(Milestone(float(steps.values[i - 1]), checkpoint) for i, checkpoint in chosen)


def periodic(distribution: Distribution, strategy: Strategy, count: int) -> tuple[Milestone, ...]:
    """ALL-CKPT-PER (Algorithm 2) or NO-CKPT-PER with ``count`` requests."""
    at, saved = _periods(distribution, strategy, count)
    return tuple(Milestone(float(end), bool(checkpoint)) for end, checkpoint in zip(at, saved, strict=True))


def _periods(distribution: Distribution, strategy: Strategy, count: int) -> tuple[Floats, npt.NDArray[np.bool_]]:
    at = np.linspace(distribution.low, distribution.high, count + 1)[1:]
    if distribution.low == distribution.high:
        at = at[-1:]
    saved = np.full(len(at), strategy is Strategy.ALL_CKPT_PER)
    saved[-1] = False
    return at, saved


def best_periods(distribution: Distribution, costs: Costs, strategy: Strategy, most: int = MOST_PERIODS) -> int:
    """The number of requests up to ``most`` of least expected cost; the least number among equals."""
    return min(range(1, most + 1), key=lambda count: (periodic_cost(distribution, costs, strategy, count), count))


def periodic_cost(distribution: Distribution, costs: Costs, strategy: Strategy, count: int) -> float:
    """The expected cost of a periodic strategy with ``count`` requests."""
    return _expected_cost(*_periods(distribution, strategy, count), distribution, costs)


def plan(
    strategy: Strategy,
    distribution: Distribution,
    costs: Costs,
    *,
    epsilon: float = 1.0,
    count: int | None = None,
    proceed: Proceed = lambda: None,
) -> SequencePlan:
    """The strategy's sequence of requests with its expected cost; all times in seconds.

    ``count`` overrides what epsilon, or the search for the best period, would give. ``proceed`` is called again and
    again by the dynamic programs, and may raise to give up.
    """
    if count is not None and count < 1:
        raise WalltimeError(f"chunks must be at least 1, not {count}")
    if strategy.periodic:
        milestones = periodic(distribution, strategy, count or best_periods(distribution, costs, strategy))
    else:
        if not count and not isinstance(distribution, Discrete):
            count = chunks(distribution, costs, epsilon)
        milestones = dynamic(distribution, costs, strategy, count or 0, proceed)
    return SequencePlan(
        strategy=strategy.value,
        expected_cost=expected_cost(milestones, distribution, costs),
        omniscient_cost=omniscient_cost(distribution, costs),
        sequence=requests(milestones, costs),
    )
