"""Promised nodes as tests ask for them."""

from datetime import timedelta
from typing import Any

from clearway.model.operations import Operation, Promise
from clearway.promise.request import PromiseRequest
from tests.simulation.drains import answer
from tests.simulation.world import World


def ask(world: World, nodes: int, in_s: float, actor: str = "root (command line)", **fields: Any) -> int:
    """Ask for nodes that are free in so many seconds; the request's number."""
    known: dict[str, Any] = {"partition": "batch", "users": ("beam",), "duration_s": 600}
    wish = PromiseRequest(nodes=nodes, at=world.clock.now() + timedelta(seconds=in_s), **(known | fields))
    return world.store.add_request("promise", None, actor, world.clock.now(), wish.model_dump_json())


def promise(world: World, nodes: int, in_s: float, **fields: Any) -> Promise:
    request_id = ask(world, nodes, in_s, **fields)
    world.tick()
    request = world.store.request(request_id)
    assert request is not None
    assert request.eviction_id is not None, answer(world, request_id)
    return found(world, request.eviction_id)


def found(world: World, number: int) -> Promise:
    known = world.store.eviction(number)
    assert isinstance(known, Promise)
    return known


def now(world: World, promised: Promise) -> Promise:
    return found(world, promised.eviction_id)


def refusal(world: World, nodes: int, in_s: float, **fields: Any) -> str:
    """What is said where the request is refused."""
    request_id = ask(world, nodes, in_s, **fields)
    world.tick()
    assert not any(isinstance(e, Promise) and e.order.request_id == request_id for e in world.store.evictions())
    return answer(world, request_id)


def ask_to_cancel(world: World, promised: Operation) -> int:
    return world.store.add_request("cancel", promised.eviction_id, "root (command line)", world.clock.now())


def cancel(world: World, promised: Operation) -> str:
    number = ask_to_cancel(world, promised)
    world.tick()
    return answer(world, number)
