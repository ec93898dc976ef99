"""Small jobs, and moves of them as tests ask for them."""

from dataclasses import replace
from typing import Any

from clearway.config.configuration import Config
from clearway.model.operations import Eviction
from clearway.simulation.jobs import Program
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


def wide(world: World, *nodes: str, cpus: int = 1, save_s: float = 3.0) -> str:
    fields: dict[str, Any] = {"comment": SAVES, "memory_mib": 500, "time_limit_s": 4_500, "num_nodes": len(nodes)}
    return world.submit(Program(save_s=save_s, work_s=4_000), on=nodes, cpus_per_node=cpus, ran_s=900, **fields)


def weigh(world: World, **weights: int) -> None:
    for name, weight in weights.items():
        world.cluster.nodes[name] = replace(world.cluster.nodes[name], weight=weight)
