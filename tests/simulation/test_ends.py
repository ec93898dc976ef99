"""Ends are Slurm's: a plan that counts on a job's own end is made anew as soon as that end moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from clearway.model.cluster import Job, JobState
from clearway.model.operations import PreemptionState
from clearway.model.problem import Action
from clearway.simulation.jobs import Program
from tests.simulation.world import SAVES, World, config

DELAY_S = 150.0


def change(world: World, job_id: str, how: Callable[[Job], Job]) -> None:
    """What a person does to a job: nothing of it comes from Clearway."""
    entry = world.cluster.jobs[job_id]
    entry.job = how(entry.job)


def extended(seconds: float) -> Callable[[Job], Job]:
    def longer(job: Job) -> Job:
        assert job.end_time is not None
        assert job.time_limit_s is not None
        return replace(
            job, time_limit_s=job.time_limit_s + int(seconds), end_time=job.end_time + timedelta(seconds=seconds)
        )

    return longer


def unlimited(job: Job) -> Job:
    return replace(job, time_limit_s=None, end_time=None)


def runs_over(seconds: int | None) -> Callable[[Job], Job]:
    return lambda job: replace(job, over_time_s=seconds)


def placed(make_world: Callable[..., World], **sections: dict[str, object]) -> tuple[World, str, str, str]:
    """Two busy nodes: one of a job that ends in 100 s, as the plan counts on; one of a job that is saved in 5 s."""
    rules = [{"partition": ["urgent"], "max_delay": f"{DELAY_S:.0f}s"}]
    world = make_world(config=config(preemptors=rules, **sections), node_count=2)
    ending = world.submit(Program(work_s=99_999), on=("n1",), ran_s=900, time_limit_s=1_000)
    saver = world.submit(Program(save_s=5.0), on=("n2",), ran_s=900, comment=SAVES)
    urgent = world.urgent(1)
    world.run_until(lambda: bool(world.store.open_evictions()), limit_s=20)
    assert {p.job_id: p.action for p in world.eviction().preemptions} == {ending: Action.END}
    world.tick(10)
    return world, ending, saver, urgent


@pytest.mark.parametrize("move", [extended(3_600), unlimited, runs_over(300), runs_over(None)])
def test_an_end_that_is_moved_is_planned_around_at_once(
    make_world: Callable[..., World], move: Callable[[Job], Job]
) -> None:
    world, ending, saver, urgent = placed(make_world)
    change(world, ending, move)
    moved = world.clock.now()
    world.run_until(lambda: world.started(urgent) is not None, limit_s=DELAY_S)
    assert begin(world, urgent) - moved < timedelta(seconds=20)
    assert world.state(ending) is JobState.RUNNING
    assert world.cluster.jobs[saver].lost_s == pytest.approx(0.0, abs=1.0)
    (event,) = [step.detail for step in world.store.steps(world.eviction().eviction_id) if "anew" in step.detail]
    assert f"{ending}: its own end was moved to " in event


def begin(world: World, job_id: str) -> datetime:
    started = world.started(job_id)
    assert started is not None
    return started


def test_an_end_that_moves_within_the_delay_is_still_counted_on(make_world: Callable[..., World]) -> None:
    world, ending, saver, urgent = placed(make_world)
    change(world, ending, extended(10))
    world.run_until(lambda: world.started(urgent) is not None, limit_s=DELAY_S)
    assert world.state(ending) is JobState.ENDED
    assert len(world.cluster.jobs[saver].runs) == 1
    assert world.eviction().revision == 0


def test_without_another_plan_no_job_leaves_in_vain(make_world: Callable[..., World]) -> None:
    """Two nodes are asked for: what could be saved stays, as the other node will not be free."""
    rules = [{"partition": ["urgent"], "max_delay": f"{DELAY_S:.0f}s"}]
    world = make_world(
        config=config(preemptors=rules, candidates={"min_runtime": 0, "allow_kill": False}), node_count=2
    )
    ending = world.submit(Program(work_s=99_999), on=("n1",), ran_s=900, time_limit_s=1_000)
    saver = world.submit(Program(save_s=60.0), on=("n2",), ran_s=900, comment=SAVES)
    world.urgent(2)
    world.run_until(lambda: bool(world.store.open_evictions()), limit_s=20)
    change(world, ending, extended(3_600))
    for _ in range(60):
        world.tick(5)
    assert len(world.cluster.jobs[saver].runs) == 1
    assert world.state(saver) is JobState.RUNNING
    assert world.eviction().revision == 0


def test_a_job_that_is_suspended_meanwhile_is_planned_around(make_world: Callable[..., World]) -> None:
    world, ending, saver, urgent = placed(make_world)
    stopped = world.clock.now()
    world.cluster.suspend(world.cluster.jobs[ending])
    world.run_until(lambda: world.started(urgent) is not None, limit_s=DELAY_S)
    assert begin(world, urgent) - stopped < timedelta(seconds=20)
    assert world.cluster.jobs[saver].requeued


def test_a_job_that_was_suspended_ends_that_much_later(make_world: Callable[..., World]) -> None:
    """By its start and its limit it would end in time."""
    rules = [{"partition": ["urgent"], "max_delay": f"{DELAY_S:.0f}s"}]
    world = make_world(config=config(preemptors=rules), node_count=2)
    stood = world.submit(Program(work_s=99_999), on=("n1",), ran_s=0, time_limit_s=1_000)
    saver = world.submit(Program(save_s=5.0), on=("n2",), ran_s=900, comment=SAVES)
    world.tick(300)
    world.cluster.suspend(world.cluster.jobs[stood])
    world.tick(600)
    world.cluster.resume(world.cluster.jobs[stood])
    world.tick(10)
    world.urgent(1)
    world.run_until(lambda: bool(world.store.open_evictions()), limit_s=20)
    (p,) = world.eviction().preemptions
    assert (p.job_id, p.action) == (saver, Action.APP_CHECKPOINT)


def test_time_suspended_is_no_lost_work(make_world: Callable[..., World]) -> None:
    world = make_world(node_count=1)
    stood = world.submit(Program(work_s=99_999), on=("n1",), ran_s=0, time_limit_s=9_000)
    world.tick(100)
    world.cluster.suspend(world.cluster.jobs[stood])
    world.tick(500)
    world.cluster.resume(world.cluster.jobs[stood])
    world.tick(1)
    world.urgent(1)
    world.run_until(lambda: len(world.cluster.jobs[stood].runs) == 2 or world.cluster.jobs[stood].requeued, limit_s=60)
    (p,) = world.eviction().preemptions
    assert p.state is not PreemptionState.PLANNED
    assert p.predicted_lost_node_s == pytest.approx(101, abs=3)
    assert p.actual_lost_node_s == pytest.approx(world.cluster.jobs[stood].lost_s, abs=2)
