"""What the three slices ask of a job alike: its options, its end, and why it cannot be saved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clearway.config.configuration import Config
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.options import expected_end_s, options_for, why_not_saved
from clearway.eligibility.under_way import UnderWay
from clearway.estimates.costs import TIME_LIMIT_SLACK_S
from clearway.estimates.learning import History
from clearway.model.cluster import Job
from clearway.model.problem import Action
from clearway.walltime.remaining import RunTimes
from tests.builders import NOW, job, snapshot

SAVES = "clearway:checkpoint=signal,took=10"
DEAF = job("101", nodes=("n1",))
SAVING = replace(DEAF, comment=SAVES)


def context(of: Job, *, avoid: bool = False, history: History | None = None, **sections: Any) -> PlanningContext:
    return PlanningContext(
        snapshot=snapshot([of]),
        config=Config.model_validate(sections),
        now=NOW,
        preempted={},
        under_way=UnderWay(avoid=frozenset({"101"}) if avoid else frozenset()),
        history=history or History(),
    )


@pytest.mark.parametrize(
    ("subject", "kill", "avoid", "actions"),
    [
        (SAVING, True, False, [Action.KILL, Action.APP_CHECKPOINT]),
        (SAVING, False, False, [Action.APP_CHECKPOINT]),
        (SAVING, True, True, [Action.KILL]),  # it was asked once, in vain
        (replace(SAVING, requeueable=False), True, False, [Action.KILL]),
        (replace(SAVING, batch=False), False, False, []),
        (DEAF, True, False, [Action.KILL]),
        (DEAF, False, False, []),
    ],
)
def test_options(subject: Job, kill: bool, avoid: bool, actions: list[Action]) -> None:
    assert [each.action for each in options_for(subject, context(subject, avoid=avoid), kill=kill)] == actions


def test_checkpoints_share_the_file_system_where_both_the_plan_and_the_site_say_so() -> None:
    shares = context(SAVING, planning={"checkpoints": "shared"})
    apart = context(SAVING, planning={"checkpoints": "serial"})
    times = [
        options_for(SAVING, given, kill=False, shared=shared)[0].file_system_s
        for given, shared in ((shares, True), (shares, False), (apart, True))
    ]
    assert times[0] is not None
    assert times[1:] == [None, None]


def test_the_end_is_the_sooner_of_the_time_limit_and_of_what_earlier_runs_took() -> None:
    limited, unlimited = replace(DEAF, time_limit_s=7_200), replace(DEAF, time_limit_s=None)
    by_limit_s = 3_600 + TIME_LIMIT_SLACK_S
    history = History(run_times=lambda _user, _app: RunTimes(tuple([3_700.0] * 100), ()))
    sure = {"planning": {"end_confidence": 0.9}}
    assert expected_end_s(limited, context(limited)) == by_limit_s
    assert expected_end_s(unlimited, context(unlimited)) is None
    for each in (limited, unlimited):
        likely_s = expected_end_s(each, context(each, history=history, **sure))
        assert likely_s is not None
        assert 100 <= likely_s < by_limit_s


@pytest.mark.parametrize(
    ("subject", "avoid", "why"),
    [
        (replace(SAVING, requeueable=False), False, "it cannot be requeued"),
        (SAVING, True, "it did not save itself when it was asked to"),
        (replace(DEAF, comment="clearway:checkpoint=none"), False, "it says that it cannot be checkpointed"),
        (DEAF, False, "it cannot save itself"),
    ],
)
def test_why_a_job_cannot_be_saved(subject: Job, avoid: bool, why: str) -> None:
    assert why_not_saved(subject, context(subject, avoid=avoid)) == why
