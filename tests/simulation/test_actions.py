"""Suspended preemptees, jobs that requeue themselves, checkpoints of several evictions: on the simulated cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from clearway.execution.lifecycle import is_placement
from clearway.model.cluster import JobState
from clearway.model.operations import EvictionState, PreemptionState
from clearway.model.problem import Action
from clearway.simulation.jobs import Program
from tests.simulation.world import SAVES, World, config

MAY_SUSPEND = {"min_runtime": 0, "allow_suspend": True}
REQUEUES = f"{SAVES},signal=USR2,to=steps,requeues=self"


def full_of_small_jobs(world: World, memory_mib: int = 1_000) -> list[str]:
    return [world.submit(on=(f"n{n}",), ran_s=1_000 + n, memory_mib=memory_mib) for n in range(1, 9)]


def suspended(world: World) -> list[str]:
    return [i for i, e in world.cluster.jobs.items() if e.job.state is JobState.SUSPENDED]


def steps(world: World, kind: str) -> list[str | None]:
    return [s.job_id for s in world.store.steps(world.eviction().eviction_id) if s.kind == kind]


def test_suspended_job_runs_again_before_anything_else_takes_its_processors(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(candidates=MAY_SUSPEND))
    jobs = full_of_small_jobs(world)
    urgent = world.urgent(2, work_s=100.0, memory_mib=1_000, time_limit_s=600)
    world.run_until(lambda: world.started(urgent) is not None, limit_s=20)
    assert {p.action for p in world.eviction().preemptions} == {Action.SUSPEND}
    asleep = suspended(world)
    assert len(asleep) == 2
    # Somebody waits for every processor that comes free, with more priority than the suspended jobs get back.
    queued = [world.submit(num_nodes=1, memory_mib=500, priority=900) for _ in range(8)]
    for _ in range(60):
        world.tick()
        assert sorted(suspended(world)) == sorted(asleep)
        assert all(world.state(job_id) is JobState.PENDING for job_id in queued)
    assert world.eviction().state is EvictionState.RETURNING

    world.run_until(lambda: world.state(urgent) is JobState.ENDED, limit_s=200, every_s=1.0)
    world.run_until(world.settled, limit_s=20)
    for job_id in jobs:
        entry = world.cluster.jobs[job_id]
        assert (entry.job.state, len(entry.runs), entry.lost_s) == (JobState.RUNNING, 1, 0.0)
    assert all(world.state(job_id) is JobState.PENDING for job_id in queued)
    assert world.cluster.oversubscribed == []
    eviction = world.eviction()
    assert eviction.state is EvictionState.COMPLETED
    assert {(p.state, p.actual_lost_node_s) for p in eviction.preemptions} == {(PreemptionState.RETURNED, 0.0)}
    assert not world.leftovers()
    assert not world.observer.failures


def test_placement_over_suspended_jobs_ends_with_the_urgent_jobs_limit_and_is_extended(
    make_world: Callable[..., World],
) -> None:
    world = make_world(config=config(candidates=MAY_SUSPEND, execution={"placement_grace": "120s"}))
    full_of_small_jobs(world)
    urgent = world.urgent(1, work_s=4_000.0, memory_mib=1_000)  # no time limit

    def ends() -> datetime:
        (ours,) = [r for r in world.cluster.reservations.values() if is_placement(r)]
        return ours.end_time

    world.run_until(lambda: world.eviction().state is EvictionState.RETURNING if world.store.evictions() else False)
    for _ in range(100):
        world.tick(5.0)
        assert timedelta(seconds=55) <= ends() - world.clock.now() <= timedelta(seconds=180)
    (asleep,) = suspended(world)
    # A daemon that never comes back: the placement ends by itself.
    world.clock.advance(300.0)
    world.cluster.advance(world.clock.now())
    assert not world.leftovers()
    # One that does makes it anew, and resumes only when the urgent job is gone.
    world.tick()
    assert ends() > world.clock.now()
    assert world.state(asleep) is JobState.SUSPENDED
    world.cluster.end_run(world.cluster.jobs[urgent], requeue=False)
    world.run_until(world.settled, limit_s=30)
    assert world.state(asleep) is JobState.RUNNING


def test_suspended_job_is_never_resumed_over_another(make_world: Callable[..., World]) -> None:
    """The daemon was away for too long, and another job took the processors."""
    world = make_world(config=config(candidates=MAY_SUSPEND, execution={"placement_grace": "60s"}))
    full_of_small_jobs(world)
    urgent = world.urgent(1, work_s=60.0, memory_mib=1_000, time_limit_s=60)
    world.run_until(lambda: world.eviction().state is EvictionState.RETURNING if world.store.evictions() else False)
    (asleep,) = suspended(world)
    intruder = world.submit(Program(work_s=400.0), num_nodes=1, memory_mib=500, partitions=("batch",))
    world.clock.advance(200.0)
    world.cluster.advance(world.clock.now())
    assert world.state(urgent) is JobState.ENDED
    assert world.state(intruder) is JobState.RUNNING
    for _ in range(100):
        world.tick(2.0)
        assert world.state(asleep) is JobState.SUSPENDED
    world.run_until(world.settled, limit_s=400, every_s=2.0)
    assert world.state(asleep) is JobState.RUNNING
    assert world.cluster.oversubscribed == []


@pytest.mark.fault(
    "A suspended job was resumed over an urgent job that had started in the second of the suspension.",
    found_by="random faults",
)
def test_suspended_job_is_not_resumed_over_one_that_started_in_the_same_second(
    make_world: Callable[..., World],
) -> None:
    """Somebody deletes the placement in the moment of the suspension, and another job takes the processors."""
    world = make_world(config=config(candidates=MAY_SUSPEND))
    world.clock.advance(0.4)
    full_of_small_jobs(world)
    urgent = world.urgent(1, work_s=60.0, memory_mib=1_000, time_limit_s=60)
    entry = world.cluster.jobs[urgent]
    world.tick(0.2)
    # It does not begin. Before the plan was made that would have been an obstacle.
    entry.job = replace(entry.job, eligible_time=world.clock.now() + timedelta(minutes=10))
    world.run_until(lambda: len(suspended(world)) == 1, limit_s=20, every_s=0.2)
    (asleep,) = suspended(world)
    world.cluster.reservations.clear()
    intruder = world.submit(Program(work_s=100.0), num_nodes=1, memory_mib=500)
    world.cluster.schedule()
    assert world.cluster.jobs[intruder].job.nodes == world.cluster.jobs[asleep].job.nodes
    since = world.eviction().preemptions[0].requeued_at
    assert since is not None
    assert world.started(intruder) == since.replace(microsecond=0) < since
    world.cluster.withdraw(world.cluster.jobs[urgent])  # nothing but the intruder is in the way
    while world.state(intruder) is JobState.RUNNING:
        world.tick()
        assert world.cluster.oversubscribed == []
    world.run_until(world.settled, limit_s=60)
    assert world.state(asleep) is JobState.RUNNING
    assert world.cluster.oversubscribed == []


def test_two_suspended_jobs_of_one_node_both_run_again(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(candidates=MAY_SUSPEND), node_count=1)
    pair = [world.submit(on=("n1",), cpus_per_node=2, ran_s=900, memory_mib=1_000) for _ in range(2)]
    urgent = world.urgent(1, work_s=30.0, memory_mib=2_000)
    world.run_until(lambda: world.started(urgent) is not None, limit_s=20)
    assert sorted(suspended(world)) == sorted(pair)
    world.run_until(world.settled, limit_s=100)
    assert [world.state(job_id) for job_id in pair] == [JobState.RUNNING, JobState.RUNNING]
    assert world.cluster.oversubscribed == []


def test_cancelled_eviction_resumes_what_it_suspended(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(candidates=MAY_SUSPEND))
    jobs = full_of_small_jobs(world)
    # Its own begin time keeps the urgent job from starting, however free its nodes are.
    urgent = world.urgent(2, memory_mib=1_000)
    entry = world.cluster.jobs[urgent]
    world.tick()
    entry.job = replace(entry.job, eligible_time=world.clock.now() + timedelta(hours=1))
    world.run_until(lambda: len(suspended(world)) == 2, limit_s=20)
    world.store.add_request("cancel", world.eviction().eviction_id, "olga", world.clock.now())
    world.run_until(world.settled, limit_s=30)
    assert world.eviction().state is EvictionState.CANCELLED
    assert [world.state(job_id) for job_id in jobs] == [JobState.RUNNING] * 8
    assert world.cluster.oversubscribed == []
    assert not world.leftovers()


def test_job_that_an_administrator_suspended_is_left_alone(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(candidates=MAY_SUSPEND))
    jobs = full_of_small_jobs(world)
    theirs = jobs[0]
    world.cluster.suspend(world.cluster.jobs[theirs])
    urgent = world.urgent(2, work_s=20.0, memory_mib=1_000)
    world.run_until(lambda: world.started(urgent) is not None, limit_s=20)
    world.run_until(world.settled, limit_s=100)
    assert world.state(theirs) is JobState.SUSPENDED
    assert theirs not in steps(world, "resume")
    assert len(steps(world, "resume")) == 2


@pytest.mark.parametrize(("memory_mib", "wanted_mib"), [(3_500, 1_000), (1_000, 0)])
def test_without_known_room_in_memory_nothing_is_suspended(
    make_world: Callable[..., World], memory_mib: int, wanted_mib: int
) -> None:
    world = make_world(config=config(candidates=MAY_SUSPEND))
    full_of_small_jobs(world, memory_mib)
    urgent = world.urgent(1, memory_mib=wanted_mib)
    world.run_until(lambda: world.started(urgent) is not None, limit_s=60)
    assert {p.action for p in world.eviction().preemptions} == {Action.KILL}


def test_job_that_requeues_itself_is_waited_for_and_not_requeued_twice(make_world: Callable[..., World]) -> None:
    world = make_world()
    learner = world.submit(Program(save_s=6.0, requeues=True, exit_s=3.0), on=("n1",), ran_s=900, comment=REQUEUES)
    for n in range(2, 9):
        world.submit(Program(work_s=99_999.0), on=(f"n{n}",), ran_s=9_000)
    urgent = world.urgent(1)
    world.run_until(lambda: world.started(urgent) is not None, limit_s=60)
    world.run_until(lambda: world.eviction().preemptions[0].state is PreemptionState.QUEUED, limit_s=30)
    (p,) = world.eviction().preemptions
    assert (p.job_id, p.action) == (learner, Action.APP_CHECKPOINT)
    assert p.actual_lost_node_s == 0.0
    assert p.actual_checkpoint_s is not None
    assert 6.0 <= p.actual_checkpoint_s <= 10.0
    assert steps(world, "requeue") == []
    assert steps(world, "ask_checkpoint") == [learner]
    assert world.cluster.jobs[learner].job.restart_count == 1
    assert world.cluster.jobs[learner].lost_s == 0.0
    world.run_until(world.settled, limit_s=1_000, every_s=5)
    assert world.eviction().preemptions[0].state is PreemptionState.RETURNED


def test_job_that_does_not_requeue_itself_in_time_goes_the_way_of_late_checkpoints(
    make_world: Callable[..., World],
) -> None:
    world = make_world(config=config(execution={"late_checkpoint": "kill"}))
    liar = world.submit(Program(), on=tuple(f"n{n}" for n in range(1, 9)), num_nodes=8, ran_s=900, comment=REQUEUES)
    urgent = world.urgent(1)
    world.run_until(lambda: world.started(urgent) is not None, limit_s=90)
    assert steps(world, "requeue") == [liar]
    assert "late" in world.eviction().preemptions[0].note


def test_checkpoints_of_two_evictions_share_one_limit(make_world: Callable[..., World]) -> None:
    world = make_world()
    for n in range(1, 9):
        world.submit(Program(save_s=5.0), on=(f"n{n}",), ran_s=1_000, comment=f"{SAVES},took=5")
    first, second = world.urgent(2), world.urgent(2)
    most = 0

    def saving() -> int:
        return sum("state=saving" in e.job.comment for e in world.cluster.jobs.values())

    def both() -> bool:
        nonlocal most
        most = max(most, saving())
        return world.started(first) is not None and world.started(second) is not None

    world.run_until(both, limit_s=60)
    assert most == 1


def test_checkpoints_run_side_by_side_where_the_file_system_has_room(make_world: Callable[..., World]) -> None:
    most = {}
    for bandwidth in (1_000.0, 250.0):
        execution = {"concurrent_checkpoints": 3, "checkpoint_bandwidth_mib_s": bandwidth, "kill_allowance": "6s"}
        world = make_world(config=config(execution=execution))
        for n in range(1, 9):
            comment = f"{SAVES},took=5,size_mib=1000"  # 200 MiB/s each
            world.submit(Program(save_s=5.0), on=(f"n{n}",), ran_s=1_000, comment=comment)
        urgent = world.urgent(4)
        seen = 0
        while world.started(urgent) is None:
            world.tick()
            seen = max(seen, sum("state=saving" in e.job.comment for e in world.cluster.jobs.values()))
        most[bandwidth] = seen
    assert most == {1_000.0: 3, 250.0: 1}
