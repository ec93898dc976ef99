"""Urgent arrays: as many tasks at once as can start in time, by one decision; the rest of the array waits on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from clearway.model.cluster import JobState
from clearway.model.operations import EvictionState
from clearway.simulation.jobs import Program
from tests.simulation.world import World, config


def fill(world: World, **fields: Any) -> list[str]:
    """One job on each node; the later, the less it would lose."""
    count = world.node_count
    return [world.submit(on=(f"n{n}",), ran_s=100.0 * (count - n + 1), **fields) for n in range(1, count + 1)]


def running(world: World, array: str) -> list[str]:
    return [i for i, e in world.cluster.jobs.items() if e.job.array_job_id == array and e.job.state.holds_nodes]


def requeued(world: World, jobs: list[str]) -> list[str]:
    return [job_id for job_id in jobs if world.cluster.jobs[job_id].job.restart_count]


def test_tasks_start_at_once_by_one_decision(make_world: Callable[..., World]) -> None:
    world = make_world()
    jobs = fill(world)
    array = world.urgent(1, pending_tasks=3)
    world.run_until(lambda: len(running(world, array)) == 3, limit_s=60)
    world.run_until(world.settled, limit_s=900)
    eviction = world.eviction()
    assert eviction.plan.tasks == 3
    assert requeued(world, jobs) == jobs[-3:]
    assert eviction.outcome.startswith("3 task(s) of the urgent job started")
    assert eviction.state is EvictionState.COMPLETED
    assert not world.leftovers()


def test_tasks_of_several_nodes(make_world: Callable[..., World]) -> None:
    world = make_world()
    jobs = fill(world)
    array = world.urgent(3, pending_tasks=2)
    world.run_until(lambda: len(running(world, array)) == 2, limit_s=60)
    assert requeued(world, jobs) == jobs[-6:]


def test_no_room_is_made_for_tasks_that_may_not_start_yet(make_world: Callable[..., World]) -> None:
    """Of ten tasks two may run at once: two jobs leave, and no more as long as these two run."""
    world = make_world()
    jobs = fill(world)
    array = world.urgent(1, pending_tasks=10, array_limit=2)
    world.run_until(lambda: len(running(world, array)) == 2, limit_s=60)
    for _ in range(40):
        world.tick(5.0)
        assert len(requeued(world, jobs)) == 2
    assert not world.leftovers()


def test_as_many_tasks_as_the_deadline_allows(make_world: Callable[..., World]) -> None:
    """Three nodes can be freed in time: the other tasks wait, and are not given up."""
    world = make_world()
    jobs = fill(world, requeueable=False)
    for job_id in jobs[:3]:
        entry = world.cluster.jobs[job_id]
        entry.job = replace(entry.job, requeueable=True)
    array = world.urgent(1, pending_tasks=5)
    world.run_until(lambda: len(running(world, array)) == 3, limit_s=60)
    assert requeued(world, jobs) == jobs[:3]
    world.run_until(lambda: not world.leftovers(), limit_s=60)
    assert world.cluster.jobs[array].job.pending_tasks == 2


def test_the_rest_is_planned_for_when_it_may_start(make_world: Callable[..., World]) -> None:
    """A short task ends; the next one takes its room or gets room of its own."""
    world = make_world()
    fill(world)
    array = world.urgent(1, work_s=30.0, pending_tasks=4, array_limit=2)
    world.run_until(lambda: world.state(array) is JobState.ENDED, limit_s=600)
    world.run_until(world.settled, limit_s=900)
    assert not world.leftovers()


def test_tasks_that_are_cancelled_in_the_middle(make_world: Callable[..., World]) -> None:
    """Only one task is left of three before any job has left: one job leaves."""
    world = make_world()
    jobs = fill(world, comment="clearway:checkpoint=signal")
    for job_id in jobs:
        world.cluster.jobs[job_id].program = Program(save_s=20.0)
    array = world.urgent(1, pending_tasks=3)
    world.run_until(lambda: bool(world.store.evictions()), limit_s=60)
    world.tick()
    entry = world.cluster.jobs[array]
    entry.job = replace(entry.job, pending_tasks=1)
    world.run_until(lambda: world.started(array) is not None, limit_s=120)
    world.run_until(world.settled, limit_s=900)
    assert len(requeued(world, jobs)) == 1
    assert not world.leftovers()


def test_the_array_is_cancelled_in_the_middle(make_world: Callable[..., World]) -> None:
    world = make_world()
    jobs = fill(world, comment="clearway:checkpoint=signal")
    for job_id in jobs:
        world.cluster.jobs[job_id].program = Program(save_s=20.0)
    array = world.urgent(1, pending_tasks=3)
    world.run_until(lambda: bool(world.store.evictions()), limit_s=60)
    world.tick()
    world.cluster.withdraw(world.cluster.jobs[array])
    world.run_until(world.settled, limit_s=900)
    assert not requeued(world, jobs)
    assert not world.leftovers()


@pytest.mark.parametrize("field", ["contiguous", "required_nodes"])
def test_tasks_that_must_lie_somewhere_are_planned_for_one_by_one(make_world: Callable[..., World], field: str) -> None:
    world = make_world()
    fill(world)
    array = world.urgent(1, pending_tasks=3, **{field: True if field == "contiguous" else ("n1",)})
    world.run_until(lambda: len(running(world, array)) == 1, limit_s=60)
    assert world.store.evictions()[0].plan.tasks == 1


def test_one_approval_is_for_all_tasks(make_world: Callable[..., World]) -> None:
    world = make_world(config=config("approve"))
    jobs = fill(world)
    array = world.urgent(1, pending_tasks=3)
    world.run_until(lambda: bool(world.store.evictions()), limit_s=60)
    world.tick(5.0)
    assert world.eviction().state is EvictionState.AWAITING_APPROVAL
    assert world.eviction().plan.tasks == 3
    world.store.add_request("approve", world.eviction().eviction_id, "olga", world.clock.now())
    world.run_until(lambda: len(running(world, array)) == 3, limit_s=60)
    assert requeued(world, jobs) == jobs[-3:]


def test_tasks_that_share_nodes_are_packed(make_world: Callable[..., World]) -> None:
    """Three tasks of one processor fit where one job of a node leaves."""
    world = make_world()
    jobs = fill(world, cpus_per_node=3, memory_mib=1_000)
    array = world.urgent(1, cpus_per_node=1, memory_mib=500, pending_tasks=10, array_limit=9)
    world.run_until(lambda: len(running(world, array)) == 9, limit_s=60)
    assert len(requeued(world, jobs)) <= 1
    world.run_until(lambda: not world.leftovers(), limit_s=60)


def test_the_last_task_starts_in_the_second_in_which_the_others_end(make_world: Callable[..., World]) -> None:
    """No task runs in the placement any more when the last one has ended: nothing is left to make room for."""
    world = make_world()
    fill(world)
    array = world.urgent(1, work_s=0.2, pending_tasks=3)
    world.run_until(lambda: world.state(array) is JobState.ENDED, limit_s=300, every_s=5.0)
    world.run_until(world.settled, limit_s=900)
    assert not world.leftovers()
