"""Urgent heterogeneous jobs: room for all components or for none, and they start together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from clearway.model.cluster import JobState
from clearway.model.operations import EvictionState
from clearway.simulation.jobs import Program
from tests.simulation.test_arrays import fill, requeued
from tests.simulation.world import World, config


def het_job(world: World, *components: dict[str, Any]) -> list[str]:
    """Submitted at once; the first component's id is that of the whole job."""
    world.cluster.advance(world.clock.now())
    first = str(world.cluster.next_id)
    ids = []
    for offset, fields in enumerate(components):
        asked: dict[str, Any] = {"nodes": 1, "het_job_id": first, "het_job_offset": offset} | fields
        ids.append(submit_component(world, **asked))
    return ids


def submit_component(world: World, nodes: int, work_s: float = 300.0, **fields: Any) -> str:
    defaults: dict[str, Any] = {"partitions": ("urgent",), "priority": 1_000, "user": "ursula"}
    return world.cluster.submit(Program(work_s=work_s), num_nodes=nodes, **(defaults | fields))


def all_started(world: World, ids: list[str]) -> bool:
    return all(world.started(job_id) is not None for job_id in ids)


def slow_savers(world: World, jobs: list[str], save_s: float = 10.0) -> None:
    for job_id in jobs:
        world.cluster.jobs[job_id].program = Program(save_s=save_s)


def test_all_components_start_together(make_world: Callable[..., World]) -> None:
    world = make_world()
    jobs = fill(world)
    ids = het_job(world, {"nodes": 1}, {"nodes": 2})
    world.run_until(lambda: all_started(world, ids), limit_s=60)
    assert len({world.started(job_id) for job_id in ids}) == 1
    assert sorted(requeued(world, jobs)) == sorted(jobs[-3:])
    world.run_until(world.settled, limit_s=900)
    evictions = world.store.evictions()
    assert [e.state for e in evictions] == [EvictionState.COMPLETED] * 2
    assert {e.preemptor.job_id: e.plan.together for e in evictions} == {ids[0]: (ids[1],), ids[1]: (ids[0],)}
    assert not world.leftovers()


def test_no_job_leaves_where_one_component_cannot_be_served(make_world: Callable[..., World]) -> None:
    world = make_world()
    jobs = fill(world)
    ids = het_job(world, {"nodes": 1}, {"nodes": 8})
    for _ in range(20):
        world.tick(5.0)
    assert not world.store.evictions()
    assert not requeued(world, jobs)
    assert not all_started(world, ids)
    report = world.loop.report
    assert report is not None
    assert all("not all components" in each.why or "component" in each.why for each in report.waiting), report.waiting


def test_a_component_that_is_not_urgent(make_world: Callable[..., World]) -> None:
    world = make_world()
    jobs = fill(world)
    het_job(world, {"nodes": 1}, {"nodes": 1, "partitions": ("batch",)})
    for _ in range(10):
        world.tick(5.0)
    assert not world.store.evictions()
    assert not requeued(world, jobs)


def test_another_urgent_job_beside_it(make_world: Callable[..., World]) -> None:
    world = make_world()
    jobs = fill(world)
    ids = [*het_job(world, {"nodes": 1}, {"nodes": 2}), world.urgent(2)]
    world.run_until(lambda: all_started(world, ids), limit_s=60)
    world.run_until(world.settled, limit_s=900)
    assert len(requeued(world, jobs)) == 5
    assert not world.leftovers()


def test_it_is_cancelled_in_the_middle(make_world: Callable[..., World]) -> None:
    world = make_world()
    jobs = fill(world, comment="clearway:checkpoint=signal")
    slow_savers(world, jobs)
    ids = het_job(world, {"nodes": 1}, {"nodes": 2})
    world.run_until(lambda: len(world.store.evictions()) == 2, limit_s=60)
    world.tick()
    for job_id in ids:
        world.cluster.withdraw(world.cluster.jobs[job_id])
    world.run_until(world.settled, limit_s=900)
    assert not requeued(world, jobs)
    assert not world.leftovers()


def test_an_operator_cancels_the_eviction_of_one_component(make_world: Callable[..., World]) -> None:
    """Both are called off, and no job has left in vain."""
    world = make_world()
    jobs = fill(world, comment="clearway:checkpoint=signal")
    slow_savers(world, jobs)
    het_job(world, {"nodes": 1}, {"nodes": 2})
    world.run_until(lambda: len(world.store.evictions()) == 2, limit_s=60)
    world.tick()
    first, _ = world.store.evictions()
    world.store.add_request("cancel", first.eviction_id, "olga", world.clock.now())
    world.run_until(world.settled, limit_s=900)
    assert {e.state for e in world.store.evictions()} == {EvictionState.CANCELLED}
    assert not requeued(world, jobs)
    assert not world.leftovers()


def test_a_component_whose_plan_is_lost_calls_the_others_off(make_world: Callable[..., World]) -> None:
    """A node goes down and there is no other: jobs that still save themselves stay."""
    world = make_world(node_count=3)
    jobs = fill(world, comment="clearway:checkpoint=signal")
    slow_savers(world, jobs)
    ids = het_job(world, {"nodes": 1}, {"nodes": 2})
    world.run_until(lambda: len(world.store.evictions()) == 2, limit_s=60)
    world.run_until(lambda: {e.state for e in world.store.evictions()} == {EvictionState.PREEMPTING}, limit_s=30)
    node = world.cluster.nodes["n2"]
    world.cluster.nodes["n2"] = replace(node, available=False, raw_state="DOWN")
    world.run_until(world.settled, limit_s=900)
    assert {e.state for e in world.store.evictions()} == {EvictionState.CANCELLED}
    assert not requeued(world, jobs)
    assert {world.state(job_id) for job_id in ids} == {JobState.PENDING}
    assert not world.leftovers()


def test_one_approval_is_for_all_components(make_world: Callable[..., World]) -> None:
    world = make_world(config=config("approve"))
    jobs = fill(world)
    ids = het_job(world, {"nodes": 1}, {"nodes": 2})
    world.run_until(lambda: len(world.store.evictions()) == 2, limit_s=60)
    assert {e.state for e in world.store.evictions()} == {EvictionState.AWAITING_APPROVAL}
    world.store.add_request("approve", world.store.evictions()[0].eviction_id, "olga", world.clock.now())
    world.run_until(lambda: all_started(world, ids), limit_s=60)
    assert len(requeued(world, jobs)) == 3


def test_a_budget_that_allows_one_component_alone_lets_no_job_leave(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(budget={"jobs_per_hour": 2}))
    jobs = fill(world)
    het_job(world, {"nodes": 1}, {"nodes": 2})
    for _ in range(30):
        world.tick(2.0)
    assert not requeued(world, jobs)
    assert not world.leftovers()
