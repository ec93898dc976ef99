"""The budget holds over all evictions, however many urgent jobs come and however long jobs take to leave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from clearway.config.configuration import Config
from clearway.model.operations import EvictionState
from clearway.simulation.jobs import Program
from tests.simulation.world import SAVES, World, config


def limited(**budget: Any) -> Config:
    return config(budget=budget)


def full(world: World, save_s: float | None) -> list[str]:
    comment = SAVES if save_s else ""
    program = Program(save_s=save_s, work_s=9_000)
    return [world.submit(program, on=(f"n{n}",), ran_s=1_000 + n, comment=comment) for n in range(1, 9)]


def preempted(world: World, jobs: list[str]) -> list[str]:
    return [
        job_id
        for job_id in jobs
        if len(world.cluster.jobs[job_id].runs) > 1 or not world.cluster.jobs[job_id].job.nodes
    ]


@pytest.mark.parametrize("save_s", [None, 15.0])
@pytest.mark.fault(
    "Four urgent jobs at once preempted four jobs where the budget allowed one an hour.", found_by="load"
)
def test_urgent_jobs_that_come_at_once(make_world: Callable[..., World], save_s: float | None) -> None:
    world = make_world(config=limited(jobs_per_hour=1))
    jobs = full(world, save_s)
    for _ in range(4):
        world.urgent(1)
    for _ in range(120):
        world.tick(1.0)
    assert len(preempted(world, jobs)) == 1, world.describe()
    waiting = [e for e in world.store.open_evictions() if e.state is EvictionState.AWAITING_APPROVAL]
    assert waiting
    assert all("jobs would be preempted within an hour" in e.outcome for e in waiting)


def test_an_urgent_job_that_comes_while_a_job_saves_itself_for_another(make_world: Callable[..., World]) -> None:
    world = make_world(config=limited(jobs_per_hour=1))
    jobs = full(world, 25.0)
    world.urgent(1)
    for _ in range(3):
        world.tick(2.0)
        world.urgent(1)
    for _ in range(120):
        world.tick(1.0)
    assert len(preempted(world, jobs)) == 1, world.describe()


def test_lost_work_that_is_only_intended_counts(make_world: Callable[..., World]) -> None:
    """Each of two evictions would lose 0.3 node-hours; that of the first waits for checkpoints of 20 s."""
    world = make_world(config=limited(lost_node_hours_per_hour=0.5), node_count=4)
    for name in ("n1", "n2"):
        world.submit(Program(save_s=10.0, work_s=9_000), on=(name,), ran_s=5_000, comment=SAVES)
    for name in ("n3", "n4"):
        world.submit(on=(name,), ran_s=1_080)
    world.urgent(3)
    world.tick()
    world.urgent(1)
    for _ in range(120):
        world.tick(1.0)
    lost_s = sum(entry.lost_s for entry in world.cluster.jobs.values())
    assert 0 < lost_s <= 1_800, world.describe()


def test_a_budget_that_was_lowered_after_the_plan(make_world: Callable[..., World]) -> None:
    world = make_world(config=limited(jobs_per_hour=4), node_count=2)
    for number in (1, 2):
        world.submit(Program(save_s=10.0, work_s=9_000), on=(f"n{number}",), ran_s=1_000, comment=SAVES)
    urgent = world.urgent(2)
    world.run_until(lambda: any(s.kind == "ask_checkpoint" for s in steps(world)), limit_s=20)
    world.loop.reconfigure(limited(jobs_per_hour=0))
    for _ in range(90):
        world.tick(1.0)
    assert preempted(world, ["1", "2"]) == [], world.describe()
    assert world.started(urgent) is None
    assert any("0 are allowed" in s.detail for s in steps(world))


def test_a_plan_that_is_made_anew_counts_its_own_jobs_once(make_world: Callable[..., World]) -> None:
    world = make_world(config=limited(jobs_per_hour=1))
    jobs = full(world, 10.0)
    urgent = world.urgent(1)
    world.run_until(lambda: any(s.kind == "ask_checkpoint" for s in steps(world)), limit_s=20)
    (chosen,) = world.eviction().preemptions
    entry = world.cluster.jobs[chosen.job_id]
    for name in entry.job.nodes:
        world.cluster.nodes[name] = replace(world.cluster.nodes[name], available=False, raw_state="DOWN")
    world.run_until(lambda: world.started(urgent) is not None, limit_s=120)
    assert len(preempted(world, [job for job in jobs if job != chosen.job_id])) == 1, world.describe()


def test_an_approved_eviction_may_exceed_the_budget(make_world: Callable[..., World]) -> None:
    world = make_world(config=limited(jobs_per_hour=0))
    full(world, None)
    urgent = world.urgent(1)
    world.tick()
    eviction = world.eviction()
    assert eviction.state is EvictionState.AWAITING_APPROVAL
    world.store.add_request("approve", eviction.eviction_id, "root (command line)", world.clock.now())
    world.run_until(lambda: world.started(urgent) is not None, limit_s=60)


def steps(world: World) -> list[Any]:
    return [step for e in world.store.evictions() for step in world.store.steps(e.eviction_id)]
