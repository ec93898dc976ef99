"""Which distribution do these samples come from? A fit of each family, and a plain verdict on the best of them.

Model: maximum likelihood by scipy for the families without a bound of their own (exponential, weibull, gamma,
lognormal, pareto). The Kolmogorov-Smirnov distance is the largest gap between the samples' and the fitted distribution
function; the family with the least is taken. The parameters come from the same samples, so that the usual p-value is
too kind: the verdict compares the distance with Lilliefors' 5 % limits instead, 0.895 / sqrt(n) for an estimated normal
distribution (the logarithms of lognormal samples; near enough for weibull and gamma) and 1.08 / sqrt(n) for an
exponential one (also the logarithms of pareto samples).
"""

import math
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from clearway.model.errors import WalltimeError
from clearway.walltime.distributions import Continuous, Floats, checked_samples, continuous

FEW_SAMPLES = 30
_NORMAL, _EXPONENTIAL = 0.895, 1.08


@dataclass(frozen=True, slots=True)
class Fit:
    """One family fitted to samples; parameters in the unit of the samples."""

    name: str
    parameters: Mapping[str, float]
    distance: float  # Kolmogorov-Smirnov: 0 is a perfect fit
    samples: int

    @property
    def good(self) -> bool:
        return self.samples >= FEW_SAMPLES and self.distance <= self.limit

    @property
    def limit(self) -> float:
        """The distance that samples of the fitted family exceed in one case of twenty."""
        constant = _EXPONENTIAL if self.name in {"exponential", "pareto"} else _NORMAL
        return constant / math.sqrt(self.samples)

    @property
    def specification(self) -> str:
        """As ``clearway walltime plan --distribution`` takes it."""
        return f"{self.name}:" + ",".join(f"{key}={value:.6g}" for key, value in self.parameters.items())

    @property
    def verdict(self) -> str:
        said = f"{self.specification} (largest gap {self.distance:.3f}, {self.samples} samples)"
        if self.samples < FEW_SAMPLES:
            return f"too few samples to trust a fit; nearest is {said}"
        if self.good:
            return f"good fit: {said}; a gap up to {self.limit:.3f} is chance"
        return f"poor fit: nearest is {said}; a gap above {self.limit:.3f} is hardly chance"

    def distribution(self, unit_s: float = 1.0) -> Continuous:
        return continuous(self.name, self.parameters, unit_s)


def fits(samples: Iterable[float]) -> list[Fit]:
    """Every family that can be fitted, best first.

    Raises:
        WalltimeError: samples that cannot be fitted: fewer than two different ones, or one of 0.
    """
    values = checked_samples(samples)
    if len(np.unique(values)) < 2:
        raise WalltimeError("a fit needs at least two different samples")
    if values.min() == 0:
        raise WalltimeError("a fit needs samples above 0")
    ordered = np.sort(values)
    ranks = np.arange(len(ordered) + 1) / len(ordered)
    found = []
    for name, parameters in _estimates(values).items():
        with suppress(WalltimeError):  # so far off that it has no support
            below = continuous(name, parameters).whole.cdf(ordered)
            distance = float(max((ranks[1:] - below).max(), (below - ranks[:-1]).max()))
            found.append(Fit(name, parameters, distance, len(values)))
    return sorted(found, key=lambda fit: (fit.distance, fit.name))


def best_fit(samples: Iterable[float]) -> Fit:
    """The fit of least distance; see ``fits``."""
    return fits(samples)[0]


def _estimates(values: Floats) -> dict[str, dict[str, float]]:
    from scipy import stats  # noqa: PLC0415 - see clearway.walltime.distributions

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
