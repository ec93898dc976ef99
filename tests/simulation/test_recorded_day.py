"""Days that a real Slurm 22.05 and a real daemon lived, as slurmdbd recorded them: each case again, as it was then.

``docs/explanation/replay.md`` tells what is compared. ``tests/slurm/test_accelerated_day.py`` lives such a day.
"""

from __future__ import annotations

from tests.simulation.day_cases import FIRST, NEAR, SECOND, check, recorded_cases


def test_urgent_jobs_start_when_they_did_and_lose_as_much() -> None:
    cases = recorded_cases(FIRST)
    assert len(cases) == 25
    check(cases)


def test_a_day_on_which_nothing_was_mended_misses_the_goal_by_no_more_than_measured() -> None:
    """20 waits and 23 losses of 25 are right, and 12.4 % more work is lost in the mean."""
    cases = recorded_cases(SECOND)
    assert len(cases) == 25
    check(cases, losses=0.13, share=0.8)


def test_the_recorded_day_has_what_is_to_be_compared() -> None:
    """Waits in which a second is less than a tenth, and work that was lost."""
    cases = recorded_cases(FIRST)
    assert sum(case.happened.wait_s >= 1 / NEAR for case in cases) >= 15
    assert sum(len(case.happened.jobs) for case in cases) == 21
    assert sum(case.happened.lost_node_s for case in cases) == 1_349
