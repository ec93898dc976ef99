"""What a cycle does in situations of real sites that a simulated cluster shows as well as a real one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from clearway.model.cluster import ClusterSnapshot, PreemptPriorities
from clearway.model.site import PowerSaving
from clearway.simulation.backend import SimulatedBackend
from clearway.simulation.jobs import Program
from tests.simulation.world import World


def world_of(make_world: Callable[..., World], **seen: Any) -> World:
    """Eight busy nodes, where snapshots say this as well."""
    world = make_world()

    class Site(SimulatedBackend):
        def snapshot(self) -> ClusterSnapshot:
            return replace(super().snapshot(), **seen)

    world.start_daemon(backend=Site(world.cluster, world.clock))
    for number in range(1, 9):
        world.submit(Program(work_s=9_000), on=(f"n{number}",), ran_s=1_000)
    return world


@pytest.mark.parametrize(("reason", "waits"), [("None", True), ("Resources", False)])
def test_slurm_looks_first_where_it_hides_nodes(make_world: Callable[..., World], reason: str, waits: bool) -> None:
    world = world_of(make_world, power_saving=PowerSaving(60.0, 5.0, hides_nodes=True))
    urgent = world.urgent(1, reason=reason)
    for _ in range(20):
        world.tick()
    assert (world.store.evictions() == ()) is waits
    world.run_until(lambda: world.started(urgent) is not None, limit_s=60)


@pytest.mark.parametrize(("grace_s", "turn_s"), [(0, 30), (20, 80)])
def test_slurm_has_its_turn_where_it_preempts(make_world: Callable[..., World], grace_s: float, turn_s: float) -> None:
    """And no longer than that, where it does not."""
    preempts = PreemptPriorities(preempts={"urgent": frozenset({"batch"})}, grace_s=grace_s)
    world = world_of(make_world, preempt_priorities=preempts)
    urgent = world.urgent(1)
    for _ in range(int(turn_s / 0.5) - 1):
        report = world.tick()
    (waiting,) = report.waiting
    assert waiting.why == "Slurm preempts jobs for it by itself, and has its turn"
    assert world.store.evictions() == ()
    world.run_until(lambda: world.started(urgent) is not None, limit_s=60)
    assert len(world.eviction().preemptions) == 1


def test_a_long_epilog_is_allowed_for_by_the_next_plan(make_world: Callable[..., World]) -> None:
    """Of 60 s that the second urgent job may wait, its nodes need 40 to become empty, as those of the first did."""
    world = make_world()
    world.cluster.kill_wait_s = 100.0
    for number in range(1, 9):
        world.submit(Program(work_s=9_000, exit_s=40.0), on=(f"n{number}",), ran_s=1_000)
    for _ in range(2):
        urgent = world.urgent(1)
        world.run_until(lambda urgent=urgent: world.started(urgent) is not None, limit_s=90)
    second, first = world.store.evictions()
    assert first.plan.problem.max_delay_s > 50
    assert second.plan.problem.max_delay_s <= 20
