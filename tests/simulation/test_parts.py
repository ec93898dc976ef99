"""Urgent jobs without GPUs that may share their nodes: one small job makes room, and the others there run on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from clearway.model.cluster import JobState
from clearway.model.operations import EvictionState
from clearway.model.problem import Action, Amounts
from tests.simulation.killing import End, Interruption, MortalDaemon
from tests.simulation.world import World, config


def fill(world: World, nodes: int = 8) -> dict[str, str]:
    """Two jobs of two processors on each node; the later the node, the longer they have run."""
    return {
        f"n{number}{half}": world.submit(on=(f"n{number}",), cpus_per_node=2, ran_s=100 * number + at, memory_mib=100)
        for number in range(1, nodes + 1)
        for at, half in enumerate("ab")
    }


def small(world: World, nodes: int = 1, **fields: Any) -> str:
    return world.urgent(nodes, **({"work_s": 15.0, "cpus_per_node": 2, "memory_mib": 100} | fields))


def restarted(world: World, jobs: dict[str, str]) -> set[str]:
    return {name for name, job_id in jobs.items() if world.cluster.jobs[job_id].job.restart_count}


def finish(world: World, *urgent: str) -> None:
    world.run_until(lambda: all(world.started(job_id) for job_id in urgent), limit_s=60)
    world.run_until(world.settled, limit_s=2_000, every_s=5)
    assert not world.leftovers()
    assert not world.observer.failures


def test_one_job_of_two_leaves(world: World) -> None:
    jobs = fill(world)
    urgent = small(world)
    finish(world, urgent)
    eviction = world.eviction()
    assert eviction.state is EvictionState.COMPLETED
    assert eviction.plan.problem.needs is not None
    assert eviction.plan.problem.needs.per_node == Amounts(2)
    assert {p.job_id: p.action for p in eviction.preemptions} == {jobs["n1a"]: Action.KILL}
    assert eviction.plan.staying == (jobs["n1b"],)
    assert world.cluster.jobs[urgent].runs == [("n1",)]
    assert restarted(world, jobs) == {"n1a"}
    assert all(world.state(job_id) is JobState.RUNNING for job_id in jobs.values())


@pytest.mark.parametrize(
    "fields",
    [
        {"cpus_per_node": None},  # --exclusive
        {"cpus_per_node": 4},
        {"cpus": 3},  # not an even share
        {"partitions": ("urgent", "batch")},
    ],
    ids=["exclusive", "all of a node", "uneven", "several partitions"],
)
def test_whole_nodes_where_it_takes_them_or_on_doubt(world: World, fields: dict[str, Any]) -> None:
    jobs = fill(world)
    finish(world, small(world, **fields))
    assert world.eviction().plan.problem.needs is None
    assert restarted(world, jobs) == {"n1a", "n1b"}


def test_certain_nodes_in_parts(world: World) -> None:
    jobs = fill(world)
    urgent = small(world, 2, required_nodes=("n5",), contiguous=True)
    finish(world, urgent)
    assert world.cluster.jobs[urgent].runs == [("n4", "n5")]
    assert restarted(world, jobs) == {"n4a", "n5a"}


def test_to_suspend_all_jobs_of_a_node_may_lose_less_than_one_of_them_killed(make_world: Callable[..., World]) -> None:
    suspends = {"min_runtime": 0, "allow_suspend": True}
    world = make_world(config=config(candidates=suspends))
    jobs = fill(world)
    urgent = small(world, memory_mib=1_000)
    finish(world, urgent)
    plan = world.eviction().plan
    assert {planned.action for planned in plan.chosen.actions} == {Action.SUSPEND}
    assert plan.chosen.lost_work_node_s == 0
    assert restarted(world, jobs) == set()

    world = make_world(config=config(candidates=suspends | {"allow_suspend": False}))
    jobs = fill(world)
    finish(world, small(world, memory_mib=1_000))
    assert restarted(world, jobs) == {"n1a"}


def test_several_at_once_have_their_plans_in_one_cycle_and_one_job_leaves_for_each(world: World) -> None:
    jobs = fill(world)
    urgent = [small(world) for _ in range(4)]
    submitted = world.clock.now()
    told = {waiting.preemptor.job.job_id: waiting for waiting in world.tick().waiting}
    assert all(told[job_id].eviction_id is not None for job_id in urgent)
    finish(world, *urgent)
    for job_id in urgent:
        started = world.started(job_id)
        assert started is not None
        assert (started - submitted).total_seconds() <= 20
    assert len(restarted(world, jobs)) == 4
    gone = [p.job_id for e in world.store.evictions() for p in e.preemptions]
    assert len(gone) == len(set(gone)) == 4


def guarded(make_world: Callable[..., World]) -> tuple[World, dict[str, str]]:
    """Three nodes of two jobs each, the first of them the cheapest; nobody leaves the other five."""
    world = make_world(config=config(candidates={"min_runtime": 0, "protected_users": ["vip"]}))
    for number in range(4, 9):
        world.submit(on=(f"n{number}",), ran_s=10, user="vip")
    return world, fill(world, 3)


def test_nobody_is_left_without_nodes_for_the_cheapest_parts(make_world: Callable[..., World]) -> None:
    world, jobs = guarded(make_world)
    one, two = small(world), world.urgent(2, work_s=15.0, excluded_nodes=("n3",))
    world.tick()
    finish(world, one, two)
    assert world.cluster.jobs[one].runs == [("n3",)]
    assert world.cluster.jobs[two].runs == [("n1", "n2")]
    assert {e.plan.together for e in world.store.evictions()} == {(one,), (two,)}
    assert restarted(world, jobs) == set(jobs) - {"n3b"}, "the one still takes a part of its node"


def test_who_cannot_be_served_either_way_takes_no_whole_nodes_from_anybody(make_world: Callable[..., World]) -> None:
    world, jobs = guarded(make_world)
    one, three = small(world), world.urgent(3, work_s=15.0)
    world.tick()
    eviction = world.eviction()
    assert eviction.preemptor.job_id == one
    assert [job.job_id for job in eviction.plan.preemptees] == [jobs["n1a"]]
    finish(world, one)
    assert world.started(three) is None or len(world.store.evictions()) == 2


def test_whom_slurm_starts_by_itself_keeps_nobody_waiting(world: World) -> None:
    jobs = fill(world, 7) | {"n8a": world.submit(on=("n8",), cpus_per_node=2, ran_s=900, memory_mib=100)}
    # Slurm's clock is ahead, so that it has not begun yet; it is the more pressing one all the same.
    ahead = world.clock.now() + timedelta(seconds=10)
    first = small(world, submit_time=ahead, eligible_time=ahead, comment="clearway:max_delay=40s")
    second = small(world, excluded_nodes=("n8",))
    told = {waiting.preemptor.job.job_id: waiting for waiting in world.tick().waiting}
    assert told[first].why == "enough nodes are free; Slurm has its turn"
    assert told[second].eviction_id is not None
    assert restarted(world, jobs) <= {"n1a"}


def proposals(make_world: Callable[..., World]) -> World:
    world = make_world(config=config("observe"))
    fill(world)
    for _ in range(3):
        small(world)
    world.tick()
    return world


def test_proposals_made_at_once_name_a_job_each(make_world: Callable[..., World]) -> None:
    world = proposals(make_world)
    evictions = world.store.evictions()
    assert [e.state for e in evictions] == [EvictionState.PROPOSED] * 3
    assert len({job.job_id for e in evictions for job in e.plan.preemptees}) == 3
    for _ in range(5):
        world.tick()
    assert [e.state for e in world.store.evictions()] == [EvictionState.PROPOSED] * 3


class TestInterruption(Interruption):
    """Two small urgent jobs."""

    every, first = 11, 3
    least_effects = 20
    end: ClassVar[End] = {"restarts": 2, "leftovers": []}

    def play(self, world: World, daemon: MortalDaemon) -> End:
        jobs = fill(world)
        urgent = [small(world), small(world)]
        for _ in range(200):
            daemon.tick()
            if all(world.started(job_id) for job_id in urgent) and world.settled():
                break
        gone = restarted(world, jobs)
        # Not which parts: after a kill one of the two may be planned for alone, and another part costs as much then.
        return {
            "urgent": [[len(nodes) for nodes in world.cluster.jobs[job_id].runs] for job_id in urgent],
            "restarts": len(gone),
            "evictions": [e.state for e in world.store.evictions()],
            "leftovers": world.leftovers(),
        }
