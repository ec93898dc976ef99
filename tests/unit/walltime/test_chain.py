"""A chain's files, what its owner is told, and what sacct answers: pure parts. tests/slurm carries chains out."""

from __future__ import annotations

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearway.model.errors import WalltimeError
from clearway.slurm.parse import elapsed_times
from clearway.walltime.chain import (
    SLACK_S,
    ChainState,
    SlurmView,
    Stage,
    first_state,
    limit_minutes,
    parse_queue,
    parse_state,
    plan_text,
    standing,
)
from clearway.walltime.request_sequence import Costs, Milestone, requests

COSTS = Costs(90, 40)
SEQUENCE = requests([Milestone(600, True), Milestone(1_000.005, False)], COSTS)


def state(stage: Stage, **fields: object) -> ChainState:
    defaults: dict[str, object] = {"request": 1, "asked_s": 1.0, "saved_s": 0.0, "code": None, "reason": ""}
    return ChainState(stage=stage, **(defaults | fields))  # type: ignore[arg-type]


def test_the_plan_is_what_the_launcher_reads() -> None:
    assert plan_text(SEQUENCE) == "60000 yes\n100001 no\n"
    assert parse_state(first_state(SEQUENCE, COSTS)) == state(Stage.SUBMITTED, asked_s=690.0)
    with pytest.raises(WalltimeError, match="request 2 is longer than a year"):
        plan_text(requests([Milestone(1, False), Milestone(1e9, False)], COSTS))


@given(st.floats(0, 1e7))
def test_slurms_limit_lies_behind_the_request_but_not_far(request_s: float) -> None:
    behind_s = 60 * limit_minutes(request_s) - request_s
    assert SLACK_S <= behind_s < SLACK_S + 60 or math.isclose(behind_s, SLACK_S)
    # The launcher computes it in hundredths of a second.
    assert limit_minutes(request_s) == (math.ceil(request_s * 100) + 3_000 + 5_999) // 6_000


@pytest.mark.parametrize(
    ("text", "what"),
    [("", "state is ''"), ("state=dancing", "state is 'dancing'"), ("state=running\nrequest=two", "request is 'two'")],
)
def test_a_damaged_state_is_told(text: str, what: str) -> None:
    with pytest.raises(WalltimeError, match=what):
        parse_state(text)


@given(st.text(max_size=200))
def test_any_text_is_a_state_or_an_error_of_ours(text: str) -> None:
    with suppress(WalltimeError):
        assert parse_state(text).request >= 0
    assert all(key.isdecimal() for key in parse_queue(text))


@pytest.mark.parametrize(
    ("chain", "seen", "said"),
    [
        (state(Stage.ENDED, code=0), None, "done"),
        (state(Stage.ENDED, code=7), SlurmView("FAILED", "NonZeroExitCode"), "failed: exit status 7"),
        (state(Stage.STOPPED, reason="no space"), None, "stopped: no space"),
        (state(Stage.SUBMITTED), SlurmView("PENDING", "Priority"), "waiting (Priority)"),
        (state(Stage.REQUEUED), SlurmView("PENDING", "None"), "waiting"),
        (state(Stage.RUNNING), SlurmView("RUNNING", "None"), "running"),
        (state(Stage.SAVING), SlurmView("RUNNING", "None"), "saving"),
        (state(Stage.RUNNING), SlurmView("SUSPENDED", "None"), "suspended"),
        (state(Stage.RUNNING), SlurmView("CANCELLED", "None"), "stopped: Slurm calls its job CANCELLED"),
        (state(Stage.RUNNING), None, "stopped: Slurm does not know its job any more; see the job's output"),
    ],
)
def test_its_owner_is_told_in_a_phrase(chain: ChainState, seen: SlurmView | None, said: str) -> None:
    assert standing(chain, seen, asked=True) == said


def test_without_slurm_the_last_word_of_the_job_counts() -> None:
    assert standing(state(Stage.SAVING), None, asked=False) == "saving"


def test_the_queue_is_read() -> None:
    assert parse_queue("12|PENDING|BeginTime\n\nslurm_load_jobs error\n13|RUNNING|None\n") == {
        "12": SlurmView("PENDING", "BeginTime"),
        "13": SlurmView("RUNNING", "None"),
    }


def test_what_sacct_is_asked() -> None:
    assert " ".join(elapsed_times.command("ann", "fit", 30)) == (
        "sacct --user=ann --name=fit --starttime=now-30days --endtime=now --state=COMPLETED --allocations --noheader "
        "--parsable2 --delimiter=| --format=JobIDRaw,State,ElapsedRaw"
    )
    for user, name, days in (("ann", "fit,x", 1), ("", "fit", 1), ("ann", "fit\n", 1), ("ann", "fit", 0)):
        with pytest.raises(WalltimeError):
            elapsed_times.command(user, name, days)


def test_what_sacct_answers() -> None:
    assert elapsed_times.read("12|COMPLETED|90\n\n13|FAILED|5\n14.batch|COMPLETED|90\n15_3|COMPLETED|7\n") == [
        90.0,
        7.0,
    ]
    assert elapsed_times.read("") == []
    for line in ("12|COMPLETED", "12|COMPLETED|x", "12|COMPLETED|5|6", "|COMPLETED|5", "sacct: error: down"):
        with pytest.raises(WalltimeError, match="line 1"):
            elapsed_times.read(line)
