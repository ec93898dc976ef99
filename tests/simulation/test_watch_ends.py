"""What is taken back by a daemon that looks again only when the watch is over, or that cannot see what it needs."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from clearway.model.cluster import ClusterSnapshot, JobState, Skipped
from clearway.simulation.jobs import Program
from tests.simulation.bad_days import busy, finish, wrapped
from tests.simulation.drains import ask, saver
from tests.simulation.world import World, config


@pytest.mark.parametrize("watched_s", [0, 20])
@pytest.mark.fault(
    "A suspended job was forgotten where the watch for its return ended before it was seen suspended.",
    found_by="random faults",
)
def test_a_suspended_job_is_resumed_though_watching_has_ended_before_it_was_seen(
    make_world: Callable[..., World], watched_s: int
) -> None:
    world = make_world(
        config=config(candidates={"min_runtime": 0, "allow_suspend": True}, execution={"watch_return": watched_s})
    )
    jobs = [world.submit(on=(f"n{n}",), ran_s=3_000, memory_mib=1_000) for n in range(1, 9)]
    urgent = world.urgent(1, work_s=5.0, memory_mib=1_000)
    world.run_until(lambda: any(world.state(job_id) is JobState.SUSPENDED for job_id in jobs))
    world.clock.advance(60)  # nothing runs, and the urgent job is gone meanwhile
    world.start_daemon()
    world.run_until(world.settled, limit_s=300, every_s=5)
    assert world.cluster.jobs.get(urgent) is None or world.state(urgent) is JobState.ENDED
    assert [world.state(job_id) for job_id in jobs] == [JobState.RUNNING] * 8, world.describe()
    assert not world.leftovers()


@pytest.mark.fault("A job that a drain had moved kept the first place in the queue for good.", found_by="random faults")
def test_a_job_keeps_no_priority_of_a_drain_that_is_not_watched_any_more(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(execution={"watch_return": 20}))
    moved = saver(world, "n1")
    others = [world.submit(on=(f"n{n}",), ran_s=50) for n in range(2, 9)]
    ask(world, "n1")
    world.run_until(lambda: world.cluster.jobs[moved].job.nice < 0)
    for _ in range(60):
        world.tick()
    assert world.state(moved) is JobState.PENDING, "there is no room for it"
    assert world.settled()
    entry = world.cluster.jobs[moved]
    assert (entry.job.nice, entry.job.priority) == (0, entry.usual_priority), world.describe()
    assert all(world.state(job_id) is JobState.RUNNING for job_id in others)


@pytest.mark.fault(
    "An urgent job whose record could not be read for a while was left asking for a reservation that was deleted.",
    found_by="random faults",
)
def test_an_urgent_job_whose_record_cannot_be_read_is_not_gone(world: World) -> None:
    backend = wrapped(world)
    busy(world, Program(save_s=8.0))
    urgent = world.urgent(2)
    world.tick()
    world.tick()
    original = backend.snapshot

    def without_it() -> ClusterSnapshot:
        seen = original()
        jobs = tuple(job for job in seen.jobs if job.job_id != urgent)
        return replace(seen, jobs=jobs, skipped=(Skipped("job", urgent, "TimeLimit", holds_nodes=False),))

    world.start_daemon(backend=backend)
    backend.snapshot = without_it  # type: ignore[method-assign]
    for _ in range(6):
        world.tick()
    backend.snapshot = original  # type: ignore[method-assign]
    assert world.eviction().state.before_start, world.describe()
    finish(world, urgent)
