"""Promised nodes as tests ask for them."""

from datetime import timedelta
from typing import Any

from clearway.model.operations import Operation
from clearway.promise.request import PromiseRequest
from tests.simulation.drains import answer
from tests.simulation.world import World


def ask(world: World, nodes: int, in_s: float, actor: str = "root (command line)", **fields: Any) -> int:
    """Ask for nodes that are free in so many seconds; the request's number."""
    known: dict[str, Any] = {"partition": "batch", "users": ("beam",), "duration_s": 600}
    wish = PromiseRequest(nodes=nodes, at=world.clock.now() + timedelta(seconds=in_s), **(known | fields))
    return world.store.add_request("promise", None, actor, world.clock.now(), wish.model_dump_json())


def promise(world: World, nodes: int, in_s: float, **fields: Any) -> Operation:
    request_id = ask(world, nodes, in_s, **fields)
    world.tick()
    request = world.store.request(request_id)
    assert request is not None
    assert request.eviction_id is not None, answer(world, request_id)
    return world.store.eviction(request.eviction_id)


def cancel(world: World, promised: Operation) -> str:
    number = world.store.add_request("cancel", promised.eviction_id, "root (command line)", world.clock.now())
    world.tick()
    return answer(world, number)
