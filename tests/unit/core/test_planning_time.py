"""What counts as time for plans in a cycle: computing, and not how long Slurm takes to answer meanwhile."""

from __future__ import annotations

import pytest

from clearway.execution.cycle_context import PlanningTime
from tests.builders import NOW, ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def time(clock: ManualClock) -> PlanningTime:
    time = PlanningTime(clock)
    time.begin(10.0)
    return time


def test_what_is_spent_is_gone_also_within_itself(clock: ManualClock, time: PlanningTime) -> None:
    with time.spending():
        clock.advance(3.0)
        with time.spending():
            clock.advance(1.0)
        assert time.left_s() == pytest.approx(6.0)
    assert time.left_s() == pytest.approx(6.0)


def test_while_slurm_is_asked_no_time_for_plans_passes(clock: ManualClock, time: PlanningTime) -> None:
    with time.spending():
        clock.advance(1.0)
        with time.asking():
            clock.advance(20.0)
    assert time.left_s() == pytest.approx(9.0)


def test_what_is_asked_without_a_plan_gives_no_time_back(clock: ManualClock, time: PlanningTime) -> None:
    with time.asking():
        clock.advance(20.0)
    assert time.left_s() == pytest.approx(10.0)
