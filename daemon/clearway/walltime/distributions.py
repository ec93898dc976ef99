"""How long jobs last: the nine distributions of the stochastic-jobs paper (Table 1), those of samples, and fits.

The paper: "Reservation and Checkpointing Strategies for Stochastic Jobs", IPDPS, 2020 (hal-03029298).

Model: every distribution has a finite support [low, high]. One that has none is truncated at its quantile 1 - 1e-7, as
in the paper, and its probabilities are scaled to sum to 1. Times are in seconds; parameters are in the unit given
(``rate`` is per unit, ``mu`` and ``sigma`` of lognormal are those of the logarithm of the number of units). scipy is
imported when a continuous distribution is made: nothing else of Clearway needs it.

Fits are by maximum likelihood, of the families without a bound of their own (exponential, weibull, gamma, lognormal,
pareto). The Kolmogorov-Smirnov distance is the largest gap between the samples' and the fitted distribution function;
the family with the least is taken. The parameters come from the same samples, so that the usual p-value is too kind:
the verdict compares the distance with Lilliefors' 5 % limits instead, 0.895 / sqrt(n) for an estimated normal
distribution (the logarithms of lognormal samples; near enough for weibull and gamma) and 1.08 / sqrt(n) for an
exponential one (also the logarithms of pareto samples).
"""

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from clearway.model.errors import WalltimeError

Floats: TypeAlias = npt.NDArray[np.float64]

TRUNCATED_AT = 1e-7
_LARGEST_S = 100 * 365 * 86_400.0
_MEAN_STEPS = 200_000
FEW_SAMPLES = 30  # to trust a fit
_NORMAL, _EXPONENTIAL = 0.895, 1.08


@dataclass(frozen=True)
class Continuous:
    """A distribution of scipy, truncated to [low, high]."""

    name: str
    whole: Any  # what ``scipy.stats.expon(...)`` and its like return
    low: float
    high: float

    @cached_property
    def _kept(self) -> tuple[float, float]:
        """P(X > high) before truncation, and what is left of 1."""
        beyond = float(self.whole.sf(self.high))
        return beyond, float(self.whole.sf(self.low)) - beyond

    @cached_property
    def mean(self) -> float:
        """The integral of P(X > t), by Simpson's rule in u, t = low + (high - low) u^3: fine where most jobs end."""
        from scipy.integrate import simpson  # noqa: PLC0415 - see the module's docstring

        u = np.linspace(0.0, 1.0, _MEAN_STEPS + 1)
        width = self.high - self.low
        return self.low + float(simpson(self.survival(self.low + width * u**3) * 3 * width * u**2, x=u))

    def survival(self, times: Floats) -> Floats:
        beyond, kept = self._kept
        result: Floats = np.clip((self.whole.sf(times) - beyond) / kept, 0.0, 1.0)
        return result

    def quantile(self, probabilities: Floats) -> Floats:
        beyond, kept = self._kept
        result: Floats = np.clip(self.whole.isf(beyond + kept * (1.0 - probabilities)), self.low, self.high)
        return result


@dataclass(frozen=True)
class Discrete:
    """Finitely many execution times, ascending, with their probabilities (all more than 0)."""

    values: Floats
    probabilities: Floats

    def __post_init__(self) -> None:
        if len(self.values) == 0 or len(self.values) != len(self.probabilities):
            raise WalltimeError("a discrete distribution needs as many probabilities as times, and at least one")
        if not (np.isfinite(self.values).all() and self.values[0] >= 0 and (np.diff(self.values) > 0).all()):
            raise WalltimeError("the times of a discrete distribution must ascend from 0 or more")
        if not ((self.probabilities > 0).all() and math.isclose(float(self.probabilities.sum()), 1.0, rel_tol=1e-6)):
            raise WalltimeError("the probabilities of a discrete distribution must be more than 0 and sum to 1")

    @property
    def low(self) -> float:
        return float(self.values[0])

    @property
    def high(self) -> float:
        return float(self.values[-1])

    @cached_property
    def mean(self) -> float:
        return float(self.values @ self.probabilities)

    @cached_property
    def tail(self) -> Floats:
        """P(X > v) for each value, summed from the end: small probabilities stay exact, the last is 0."""
        sums = np.cumsum(self.probabilities[::-1])[::-1]
        result: Floats = np.minimum(np.append(sums[1:], 0.0) / sums[0], 1.0)
        return result

    def survival(self, times: Floats) -> Floats:
        result: Floats = np.append(1.0, self.tail)[np.searchsorted(self.values, times, side="right")]
        return result

    def quantile(self, probabilities: Floats) -> Floats:
        at = np.searchsorted(1.0 - self.tail, probabilities, side="left")
        return self.values[np.minimum(at, len(self.values) - 1)]


