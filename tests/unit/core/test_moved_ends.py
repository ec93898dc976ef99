"""Ends that a plan counts on, and what Slurm says of them by now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clearway.config.configuration import ExecutionConfig
from clearway.execution.progress import moved_ends
from clearway.model.cluster import Job, JobState
from clearway.model.operations import Eviction, PreemptionState
from clearway.model.problem import Action
from tests.builders import after, eviction, job, plan, preemption, snapshot

# The plan leaves 600 s, and Slurm ends jobs up to 30 s late.
SURE = job("101", nodes=("n1",), time_limit_s=4_000)  # it began an hour ago: it has 400 s
LIKELY = job("101", nodes=("n1",), time_limit_s=86_400)


def counting_on(ending: Job, within_s: int) -> Eviction:
    made = plan(preemptees=[ending], action=Action.END)
    actions = (replace(made.chosen.actions[0], ready_s=within_s),)
    made = replace(made, chosen=replace(made.chosen, actions=actions))
    return replace(eviction(), plan=made, preemptions=(preemption(ending, Action.END),))


def moved(e: Eviction, seen: Job, now_s: float = 10.0) -> str:
    found = moved_ends(e, snapshot([seen]), ExecutionConfig(), after(now_s))
    assert found.keys() <= {seen.job_id}
    return found.get(seen.job_id, "")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"time_limit_s": 4_170, "end_time": after(570)}, ""),  # with its 30 s still in time
        ({"time_limit_s": 4_171, "end_time": after(571)}, "its own end was moved to 2026-03-02 12:09:31 UTC"),
        ({"end_time": after(571)}, "its own end was moved to 2026-03-02 12:09:31 UTC"),  # it stood suspended
        ({"time_limit_s": None}, "its own end was moved to never"),
        ({"over_time_s": 171}, "its own end was moved to 2026-03-02 12:09:31 UTC"),
        ({"over_time_s": None}, "its own end was moved to never"),
        ({"time_limit_s": 3_700, "end_time": after(100)}, ""),  # sooner is no harm
    ],
)
def test_an_end_that_slurm_moves(changes: dict[str, object], why: str) -> None:
    assert moved(counting_on(SURE, 430), replace(SURE, **changes)) == why


def test_an_end_that_does_not_come() -> None:
    e = counting_on(SURE, 430)
    assert not moved(e, SURE, 430)
    assert moved(e, SURE, 431) == "it did not end when it was to"
    later = replace(SURE, end_time=after(500))
    assert not moved(e, later, 530)
    assert moved(e, later, 531) == "it did not end when it was to"


def test_a_likely_end_that_does_not_come_is_not_waited_for_any_longer() -> None:
    e = counting_on(LIKELY, 200)
    assert not moved(e, LIKELY, 200)
    assert moved(e, LIKELY, 201) == "it did not end when it was to"
    # Its limit was not counted on: that it moves changes nothing.
    assert not moved(e, replace(LIKELY, time_limit_s=None), 200)


def test_only_those_that_are_still_to_end() -> None:
    e = counting_on(SURE, 430)
    spared = replace(e, preemptions=tuple(replace(p, state=PreemptionState.SPARED) for p in e.preemptions))
    assert not moved(spared, SURE, 500)
    assert not moved(e, replace(SURE, state=JobState.COMPLETING), 500)
    assert not moved(e, replace(SURE, restart_count=1), 500)
    assert not moved_ends(e, snapshot([]), ExecutionConfig(), after(500))
