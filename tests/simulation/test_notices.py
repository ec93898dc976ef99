"""What is put into the outbox, and that it is put there with the change that it tells of."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from clearway.execution.restraints import UserPause
from clearway.model.notice import Channel, Notice, NoticeKind
from clearway.simulation.jobs import Program
from tests.simulation.world import SAVES, World, config

NOTIFY: dict[str, Any] = {
    "webhook": {"url_file": "/none"},
    "mail": {"sendmail": "/none", "owner": "{user}@example.org", "operators": ["ops@example.org"]},
    "comment": True,
    "job_output": True,
}
LEFT = NoticeKind.LEFT


def told(world: World, *kinds: NoticeKind) -> list[Notice]:
    """What waits in the outbox, whatever the channel."""
    later = world.clock.now() + timedelta(days=365)
    found = [each for channel in Channel for each in world.store.notices_due(channel, later, timedelta(days=1), 1_000)]
    return [each for each in found if not kinds or each.kind in kinds]


def channels(world: World, job_id: str, kind: NoticeKind = LEFT) -> set[Channel]:
    return {each.channel for each in told(world, kind) if each.job_id == job_id}


@pytest.fixture
def make(make_world: Callable[..., World]) -> Callable[..., World]:
    def made(mode: str = "automatic", **sections: dict[str, Any]) -> World:
        return make_world(config=config(mode, **({"notify": NOTIFY} | sections)))

    return made


ACTIONS: dict[str, tuple[Program, dict[str, Any], str]] = {
    "kill": (Program(exit_s=2.0), {}, "not saved"),
    "checkpoint": (Program(save_s=2.0, work_s=3_000), {"comment": SAVES}, "saved"),
    "cancel": (Program(), {"requeueable": False}, "not saved"),
    "suspend": (Program(), {"memory_mib": 500}, "its memory stays"),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_the_owner_is_told_of_each_action_by_each_channel_once(make: Callable[..., World], action: str) -> None:
    candidates = {"min_runtime": 0, "allow_cancel": True, "allow_suspend": action == "suspend"}
    world = make(candidates=candidates)
    program, fields, saved = ACTIONS[action]
    job_ids = [
        world.submit(program, on=(f"n{number}",), ran_s=1_000, user=f"user{number}", name="a name", **fields)
        for number in range(1, 9)
    ]
    urgent = world.urgent(2, work_s=20.0, memory_mib=500)
    world.run_until(lambda: world.started(urgent) is not None and world.settled())
    (eviction,) = world.store.evictions()
    left = {p.job_id: p for p in eviction.preemptions if p.requeued_at}
    assert len(left) == 2
    for job_id in job_ids:
        comment = set() if action == "cancel" else {Channel.COMMENT}  # Slurm takes none of a job that has ended
        expected = {Channel.WEBHOOK, Channel.MAIL} | comment if job_id in left else set()
        assert channels(world, job_id) == expected
    for each in told(world, LEFT):
        assert each.at == left[each.job_id].requeued_at
        assert each.user == left[each.job_id].job.user
        assert each.about["urgent_job"] == urgent
        assert saved in each.about["saved"]
        assert 0 <= (each.created_at - each.at).total_seconds() <= (10 if each.channel is Channel.COMMENT else 1)
    back = {each.job_id for each in told(world, NoticeKind.RETURNED)}
    assert back == (set() if action == "cancel" else set(left))
    assert {each.job_id for each in told(world, NoticeKind.WARNED)} == set(left)


def test_nothing_is_told_in_observe_mode_or_while_all_is_off(make: Callable[..., World]) -> None:
    for world in (make("observe"), make(notify={})):
        world.submit(on=tuple(f"n{number}" for number in range(1, 9)), num_nodes=8, ran_s=500)
        world.urgent(1)
        for _ in range(20):
            world.tick()
        assert world.store.evictions()
        assert not told(world)


def test_operators_are_told_of_a_plan_that_waits_once_however_often_it_is_made(make: Callable[..., World]) -> None:
    world = make("approve")
    first = world.submit(
        Program(work_s=5_000.0), on=tuple(f"n{number}" for number in range(1, 9)), num_nodes=8, ran_s=9
    )
    urgent = world.urgent(1)
    world.tick()
    (waiting,) = told(world, NoticeKind.APPROVAL)[:1]
    assert {each.channel for each in told(world)} == {Channel.WEBHOOK, Channel.MAIL}
    assert waiting.user == ""
    assert waiting.about["urgent_job"] == urgent
    number = world.eviction().eviction_id
    world.by_hand.requeue(world.cluster.jobs[first].job)  # the proposal is superseded
    world.run_until(lambda: all(e.state.terminal for e in world.store.evictions() if e.eviction_id == number))
    for _ in range(5):
        world.tick()
    assert len(told(world, NoticeKind.APPROVAL)) == 2


def test_a_missed_deadline_is_told_to_operators(make: Callable[..., World]) -> None:
    world = make(candidates={"allow_kill": False})
    world.submit(
        Program(save_s=500.0), on=tuple(f"n{number}" for number in range(1, 9)), num_nodes=8, ran_s=500, comment=SAVES
    )
    world.urgent(1)
    world.run_until(lambda: bool(told(world, NoticeKind.LATE)), limit_s=300)
    assert {each.channel for each in told(world, NoticeKind.LATE)} == {Channel.WEBHOOK, Channel.MAIL}


def test_a_job_whose_requeue_was_held_back_is_told_nothing(make: Callable[..., World], tmp_path: Path) -> None:
    halt = tmp_path / "halt"
    world = make(daemon={"mode": "automatic", "halt_file": str(halt)})
    world.submit(on=tuple(f"n{number}" for number in range(1, 9)), num_nodes=8, ran_s=500)
    requeue = world.backend.requeue

    world.backend.requeue = lambda job: (halt.touch(), world.loop.leadership.command_limit_s(), requeue(job))  # type: ignore[assignment,func-returns-value]
    world.urgent(1)
    for _ in range(10):
        world.tick()
    assert halt.exists()
    assert not told(world, LEFT)
    halt.unlink()
    world.backend.requeue = requeue  # type: ignore[method-assign]
    world.run_until(lambda: bool(told(world, LEFT)))


def test_the_job_learns_of_an_urgent_job_and_of_no_other(make: Callable[..., World]) -> None:
    """What a notice holds is what ``api`` tells: own job, urgent job, and nothing of the other preemptees."""
    world = make()
    for number in range(1, 9):
        world.submit(on=(f"n{number}",), ran_s=500, user=f"secret{number}", name=f"hidden{number}")
    urgent = world.urgent(8)
    world.run_until(lambda: world.started(urgent) is not None)
    for each in told(world, LEFT, NoticeKind.WARNED):
        own = each.user.removeprefix("secret")
        text = str(sorted(each.about.items()))
        for other in set("12345678") - {own}:
            assert f"secret{other}" not in text
            assert f"hidden{other}" not in text


def test_a_loop_is_told_once(make: Callable[..., World]) -> None:
    world = make()
    pause = UserPause(world.clock.now() + timedelta(hours=1), "job 1 was preempted 2 times", left_alone=False)
    world.tick()
    for _ in range(3):  # as where the daemon died before it had stored the pause
        world.loop._cycle.pauses._tell("ursula", pause, world.clock.now())
    assert len(told(world, NoticeKind.LOOP)) == 2  # webhook and mail


def test_operators_are_told_once_that_everything_has_stopped_and_how_to_go_on(make: Callable[..., World]) -> None:
    world = make(candidates={"min_runtime": 0})
    for number in range(1, 9):
        world.submit(Program(work_s=50_000.0, exit_s=0.5), on=(f"n{number}",), ran_s=1_000)
    world.cluster.drains_for = "Epilog error"
    world.urgent(1)
    world.run_until(lambda: bool(told(world, NoticeKind.STOPPED)), limit_s=120)
    for _ in range(60):
        world.tick()
    notices = told(world, NoticeKind.STOPPED)
    assert {each.channel for each in notices} == {Channel.WEBHOOK, Channel.MAIL}
    assert len(notices) == 2
    assert all("Epilog error" in each.about["why"] for each in notices)
    assert world.config.notify.texts.stopped.endswith("clearway resume")
