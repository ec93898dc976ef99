"""Urgent jobs that ask for GPUs, certain or contiguous nodes: the whole loop on a simulated cluster with GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from clearway.config.configuration import Config
from clearway.model.cluster import JobState, Node
from clearway.model.operations import EvictionState
from clearway.model.problem import Action
from clearway.simulation.jobs import Program
from tests.simulation.killing import End, Interruption, MortalDaemon
from tests.simulation.world import World, config

GUARDED: dict[str, Any] = {"candidates": {"min_runtime": 0, "protected_users": ["vip"]}}
A100 = (("a100", 4),)


def world_with_gpus(folder: Path, **sections: Any) -> World:
    world = World(f"sqlite:///{folder}/store.sqlite", config=config(**(GUARDED | sections)), node_count=0)
    add_nodes(world)
    return world


def add_nodes(world: World) -> None:
    """n1 to n4 have four A100 each, n5 four V100, n6 none; eight processors each."""
    gpus = {"n1": A100, "n2": A100, "n3": A100, "n4": A100, "n5": (("v100", 4),), "n6": ()}
    world.cluster.add_nodes(
        Node(
            name=name,
            available=True,
            raw_state="IDLE",
            cpus=8,
            memory_mib=8_000,
            partitions=("batch", "urgent"),
            gpus=has,
        )
        for name, has in gpus.items()
    )


def on_gpus(world: World, node: str, count: int, ran_s: float, **fields: Any) -> str:
    """A job that holds some of a node's GPUs and a processor for each."""
    defaults: dict[str, Any] = {"gres": f"gres:gpu:{count}", "gpus": (("a100", count),), "cpus_per_node": count}
    return world.submit(on=(node,), ran_s=ran_s, memory_mib=100, **(defaults | fields))


def urgent_on_gpus(world: World, nodes: int, count: int, **fields: Any) -> str:
    gpus = {"gres": "gres:gpu", "gpus": (("a100", count),), "cpus_per_node": count, "memory_mib": 100}
    return world.urgent(nodes, work_s=15.0, **(gpus | fields))


def shared_nodes(world: World) -> dict[str, str]:
    return {
        "a": on_gpus(world, "n1", 2, 500),
        "b": on_gpus(world, "n1", 2, 400),
        "c": on_gpus(world, "n2", 1, 10),
        "d": on_gpus(world, "n2", 3, 300),
        "e": on_gpus(world, "n3", 4, 2_000),
        "kept": on_gpus(world, "n4", 2, 10, user="vip"),
        "other": on_gpus(world, "n5", 4, 10, gpus=(("v100", 4),)),
        "plain": world.submit(on=("n6",), ran_s=10),
    }


def test_gpus_are_freed_where_it_costs_least_and_others_keep_theirs(tmp_path: Path) -> None:
    world = world_with_gpus(tmp_path)
    jobs = shared_nodes(world)
    urgent = urgent_on_gpus(world, 2, 3)
    world.run_until(lambda: bool(world.started(urgent)) and world.settled())
    eviction = world.eviction()
    assert eviction.state is EvictionState.COMPLETED
    assert {p.job_id: p.action for p in eviction.preemptions} == {jobs[name]: Action.KILL for name in ("a", "b", "d")}
    assert eviction.plan.staying == (jobs["c"],)
    assert world.cluster.jobs[urgent].runs == [("n1", "n2")]
    assert {name for name, job_id in jobs.items() if world.cluster.jobs[job_id].job.restart_count} == {"a", "b", "d"}
    assert all(world.state(job_id) is JobState.RUNNING for job_id in jobs.values())
    assert not world.leftovers()