Distribution: TypeAlias = Continuous | Discrete
"""Execution times of a job between ``low`` and ``high``, seconds.

``survival`` is P(X > t); ``quantile`` is the least t with P(X <= t) >= p.
"""


def empirical(samples_s: Iterable[float]) -> Discrete:
    """Each sample is as likely as any other."""
    samples = checked_samples(samples_s)
    values, counts = np.unique(samples, return_counts=True)
    return Discrete(values, counts / len(samples))


def checked_samples(samples_s: Iterable[float]) -> Floats:
    """Samples that something can be planned for. Raises ``WalltimeError``: none, or one that is no execution time."""
    samples = np.fromiter(samples_s, dtype=np.float64)
    if len(samples) == 0:
        raise WalltimeError("there are no samples")
    for number, value in enumerate(samples, 1):
        if not 0 <= value <= _LARGEST_S:  # refuses NaN as well
            raise WalltimeError(f"sample {number} is {value:g}: an execution time lies between 0 and a hundred years")
    if samples.max() == 0:
        raise WalltimeError("all samples are 0")
    return samples


def _truncnormal(stats: Any, unit_s: float, mu: float, variance: float, low: float, high: float) -> Any:
    deviation = math.sqrt(variance)
    return stats.truncnorm((low - mu) / deviation, (high - mu) / deviation, loc=mu * unit_s, scale=deviation * unit_s)


# Table 1: the parameters of each distribution there (hours), and how it is made of scipy.stats.
FAMILIES: Mapping[str, Mapping[str, float]] = {
    "exponential": {"rate": 1.0},
    "weibull": {"scale": 1.0, "shape": 0.5},
    "gamma": {"shape": 2.0, "rate": 2.0},
    "lognormal": {"mu": 3.0, "sigma": 0.5},
    "pareto": {"scale": 1.5, "shape": 3.0},
    "truncnormal": {"mu": 8.0, "variance": 2.0, "low": 1.0, "high": 20.0},
    "uniform": {"low": 1.0, "high": 20.0},
    "beta": {"a": 2.0, "b": 2.0},
    "boundedpareto": {"low": 1.0, "high": 20.0, "shape": 2.1},
}
_MADE: Mapping[str, Callable[..., Any]] = {
    "exponential": lambda stats, unit_s, rate: stats.expon(scale=unit_s / rate),
    "weibull": lambda stats, unit_s, scale, shape: stats.weibull_min(shape, scale=scale * unit_s),
    "gamma": lambda stats, unit_s, shape, rate: stats.gamma(shape, scale=unit_s / rate),
    "lognormal": lambda stats, unit_s, mu, sigma: stats.lognorm(sigma, scale=math.exp(mu) * unit_s),
    "pareto": lambda stats, unit_s, scale, shape: stats.pareto(shape, scale=scale * unit_s),
    "truncnormal": _truncnormal,
    "uniform": lambda stats, unit_s, low, high: stats.uniform(low * unit_s, (high - low) * unit_s),
    "beta": lambda stats, unit_s, a, b: stats.beta(a, b, scale=unit_s),
    "boundedpareto": lambda stats, unit_s, low, high, shape: stats.truncpareto(shape, high / low, scale=low * unit_s),
}
_ABOVE_0 = {"rate", "scale", "shape", "sigma", "variance", "a", "b"}


def _check(name: str, parameters: Mapping[str, float]) -> None:
    for key, value in parameters.items():
        if not math.isfinite(value):
            raise WalltimeError(f"{key} must be a finite number, not {value:g}")
        if not value > 0 and (key in _ABOVE_0 or (name, key) == ("boundedpareto", "low")):
            raise WalltimeError(f"{key} must be more than 0, not {value:g}")
        if value < 0 and key == "low":
            raise WalltimeError(f"low must not be negative, not {value:g}")
        if abs(value) > 50 and (name, key) == ("lognormal", "mu"):  # hours or seconds, e^50 is no execution time
            raise WalltimeError(f"mu is the mean of the logarithm and lies between -50 and 50, not {value:g}")
    low, high = parameters.get("low", 0.0), parameters.get("high", math.inf)
    if not low < high:
        raise WalltimeError(f"there is no support between low={low:g} and high={high:g}")


