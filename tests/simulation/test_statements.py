"""How many SQL statements a cycle takes; a BEGIN counts as one, the statements of starting up do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import event

from clearway.model.operations import PreemptionState
from clearway.simulation.cluster import Program
from tests.simulation.world import SAVES, World

IDLE = 6


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """Eight jobs that save themselves when they are asked, the first cycles over."""
    world = make_world()
    for number in range(1, 9):
        world.submit(Program(work_s=5_000.0, save_s=30.0), on=(f"n{number}",), ran_s=100 * number, comment=SAVES)
    world.tick()
    return world


def statements(world: World) -> list[str]:
    """Those of one cycle."""
    seen: list[str] = []

    def listen(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        seen.append(statement)

    engine = world.store._database.engine
    event.listen(engine, "before_cursor_execute", listen)
    try:
        world.tick()
    finally:
        event.remove(engine, "before_cursor_execute", listen)
    return seen


def test_an_idle_cycle(world: World) -> None:
    counts = [len(statements(world)) for _ in range(30)]  # with a sign of life every ten seconds
    assert max(counts) <= IDLE


def test_a_cycle_in_which_an_eviction_only_waits(world: World) -> None:
    world.urgent(3)
    world.tick()
    world.run_until(lambda: world.eviction().preemptions[0].state is PreemptionState.CHECKPOINTING)
    world.tick()
    assert len(statements(world)) <= IDLE


def test_a_paused_cycle_with_a_waiting_job(world: World) -> None:
    world.store.add_request("pause", None, "olga", world.clock.now())
    world.tick()
    world.urgent(3)
    world.tick()  # that it waits is stored once
    assert len(statements(world)) <= IDLE
