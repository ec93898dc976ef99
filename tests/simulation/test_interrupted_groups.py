"""kill -9 of the daemon between any two of its effects while it serves an array, or a heterogeneous job.

Every world comes to the end of the one without a kill: no job leaves that need not, and nothing of ours is left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from clearway.model.cluster import JobState
from clearway.simulation.jobs import Program
from tests.simulation.killing import MortalDaemon, killed_everywhere, one_in
from tests.simulation.test_arrays import fill, running
from tests.simulation.test_het_jobs import all_started, het_job
from tests.simulation.world import SAVES, World


def runs(world: World, jobs: list[str]) -> dict[str, int]:
    return {job_id: len(world.cluster.jobs[job_id].runs) for job_id in jobs}


def array_of_two_at_once(world: World, daemon: MortalDaemon) -> dict[str, int]:
    """Two tasks of three start, and the third when one of them has ended, without another job's leaving."""
    jobs = fill(world)
    array = world.urgent(2, work_s=10.0, pending_tasks=3, array_limit=2)
    for _ in range(60):
        daemon.tick()
        if len(running(world, array)) == 2:
            break
    assert len(running(world, array)) == 2, world.describe()
    for _ in range(40):
        daemon.tick(2.0)
    assert world.state(array) is JobState.ENDED, world.describe()
    assert world.settled(), world.describe()
    assert not world.leftovers(), world.describe()
    return runs(world, jobs)


def array_cancelled(world: World, daemon: MortalDaemon) -> dict[str, int]:
    """The array is cancelled while jobs save themselves: none leaves."""
    jobs = fill(world, comment=SAVES)
    for job_id in jobs:
        world.cluster.jobs[job_id].program = Program(save_s=30.0)
    array = world.urgent(1, pending_tasks=3)
    for _ in range(8):
        daemon.tick()
    world.cluster.withdraw(world.cluster.jobs[array])
    for _ in range(60):
        daemon.tick(2.0)
    assert world.settled(), world.describe()
    assert not world.leftovers(), world.describe()
    return runs(world, jobs)


def components(world: World, daemon: MortalDaemon) -> dict[str, int]:
    jobs = fill(world, comment=SAVES)
    for job_id in jobs:
        world.cluster.jobs[job_id].program = Program(save_s=3.0)
    ids = het_job(world, {"nodes": 1, "work_s": 10.0}, {"nodes": 2, "work_s": 10.0})
    for _ in range(120):
        daemon.tick()
        if all_started(world, ids):
            break
    assert all_started(world, ids), world.describe()
    for _ in range(40):
        daemon.tick(2.0)
    assert world.settled(), world.describe()
    assert not world.leftovers(), world.describe()
    return runs(world, jobs)


def components_cannot(world: World, daemon: MortalDaemon) -> dict[str, int]:
    """A node of one component goes down while jobs save themselves, and there is no other: no job leaves."""
    jobs = fill(world, comment=SAVES)
    for job_id in jobs:
        world.cluster.jobs[job_id].program = Program(save_s=15.0)
    het_job(world, {"nodes": 1}, {"nodes": 2})
    for _ in range(8):
        daemon.tick()
    world.cluster.nodes["n2"] = replace(world.cluster.nodes["n2"], available=False, raw_state="DOWN")
    for _ in range(60):
        daemon.tick(2.0)
    assert world.settled(), world.describe()
    assert not world.leftovers(), world.describe()
    return runs(world, jobs)


def test_an_array_survives_a_kill_at_any_effect(make_world: Callable[..., World]) -> None:
    daemon = killed_everywhere(make_world(), array_of_two_at_once, one_in(4))
    assert daemon.effects > 40


def test_a_cancelled_array_survives_a_kill_at_any_effect(make_world: Callable[..., World]) -> None:
    killed_everywhere(make_world(), array_cancelled, one_in(4))


def test_a_heterogeneous_job_survives_a_kill_at_any_effect(make_world: Callable[..., World]) -> None:
    daemon = killed_everywhere(make_world(), components, one_in(4))
    assert daemon.effects > 60


def test_one_that_cannot_be_served_any_more_survives_a_kill_at_any_effect(make_world: Callable[..., World]) -> None:
    killed_everywhere(make_world(node_count=3), components_cannot, one_in(4))
