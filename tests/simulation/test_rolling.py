"""Rolling drains on a simulated cluster: so many nodes at a time, and the next when one has come back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest

from clearway.drain.request import DrainRequest
from clearway.drain.rolling import busy_nodes
from clearway.model.cluster import AdminLevel
from clearway.model.errors import SlurmRefusedError
from clearway.model.operations import Drain, EvictionState, Operation, Relocation
from clearway.model.orders import MoveKind, RelocationOrder, RollingDrain, RollingState, TurnState
from clearway.model.plan import OperationPlan, RelocationPlan
from clearway.simulation.jobs import Program
from tests.simulation.drains import answer, ask, drain, empty, held, saver, undrain
from tests.simulation.world import World, config

T = TurnState


def roll(world: World, nodes: str, at_once: int, actor: str = "root (command line)", **fields: Any) -> RollingDrain:
    request_id = ask(world, nodes, actor, rolling=at_once, **fields)
    world.tick()
    request = world.store.request(request_id)
    assert request is not None
    assert request.rolling_id is not None, request.result
    return now(world, request.rolling_id)


def now(world: World, rolling: RollingDrain | int) -> RollingDrain:
    found = world.store.rolling_drain(rolling if isinstance(rolling, int) else rolling.rolling_id)
    assert found is not None
    return found


def states(world: World, rolling: RollingDrain) -> dict[str, TurnState]:
    return {turn.node: turn.state for turn in now(world, rolling).turns}


def notes(world: World, rolling: RollingDrain) -> dict[str, str]:
    return {turn.node: turn.note for turn in now(world, rolling).turns if turn.note}


def wait_away(world: World, rolling: RollingDrain, *names: str) -> None:
    world.run_until(lambda: set(now(world, rolling).nodes(T.AWAY)) == set(names), 100)


def test_the_next_node_follows_when_one_is_back(make_world: Callable[..., World]) -> None:
    world = make_world()
    jobs = [saver(world, f"n{number}") for number in range(1, 6)]
    order = roll(world, "n[1-5]", 2, reason="new kernel")
    most = 0
    came: list[str] = []
    for _ in range(5):
        world.run_until(lambda: len(held(world)) > 0 and not now(world, order).nodes(T.EMPTYING), 60)
        away = now(world, order).nodes(T.AWAY)
        assert empty(world, *away)
        assert set(held(world)) == set(away)
        assert all(reason.endswith(": new kernel") for reason in held(world).values())
        most = max(most, len(away))
        came.append(min(away))
        assert undrain(world, min(away)) == f"brought back {min(away)}"
        world.tick()
    assert came == ["n1", "n2", "n3", "n4", "n5"]
    assert most == 2
    world.run_until(lambda: now(world, order).state.terminal, 10)
    ended = now(world, order)
    assert (ended.state, ended.outcome) == (RollingState.COMPLETED, "5 node(s) were emptied.")
    assert not held(world)
    assert all(world.cluster.jobs[job_id].lost_s <= 3.0 for job_id in jobs)


def test_never_more_away_than_asked_for(make_world: Callable[..., World]) -> None:
    world = make_world()
    for number in range(1, 9):
        saver(world, f"n{number}", save_s=2.0 + number)
    order = roll(world, "partition=batch", 3)
    for second in range(400):
        world.tick()
        assert len(held(world)) <= 3
        away = now(world, order).nodes(T.AWAY)
        if away and second % 7 == 0:
            world.store.add_request("undrain", None, "root", world.clock.now(), f'{{"nodes": "{away[-1]}"}}')
        if now(world, order).state.terminal:
            break
    assert set(states(world, order).values()) == {T.OVER}


def test_a_job_on_several_nodes_of_a_batch_moves_once(make_world: Callable[..., World]) -> None:
    world = make_world()
    wide = saver(world, "n1", "n2")
    order = roll(world, "n[1-2]", 2)
    wait_away(world, order, "n1", "n2")
    assert world.cluster.jobs[wide].job.restart_count == 1
    assert len(world.store.evictions()) == 1


def test_a_job_in_the_way_costs_its_own_nodes_alone(make_world: Callable[..., World]) -> None:
    world = make_world()
    saver(world, "n1")
    deaf = world.submit(on=("n2",), ran_s=600, user="bob")
    wide = saver(world, "n3", "n4")
    order = roll(world, "n[1-4]", 4)
    wait_away(world, order, "n1", "n3", "n4")
    assert world.cluster.jobs[deaf].job.restart_count == 0
    assert world.cluster.jobs[wide].job.restart_count == 1  # although its nodes were drained one after the other
    assert notes(world, order) == {"n2": f"1 job(s) in the way: job {deaf} of bob: it cannot save itself"}
    undrain(world, "n1,n[3-4]")
    world.tick()
    ended = now(world, order)
    assert ended.state is RollingState.COMPLETED
    assert ended.outcome.startswith(f"3 node(s) were emptied. 1 skipped: n2: 1 job(s) in the way: job {deaf}")
    assert not held(world)


def test_nodes_of_others_are_skipped(make_world: Callable[..., World]) -> None:
    world = make_world()
    world.by_hand.drain("n2", "bad disk")
    order = roll(world, "n[1-3]", 2)
    wait_away(world, order, "n1", "n3")
    assert notes(world, order) == {"n2": "node n2 already has a reason: bad disk"}
    assert held(world)["n2"] == "bad disk"


def test_somebody_brings_a_node_back_while_it_is_emptied(make_world: Callable[..., World]) -> None:
    world = make_world()
    saver(world, "n1", save_s=20.0)
    order = roll(world, "n[1-3]", 2)
    world.tick()
    world.by_hand.undrain("n2", held(world)["n2"])
    wait_away(world, order, "n1", "n3")
    assert notes(world, order)["n2"] == "it was brought back outside Clearway while it was being emptied"


def test_the_turn_of_a_node_that_others_took_over_ends_last(make_world: Callable[..., World]) -> None:
    world = make_world()
    order = roll(world, "n[1-2]", 1)
    wait_away(world, order, "n1")
    world.by_hand.undrain("n1", held(world)["n1"])
    world.by_hand.drain("n1", "bad memory")
    world.tick(30)
    assert states(world, order) == {"n1": T.AWAY, "n2": T.WAITING}  # one node is out of service already
    world.by_hand.undrain("n1", "bad memory")
    wait_away(world, order, "n2")
    world.by_hand.undrain("n2", held(world)["n2"])
    world.by_hand.drain("n2", "bad memory")
    world.run_until(lambda: now(world, order).state.terminal, 10)
    assert notes(world, order) == {"n2": "kept by others: bad memory"}
    assert held(world) == {"n2": "bad memory"}


def test_cancelled_as_a_whole(make_world: Callable[..., World]) -> None:
    world = make_world()
    saver(world, "n2", save_s=20.0)
    saver(world, "n3")
    order = roll(world, "n[1-3]", 1)
    wait_away(world, order, "n1")
    undrain(world, "n1")
    world.tick()
    assert states(world, order) == {"n1": T.OVER, "n2": T.EMPTYING, "n3": T.WAITING}
    wait = world.store.add_request("cancel_rolling", None, "olga", world.clock.now(), rolling_id=order.rolling_id)
    world.run_until(world.settled, 30)
    assert answer(world, wait) == "cancelled"
    ended = now(world, order)
    assert (ended.state, ended.outcome) == (RollingState.CANCELLED, "Cancelled by olga.")
    assert ended.finished_at is not None
    assert states(world, order) == {"n1": T.OVER, "n2": T.SKIPPED, "n3": T.SKIPPED}
    assert not held(world)
    assert [world.cluster.jobs[job_id].job.restart_count for job_id in world.cluster.jobs] == [0, 0]
    again = world.store.add_request("cancel_rolling", None, "olga", world.clock.now(), rolling_id=order.rolling_id)
    unknown = world.store.add_request("cancel_rolling", None, "olga", world.clock.now(), rolling_id=77)
    world.tick()
    assert answer(world, again) == f"refused: rolling drain {order.rolling_id} is cancelled"
    assert answer(world, unknown) == "refused: it names no rolling drain"


def test_empty_nodes_stay_drained_when_it_is_cancelled(make_world: Callable[..., World]) -> None:
    world = make_world()
    order = roll(world, "n[1-3]", 1)
    wait_away(world, order, "n1")
    world.store.add_request("cancel_rolling", None, "olga", world.clock.now(), rolling_id=order.rolling_id)
    world.run_until(lambda: now(world, order).state.terminal, 10)
    assert now(world, order).outcome == "Cancelled by olga. n1 stay drained until they are brought back."
    assert set(held(world)) == {"n1"}
    assert undrain(world, "n1") == "brought back n1"


def test_a_drain_of_it_that_somebody_cancels_is_not_tried_again(make_world: Callable[..., World]) -> None:
    world = make_world()
    saver(world, "n1", save_s=20.0)
    saver(world, "n2", save_s=20.0)
    order = roll(world, "n[1-3]", 2)
    world.tick()
    world.store.add_request("cancel", 1, "olga", world.clock.now())
    wait_away(world, order, "n3")
    assert notes(world, order) == dict.fromkeys(("n1", "n2"), "Its drain was cancelled by olga")
    assert set(held(world)) == {"n3"}


def test_what_slurm_does_not_let_us_do_stops_all(make_world: Callable[..., World]) -> None:
    world = make_world()

    def refuse(name: str, reason: str) -> None:
        raise SlurmRefusedError(f"drain of {name} for {reason}: Access denied")

    world.backend.drain = refuse  # type: ignore[method-assign]
    world.loop._cycle.executor.commander._backend.drain = refuse  # type: ignore[method-assign]
    order = roll(world, "n[1-8]", 2)
    world.run_until(lambda: now(world, order).state.terminal, 30)
    assert now(world, order).state is RollingState.CANCELLED
    assert "Access denied" in now(world, order).outcome
    assert len(world.store.evictions()) == 1
    assert not held(world)


def test_paused_nothing_more_is_begun_and_at_its_time_it_begins(make_world: Callable[..., World]) -> None:
    world = make_world()
    order = roll(world, "n[1-2]", 1, at=world.clock.now() + timedelta(seconds=100))
    world.tick(50)
    assert not held(world)
    world.tick(51)
    wait_away(world, order, "n1")
    world.store.add_request("pause", None, "olga", world.clock.now())
    undrain(world, "n1")
    world.tick(60)
    assert states(world, order) == {"n1": T.OVER, "n2": T.WAITING}
    world.store.add_request("resume", None, "olga", world.clock.now())
    wait_away(world, order, "n2")


def test_rights_are_asked_at_every_turn(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(drain={"owners": True}))
    saver(world, "n1", user="alice")
    saver(world, "n2", user="alice")
    refused = ask(world, "n[1-3]", "alice", rolling=1)
    world.tick()
    assert "nor the owner of all jobs on these nodes" in answer(world, refused)
    order = roll(world, "n[1-2]", 1, "alice")
    wait_away(world, order, "n1")
    world.submit(Program(work_s=900), on=("n2",), user="bob")
    undrain(world, "n1", "root")
    world.run_until(lambda: now(world, order).state.terminal, 10)
    assert "alice is neither an operator" in notes(world, order)["n2"]
    assert not held(world)


def test_who_may_not_drain_any_more_stops_all(make_world: Callable[..., World]) -> None:
    world = make_world()
    world.cluster.admin_levels["olga"] = AdminLevel.OPERATOR
    order = roll(world, "n[1-4]", 1, "olga")
    wait_away(world, order, "n1")
    world.cluster.admin_levels["olga"] = AdminLevel.NONE
    undrain(world, "n1", "root")
    world.run_until(lambda: now(world, order).state.terminal, 10)
    assert now(world, order).state is RollingState.CANCELLED
    assert now(world, order).outcome.startswith("Stopped: olga is neither an operator nor an administrator of Slurm")
    assert len(world.store.evictions()) == 1
    assert not held(world)


def test_many_nodes_of_others_cost_no_question_to_slurm(make_world: Callable[..., World]) -> None:
    world = make_world(node_count=60)
    world.cluster.admin_levels["olga"] = AdminLevel.OPERATOR
    for number in range(1, 60):
        world.by_hand.drain(f"n{number}", "bad disk")
    asked = []
    level = world.backend.admin_level
    world.backend.admin_level = lambda user: asked.append(user) or level(user)  # type: ignore[method-assign,func-returns-value]
    order = roll(world, "n[1-60]", 2, "olga")
    wait_away(world, order, "n60")
    assert len(asked) == 2  # for the order, and for the one drain
    assert len(now(world, order).nodes(T.SKIPPED)) == 59


def test_a_node_belongs_to_one_rolling_drain(make_world: Callable[..., World]) -> None:
    world = make_world()
    order = roll(world, "n[1-4]", 1)
    again = ask(world, "n[4-6]", rolling=1)
    with_deadline = world.store.add_request(
        "drain", None, "root", world.clock.now(), '{"nodes": "n7", "rolling": 1, "deadline": "2030-01-01T00:00:00Z"}'
    )
    world.tick()
    assert answer(world, again) == f"refused: node n4 already belongs to rolling drain {order.rolling_id}"
    assert "a rolling drain has no deadline" in answer(world, with_deadline)


def test_an_urgent_job_comes_first_and_the_node_is_not_skipped(make_world: Callable[..., World]) -> None:
    world = make_world()
    for number in range(1, 9):
        saver(world, f"n{number}", save_s=20.0)
    urgent = world.urgent(2, work_s=40.0)
    world.run_until(lambda: bool(world.store.open_evictions()), 60)
    leaving = {name for p in world.eviction().preemptions for name in p.job.nodes}
    order = roll(world, ",".join(sorted(leaving)), 2)
    world.tick()
    assert set(states(world, order).values()) == {T.WAITING}
    world.run_until(lambda: world.started(urgent) is not None, 100)
    world.run_until(lambda: bool(now(world, order).nodes(T.EMPTYING, T.AWAY, T.SKIPPED)), 300, every_s=1.0)
    # The urgent job itself stands in the way now: it is not moved.
    assert all("urgent job" in note for note in notes(world, order).values())


def test_a_node_that_jobs_are_being_moved_off_waits(make_world: Callable[..., World]) -> None:
    world = make_world()
    saver(world, "n1", save_s=20.0)
    drained = drain(world, "n1")
    world.tick()
    order = RelocationOrder(
        nodes=("n1",), actor="root", kind=next(iter(MoveKind)), moves=(), gain_node_s=1.0, cost_node_s=0.0
    )
    common = {each.name: getattr(drained.plan, each.name) for each in fields(OperationPlan)}
    same = {each.name: getattr(drained, each.name) for each in fields(Operation)}
    moving = Relocation(**(same | {"plan": RelocationPlan(**common, order=order)}))
    snapshot = world.backend.snapshot()
    assert busy_nodes([moving], snapshot) == {"n1"}
    assert busy_nodes([replace(moving, started_at=world.clock.now())], snapshot) == {"n1"}  # its Reason is still there
    world.by_hand.undrain("n1", held(world)["n1"])
    snapshot = replace(world.backend.snapshot(), jobs=())
    assert busy_nodes([replace(moving, started_at=world.clock.now())], snapshot) == frozenset()


def test_a_drain_order_of_one_node_is_one_drain(make_world: Callable[..., World]) -> None:
    world = make_world()
    job = saver(world, "n1")
    order = roll(world, "n1", 5)
    wait_away(world, order, "n1")
    (eviction,) = world.store.evictions()
    assert eviction.state in (EvictionState.STARTED, EvictionState.RETURNING, EvictionState.COMPLETED)
    assert isinstance(eviction, Drain)
    assert eviction.order.rolling_id == order.rolling_id
    assert [p.job_id for p in eviction.preemptions] == [job]


@pytest.mark.parametrize("wrong", [0, -1, 1_000_000])
def test_a_number_of_nodes_that_makes_no_sense(wrong: int) -> None:
    with pytest.raises(ValueError, match="rolling"):
        DrainRequest(nodes="n1", rolling=wrong)
