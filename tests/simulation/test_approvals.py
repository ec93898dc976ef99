"""What becomes of an approval."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clearway.model.operations import EvictionState
from tests.simulation.test_several import fill
from tests.simulation.world import World, config


@pytest.fixture
def waiting(make_world: Callable[..., World]) -> World:
    """Two urgent jobs; the plan of the second counts on a job that leaves for the first."""
    world = make_world(config=config("approve", access={"own_approvals": False}))
    fill(world)
    world.urgent(2)
    world.urgent(2, user="otto")
    world.tick()
    assert [e.state for e in world.store.evictions()] == [EvictionState.AWAITING_APPROVAL] * 2
    return world


def approved(world: World, eviction_id: int, by: str) -> str:
    request_id = world.store.add_request("approve", eviction_id, by, world.clock.now())
    world.tick()
    request = world.store.request(request_id)
    assert request is not None
    return request.result


@pytest.mark.parametrize(("number", "other"), [(1, 2), (2, 1)])
def test_what_was_planned_together_is_approved_together(waiting: World, number: int, other: int) -> None:
    """Approved alone, the second was put aside at once: it counts on the job that leaves for the first."""
    assert approved(waiting, number, "olga").startswith(f"approved, with {other}: planned together: job(s) ")
    both = waiting.store.evictions()
    assert {e.approved_by for e in both} == {"olga"}
    waiting.run_until(lambda: all(e.started_at for e in waiting.store.evictions()), limit_s=90)
    assert not waiting.observer.failures


def test_of_plans_that_belong_together_none_is_approved_where_one_may_not_be(waiting: World) -> None:
    told = approved(waiting, 1, "otto")
    assert told.startswith("refused: planned together with 2: ")
    assert [e.state for e in waiting.store.evictions()] == [EvictionState.AWAITING_APPROVAL] * 2


def test_one_that_is_alone_is_approved_alone(make_world: Callable[..., World]) -> None:
    world = make_world(config=config("approve"))
    fill(world)
    world.urgent(2)
    world.tick()
    assert approved(world, 1, "olga").startswith("approved: job(s) ")
