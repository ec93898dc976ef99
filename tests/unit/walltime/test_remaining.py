"""Chances that running jobs end in time, against counting, formulas and simulated jobs."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearway.walltime.remaining import RunTimes, advice

TIMES = st.lists(st.integers(1, 50).map(float), min_size=1, max_size=40)


@given(TIMES, st.integers(0, 60), st.integers(0, 60))
def test_of_samples_it_is_counting(times: list[float], ran_s: int, within_s: int) -> None:
    longer = [each for each in times if each > ran_s]
    within = [each for each in longer if each <= ran_s + within_s]
    known = RunTimes(tuple(times))
    chance = 1 - known.survival(ran_s, ran_s + within_s)
    assert chance == pytest.approx(len(within) / len(longer) if longer else 0.0)
    assert 0.0 <= known.chance_of_end(ran_s, ran_s + within_s) <= chance + 1e-12


@given(TIMES, TIMES, st.integers(0, 60))
def test_it_grows_with_the_time_given(ended: list[float], cut: list[float], ran_s: int) -> None:
    known = RunTimes(tuple(ended), tuple(cut))
    ends = range(ran_s, ran_s + 70, 5)
    assert known.survival(ran_s, ran_s) == 1.0
    for before, after in pairwise(ends):
        assert known.survival(ran_s, before) >= known.survival(ran_s, after) - 1e-12
        assert known.chance_of_end(ran_s, before) <= known.chance_of_end(ran_s, after) + 1e-12
        assert known.survival(ran_s, after) >= 0.0


@given(TIMES, st.lists(st.integers(1, 50).map(float), max_size=10), st.integers(0, 60), st.floats(0.05, 0.95))
def test_the_likely_end_is_the_first_that_is_sure_enough(
    ended: list[float], cut: list[float], ran_s: int, confidence: float
) -> None:
    known = RunTimes(tuple(ended), tuple(cut))
    sure = [each - ran_s for each in sorted(ended) if known.chance_of_end(ran_s, each) >= confidence]
    assert known.likely_end_s(ran_s, confidence) == next((each for each in sure if each > 0), None)


def test_a_job_cut_short_counts_as_long_as_it_was_seen() -> None:
    """Kaplan and Meier by hand: of 4 one ends at 10; one is cut at 15; of the 2 left one ends at 20."""
    known = RunTimes(ended_s=(10.0, 20.0, 30.0), cut_s=(15.0,))
    assert known.survival(0, 10) == pytest.approx(3 / 4)
    assert known.survival(0, 20) == pytest.approx(3 / 4 * 1 / 2)
    assert known.survival(12, 22) == pytest.approx(1 / 2)
    assert known.survival(0, 20) < RunTimes((10.0, 20.0, 30.0, 99.0)).survival(0, 19)


def test_nothing_is_promised_where_nothing_is_known() -> None:
    for known, ran_s in ((RunTimes(), 0), (RunTimes((10.0, 20.0)), 20), (RunTimes((), (5.0,)), 6)):
        assert (known.survival(ran_s, 1e9), known.chance_of_end(ran_s, 1e9)) == (1.0, 0.0)
    assert RunTimes((10.0,)).survival(5, 2) == 1.0


def test_few_samples_promise_less_than_many() -> None:
    few, many = RunTimes((10.0,) * 3), RunTimes((10.0,) * 300)
    assert few.survival(0, 10) == many.survival(0, 10) == 0.0
    assert few.chance_of_end(0, 10) < 0.55
    assert many.chance_of_end(0, 10) > 0.99


def test_the_lower_bound_holds_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(11)
    held = 0
    for _ in range(2_000):
        times = random.exponential(1.0, 60)
        held += RunTimes(tuple(times)).chance_of_end(0.3, 1.1) <= 1 - math.exp(-0.8)
    assert 0.92 <= held / 2_000 <= 0.98


def test_advice_is_quantiles() -> None:
    assert advice(RunTimes(), [3600.0]) is None
    found = advice(RunTimes(tuple(float(n) for n in range(1, 20)), (20.0,)), [100.0, 300.0, 200.0])
    assert found is not None
    assert (found.jobs, found.asked_s, found.median_s, found.most_s, found.longest_s, found.cut) == (
        20,
        200.0,
        10.0,
        18.0,
        20.0,
        1,
    )
    few = advice(RunTimes((5.0,)), [])
    assert few is not None
    assert few.asked_s is None
