"""What one eviction teaches the next, with the whole daemon on the simulated cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from clearway.model.claims import Restart
from clearway.model.cluster import JobState
from clearway.model.operations import Eviction
from clearway.model.plan import Choice
from clearway.model.problem import Action
from clearway.model.records import CheckpointOutcome, RestartRecord
from clearway.simulation.jobs import Program
from clearway.store.repository import Store
from tests.simulation.world import SAVES, World, config

NEVER = Program(work_s=99_999)


def preempt(world: World, max_delay_s: int = 60) -> Eviction:
    """An urgent job for one node from its submission to its end, and what was done for it."""
    urgent = world.urgent(1, work_s=5.0, comment=f"clearway:max_delay={max_delay_s}")
    world.run_until(lambda: world.started(urgent) is not None, limit_s=2.0 * max_delay_s)
    world.run_until(world.settled, limit_s=400)
    return world.store.evictions(limit=1)[0]


def occupied(world: World, count: int = 7) -> None:
    """Jobs that nobody may preempt, on all nodes but the first."""
    for number in range(2, 2 + count):
        world.submit(NEVER, on=(f"n{number}",), ran_s=10, user="vip")


def protected(**candidates: object) -> dict[str, dict[str, object]]:
    return {"candidates": {"min_runtime": 0, "protected_users": ["vip"], "max_preemptions": 9} | candidates}


MARGIN_S = 1.0  # learning.margin, by default


def test_the_second_plan_goes_by_what_the_first_checkpoint_took(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(**protected()))
    occupied(world)
    slow = world.submit(Program(save_s=20.0, work_s=99_999), on=("n1",), ran_s=900, comment=SAVES, name="solver")

    (first,) = preempt(world).preemptions
    model_s = 2.0 + 0.4 * 4_000 / 1_000
    assert first.predicted_checkpoint_s == pytest.approx(model_s, abs=1.0)
    (record,) = world.store.checkpoint_history()
    assert (record.job_id, record.user, record.app, record.outcome) == (
        slow,
        "alice",
        "solver",
        CheckpointOutcome.SAVED,
    )
    assert record.predicted_s == pytest.approx(model_s), "as it was estimated, not rounded to the plan's steps"
    assert record.actual_s == pytest.approx(20.0, abs=1.5)

    world.run_until(lambda: world.state(slow) is JobState.RUNNING)
    (second,) = preempt(world).preemptions
    assert second.predicted_checkpoint_s == pytest.approx(record.actual_s + MARGIN_S, abs=0.6), (
        "to the second, with the margin"
    )
    assert len(world.store.checkpoint_history()) == 2
    calibration = world.parts.history.history(world.config).calibration()
    assert calibration.checkpoints[CheckpointOutcome.SAVED] == 2
    assert not world.observer.failures


@pytest.mark.parametrize("broken", [Program(work_s=99_999), Program(save_s=1.0, save_fails=True, work_s=99_999)])
def test_an_application_that_failed_twice_is_not_asked_any_more(
    make_world: Callable[..., World], broken: Program
) -> None:
    """It claims to save itself on a signal and never does; each time another job has to go in its place."""
    world = make_world(config=config(**protected()))
    occupied(world, 6)
    liar = world.submit(broken, on=("n1",), ran_s=90_000, comment=SAVES, name="liar")
    other = world.submit(NEVER, on=("n8",), ran_s=1_000)

    for failures in (1, 2):
        # Each delay is longer than what it was waited for before: else that alone would rule it out.
        eviction = preempt(world, 60 * failures)
        actions = {p.job_id: p.action for p in eviction.preemptions}
        assert actions == {liar: Action.APP_CHECKPOINT, other: Action.KILL}
        assert len(world.store.checkpoint_history()) == failures
        world.run_until(lambda: world.state(other) is JobState.RUNNING)
        # A job that says "failed" is not asked again in any case; this one promises the same as ever.
        world.cluster.jobs[liar].claim(state="saving")
    outcome = CheckpointOutcome.FAILED if broken.save_fails else CheckpointOutcome.LATE
    assert {each.outcome for each in world.store.checkpoint_history()} == {outcome}

    third = preempt(world, 600)
    assert [p.job_id for p in third.preemptions] == [other], "the one that loses less by a kill"
    assert {v.job_id: v.choice for v in third.plan.verdicts}[liar] is Choice.SPARED
    assert third.revision == 0, "nobody waited for a checkpoint that does not come"
    assert world.state(liar) is JobState.RUNNING
    assert not world.observer.failures


def test_a_late_checkpoint_rules_out_the_delay_that_it_did_not_fit_in(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(**protected()))
    occupied(world, 6)
    slow = world.submit(Program(save_s=90.0, work_s=999_999), on=("n1",), ran_s=90_000, comment=SAVES, name="slow")
    other = world.submit(NEVER, on=("n8",), ran_s=1_000)
    assert {p.job_id for p in preempt(world).preemptions} == {slow, other}
    world.run_until(lambda: world.state(other) is JobState.RUNNING)
    again = preempt(world)
    assert [(p.job_id, p.action) for p in again.preemptions] == [(other, Action.KILL)]
    world.run_until(lambda: world.state(other) is JobState.RUNNING)
    patient = preempt(world, 300)
    assert [(p.job_id, p.action) for p in patient.preemptions] == [(slow, Action.APP_CHECKPOINT)]


def test_where_killing_is_not_allowed_an_untrusted_job_stays(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(**protected(allow_kill=False), learning={"failures": 1}))
    occupied(world)
    liar = world.submit(NEVER, on=("n1",), ran_s=900, comment=SAVES)
    first = world.urgent(1)
    world.run_until(lambda: any(e.late for e in world.store.evictions()), limit_s=120)
    world.store.add_request("cancel", world.eviction().eviction_id, "olga", world.clock.now())
    world.run_until(world.settled)
    (record,) = world.store.checkpoint_history()
    assert (record.outcome, record.actual_s) == (CheckpointOutcome.LATE, None)
    assert record.write_s is not None
    assert record.write_s > 50, "so long it took at least"
    world.cluster.withdraw(world.cluster.jobs[first])

    world.urgent(1)
    (waiting,) = world.tick().waiting
    assert "at most 0 more could be freed" in waiting.why
    assert world.state(liar) is JobState.RUNNING


def test_another_user_is_not_blamed_and_a_restart_of_the_daemon_forgets_nothing(
    make_world: Callable[..., World],
) -> None:
    world = make_world(config=config(**protected()))
    occupied(world)
    slow = world.submit(Program(save_s=20.0, work_s=99_999), on=("n1",), ran_s=900, comment=SAVES, name="solver")
    preempt(world)
    known = world.store.checkpoint_history()
    world.store.close()
    world.start_daemon()
    assert world.store.checkpoint_history() == known
    world.run_until(lambda: world.state(slow) is JobState.RUNNING)
    (again,) = preempt(world).preemptions
    assert again.predicted_checkpoint_s >= 19


def test_what_a_run_says_of_its_restart_is_kept_once(world: World) -> None:
    told = f"{SAVES},restart=fallback,restart_s=4"
    job_id = world.submit(NEVER, on=("n1",), ran_s=3, restart_count=1, comment=told)
    for _ in range(10):
        world.tick()
    (record,) = world.store.restart_history()
    assert (record.job_id, record.restart, record.restart_s, record.run) == (job_id, Restart.FALLBACK, 4.0, 1)


def test_a_run_that_ended_before_it_was_seen_to_run_still_says_how_it_began(world: World) -> None:
    """The launcher says so when the restarted program has ended within its first second."""
    told = f"{SAVES},run=1,restart=ok,restart_s=0"
    job_id = world.submit(Program(work_s=1), on=("n1",), restart_count=1)
    world.run_until(lambda: world.state(job_id) is JobState.ENDED)
    assert world.store.restart_history() == ()
    entry = world.cluster.jobs[job_id]
    entry.job = replace(entry.job, comment=told)
    world.tick()
    (record,) = world.store.restart_history()
    assert (record.job_id, record.restart, record.run) == (job_id, Restart.OK, 1)


@pytest.mark.parametrize(
    ("restart_count", "comment"),
    [
        pytest.param(0, "restart=ok,restart_s=1", id="a first run cannot have been restarted"),
        pytest.param(1, "restart=ok,restart_s=9000", id="longer than it runs: the words of its earlier run"),
        pytest.param(1, "restart=well", id="cannot be read"),
    ],
)
def test_a_restart_that_cannot_be_believed_is_not_kept(world: World, restart_count: int, comment: str) -> None:
    world.submit(NEVER, on=("n1",), ran_s=3, restart_count=restart_count, comment=f"{SAVES},{comment}")
    world.tick()
    assert world.store.restart_history() == ()


def test_history_is_read_only_when_it_changed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    whole = Store.checkpoint_history
    monkeypatch.setattr(Store, "checkpoint_history", lambda store: reads.append(1) or whole(store))
    for number in range(1, 9):
        world.submit(NEVER, on=(f"n{number}",), ran_s=100)
    for _ in range(5):
        world.tick()
    assert len(reads) == 1, "for the looks that are taken ahead"
    world.urgent(1)
    for _ in range(5):
        world.tick()
    world.urgent(1)
    for _ in range(5):
        world.tick()
    assert len(reads) == 1


def test_of_jobs_that_lose_nothing_the_one_goes_that_is_back_the_soonest(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(**protected()))
    occupied(world, 6)
    for app, restart_s in (("slow", 300.0), ("quick", 3.0)):
        world.store.record_restart(
            RestartRecord(
                job_id=app,
                run=1,
                user="alice",
                app=app,
                checkpointer="application",
                nodes=1,
                started_at=world.clock.now(),
                restart=Restart.OK,
                restart_s=restart_s,
            )
        )
    saves = Program(save_s=5.0, work_s=99_999)
    slow = world.submit(saves, on=("n1",), ran_s=900, comment=SAVES, name="slow")
    quick = world.submit(saves, on=("n8",), ran_s=900, comment=SAVES, name="quick")
    assert slow < quick, "a tie would go to the other one"

    done = preempt(world)
    assert [p.job_id for p in done.preemptions] == [quick]
    assert done.plan.chosen.return_node_s == 3
    reason = next(v.reason for v in done.plan.verdicts if v.job_id == quick)
    assert "without it coming back would cost 297 node-seconds more" in reason
