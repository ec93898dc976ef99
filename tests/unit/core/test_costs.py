"""What it costs to let a job go, by numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clearway.config.configuration import CostsConfig
from clearway.estimates.costs import (
    NO_HISTORY,
    TIME_LIMIT_SLACK_S,
    CostBasis,
    app_checkpoint_s,
    checkpoint_time_s,
    end_ready_s,
    lost_work_node_s,
    preemption_options,
    write_time_s,
)
from clearway.estimates.learning import History, Requeued
from clearway.model.claims import CheckpointHow, Claims, SaveState
from clearway.model.problem import Action, Option
from tests.builders import NOW, after, job

# Ba = 1,000 MiB/s for all, Bc = 100 MiB/s a node: ten nodes fill the file system.
COSTS = CostsConfig(file_system_mib_s=1_000, node_mib_s=100, app_memory_fraction=0.5, checkpoint_overhead=2)
SIGNAL = Claims(checkpoint=CheckpointHow.SIGNAL)


@pytest.mark.parametrize(
    ("nodes", "size_per_node_mib", "seconds"),
    [
        pytest.param(1, 500, 5.0, id="one node: its own bandwidth, 500 / 100"),
        pytest.param(5, 500, 5.0, id="half the file system: still the node's, max(2500 / 1000, 5)"),
        pytest.param(10, 500, 5.0, id="both alike, 5000 / 1000 = 500 / 100"),
        pytest.param(20, 500, 10.0, id="the file system's, 10000 / 1000"),
        pytest.param(4_392, 32_768, 143_917.056, id="a whole Theta"),
        pytest.param(3, 0, 0.0, id="nothing to write"),
    ],
)
def test_equation_1(nodes: int, size_per_node_mib: float, seconds: float) -> None:
    assert checkpoint_time_s(nodes, size_per_node_mib, COSTS) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("claims", "lost_node_s"),
    [
        pytest.param(None, 4 * 3_600, id="never saved: since its start an hour ago"),
        pytest.param(Claims(), 4 * 3_600, id="claims without a time"),
        pytest.param(Claims(last=after(-60)), 240, id="saved a minute ago"),
        pytest.param(Claims(last=after(-5_000)), 4 * 3_600, id="saved by an earlier run"),
        pytest.param(Claims(last=after(60)), 4 * 3_600, id="from the future"),
        pytest.param(Claims(last=after(3)), 0, id="by a clock that runs ahead"),
    ],
)
def test_lost_work_counts_from_the_last_believable_checkpoint(claims: Claims | None, lost_node_s: float) -> None:
    assert lost_work_node_s(job(nodes=4), claims, NOW) == lost_node_s


def test_lost_work_is_whole_milliseconds_and_never_negative() -> None:
    assert lost_work_node_s(job(nodes=3, start_time=after(-0.1234567)), None, NOW) == pytest.approx(0.369, abs=1e-12)
    assert lost_work_node_s(job(start_time=after(5)), None, NOW) == 0
    assert lost_work_node_s(job(start_time=None, submit_time=after(-7)), None, NOW) == 7


@pytest.mark.parametrize(
    ("claims", "memory_mib", "seconds"),
    [
        pytest.param(None, 2_000, None, id="no claims"),
        pytest.param(Claims(last=after(-60)), 2_000, None, id="saved once, does not say that it can"),
        pytest.param(replace(SIGNAL, state=SaveState.FAILED), 2_000, None, id="failed the last time"),
        pytest.param(replace(SIGNAL, took_s=30.0), 2_000, 32.0, id="as long as the last time, and 2 s"),
        pytest.param(replace(SIGNAL, size_mib=20_000), 2_000, 22.0, id="by size: 20000 / 1000"),
        pytest.param(replace(SIGNAL, took_s=7.0, size_mib=20_000), 2_000, 9.0, id="time is better than size"),
        pytest.param(SIGNAL, 2_000, 22.0, id="half its memory: 20 x 1000 / 1000"),
        pytest.param(SIGNAL, 0, 42.0, id="memory unknown: half its nodes' memory, 20 x 2000 / 1000"),
        pytest.param(
            Claims(checkpoint=CheckpointHow.INTERVAL, interval_s=600, last=after(-100), took_s=10.0),
            2_000,
            512.0,
            id="at its own pace: due in 500 s",
        ),
        pytest.param(
            Claims(checkpoint=CheckpointHow.INTERVAL, interval_s=600, took_s=10.0),
            2_000,
            12.0,
            id="... since its start 6 x 600 s ago: due now",
        ),
        pytest.param(
            Claims(checkpoint=CheckpointHow.INTERVAL, interval_s=600, last=after(-1_300), took_s=10.0),
            2_000,
            512.0,
            id="... two missed: the next one",
        ),
        pytest.param(Claims(checkpoint=CheckpointHow.INTERVAL, took_s=1.0), 2_000, None, id="... at no pace it names"),
        pytest.param(
            Claims(checkpoint=CheckpointHow.INTERVAL, interval_s=0, took_s=1.0), 2_000, None, id="... at pace 0"
        ),
    ],
)
def test_application_checkpoint(claims: Claims | None, memory_mib: int, seconds: float | None) -> None:
    asked = job(nodes=20, memory_mib=memory_mib)
    write_s = 0.0 if claims is None else write_time_s(asked, claims, COSTS, 4_000, NO_HISTORY)
    found = app_checkpoint_s(asked, claims, NOW, write_s)
    assert found == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({"time_limit_s": None}, None),
        ({"start_time": None}, None),
        ({"time_limit_s": 3_660}, 60 + TIME_LIMIT_SLACK_S + 10),
        ({"time_limit_s": 60}, TIME_LIMIT_SLACK_S + 10),
    ],
    ids=["no limit", "not started", "a minute left", "over its limit"],
)
def test_when_the_time_limit_has_emptied_the_nodes(fields: dict[str, object], seconds: float | None) -> None:
    assert end_ready_s(job(**fields), NOW, 10) == seconds


KILL = Option(Action.KILL, lost_work_node_s=3_600)
SAVE = Option(Action.APP_CHECKPOINT, checkpoint_s=32, return_node_s=32)


@pytest.mark.parametrize(
    ("kill", "requeueable", "saves", "options"),
    [
        (True, True, True, (KILL, SAVE)),
        (False, True, True, (SAVE,)),
        (True, False, True, (KILL,)),
        (True, True, False, (KILL,)),
        (False, False, True, ()),
        (False, True, False, ()),
    ],
)
def test_options(kill: bool, requeueable: bool, saves: bool, options: tuple[Option, ...]) -> None:
    claims = replace(SIGNAL, took_s=30.0) if saves else None
    assert (
        preemption_options(job(), claims, CostBasis(now=NOW, costs=COSTS), kill=kill, requeueable=requeueable)
        == options
    )


def back(options: tuple[Option, ...]) -> dict[Action, int]:
    return {option.action: option.return_node_s for option in options}


def test_coming_back_costs_restart_and_queue_on_all_nodes() -> None:
    """Four nodes: 2,000 MiB through 100 MiB/s links and 2 s; preemptees of that size were away for 50 s."""
    history = History(requeued=tuple(Requeued(4, 50.0) for _ in range(5)))
    saved = replace(SIGNAL, size_mib=8_000.0, last=after(-60))

    def options(claims: Claims, costs: CostsConfig = COSTS) -> dict[Action, int]:
        running = job(nodes=4, start_time=after(-600))
        by = CostBasis(now=NOW, costs=costs, history=history)
        return back(preemption_options(running, claims, by, kill=True, requeueable=True))

    assert options(saved) == {Action.KILL: 4 * (50 + 22), Action.APP_CHECKPOINT: 4 * (50 + 22)}
    fresh = replace(saved, last=None)
    assert options(fresh) == {Action.KILL: 4 * 50, Action.APP_CHECKPOINT: 4 * (50 + 22)}, "it begins as it began"
    none = COSTS.model_copy(update={"restart_weight": 0.0, "queueing_weight": 0.0})
    assert options(saved, none) == {Action.KILL: 0, Action.APP_CHECKPOINT: 0}
    queue = COSTS.model_copy(update={"restart_weight": 0.0, "queueing_weight": 0.5})
    assert options(saved, queue) == {Action.KILL: 100, Action.APP_CHECKPOINT: 100}


def share_s(claims: Claims, nodes: int, shared_mib_s: float | None) -> float | None:
    by = CostBasis(now=NOW, costs=COSTS, shared_mib_s=shared_mib_s)
    (save,) = preemption_options(job(nodes=nodes, memory_mib=1_000), claims, by, kill=False, requeueable=True)
    return save.file_system_s


def test_a_checkpoint_takes_its_part_of_the_file_system() -> None:
    """Half of 1,000 MiB through 100 MiB/s and 2 s: 7 s, in which two nodes take a fifth of 1,000 MiB/s."""
    assert share_s(SIGNAL, 2, None) is None
    assert share_s(SIGNAL, 2, 1_000) == pytest.approx(7 * 200 / 1_000)
    assert share_s(SIGNAL, 20, 1_000) == pytest.approx(20 * 500 / 1_000 + 2), "all of it"
    assert share_s(SIGNAL, 2, 100) == pytest.approx(7), "no more than all of what checkpoints may take"
    told = replace(SIGNAL, size_mib=300.0, took_s=10.0)
    assert share_s(told, 2, 1_000) == pytest.approx((10 + 2) * 30 / 1_000)
    paced = Claims(checkpoint=CheckpointHow.INTERVAL, interval_s=60.0, last=after(-20), took_s=10.0, size_mib=300.0)
    assert share_s(paced, 2, 1_000) == pytest.approx((10 + 2) * 30 / 1_000), "while it is waited for, others write"


@pytest.mark.parametrize(("later_s", "seconds"), [(0.0, 112.0), (60.0, 112.0), (100.0, 112.0), (101.0, 712.0)])
def test_a_checkpoint_at_own_pace_that_comes_before_the_plan_begins_does_not_count(
    later_s: float, seconds: float
) -> None:
    claims = Claims(checkpoint=CheckpointHow.INTERVAL, interval_s=600, last=after(-500), took_s=10.0)
    assert app_checkpoint_s(job(), claims, NOW, 12.0, NO_HISTORY, later_s) == seconds
