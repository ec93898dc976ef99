"""What plans allow for jobs to leave their nodes follows how long they took."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clearway.config.configuration import Config
from clearway.execution.cycle_context import LeaveTimes
from clearway.model.operations import Eviction
from clearway.model.problem import Action
from tests.builders import NOW, after, eviction, plan


def left_within(seconds: float, number: int = 1, **changes: object) -> Eviction:
    """An eviction for which its jobs have left in so many seconds."""
    e = eviction(plan(), eviction_id=number)
    fields = {"requeued_at": NOW, "vacated_at": after(seconds)} | changes
    return replace(e, preemptions=tuple(replace(p, **fields) for p in e.preemptions))


def allowance_s(*operations: Eviction) -> float:
    times = LeaveTimes()
    for _ in range(2):  # what is seen twice counts once
        times.observe(operations)
    return times.allowed(Config()).execution.kill_allowance


def test_without_any_the_configuration_counts() -> None:
    assert allowance_s() == 10.0
    assert allowance_s(left_within(3)) == 10.0


def test_an_epilog_of_a_minute_is_allowed_for() -> None:
    assert allowance_s(left_within(63)) == 63.0


def test_a_few_that_hang_do_not_count() -> None:
    assert allowance_s(*(left_within(12, number) for number in range(1, 6)), left_within(300, 6)) == 12.0


@pytest.mark.parametrize(
    "changes",
    [
        {"requeued_at": None},
        {"vacated_at": None},
        {"action": Action.SUSPEND},
        {"action": Action.END},
        {"returned_at": after(63)},
        {"vacated_at": after(3_600)},
    ],
)
def test_what_tells_nothing(changes: dict[str, object]) -> None:
    assert allowance_s(left_within(63, **changes)) == 10.0


def test_old_ones_are_forgotten_and_the_copy_is_kept() -> None:
    times, config = LeaveTimes(), Config()
    times.observe([left_within(63)])
    assert times.allowed(config) is times.allowed(config)
    times.observe(left_within(11, number) for number in range(2, 30))
    assert times.allowed(config).execution.kill_allowance == 11.0
