"""After slurmctld has started again, nodes do not respond for a moment: no job leaves because of that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from clearway.model.cluster import JobState
from clearway.simulation.jobs import Program
from tests.simulation.world import SAVES, World


@pytest.mark.parametrize("state", ["IDLE+NOT_RESPONDING", "IDLE*", "UNKNOWN"])
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
