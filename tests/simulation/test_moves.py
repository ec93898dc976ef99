"""Compaction and promotion on a simulated cluster: who is moved where, what keeps it from being done, what is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clearway.config import Config
from clearway.execution.records import Eviction, EvictionState, PreemptionState
from clearway.model import Action
from clearway.simulation.cluster import Program
from tests.simulation.world import SAVES, World, config


def serial(world: World, node: str, cpus: int = 1, save_s: float | None = 3.0, **fields: Any) -> str:
    """A job on a part of a node, with a bit less than an hour to go."""
    defaults: dict[str, Any] = {"comment": SAVES if save_s else "", "memory_mib": 500, "time_limit_s": 4_500}
    program = Program(save_s=save_s, work_s=4_000)
    return world.submit(program, on=(node,), cpus_per_node=cpus, ran_s=900, **(defaults | fields))


def moving(mode: str = "automatic", **sections: dict[str, Any]) -> Config:
    return config(mode, **({"compaction": {"min_gain": 0.1}, "promotion": {"min_gain": 0.1}} | sections))


def ask(world: World, kind: str = "compact", actor: str = "root (command line)") -> tuple[str, Eviction | None]:
    request_id = world.store.add_request(kind, None, actor, world.clock.now())
    world.tick()
    request = world.store.request(request_id)
    assert request is not None
    assert request.handled_at is not None
    known = request.eviction_id
    return request.result, None if known is None else world.store.eviction(known)


def nodes_of(world: World, *job_ids: str) -> list[tuple[str, ...]]:
    return [world.cluster.jobs[job_id].job.nodes for job_id in job_ids]


def partly_used(world: World) -> int:
    return sum(0 < world.cluster.alloc_cpus(name) < node.cpus for name, node in world.cluster.nodes.items())


def assert_nothing_is_left(world: World) -> None:
    assert world.leftovers() == []
    assert not [node.name for node in world.cluster.nodes.values() if node.reason or not node.available]
    assert world.observer.failures == []


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world(config=moving())


def test_serial_jobs_come_together_and_whole_nodes_become_empty(world: World) -> None:
    jobs = [serial(world, "n1"), serial(world, "n2"), serial(world, "n3", cpus=2)]
    world.tick()
    assert partly_used(world) == 3
    result, eviction = ask(world)
    assert eviction is not None, result
    world.run_until(world.settled)
    end = world.eviction()
    assert end.state is EvictionState.COMPLETED, world.describe()
    assert end.outcome == "2 of 2 job(s) moved; n[1-2] are empty."
    assert [(p.job_id, p.action, p.state) for p in end.preemptions] == [
        (job_id, Action.APP_CHECKPOINT, PreemptionState.RETURNED) for job_id in jobs[:2]
    ]
    assert nodes_of(world, *jobs) == [("n3",)] * 3
    assert partly_used(world) == 0
    assert all(world.cluster.jobs[job_id].lost_s <= 1.5 for job_id in jobs)
    assert len(world.cluster.jobs[jobs[2]].runs) == 1
    assert_nothing_is_left(world)
