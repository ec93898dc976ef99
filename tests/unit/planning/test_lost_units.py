"""Lost work as whole numbers: ties stay ties, and nothing overflows."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearway.model.problem import Action, Candidate, EvictionProblem, Option
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.planning.formulation.lost_units import fitting_units


def test_whole_numbers_stay_integers() -> None:
    units = fitting_units([0, 7_200, 3_600.0])
    assert units.decimals == 0
    assert units.node_s(units.units(3_600.0) + units.units(7_200)) == 10_800
    assert isinstance(units.node_s(5), int)


def test_decimals_add_up_as_they_are_written() -> None:
    units = fitting_units([0.1, 0.2, 0.3])
    assert units.units(0.1) + units.units(0.2) == units.units(0.3)
    assert units.node_s(units.units(0.1) + units.units(0.2)) == 0.3


def test_numbers_with_too_many_decimals_are_rounded_to_what_fits() -> None:
    values = [math.pi * 1e6, math.e * 1e6, 0.1 + 0.2]
    units = fitting_units(values)
    assert 0 < units.decimals <= 9
    assert units.units(0.1 + 0.2) == units.units(0.3)
    assert (sum(map(units.units, values)) + 1) * (len(values) + 1) * 2 < 2**63


@given(st.lists(st.integers(0, 10**7).flatmap(lambda n: st.integers(0, 7).map(lambda d: n / 10**d)), min_size=1))
def test_sums_are_those_of_the_decimal_numbers(values: list[float]) -> None:
    units = fitting_units(values)
    exact = sum((Fraction(str(value)) for value in values), Fraction(0))
    assert Fraction(sum(map(units.units, values)), 10**units.decimals) == exact


@pytest.mark.parametrize("wrong", [-1, -0.5, math.nan, math.inf])
def test_lost_work_that_is_no_amount_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="lost work must be a finite number"):
        fitting_units([1, wrong])


def test_what_coming_back_costs_is_told_where_it_is_too_little_to_be_counted() -> None:
    huge = Candidate("1", 1, (Option(Action.KILL, 1e15),))
    small = Candidate("2", 1, (Option(Action.KILL, 0.125, return_node_s=3),))
    curve = EvictionDP().solve(EvictionProblem(1, 0, 1, (huge, small)))
    assert [planned.job_id for planned in curve.points[0].actions] == ["2"]
    assert curve.points[0].return_node_s == 3
