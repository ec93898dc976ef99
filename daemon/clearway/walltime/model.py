"""Walltime requests and what they cost.

A request is paid ``alpha`` for each second asked for, ``beta`` for each second used, and ``gamma`` for being made. A
sequence is given by its milestones (Equations 3 and 4 of the stochastic-jobs paper): milestone k is the work that is
done at the end of request k, counted from the last checkpoint before it. Times are in one unit; only ``SequencePlan``
names seconds.
"""

import math
from dataclasses import dataclass

from clearway.model.errors import WalltimeError


@dataclass(frozen=True, slots=True)
class Costs:
    """alpha, beta, gamma of Equation 1; the time of one checkpoint (C) and of one restart (R)."""

    checkpoint: float
    restart: float
    alpha: float = 1.0
    beta: float = 0.0
    gamma: float = 0.0

    def __post_init__(self) -> None:
        for name in ("checkpoint", "restart", "alpha", "beta", "gamma"):
            value = getattr(self, name)
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
