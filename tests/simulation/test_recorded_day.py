"""Days that a real Slurm 22.05 and a real daemon lived, as slurmdbd recorded them: each case again, as it was then.

``docs/explanation/replay.md`` tells what is compared. ``tests/slurm/test_accelerated_day.py`` lives such a day.
"""

from __future__ import annotations

import pytest

from tests.simulation.day_cases import FIRST, NEAR, SECOND, THIRD, Day, cases_by_default, check, recorded_cases

# Slurm looked at its queue a second later than in the replay, where another job has the nodes by then: chance.
BY_CHANCE = "44"
# Today's daemon replaces a job that saves too slowly (35) sooner than that day's did: other jobs stand there.
REPLACED_SOONER = "43"


def test_urgent_jobs_start_when_they_did_and_lose_as_much() -> None:
    cases = recorded_cases(FIRST)
    assert len(cases) == 25
    check(cases)


def test_so_it_is_on_the_second_day() -> None:
    """But for the mean of what is lost, which one of the 25 cases spoils."""
    cases = recorded_cases(SECOND)
    assert len(cases) == 25
    check(cases, losses=0.15)
    check([case for case in cases if case.job_id != BY_CHANCE])


def test_so_it_is_on_a_slower_day_on_which_nothing_was_mended() -> None:
    """But for the losses: those of 21 cases are right, and one of the others spoils the mean."""
    cases = recorded_cases(THIRD)
    assert len(cases) == 25
    check(cases, losses=0.16, right_losses=21 / 25)
    check([case for case in cases if case.job_id != REPLACED_SOONER], right_losses=21 / 24)


def test_so_it_is_on_all_days_together() -> None:
    check([case for day in (FIRST, SECOND, THIRD) for case in recorded_cases(day)])


def test_the_first_day_has_what_is_to_be_compared() -> None:
    """Waits in which a second is less than a tenth, and work that was lost."""
    cases = recorded_cases(FIRST)
    assert sum(case.happened.wait_s >= 1 / NEAR for case in cases) >= 15
    assert sum(len(case.happened.jobs) for case in cases) == 21
    assert sum(case.happened.lost_node_s for case in cases) == 1_349


@pytest.mark.parametrize("day", [FIRST, SECOND, THIRD], ids=lambda day: day.folder.name)
def test_planned_to_the_second_no_urgent_job_is_late(day: Day) -> None:
    """None was when durations were rounded up to a sixtieth of the delay: the margin does as much."""
    late = {case.job_id: case.foretold.wait_s for case in cases_by_default(day) if case.foretold.wait_s > day.delay_s}
    lived = {case.job_id for case in recorded_cases(day) if case.foretold.wait_s > day.delay_s}
    assert late.keys() <= lived, late