@pytest.mark.parametrize(
    ("fields", "nodes", "gone"),
    [
        ({"required_nodes": ("n1",)}, ("n1", "n2"), {"a", "b", "c", "d"}),
        ({"excluded_nodes": ("n1",)}, ("n2", "n3"), {"c", "d", "e"}),
        ({"required_nodes": ("n2",), "contiguous": True}, ("n1", "n2"), {"a", "b", "c", "d"}),
        ({"required_nodes": ("n3",), "contiguous": True}, ("n2", "n3"), {"c", "d", "e"}),
        ({"gpus": (("v100", 4),), "gres": "gpu:v100:4", "num": 1}, ("n5",), {"other"}),
    ],
    ids=["certain", "not that one", "in a row", "certain and in a row", "whole nodes of a type"],
)
def test_whole_nodes_where_the_job_wants_them(
    tmp_path: Path, fields: dict[str, Any], nodes: tuple[str, ...], gone: set[str]
) -> None:
    world = world_with_gpus(tmp_path)
    jobs = shared_nodes(world)
    asked = {"gres": "gres:gpu:a100:1", "gpus": (("a100", 1),), "memory_mib": 100} | fields
    urgent = world.urgent(asked.pop("num", 2), work_s=15.0, **asked)
    world.run_until(lambda: bool(world.started(urgent)) and world.settled())
    assert [tuple(sorted(run)) for run in world.cluster.jobs[urgent].runs] == [nodes]
    assert {name for name, job_id in jobs.items() if world.cluster.jobs[job_id].job.restart_count} == gone
    assert world.eviction().plan.staying == ()
    assert not world.leftovers()


def test_what_cannot_be_had_is_told_and_nobody_is_touched(tmp_path: Path) -> None:
    world = world_with_gpus(tmp_path)
    jobs = shared_nodes(world)
    for fields in (
        {"required_nodes": ("n4",), "gpus": (("a100", 4),)},  # half of it is protected
        {"gpus": (("h100", 1),)},
        {"required_nodes": ("n5",)},
    ):
        urgent = urgent_on_gpus(world, 1, 3, **fields)
        (waiting,) = world.tick().waiting
        assert waiting.eviction_id is None
        assert "not enough" in waiting.why
        world.cluster.withdraw(world.cluster.jobs[urgent])
    assert not world.store.evictions()
    assert not any(world.cluster.jobs[job_id].job.restart_count for job_id in jobs.values())


def test_who_keeps_his_part_may_end_and_the_eviction_goes_on(tmp_path: Path) -> None:
    world = world_with_gpus(tmp_path)
    jobs = shared_nodes(world)
    ending = on_gpus(world, "n2", 0, 5, gpus=(), gres="", cpus_per_node=1)
    world.cluster.jobs[ending].program = Program(work_s=6.0)
    urgent = urgent_on_gpus(world, 2, 3)
    world.tick()
    assert set(world.eviction().plan.staying) == {jobs["c"], ending}
    world.run_until(lambda: bool(world.started(urgent)) and world.settled())
    assert world.eviction().revision == 0
    assert world.cluster.jobs[urgent].runs == [("n1", "n2")]


def test_with_others_at_once_all_have_their_plans_in_one_cycle(tmp_path: Path) -> None:
    world = world_with_gpus(tmp_path)
    shared_nodes(world)
    asked = [urgent_on_gpus(world, 1, 3), urgent_on_gpus(world, 1, 3), world.urgent(1, work_s=15.0)]
    told = {waiting.preemptor.job.job_id: waiting for waiting in world.tick().waiting}
    assert all(told[job_id].eviction_id is not None for job_id in asked)
    world.run_until(lambda: all(world.started(job_id) for job_id in asked) and world.settled())
    placed = [name for e in world.store.evictions() for name in e.plan.placement_nodes]
    assert len(placed) == len(set(placed)) == 3
    gone = [p.job_id for e in world.store.evictions() for p in e.preemptions]
    assert len(gone) == len(set(gone))
    assert not world.leftovers()


class TestInterruption(Interruption):
    """Two nodes freed by parts."""

    every, first, nodes = 11, 3, 0
    least_effects = 30
    end: ClassVar[End] = {"urgent": [("n1", "n2")]}

    def settings(self) -> Config:
        return config(**GUARDED)

    def furnish(self, world: World) -> None:
        add_nodes(world)

    def play(self, world: World, daemon: MortalDaemon) -> End:
        jobs = shared_nodes(world)
        urgent = urgent_on_gpus(world, 2, 3)
        for _ in range(200):
            daemon.tick()
            if world.started(urgent) and world.settled():
                break
        assert world.started(urgent), world.describe()
        return {
            "urgent": world.cluster.jobs[urgent].runs,
            "restarts": {name: world.cluster.jobs[job_id].job.restart_count for name, job_id in jobs.items()},
            "eviction": world.eviction().state,
            "staying": world.eviction().plan.staying == (jobs["c"],),
            "leftovers": world.leftovers(),
        }
