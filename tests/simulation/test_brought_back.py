"""Nodes that are brought back do not respond for a second, as real ones: no order is told as failed for that."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clearway.model.cluster import JobState
from clearway.model.operations import EvictionState
from clearway.model.orders import RollingState, TurnState
from tests.simulation.drains import answer, ask, drain, now, saver, undrain
from tests.simulation.moving_jobs import ask as ask_moves
from tests.simulation.moving_jobs import moving, nodes_of, serial
from tests.simulation.test_rolling import now as rolling_now
from tests.simulation.test_rolling import roll, states, wait_away
from tests.simulation.world import World

SILENT_S = 1.2


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    made = make_world(config=moving())
    made.cluster.answers_after_s = SILENT_S
    return made


def silent(world: World) -> list[str]:
    return [name for name, node in world.cluster.nodes.items() if "NOT_RESPONDING" in node.raw_state]


def test_a_turn_is_over_when_the_node_answers(world: World) -> None:
    jobs = [saver(world, f"n{number}") for number in (1, 2, 3)]
    order = roll(world, "n[1-3]", 1)
    for name, following in (("n1", "n2"), ("n2", "n3"), ("n3", None)):
        wait_away(world, order, name)
        assert undrain(world, name) == f"brought back {name}"
        world.tick()
        assert silent(world) == [name]
        assert states(world, order)[name] is TurnState.AWAY
        assert following is None or states(world, order)[following] is TurnState.WAITING
        world.run_until(lambda name=name: states(world, order)[name] is TurnState.OVER, limit_s=3)
        assert silent(world) == []
    world.run_until(lambda: rolling_now(world, order).state.terminal, limit_s=5)
    ended = rolling_now(world, order)
    assert (ended.state, ended.outcome) == (RollingState.COMPLETED, "3 node(s) were emptied.")
    assert all(world.cluster.jobs[job_id].lost_s <= 3.0 for job_id in jobs)
    assert world.observer.failures == []


def test_the_same_nodes_may_be_drained_again_at_once(world: World) -> None:
    """After a drain that was called off, by order or for a job in the way, and while they do not answer yet."""
    job = saver(world, "n1", save_s=30.0)
    first = drain(world, "n[1-2]")
    world.tick()
    world.store.add_request("cancel", first.eviction_id, "root", world.clock.now())
    world.run_until(lambda: now(world, first).state.terminal, limit_s=60)
    assert now(world, first).state is EvictionState.CANCELLED
    assert silent(world) == ["n1", "n2"]
    second = drain(world, "n[1-2]")
    world.run_until(lambda: now(world, second).started_at is not None, limit_s=60)
    assert now(world, second).state is not EvictionState.FAILED
    assert {name for name, node in world.cluster.nodes.items() if node.drained} == {"n1", "n2"}
    world.run_until(lambda: now(world, second).state is EvictionState.COMPLETED, limit_s=200)
    assert len(world.cluster.jobs[job].runs) == 2
    assert not set(nodes_of(world, job)[0]) & {"n1", "n2"}


def test_what_was_emptied_by_moves_comes_back_and_may_be_asked_for_at_once(world: World) -> None:
    for name in ("n1", "n2", "n3"):
        serial(world, name)
    world.tick()
    _, moves = ask_moves(world)
    assert moves is not None
    world.run_until(lambda: now(world, moves).state.terminal)
    assert now(world, moves).state is EvictionState.COMPLETED, now(world, moves).outcome
    request = ask(world, "n[1-3]")
    world.tick()
    assert answer(world, request).startswith("drain ")
    assert world.observer.failures == []


@pytest.mark.parametrize("answers_after_s", [SILENT_S, 60.0])
@pytest.mark.fault(
    "A job was preempted in the second in which a node that had been brought back did not answer yet.",
    found_by="real cluster",
)
def test_nobody_is_preempted_where_a_node_is_free_in_a_moment(
    make_world: Callable[..., World], answers_after_s: float
) -> None:
    """An urgent job waits for the very node that is brought back; one that stays silent is not waited for."""
    world = make_world()
    world.cluster.answers_after_s = answers_after_s
    drained = drain(world, "n1")
    world.run_until(lambda: now(world, drained).state.terminal)
    others = [world.submit(on=(f"n{number}",), ran_s=600, user="bob") for number in range(2, 9)]
    world.tick()
    urgent = world.urgent(1)
    assert undrain(world, "n1") == "brought back n1"
    world.run_until(lambda: world.started(urgent) is not None, limit_s=60)
    kept = [job_id for job_id in others if world.state(job_id) is JobState.RUNNING]
    if answers_after_s == SILENT_S:
        assert kept == others
        assert nodes_of(world, urgent) == [("n1",)]
        assert [e.eviction_id for e in world.store.evictions()] == [drained.eviction_id]
    else:
        assert len(kept) == len(others) - 1
