"""After a database was lost, the numbers of a new one are those of the old one; the names on the cluster are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import text

from clearway.execution.lifecycle import FLAGS
from clearway.model.cluster import Reservation
from clearway.model.operations import EvictionState
from tests.builders import after
from tests.simulation.drains import drain, held, undrain
from tests.simulation.test_fence import busy
from tests.simulation.world import World, config

ANOTHER = "0123456789ab"  # a mark of another database's


def restarted(world: World) -> None:
    """What is left over is looked for after a start."""
    world.store.close()
    world.start_daemon()


def ended_eviction(world: World) -> str:
    """Number 1; the name of its placement."""
    busy(world)
    urgent = world.urgent(1, work_s=10.0)
    world.run_until(lambda: world.started(urgent) is not None, 120.0)
    world.run_until(world.settled, 900.0)
    eviction = world.eviction()
    assert eviction.state is EvictionState.COMPLETED
    return eviction.placement


@pytest.mark.parametrize("name", ["clearway_1", f"clearway_1_{ANOTHER}"])
@pytest.mark.fault("A daemon with a new database took reservations of the old one for its own.", found_by="attack")
def test_a_placement_of_another_database_is_left_alone(world: World, name: str) -> None:
    ours = ended_eviction(world)
    for each, node in ((name, "n7"), (ours, "n8")):
        world.cluster.reservations[each] = Reservation(
            name=each, nodes=(node,), start_time=after(0), end_time=after(90_000), users=("bob",), flags=FLAGS
        )
    restarted(world)
    world.tick()
    assert list(world.cluster.reservations) == [name]


def test_names_cannot_be_guessed(make_world: Callable[..., World]) -> None:
    names = set()
    for _ in range(2):
        world = make_world()
        busy(world)
        world.urgent(1)
        world.tick()
        names.add(world.eviction().placement)
    assert len(names) == 2
    assert all(name.startswith("clearway_1_") and len(name) == len("clearway_1_") + 12 for name in names)


@pytest.mark.parametrize("reason", ["clearway drain 1", f"clearway drain 1 {ANOTHER}"])
def test_a_node_that_another_database_holds_is_left_alone(world: World, reason: str) -> None:
    begun = drain(world, "n1")
    world.run_until(world.settled, 60.0)
    world.cluster.nodes["n1"] = replace(world.cluster.nodes["n1"], reason=reason)
    assert "drained for another reason" in undrain(world, "n1") or "was not drained" in undrain(world, "n1")
    restarted(world)
    world.tick()
    assert held(world) == {"n1": reason}
    assert begun.eviction_id == 1


def test_an_operation_from_before_there_were_marks_goes_on_under_its_name(make_world: Callable[..., World]) -> None:
    world = make_world(config=config("approve"))
    busy(world)
    urgent = world.urgent(2, work_s=10.0)
    world.tick()
    with world.store._database.writing() as connection:
        connection.execute(text("UPDATE evictions SET mark = NULL"))
    restarted(world)
    world.store.add_request("approve", 1, "olga", world.clock.now())
    world.run_until(lambda: world.started(urgent) is not None, 120.0)
    assert world.eviction().placement == "clearway_1"
    world.run_until(world.settled, 900.0)
    assert not world.leftovers()
