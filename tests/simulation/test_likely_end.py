"""Counting on jobs that will likely have ended, by how long earlier ones took: when they do, and when they do not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from clearway.estimates.history import RunRecord
from clearway.model.cluster import JobState
from clearway.model.operations import EvictionState
from clearway.model.problem import Action
from clearway.simulation.jobs import Program
from tests.builders import NOW
from tests.simulation.world import World, config


def remember(world: World, count: int, run_s: float) -> None:
    """So many runs of alice's job ``solver`` that took so long."""
    begun = NOW - timedelta(days=9)
    world.store.record_runs(
        [
            RunRecord(
                job_id=str(9_000 + number),
                started_at=begun + timedelta(seconds=number),
                ended_at=begun + timedelta(seconds=number + run_s),
                user="alice",
                app="solver",
                nodes=1,
                limit_s=86_400,
                cut=False,
            )
            for number in range(count)
        ]
    )


def fill(world: World, work_s: float) -> tuple[str, str]:
    """Seven nodes that nobody may have, and one with alice's solver, which has run for 580 s."""
    for number in range(1, 8):
        world.submit(on=(f"n{number}",), ran_s=900, user="vip")
    solver = world.submit(Program(work_s=work_s), on=("n8",), ran_s=580, user="alice", name="solver")
    return solver, world.urgent(1)


LIKELY = {"candidates": {"protected_users": ["vip"]}, "planning": {"end_confidence": 0.9}}


def test_the_urgent_job_waits_for_a_job_that_will_likely_have_ended(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(**LIKELY))
    remember(world, 50, 600)
    solver, urgent = fill(world, work_s=600)
    world.run_until(lambda: world.started(urgent) is not None, limit_s=60)
    (preemption,) = world.eviction().preemptions
    assert (preemption.job_id, preemption.action) == (solver, Action.END)
    (verdict,) = (each for each in world.eviction().plan.verdicts if each.job_id == solver)
    assert "by how long earlier jobs of its user and name took" in verdict.reason
    assert len(world.cluster.jobs[solver].runs) == 1
    assert world.state(solver) is JobState.ENDED


def test_one_that_lasts_longer_than_ever_is_replaced_by_another_plan(make_world: Callable[..., World]) -> None:
    """It is requeued after all when the time has come: there is no other way, and the urgent job still runs."""
    world = make_world(config=config(**LIKELY))
    remember(world, 50, 600)
    solver, urgent = fill(world, work_s=5_000)
    world.run_until(lambda: world.started(urgent) is not None, limit_s=150)
    assert len(world.cluster.jobs[solver].runs) == 1
    started = world.started(urgent)
    assert started is not None
    assert started <= NOW + timedelta(seconds=60 + 1)
    world.run_until(world.settled, limit_s=1_200, every_s=5)
    assert world.eviction().state is EvictionState.COMPLETED
    assert not world.leftovers()
    assert not world.observer.failures


@pytest.mark.parametrize("count", [0, 5])
def test_little_history_promises_nothing(make_world: Callable[..., World], count: int) -> None:
    world = make_world(config=config(**LIKELY))
    remember(world, count, 600)
    solver, urgent = fill(world, work_s=600)
    world.run_until(lambda: world.started(urgent) is not None, limit_s=60)
    (preemption,) = world.eviction().preemptions
    assert (preemption.job_id, preemption.action) == (solver, Action.KILL)
