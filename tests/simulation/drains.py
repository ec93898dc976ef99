"""Drains as tests ask for them."""

from typing import Any

from clearway.drain.request import DrainRequest, UndrainRequest
from clearway.model.operations import Eviction
from clearway.simulation.jobs import Program
from tests.simulation.world import SAVES, World


def ask(world: World, nodes: str, actor: str = "root (command line)", **fields: Any) -> int:
    document = DrainRequest(nodes=nodes, **fields).model_dump_json()
    return world.store.add_request("drain", None, actor, world.clock.now(), document)


def undrain(world: World, nodes: str, actor: str = "root (command line)") -> str:
    document = UndrainRequest(nodes=nodes).model_dump_json()
    request_id = world.store.add_request("undrain", None, actor, world.clock.now(), document)
    world.tick()
    return answer(world, request_id)


def answer(world: World, request_id: int) -> str:
    request = world.store.request(request_id)
    assert request is not None
    assert request.handled_at is not None
    return request.result


def drain(world: World, nodes: str, **fields: Any) -> Eviction:
    request_id = ask(world, nodes, **fields)
    world.tick()
    request = world.store.request(request_id)
    assert request is not None
    assert request.eviction_id is not None, request.result
    return world.store.eviction(request.eviction_id)


def now(world: World, eviction: Eviction) -> Eviction:
    return world.store.eviction(eviction.eviction_id)


def held(world: World) -> dict[str, str]:
    return {name: node.reason for name, node in world.cluster.nodes.items() if not node.available}


def empty(world: World, *names: str) -> bool:
    return not any(set(e.job.nodes) & set(names) and e.job.state.holds_nodes for e in world.cluster.jobs.values())


def saver(world: World, *on: str, save_s: float = 3.0, **fields: Any) -> str:
    program = Program(save_s=save_s, work_s=1_500)
    return world.submit(program, on=on, num_nodes=len(on), ran_s=900, comment=SAVES, **fields)
