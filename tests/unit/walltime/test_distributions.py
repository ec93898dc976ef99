"""The nine distributions against their formulas and a numerical truth, samples, and fits of samples."""

from __future__ import annotations

import math

import numpy as np
import pytest

from clearway.model.errors import WalltimeError
from clearway.walltime.distributions import FAMILIES, TRUNCATED_AT, Discrete, continuous, empirical, fits, parse
from clearway.walltime.request_sequence import Costs, Strategy, plan
from tests.traces import recorded
from tests.unit.walltime.drawing import sample

UNBOUNDED_CDF = {
    "exponential": lambda t: 1 - math.exp(-t),
    "weibull": lambda t: 1 - math.exp(-math.sqrt(t)),
    "gamma": lambda t: 1 - math.exp(-2 * t) * (1 + 2 * t),
    "lognormal": lambda t: 0.5 * math.erfc((3 - math.log(t)) / (0.5 * math.sqrt(2))),
    "pareto": lambda t: max(1 - (1.5 / t) ** 3, 0),
}
BOUNDED_CDF = {
    "uniform": lambda t: (t - 1) / 19,
    "beta": lambda t: 3 * t**2 - 2 * t**3,
    "boundedpareto": lambda t: (1 - t**-2.1) / (1 - 20**-2.1),
    "truncnormal": lambda t: (_phi(t) - _phi(1)) / (_phi(20) - _phi(1)),
}
MEANS = {"exponential": 1, "weibull": 2, "gamma": 1, "pareto": 2.25, "uniform": 10.5, "beta": 0.5, "truncnormal": 8}


def _phi(t: float) -> float:
    return 0.5 * math.erfc((8 - t) / 2)


@pytest.mark.parametrize("unit_s", [1.0, 3_600.0])
@pytest.mark.parametrize("name", FAMILIES)
def test_they_are_those_of_table_1(name: str, unit_s: float) -> None:
    times = continuous(name, FAMILIES[name], unit_s)
    inside = np.linspace(times.low, times.high, 9)[1:-1]
    formula = (UNBOUNDED_CDF | BOUNDED_CDF)[name]
    scale = 1 - TRUNCATED_AT if name in UNBOUNDED_CDF else 1
    assert 1 - times.survival(inside) == pytest.approx([formula(t / unit_s) / scale for t in inside], abs=1e-9)
    assert 1 - times.survival(np.array([times.low, times.high])) == pytest.approx([0, 1])
    shares = np.array([0.01, 0.5, 0.99])
    assert 1 - times.survival(times.quantile(shares)) == pytest.approx(shares)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_mean_is_that_of_the_truncated_distribution(name: str) -> None:
    times = continuous(name, FAMILIES[name])
    shares = (np.arange(2_000_000) + 0.5) / 2_000_000
    assert times.mean == pytest.approx(float(times.quantile(shares).mean()), rel=1e-4)
    if name in MEANS:
        assert times.mean == pytest.approx(MEANS[name], rel=2e-4)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_same_seed_draws_the_same(name: str) -> None:
    times = continuous(name, FAMILIES[name])
    drawn = sample(times, 5_000, seed=3)
    assert (drawn == sample(times, 5_000, seed=3)).all()
    assert (drawn != sample(times, 5_000, seed=4)).any()
    assert ((drawn >= times.low) & (drawn <= times.high)).all()
    ordered = np.sort(drawn)
    below = 1 - times.survival(ordered)
    assert np.abs(below - np.arange(5_000) / 5_000).max() < 1.95 / math.sqrt(5_000)  # 0.1 % by chance


def test_samples_are_as_likely_as_they_are_many() -> None:
    times = empirical([30, 10, 30, 20])
    assert times.values.tolist() == [10, 20, 30]
    assert times.mean == pytest.approx(22.5)
    assert times.survival(np.array([5.0, 10.0, 29.0, 30.0])) == pytest.approx([1, 0.75, 0.5, 0])
    assert times.quantile(np.array([0.0, 0.25, 0.26, 0.75, 1.0])).tolist() == [10, 10, 20, 30, 30]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("exponential:rate=-1", "rate must be more than 0"),
        ("exponential:rate=nan", "finite"),
        ("exponential:speed=1", "takes rate="),
        ("exponential:rate", "not a parameter"),
        ("exponential:rate=1,rate=2", "once"),
        ("uniform:low=5,high=5", "no support"),
        ("uniform:low=-1,high=5", "must not be negative"),
        ("lognormal:mu=900,sigma=1", "between -50 and 50"),
        ("weibull:scale=1,shape=0.001", "no support"),
        ("cauchy:mu=1", "unknown distribution"),
    ],
)
def test_what_is_no_distribution_says_why(text: str, message: str) -> None:
    with pytest.raises(WalltimeError, match=message):
        parse(text, 3_600)


@pytest.mark.parametrize("samples", [[], [0.0], [-1.0], [math.nan], [math.inf, 1.0]])
def test_impossible_samples_are_refused(samples: list[float]) -> None:
    with pytest.raises(WalltimeError):
        empirical(samples)


@pytest.mark.parametrize(
    ("values", "shares"), [([], []), ([2, 1], [0.5, 0.5]), ([1, 2], [0.5, 0.6]), ([1, 2], [1, 0]), ([1], [0.5, 0.5])]
)
def test_impossible_discrete_distributions_are_refused(values: list[float], shares: list[float]) -> None:
    with pytest.raises(WalltimeError):
        Discrete(np.array(values, dtype=float), np.array(shares, dtype=float))


@pytest.mark.parametrize("name", ["exponential", "weibull", "gamma", "lognormal", "pareto"])
def test_a_fit_finds_what_the_samples_were_drawn_from(name: str) -> None:
    paper = FAMILIES[name]
    drawn = sample(continuous(name, paper), 4_000, seed=5)
    found = {fit.name: fit for fit in fits(drawn)}[name]
    assert found.parameters == pytest.approx(dict(paper), rel=0.06)
    assert "good fit" in found.verdict
    assert parse(found.specification, 1.0).mean == pytest.approx(continuous(name, found.parameters).mean, rel=1e-4)


def test_two_humps_are_a_poor_fit() -> None:
    humps = np.concatenate([sample(continuous("uniform", {"low": a, "high": a + 1}), 200, seed=2) for a in (1, 40)])
    assert "poor fit" in fits(humps)[0].verdict


def test_few_samples_are_said_to_be_few() -> None:
    fit = fits([1.0, 2.0, 3.0])[0]
    assert "too few samples" in fit.verdict


@pytest.mark.parametrize(("file", "count"), [("slant-walltimes.txt", 88), ("ct-eye-segmentation-walltimes.txt", 300)])
def test_recorded_runtimes_are_fitted_and_planned_for(file: str, count: int) -> None:
    samples = np.loadtxt(*recorded(file))
    fit = fits(samples)[0]
    assert fit.samples == count
    assert fit.distance < 0.2
    costs = Costs(360, 360)
    for times in (empirical(samples), continuous(fit.name, fit.parameters)):
        planned = plan(Strategy.DYN_PROG_COUNT, times, costs, count=2_000)
        assert planned.omniscient_cost < planned.expected_cost < times.high
        assert planned.sequence[-1].milestone_s == pytest.approx(times.high)