def continuous(name: str, parameters: Mapping[str, float], unit_s: float = 1.0) -> Continuous:
    """One of the nine, its parameters in units of ``unit_s`` seconds. Raises ``WalltimeError``."""
    from scipy import stats  # noqa: PLC0415 - see the module's docstring

    known = FAMILIES.get(name)
    if known is None:
        raise WalltimeError(f"unknown distribution {name!r:.40}; there are {', '.join(FAMILIES)} and samples:FILE")
    if set(parameters) != set(known):
        raise WalltimeError(f"{name} takes {', '.join(f'{key}=' for key in known)} and nothing else")
    _check(name, parameters)
    whole = _MADE[name](stats, unit_s, **parameters)
    low, high = (float(bound) for bound in whole.support())
    if not math.isfinite(high):
        high = float(whole.isf(TRUNCATED_AT))
    if not (math.isfinite(low) and math.isfinite(high) and 0 <= low < high <= _LARGEST_S):
        raise WalltimeError(f"{name} with these parameters has no support between 0 and a hundred years")
    made = Continuous(name, whole, low, high)
    if not made.mean > 0:
        raise WalltimeError(f"{name} with these parameters has no probability between {low:g} s and {high:g} s")
    return made


def parse(specification: str, unit_s: float) -> Continuous:
    """``exponential:rate=1.0`` and the like. Raises ``WalltimeError``: see ``continuous``; or it cannot be read."""
    name, _, rest = specification.partition(":")
    parameters: dict[str, float] = {}
    for part in filter(None, rest.split(",")):
        key, equals, text = part.partition("=")
        try:
            value = float(text)
        except ValueError:
            raise WalltimeError(f"{part!r:.60} is not a parameter: write {key or 'name'}=NUMBER") from None
        if not equals or key in parameters:
            raise WalltimeError(f"{part!r:.60}: give each parameter once, as name=NUMBER")
        parameters[key.strip()] = value
    return continuous(name.strip(), parameters, unit_s)


@dataclass(frozen=True, slots=True)
class Fit:
    """One family fitted to samples; parameters in the unit of the samples."""

    name: str
    parameters: Mapping[str, float]
    distance: float  # Kolmogorov-Smirnov: 0 is a perfect fit
    samples: int

    @property
    def specification(self) -> str:
        """As ``clearway walltime plan --distribution`` takes it."""
        return f"{self.name}:" + ",".join(f"{key}={value:.6g}" for key, value in self.parameters.items())

    @property
    def verdict(self) -> str:
        """Good where samples of the fitted family exceed the distance in more than one case of twenty."""
        limit = (_EXPONENTIAL if self.name in {"exponential", "pareto"} else _NORMAL) / math.sqrt(self.samples)
        said = f"{self.specification} (largest gap {self.distance:.3f}, {self.samples} samples)"
        if self.samples < FEW_SAMPLES:
            return f"too few samples to trust a fit; nearest is {said}"
        if self.distance <= limit:
            return f"good fit: {said}; a gap up to {limit:.3f} is chance"
        return f"poor fit: nearest is {said}; a gap above {limit:.3f} is hardly chance"


def fits(samples: Iterable[float]) -> list[Fit]:
    """Every family that can be fitted, best first. Raises ``WalltimeError``: samples that cannot be."""
    from scipy import stats  # noqa: PLC0415 - see the module's docstring

    values = checked_samples(samples)
    if len(np.unique(values)) < 2:
        raise WalltimeError("a fit needs at least two different samples")
    if values.min() == 0:
        raise WalltimeError("a fit needs samples above 0")
    found = []
    for name, parameters in _estimates(values, stats).items():
        with suppress(WalltimeError):  # so far off that it has no support
            whole = continuous(name, parameters).whole
            distance = float(stats.ks_1samp(values, whole.cdf, method="asymp").statistic)
            found.append(Fit(name, parameters, distance, len(values)))
    return sorted(found, key=lambda fit: (fit.distance, fit.name))


def _estimates(values: Floats, stats: Any) -> dict[str, dict[str, float]]:
    logs = np.log(values)
    estimates = {
        "exponential": {"rate": 1.0 / float(values.mean())},
        "lognormal": {"mu": float(logs.mean()), "sigma": float(logs.std())},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its search passes through impossible parameters
        shape, _, scale = stats.weibull_min.fit(values, floc=0)
        estimates["weibull"] = {"scale": float(scale), "shape": float(shape)}
        shape, _, scale = stats.gamma.fit(values, floc=0)
        estimates["gamma"] = {"shape": float(shape), "rate": 1.0 / float(scale)}
    least = float(values.min())
    estimates["pareto"] = {"scale": least, "shape": 1.0 / float((logs - math.log(least)).mean())}
    return estimates
