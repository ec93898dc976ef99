"""Which walltimes to request, and after which to checkpoint: the strategies of the stochastic-jobs paper.

The paper: "Reservation and Checkpointing Strategies for Stochastic Jobs", IPDPS, 2020 (hal-03029298).

DYN-PROG-COUNT(X, eps) (Algorithm 1) cuts the support [a, b] into n = ceil(c0 / eps) equal chunks and solves Theorem 2
on them; its expected cost is at most 1 + eps times the least possible (Theorem 3). ALL-CKPT and NO-CKPT are the same
with the checkpoints fixed. The periodic strategies (Algorithm 2) end their requests at equal distances. A discrete
distribution (samples) needs no chunks: its own times are the only milestones worth having, and the answer is exact.
"""

import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from clearway.model.errors import WalltimeError
from clearway.walltime.distributions import Discrete, Distribution, Floats
from clearway.walltime.model import Costs, Milestone, SequencePlan, WalltimeRequest
from clearway.walltime.recurrence import Checkpoints, Recurrence

Proceed: TypeAlias = Callable[[], None]

MOST_PERIODS = 1_000


class Strategy(StrEnum):
    DYN_PROG_COUNT = "dyn-prog-count"
    ALL_CKPT = "all-ckpt"
    NO_CKPT = "no-ckpt"
    ALL_CKPT_PER = "all-ckpt-per"
    NO_CKPT_PER = "no-ckpt-per"

    @property
    def periodic(self) -> bool:
        return self in {Strategy.ALL_CKPT_PER, Strategy.NO_CKPT_PER}


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
    """Theorem 1 (Equation 7).

    Raises:
        WalltimeError: the milestones do not ascend, or end before the longest job does.
    """
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
    """How many chunks Algorithm 1 takes (its n).

    Raises:
        WalltimeError: with free checkpoints or restarts and no gamma, no number of chunks is enough.
    """
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
    chosen = Recurrence(steps.values, steps.tail, costs, Checkpoints(strategy)).solve(proceed)
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
