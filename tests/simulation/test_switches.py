"""Urgent jobs that want all their nodes under one leaf switch: the whole loop on a simulated cluster with switches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

from clearway.config.configuration import Config
from clearway.model.cluster import JobState
from clearway.model.operations import EvictionState
from tests.simulation.killing import End, Interruption, MortalDaemon
from tests.simulation.shown import show
from tests.simulation.world import World, config

GUARDED: dict[str, Any] = {"candidates": {"min_runtime": 0, "protected_users": ["vip"]}}
LEAVES = {f"n{at}": "leaf1" if at < 5 else "leaf2" for at in range(1, 9)}


def world_with_switches(folder: Path, **sections: Any) -> World:
    """n1 to n4 are under leaf1, n5 to n8 under leaf2."""
    world = World(f"sqlite:///{folder}/store.sqlite", config=config(**(GUARDED | sections)))
    world.cluster.switch_of = dict(LEAVES)
    return world


def busy_nodes(world: World) -> dict[str, str]:
    """The two that lose least are under different switches; leaf2 has the cheapest pair of its own."""
    ran = {"n1": 10, "n2": 900, "n3": 950, "n4": 990, "n5": 20, "n6": 300, "n7": 400, "n8": 500}
    return {name: world.submit(on=(name,), ran_s=ran_s) for name, ran_s in ran.items()}


def restarted(world: World, jobs: dict[str, str]) -> set[str]:
    return {name for name, job_id in jobs.items() if world.cluster.jobs[job_id].job.restart_count}


@pytest.mark.parametrize(
    ("fields", "nodes"),
    [
        ({"switches": 0}, ("n1", "n5")),
        ({"switches": 1}, ("n5", "n6")),
        ({"switches": 1, "excluded_nodes": ("n5",)}, ("n6", "n7")),
        ({"switches": 1, "required_nodes": ("n1",)}, ("n1", "n2")),
        ({"switches": 1, "required_nodes": ("n8",), "contiguous": True}, ("n7", "n8")),
        ({"switches": 0, "required_nodes": ("n4",), "contiguous": True, "excluded_nodes": ("n3",)}, ("n4", "n5")),
    ],
    ids=["anywhere", "one switch", "not that one", "a certain one", "in a row", "in a row anywhere"],
)
def test_the_cheapest_nodes_under_one_switch(tmp_path: Path, fields: dict[str, Any], nodes: tuple[str, ...]) -> None:
    world = world_with_switches(tmp_path)
    jobs = busy_nodes(world)
    urgent = world.urgent(2, work_s=15.0, **fields)
    world.run_until(lambda: bool(world.started(urgent)) and world.settled())
    assert [tuple(sorted(run)) for run in world.cluster.jobs[urgent].runs] == [nodes]
    assert restarted(world, jobs) == set(nodes)
    plan = world.eviction().plan
    assert plan.switch == (LEAVES[nodes[0]] if fields["switches"] else "")
    assert world.eviction().state is EvictionState.COMPLETED
    if plan.switch:
        told = {verdict.job_id: verdict.reason for verdict in plan.verdicts}
        elsewhere = {
            name for name in jobs if f"under leaf switch {plan.switch}, and it has none there" in told[jobs[name]]
        }
        assert elsewhere == {name for name in jobs if LEAVES[name] != plan.switch}
    assert not world.leftovers()


def test_the_switch_is_told_over_rest_and_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_with_switches(tmp_path, daemon={"mode": "approve"})
    monkeypatch.setenv("COLUMNS", "200")
    busy_nodes(world)
    for switches, switch in ((1, "leaf2"), (0, None)):
        urgent = world.urgent(2, switches=switches)
        world.tick()
        eviction = next(e for e in world.store.evictions() if e.preemptor.job_id == urgent)
        capsys.readouterr()
        show(world, eviction.eviction_id, "table")
        assert ("2 nodes, all under leaf switch leaf2, by" in capsys.readouterr().out) is (switch is not None)
        show(world, eviction.eviction_id, "json")  # the document of REST
        assert json.loads(capsys.readouterr().out)["plan"]["switch"] == switch


def test_free_nodes_count_where_they_are(tmp_path: Path) -> None:
    """Each switch has one, and the plan takes the switch whose other nodes are freed for less."""
    world = world_with_switches(tmp_path)
    jobs = {
        name: world.submit(on=(name,), ran_s=ran_s)
        for name, ran_s in {"n1": 100, "n2": 3_000, "n3": 3_000, "n5": 60, "n6": 60}.items()
    }
    vip = world.submit(on=("n8",), ran_s=5, user="vip")
    urgent = world.urgent(3, work_s=15.0, switches=1)  # n4 and n7 are free
    world.run_until(lambda: bool(world.started(urgent)) and world.settled())
    assert sorted(world.cluster.jobs[urgent].runs[0]) == ["n5", "n6", "n7"]
    assert restarted(world, jobs) == {"n5", "n6"}
    assert world.state(vip) is JobState.RUNNING


def test_what_cannot_be_had_is_told_and_nobody_is_touched(tmp_path: Path) -> None:
    world = world_with_switches(tmp_path)
    jobs = busy_nodes(world)
    urgent = world.urgent(5, switches=1)
    (waiting,) = world.tick().waiting
    assert "not enough under one leaf switch" in waiting.why
    world.by_hand.cancel(world.cluster.jobs[urgent].job)
    world.cluster.switch_of = {}
    world.urgent(2, switches=1)
    (waiting,) = world.tick().waiting
    assert "under few leaf switches, and which those are is not known: this cluster has no switches" in waiting.why
    assert not world.store.evictions()
    assert restarted(world, jobs) == set()


def test_a_plan_whose_switch_is_not_known_any_more_is_not_begun(tmp_path: Path) -> None:
    world = world_with_switches(tmp_path, daemon={"mode": "approve"})
    jobs = busy_nodes(world)
    urgent = world.urgent(2, switches=1)
    world.tick()
    assert world.eviction().state is EvictionState.AWAITING_APPROVAL
    world.cluster.switch_of = LEAVES | {"n6": "leaf3"}
    world.tick()
    first, second = sorted(world.store.evictions(), key=lambda e: e.eviction_id)
    assert first.state is EvictionState.SUPERSEDED
    assert "not known to be under leaf switch leaf2 any more" in first.outcome
    assert second.plan.placement_nodes == ("n5", "n7")
    assert world.state(urgent) is JobState.PENDING
    assert restarted(world, jobs) == set()


class TestInterruption(Interruption):
    """Two nodes of a switch freed."""

    every, first = 11, 2
    least_effects = 2
    end: ClassVar[End] = {"urgent": [["n5", "n6"]], "eviction": (EvictionState.COMPLETED, "leaf2")}

    def settings(self) -> Config:
        return config(**GUARDED)

    def furnish(self, world: World) -> None:
        world.cluster.switch_of = dict(LEAVES)

    def play(self, world: World, daemon: MortalDaemon) -> End:
        jobs = busy_nodes(world)
        urgent = world.urgent(2, work_s=15.0, switches=1)
        for _ in range(200):
            daemon.tick()
            if world.started(urgent) and world.settled():
                break
        assert world.started(urgent), world.describe()
        return {
            "urgent": [sorted(run) for run in world.cluster.jobs[urgent].runs],
            "restarted": restarted(world, jobs),
            "eviction": (world.eviction().state, world.eviction().plan.switch),
            "leftovers": world.leftovers(),
        }
