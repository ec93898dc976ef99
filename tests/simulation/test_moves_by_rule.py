"""Moves by the site's rules: when, for whom, which nodes, and what is done with those that become empty."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from clearway.execution.lifecycle import hold_reason
from clearway.model.errors import SlurmRefusedError
from clearway.model.operations import EvictionState
from tests.simulation.moving_jobs import ask, assert_nothing_is_left, moving, nodes_of, serial, weigh
from tests.simulation.world import World


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world(config=moving())


@pytest.mark.parametrize(("mode", "state"), [("observe", "proposed"), ("approve", "awaiting_approval")])
def test_of_its_own_accord_by_the_daemons_mode(make_world: Callable[..., World], mode: str, state: str) -> None:
    world = make_world(config=moving(mode, compaction={"enabled": True, "period": "60s", "min_gain": 0.1}))
    jobs = [serial(world, "n1"), serial(world, "n3", cpus=2)]
    world.tick()
    world.tick()
    assert world.eviction().state == state
    assert world.eviction().plan.verdicts[0].reason.startswith("moves from n1 to n3; all moves together gain")
    for _ in range(130):
        world.tick(1.0)
    assert world.eviction().state == state  # one at a time, and nothing is done
    assert nodes_of(world, *jobs) == [("n1",), ("n3",)]
    if mode == "approve":
        world.store.add_request("approve", 1, "root", world.clock.now())
        world.tick()
        world.run_until(world.settled)
        assert world.eviction().state is EvictionState.COMPLETED
        assert nodes_of(world, *jobs) == [("n3",), ("n3",)]
    else:
        assert ask(world)[0] == "refused: the daemon only observes (daemon.mode)"
        world.tick(600.0)
        assert sorted(e.state.value for e in world.store.evictions()) == ["proposed", "superseded"]
    assert_nothing_is_left(world)


def test_periodic_and_within_the_hours_limit(make_world: Callable[..., World]) -> None:
    settings = {"enabled": True, "period": "60s", "min_gain": 0.1, "jobs_per_hour": 1}
    world = make_world(config=moving(compaction=settings))
    jobs = [serial(world, "n1"), serial(world, "n2"), serial(world, "n3", cpus=2)]
    for _ in range(300):
        world.tick(1.0)
    (only,) = world.store.evictions()
    assert only.state is EvictionState.COMPLETED
    assert [p.job_id for p in only.preemptions] == jobs[:1]
    assert ask(world)[0] == "refused: 1 jobs were moved within the hour"
    assert nodes_of(world, *jobs) == [("n3",), ("n2",), ("n3",)]
    assert_nothing_is_left(world)


def test_who_may_ask(make_world: Callable[..., World]) -> None:
    world = make_world(config=moving(drain={"operators": ["olga"]}))
    serial(world, "n1")
    serial(world, "n3", cpus=2)
    world.tick()
    assert "neither an operator" in ask(world, actor="alice (command line)")[0]
    assert ask(world, actor="olga (command line)")[1] is not None


def test_emptied_nodes_are_powered_down_where_the_site_wants_that(make_world: Callable[..., World]) -> None:
    world = make_world(config=moving(compaction={"power_down": True, "min_gain": 0.1}))
    serial(world, "n1")
    serial(world, "n3", cpus=2)
    world.tick()
    assert ask(world)[1] is not None
    world.run_until(world.settled)
    assert world.eviction().state is EvictionState.COMPLETED
    down = {name: node.raw_state for name, node in world.cluster.nodes.items() if not node.available}
    assert down == {"n1": "IDLE+POWERED_DOWN"}
    assert world.leftovers() == []


def test_a_job_rises_to_a_node_of_less_weight_and_its_own_is_not_drained(world: World) -> None:
    weigh(world, **{f"n{number}": 50 for number in range(1, 8)})
    rises, stays = serial(world, "n1"), serial(world, "n8")
    neighbour = serial(world, "n1", save_s=None)
    world.tick()
    result, eviction = ask(world, "promote")
    assert eviction is not None, result
    assert eviction.plan.order.nodes == ()
    world.run_until(world.settled)
    assert world.eviction().state is EvictionState.COMPLETED, world.describe()
    assert world.eviction().outcome == "1 of 1 job(s) moved."
    assert nodes_of(world, rises, stays, neighbour) == [("n8",), ("n8",), ("n1",)]
    assert_nothing_is_left(world)


def test_scarce_nodes_are_emptied_of_those_who_do_not_need_them(make_world: Callable[..., World]) -> None:
    settings = {"order": ["feature=fast"], "scarce": ["feature=gpu"], "min_gain": 0.1}
    world = make_world(config=moving(promotion=settings))
    for name, features in (("n1", ("gpu", "fast")), ("n2", ("fast",))):
        world.cluster.nodes[name] = replace(world.cluster.nodes[name], features=features)
    leaves, needs = serial(world, "n1"), serial(world, "n1", features="gpu")
    world.tick()
    assert ask(world, "promote")[1] is not None
    world.run_until(world.settled)
    assert nodes_of(world, leaves, needs) == [("n2",), ("n1",)]
    assert len(world.cluster.jobs[needs].runs) == 1
    assert_nothing_is_left(world)


def test_a_hold_that_was_left_behind_is_removed(world: World) -> None:
    serial(world, "n1")
    serial(world, "n3", cpus=2)
    world.tick()
    assert ask(world)[1] is not None
    world.run_until(world.settled)
    lost = hold_reason(world.eviction())
    world.by_hand.drain("n1", lost)
    # As after a node is brought back by hand where Slurm keeps its Reason.
    world.cluster.nodes["n2"] = replace(world.cluster.nodes["n2"], reason=lost)
    world.cluster.nodes["n4"] = replace(world.cluster.nodes["n4"], reason="clearway drain 999")
    world.clock.advance(700)
    world.tick()
    assert world.cluster.nodes["n4"].reason == "clearway drain 999", "another Clearway's"
    world.cluster.nodes["n4"] = replace(world.cluster.nodes["n4"], reason="")
    assert_nothing_is_left(world)


def test_nodes_come_back_where_slurm_cannot_power_them_down(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a Slurm without power saving says it."""

    def refuse(node: str) -> None:
        raise SlurmRefusedError(f"{node}: Invalid node state specified")

    world = make_world(config=moving(compaction={"power_down": True, "min_gain": 0.1}))
    monkeypatch.setattr(world.backend, "power_down", refuse)
    for name in ("n1", "n2"):
        serial(world, name)
    serial(world, "n3", cpus=2)
    world.tick()
    assert ask(world)[1] is not None
    world.run_until(world.settled)
    assert world.eviction().state is EvictionState.COMPLETED
    assert_nothing_is_left(world)
    refused = {step.detail for step in world.store.steps(world.eviction().eviction_id) if step.result == "refused"}
    assert refused == {
        f"node {name} takes jobs again, but Slurm does not power it down (compaction.power_down): "
        f"{name}: Invalid node state specified"
        for name in ("n1", "n2")
    }
