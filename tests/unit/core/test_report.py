"""The report on urgent jobs: hand-made histories with known answers, and sums that hold for any history."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearway.api.report import part_of, report
from clearway.cli.report import page, picture
from clearway.model.operations import EvictionState
from clearway.model.problem import Action
from clearway.model.records import Beside, Case, Ending
from clearway.telemetry.report import MOST_JOBS, case_of
from tests.builders import NOW, after, eviction, preemption
from tests.unit.core.cases import case, case_job

UNTIL = after(86_400)


def test_a_plan_that_was_not_carried_out() -> None:
    jobs = (case_job("101", left_at=after(900)), case_job("102", user="bob", action=Action.END, left_at=after(50)))
    told = report([case(started_at=after(960), jobs=jobs, beside=Beside(10_800.0, NOW, 1))], NOW, UNTIL)
    (one,) = told.cases
    assert (one.ending, one.sooner_s, one.wait_s, one.in_time) == (Ending.SOONER, 900.0, 960.0, False)
    assert (one.lost_node_s, one.would_lose_node_s, one.saved_node_s) == (0.0, 7_200.0, 3_600.0)
    assert [(share.user, share.would_lose_node_s) for share in told.users] == [("ann", 7_200.0)]
    assert told.sums.ended_soon == 1
    assert told.held.starts == 0


def test_a_plan_that_was_carried_out() -> None:
    left = case_job(preempted=True, predicted_checkpoint_s=10.0, actual_checkpoint_s=15.0, actual_lost_node_s=100.0)
    told = report([case(acted=True, over=True, started_at=after(90), jobs=(left,))], NOW, UNTIL)
    assert told.cases[0].ending is Ending.SERVED
    assert (told.sums.lost_node_s, told.sums.would_lose_node_s, told.sums.in_time) == (100.0, 0.0, 1)
    held = told.held
    assert (held.checkpoint_ratio, held.checkpoints_within, held.start_error_s) == (1.5, 0, 30.0)
    assert (held.predicted_lost_node_s, held.actual_lost_node_s) == (7_200.0, 100.0)


def test_a_plan_that_was_called_off_has_not_served() -> None:
    left = case_job(preempted=True, actual_lost_node_s=100.0)
    one = case("1", acted=True, over=True, called_off=True, started_at=after(90), jobs=(left, case_job("102")))
    told = report([one, case("1", began_at=after(100)), case("2")], NOW, UNTIL)
    assert told.sums.by_ending[Ending.CALLED_OFF] == 1
    assert told.sums.by_ending[Ending.SERVED] == 0
    assert (told.sums.lost_node_s, told.held.starts) == (100.0, 0), "what has left has lost"
    assert (told.sums.cases, told.sums.urgent_jobs) == (3, 2)
    assert "<b>1 plan</b> was begun, and called off or failed" in page(told)


@pytest.mark.parametrize(
    ("state", "fields", "begun", "called_off"),
    [
        (EvictionState.PROPOSED, {}, False, False),
        (EvictionState.PREEMPTING, {"placement": "clearway_1"}, True, False),
        (EvictionState.COMPLETED, {"placement": "clearway_1", "started_at": after(30)}, True, False),
        (EvictionState.CANCELLED, {}, False, False),
        (EvictionState.CANCELLED, {"placement": "clearway_1"}, True, True),
        (EvictionState.CANCELLED, {"placement": "clearway_1", "started_at": after(30)}, True, False),
        (EvictionState.FAILED, {"placement": "clearway_1"}, True, True),
    ],
)
def test_what_an_operation_makes_of_its_case(
    state: EvictionState, fields: dict[str, Any], begun: bool, called_off: bool
) -> None:
    made = case_of(eviction(state=state, **fields))
    assert (made.acted, made.called_off) == (begun, called_off)


def test_the_loss_of_jobs_beyond_those_that_are_kept_is_predicted_then_measured() -> None:
    left = preemption(requeued_at=after(5), actual_lost_node_s=10.0)
    every = (*(preemption() for _ in range(MOST_JOBS)), left, preemption())
    made = case_of(replace(eviction(state=EvictionState.PROPOSED), preemptions=every))
    assert (len(made.jobs), made.unlisted, made.unlisted_node_s) == (MOST_JOBS, 2, 7_200.0)
    made = case_of(replace(eviction(placement="clearway_1"), preemptions=every))
    assert made.unlisted_node_s == 10.0


def test_what_is_not_listed_or_not_compared_is_told() -> None:
    found = [
        case("1", acted=True, unlisted=3, unlisted_node_s=7_200.0),
        case("2", unlisted=1, unlisted_node_s=3_600.0, beside=Beside(None, NOW, 0)),
    ]
    sums = report(found, NOW, UNTIL).sums
    assert (sums.lost_node_s, sums.would_lose_node_s) == (7_200.0, 7_200.0 + 3_600.0)
    assert (sums.unlisted, sums.unlisted_node_s) == (4, 10_800.0)
    assert (sums.compared, sums.slurm_without_plan, sums.not_compared) == (0, 1, 1)
    text = page(report(found, NOW, UNTIL))
    assert "4 further jobs" in text
    assert "Not compared: 1 plan" in text


def test_jobs_that_start_by_themselves_wait_or_leave() -> None:
    found = [case("1", started_at=after(30)), case("2"), case("3", gone_at=after(5))]
    told = report(found, NOW, after(1_060))
    endings = {each.job_id: each.ending for each in told.cases}
    assert endings == {"1": Ending.NOT_NEEDED, "2": Ending.WAITS, "3": Ending.GONE}
    assert told.sums.sooner_s == 1_000.0, "so long has the waiting one waited since its start by the plan"


def test_a_user_sees_the_own_part() -> None:
    one = case(jobs=(case_job("101"), case_job("102", user="bob", nodes=("n3",))), beside=Beside(2.0, NOW, 0))
    own = part_of(one, "bob")
    assert own is not None
    assert ([job.job_id for job in own.jobs], own.nodes, own.beside) == (["102"], ("n3",), None)
    assert part_of(one, "stranger") is None


def test_the_page_escapes_what_users_set() -> None:
    hostile = '"><script>alert(1)</script>'
    one = case(hostile, display_id=hostile, user=hostile, outcome=hostile, jobs=(case_job(user=hostile),))
    text = page(report([one], NOW, UNTIL))
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", ""), "it loads nothing"
    assert text.count("<svg") == text.count("<desc>") == 1


def test_nodes_on_which_the_same_happens_are_one_row_of_the_picture() -> None:
    wide = case_job("101", num_nodes=3, nodes=("n1", "n2", "n3"), left_at=after(50), preempted=True)
    jobs = (wide, case_job("102", num_nodes=2, nodes=("n3", "n4"), action=Action.END, left_at=after(40)))
    one = case(jobs=jobs, nodes=("n1", "n2", "n3"), acted=True, started_at=after(60))
    (told,) = report([one], NOW, UNTIL).cases
    shown = picture(told, UNTIL)
    at = {name: y for y, name in shown.nodes}
    assert list(at)[2:] == ["n1 +1", "n3", "n4"]
    assert shown.groups
    assert not shown.left_out
    kinds = {name: [bar.kind for bar in shown.bars if bar.y == y] for name, y in at.items()}
    assert kinds["n1 +1"] == ["leaves", "urgent"]
    assert kinds["n3"] == ["leaves", "ends", "urgent"]
    assert kinds["n4"] == ["ends"]


def test_a_picture_leaves_out_groups_and_says_how_many_nodes() -> None:
    jobs = tuple(case_job(str(n), nodes=(f"n{2 * n}", f"n{2 * n + 1}")) for n in range(30))
    (told,) = report([case(jobs=jobs, nodes=())], NOW, UNTIL).cases
    shown = picture(told, UNTIL)
    assert len(shown.nodes) == 2 + 24
    assert shown.left_out == 2 * 6


def test_a_page_without_cases() -> None:
    assert "no urgent job" in page(report([], NOW, UNTIL))


AMOUNTS = st.integers(0, 10**6).map(float)
TIMES = st.one_of(st.none(), st.integers(0, 5_000).map(after))
JOBS = st.builds(
    case_job,
    user=st.sampled_from("abc"),
    action=st.sampled_from(Action),
    predicted_lost_node_s=AMOUNTS,
    actual_lost_node_s=st.one_of(st.none(), AMOUNTS),
    preempted=st.booleans(),
    left_at=TIMES,
)
CASES = st.builds(
    case,
    st.integers(1, 99).map(str),
    acted=st.booleans(),
    called_off=st.booleans(),
    unlisted_node_s=AMOUNTS,
    started_at=TIMES,
    gone_at=TIMES,
    jobs=st.lists(JOBS, max_size=4).map(tuple),
    beside=st.one_of(st.none(), st.builds(Beside, st.one_of(st.none(), AMOUNTS), st.just(NOW), st.integers(0, 9))),
)


@given(st.lists(CASES, max_size=8))
def test_sums_add_up(cases: list[Case]) -> None:
    told = report(cases, NOW, UNTIL + timedelta(seconds=1))
    sums = told.sums
    assert sums.cases == len(told.cases) == sum(sums.by_ending.values())
    assert sums.plan_node_s + sums.saved_node_s == sums.slurm_node_s
    assert sums.saved_node_s == sum(each.saved_node_s or 0.0 for each in told.cases)
    shares = sum(share.lost_node_s + share.would_lose_node_s for share in told.users)
    assert sums.lost_node_s + sums.would_lose_node_s == shares + sums.unlisted_node_s
    assert sums.compared + sums.slurm_without_plan + sums.not_compared == sums.cases
    assert sum(share.jobs for share in told.users) == sum(job.pays for each in told.cases for job in each.jobs)
