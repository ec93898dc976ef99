"""The loss that is planned, shown and approved is the loss that comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clearway.model.operations import EvictionState, Preemption
from clearway.model.problem import Action
from clearway.model.requests import RequestKind
from clearway.simulation.jobs import Program
from tests.simulation.world import SAVES, World, config

RULE = {"preemptors": [{"partition": ["urgent"], "max_delay": "20m"}]}


def lost(world: World) -> tuple[float, float]:
    """What was planned and what was measured, of jobs that left without a checkpoint."""
    killed = [p for e in world.store.evictions() for p in e.preemptions if p.action is Action.KILL and p.requeued_at]
    return sum(p.predicted_lost_node_s for p in killed), sum(p.actual_lost_node_s or 0.0 for p in killed)


def with_saves(make_world: Callable[..., World], mode: str = "automatic", **sections: Any) -> World:
    """One job of two nodes cannot be saved; two others save themselves, one after another, for five minutes each."""
    world = make_world(config=config(mode, **RULE | {"planning": {"checkpoints": "serial"}} | sections), node_count=4)
    world.submit(Program(work_s=50_000), num_nodes=2, on=("n1", "n2"), ran_s=600)
    for number in (3, 4):
        claim = f"{SAVES},took=300"
        world.submit(Program(work_s=50_000, save_s=300), on=(f"n{number}",), ran_s=40_000, comment=claim)
    return world


def kills(world: World) -> list[Preemption]:
    return [p for p in world.eviction().preemptions if p.action is Action.KILL]


def test_a_job_that_is_requeued_runs_on_while_others_save_themselves(make_world: Callable[..., World]) -> None:
    world = with_saves(make_world)
    urgent = world.urgent(4)
    world.tick()
    assert len(kills(world)) == 1
    world.run_until(lambda: world.started(urgent) is not None, limit_s=1_300)
    planned, measured = lost(world)
    assert measured > 2 * 1_100
    assert measured <= planned <= 1.05 * measured
    started = world.started(urgent)
    assert started is not None
    assert started <= world.eviction().plan.free_at


@pytest.mark.fault(
    "A job that was requeued ran on until its turn, and lost more than the plan had said.", found_by="trial"
)
@pytest.mark.parametrize("waits_s", [0, 45, 150])
def test_the_loss_that_is_approved_is_the_loss_that_comes(make_world: Callable[..., World], waits_s: float) -> None:
    world = with_saves(make_world, "approve", execution={"approval_time": "60s"})
    urgent = world.urgent(4)
    world.tick()
    for _ in range(int(waits_s / 5)):
        world.tick(5)
    (asked,) = (e for e in world.store.open_evictions() if e.state is EvictionState.AWAITING_APPROVAL)
    assert asked.unsaved_nodes == 2
    # What is told grows by these nodes with each hour.
    age_s = (world.clock.now() - asked.plan.made_at).total_seconds()
    told = asked.predicted_lost_node_s + asked.unsaved_nodes * age_s
    world.store.add_request(RequestKind.APPROVE, asked.eviction_id, "root", world.clock.now())
    world.run_until(lambda: world.started(urgent) is not None, limit_s=1_300)
    planned, measured = lost(world)
    assert measured <= told
    assert abs(planned - measured) <= 2 * 60 + 10
