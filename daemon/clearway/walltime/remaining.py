"""Will a running job end in time? From how long earlier jobs of its user and name took. Pure; needs no numpy.

Model: X is how long a job lasts; it has run for r seconds and is given w more. The chance is the conditional survival

    P(X <= r + w | X > r) = 1 - S(r + w) / S(r),      S(t) = P(X > t)

with S as in the stochastic-jobs paper. Of samples S(t) is the share that lasted longer than t. A job that has run
longer than all that is known has a chance of 0: nothing is known of it, and nothing is promised.

Few samples prove little. Of the m samples that lasted longer than r, k ended within r + w; ``EndChance.at_least`` is
the lower end of Wilson's interval for k out of m: the true chance is less in one case of twenty. Plan with that. A
sample that the time limit cut short says only that it lasted longer than that: it counts until then, and not after (the
product-limit estimate of Kaplan and Meier, which equals the formula above where nothing was cut short).
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

_ONE_SIDED_95 = 1.6448536269514722


@dataclass(frozen=True, slots=True)
class EndChance:
    """How likely a running job is to end in time."""

    probability: float
    at_least: float  # with 95 % confidence; 0 where nothing is known
    samples: int  # earlier jobs that lasted longer than this one has so far: what the probability is made of


@dataclass(frozen=True)
class RunTimes:
    """How long the jobs of one user and name lasted, seconds: those that ended, and those cut short."""

    ended_s: tuple[float, ...] = ()
    cut_s: tuple[float, ...] = ()

    @cached_property
    def ordered(self) -> tuple[Sequence[float], Sequence[float]]:
        return sorted(self.ended_s), sorted(self.cut_s)

    def chance_of_end(self, ran_s: float, within_s: float) -> EndChance:
        """The chance that a job which has run for ``ran_s`` ends in the next ``within_s``."""
        first, known = self._known(ran_s)
        if known == 0:
            return EndChance(0.0, 0.0, 0)
        last = bisect_right(self.ordered[0], ran_s + max(0.0, within_s))
        probability = 1.0 - self._lasting(first, last)
        return EndChance(probability, _wilson_lower(probability, known), known)

    def likely_end_s(self, ran_s: float, confidence: float) -> float | None:
        """The least time within which it ends with at least this chance (``at_least``); None where none is known."""
        ended, _ = self.ordered
        first, known = self._known(ran_s)

        def sure(end_s: float) -> bool:
            return _wilson_lower(1.0 - self._lasting(first, bisect_right(ended, end_s)), known) >= confidence

        place = bisect_left(ended, True, lo=first, key=sure)  # the more have ended, the surer
        return ended[place] - ran_s if place < len(ended) else None

    def _known(self, ran_s: float) -> tuple[int, int]:
        """How many of those that ended did not last longer than this, and how many of all did."""
        ended, cut = self.ordered
        first = bisect_right(ended, ran_s)
        return first, len(ended) - first + len(cut) - bisect_left(cut, ran_s)

    def _lasting(self, first: int, last: int) -> float:
        """The share of those that lasted longer than the first ``first`` that lasted longer than the first ``last``."""
        ended, cut = self.ordered
        survival, at = 1.0, first
        while at < last:
            same = bisect_right(ended, ended[at])
            there = len(ended) - at + len(cut) - bisect_left(cut, ended[at])
            survival *= 1.0 - (same - at) / there
            at = same
        return survival


def _wilson_lower(share: float, count: int) -> float:
    z2 = _ONE_SIDED_95**2
    middle = share + z2 / (2 * count)
    spread = _ONE_SIDED_95 * math.sqrt(share * (1 - share) / count + z2 / (4 * count * count))
    return max(0.0, (middle - spread) / (1 + z2 / count))


@dataclass(frozen=True, slots=True)
class Advice:
    """What jobs of one user and name ask for, and what they take; seconds."""

    jobs: int
    asked_s: float | None  # the median of the time limits; None where they had none
    median_s: float
    most_s: float  # nine in ten took no longer
    longest_s: float
    cut: int  # jobs that their time limit ended


def advice(run_times: RunTimes, asked_s: Iterable[float]) -> Advice | None:
    """What to tell the owner of these jobs; None when there are none."""
    lasted = (*run_times.ended_s, *run_times.cut_s)
    if not lasted:
        return None
    asked = tuple(asked_s)
    return Advice(
        jobs=len(lasted),
        asked_s=quantile(asked, 0.5) if asked else None,
        median_s=quantile(lasted, 0.5),
        most_s=quantile(lasted, 0.9),
        longest_s=max(lasted),
        cut=len(run_times.cut_s),
    )


def quantile(values: Iterable[float], share: float) -> float:
    """The smallest value such that at least this share of them is not larger (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered), max(1, math.ceil(share * len(ordered)))) - 1]
