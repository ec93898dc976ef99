"""Will a running job end in time? From how long earlier jobs of its user and name took. Pure; needs no numpy.

Model: X is how long a job lasts; it has run for r seconds and is given w more. The chance is the conditional survival

    P(X <= r + w | X > r) = 1 - S(r + w) / S(r),      S(t) = P(X > t)

with S as in the stochastic-jobs paper. Of samples S(t) is the share that lasted longer than t. A job that has run
longer than all that is known has a chance of 0: nothing is known of it, and nothing is promised.

Few samples prove little. Of the m samples that lasted longer than r, k ended within r + w; ``chance_of_end`` is
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


@dataclass(frozen=True)
class RunTimes:
    """How long the jobs of one user and name lasted, seconds: those that ended, and those cut short."""

    ended_s: tuple[float, ...] = ()
    cut_s: tuple[float, ...] = ()

    @cached_property
    def ordered(self) -> tuple[Sequence[float], Sequence[float]]:
        return sorted(self.ended_s), sorted(self.cut_s)

    def survival(self, ran_s: float, end_s: float) -> float:
        """The share of those that lasted longer than ``ran_s`` that lasted longer than ``end_s`` as well."""
        ended, cut = self.ordered
        survival, at, last = 1.0, bisect_right(ended, ran_s), bisect_right(ended, end_s)
        while at < last:
            same = bisect_right(ended, ended[at])
            there = len(ended) - at + len(cut) - bisect_left(cut, ended[at])
            survival *= 1.0 - (same - at) / there
            at = same
        return survival

    def chance_of_end(self, ran_s: float, end_s: float) -> float:
        """At least this is the chance that one which has run for ``ran_s`` lasts no longer than ``end_s``.

        With 95 % confidence; 0 where nothing is known.
        """
        ended, cut = self.ordered
        known = len(ended) - bisect_right(ended, ran_s) + len(cut) - bisect_left(cut, ran_s)
        return _wilson_lower(1.0 - self.survival(ran_s, end_s), known) if known else 0.0

    def likely_end_s(self, ran_s: float, confidence: float) -> float | None:
        """The least time within which it ends with at least this chance; None where none is known."""
        ended, _ = self.ordered
        # The more have ended, the surer.
        lowest = bisect_right(ended, ran_s)
        place = bisect_left(ended, confidence, lo=lowest, key=lambda end_s: self.chance_of_end(ran_s, end_s))
        return ended[place] - ran_s if place < len(ended) else None


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
