"""After slurmctld has started again, nodes do not respond for a moment: no job leaves because of that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from clearway.model.cluster import JobState
from clearway.simulation.jobs import Program
from tests.simulation.world import SAVES, World


@pytest.mark.parametrize("state", ["IDLE+NOT_RESPONDING", "IDLE*", "UNKNOWN"])
@pytest.mark.fault(
    "A freed node that did not answer for a moment, as after a start of slurmctld, made another job leave.",
    found_by="random faults",
)
def test_a_freed_node_that_does_not_respond_for_a_moment(make_world: Callable[..., World], state: str) -> None:
    world, urgent = one_has_left(make_world)
    before = world.cluster.nodes["n1"]
    world.cluster.nodes["n1"] = replace(before, available=False, raw_state=state)
    for _ in range(20):
        world.tick()
    world.cluster.nodes["n1"] = before
    world.run_until(lambda: world.started(urgent) is not None, limit_s=120)
    assert left(world) == {"1", "2"}, world.describe()


@pytest.mark.parametrize(("state", "limit_s"), [("DOWN*", 30), ("IDLE*", 60)])
def test_a_node_that_is_lost(make_world: Callable[..., World], state: str, limit_s: float) -> None:
    """At once where Slurm has given it up; else after half a minute, and again from its next silence on."""
    world, urgent = one_has_left(make_world)
    before = world.cluster.nodes["n1"]
    for raw_state in ("IDLE*", before.raw_state, state):
        world.cluster.nodes["n1"] = replace(before, available=raw_state == before.raw_state, raw_state=raw_state)
        world.tick()
    world.run_until(lambda: world.started(urgent) is not None, limit_s=limit_s)
    assert left(world) == {"1", "2", "3"}, world.describe()


@pytest.mark.parametrize(("free", "leave"), [(1, 1), (2, 0)])
def test_free_nodes_that_have_not_answered_yet(make_world: Callable[..., World], free: int, leave: int) -> None:
    """A new urgent job waits for them, for half a minute: fewer jobs leave then, or none."""
    world = make_world()
    idle = [f"n{number}" for number in range(1, free + 1)]
    for number in range(free + 1, 9):
        world.submit(Program(work_s=9_000), on=(f"n{number}",), ran_s=1_000)
    before = {name: world.cluster.nodes[name] for name in idle}
    for name in idle:
        world.cluster.nodes[name] = replace(before[name], available=False, raw_state="IDLE*")
    urgent = world.urgent(2)
    for _ in range(20):
        report = world.tick()
    assert world.store.evictions(limit=1) == ()
    (waiting,) = report.waiting
    assert waiting.why == "nodes that Slurm waits for may answer in a moment; then fewer jobs leave, or none"
    world.cluster.nodes.update(before)
    world.run_until(lambda: world.started(urgent) is not None, limit_s=60)
    assert sum(len(e.preemptions) for e in world.store.evictions(limit=9)) == leave


def test_free_nodes_that_do_not_answer_at_all(make_world: Callable[..., World]) -> None:
    world = make_world()
    for number in range(1, 8):
        world.submit(Program(work_s=9_000), on=(f"n{number}",), ran_s=1_000)
    world.cluster.nodes["n8"] = replace(world.cluster.nodes["n8"], available=False, raw_state="IDLE*")
    urgent = world.urgent(1)
    world.run_until(lambda: world.started(urgent) is not None, limit_s=60)
    assert len(left(world)) == 1


def one_has_left(make_world: Callable[..., World]) -> tuple[World, str]:
    """Eight busy nodes, and an urgent job for two of them: job 1 has left node n1, job 2 saves itself on n2."""
    world = make_world()
    for number in range(1, 9):
        save_s = (2.0, 20.0)[number - 1] if number < 3 else None
        words = {"comment": SAVES} if number < 3 else {}
        world.submit(Program(save_s=save_s, work_s=9_000), on=(f"n{number}",), ran_s=1_000, **words)
    urgent = world.urgent(2)
    world.run_until(lambda: world.state("1") is JobState.PENDING, limit_s=30)
    assert world.eviction().plan.placement_nodes == ("n1", "n2")
    return world, urgent


def left(world: World) -> set[str]:
    return {p.job_id for p in world.eviction().preemptions if p.requeued_at is not None}
