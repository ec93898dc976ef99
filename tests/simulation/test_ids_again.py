"""Job ids come again: what is open on an id that another job has by now counts as gone, and that job is a new one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clearway.model.cluster import JobState
from clearway.model.operations import EvictionState, PreemptionState
from clearway.model.outcome import OutcomeCode
from clearway.simulation.jobs import Program
from tests.simulation.bad_days import busy
from tests.simulation.world import World, config

MakeWorld = Callable[..., World]
LASTING = Program(work_s=1e6, save_s=3.0)


def forget(world: World, *job_ids: str) -> None:
    """As a controller that has lost its state: these jobs are no more, wherever they were."""
    for job_id in job_ids:
        entry = world.cluster.jobs[job_id]
        if entry.job.state.holds_nodes:
            world.cluster.end_run(entry, requeue=False)
        elif entry.job.state is JobState.PENDING:
            world.cluster.withdraw(entry)
    world.clock.advance(60.0)
    world.cluster.advance(world.clock.now())
    for job_id in job_ids:
        del world.cluster.jobs[job_id]


def reaches(world: World, state: EvictionState) -> None:
    world.run_until(lambda: [e.state for e in world.store.evictions()] == [state])


def again(world: World, job_id: str, **fields: Any) -> None:
    world.cluster.next_id = int(job_id)
    assert world.submit(LASTING, **fields) == job_id


def test_a_preemptee_whose_id_another_job_has_is_gone(make_world: MakeWorld) -> None:
    """Nothing is done with the other one, and it may be preempted though the one before had been often enough."""
    world = make_world(config=config(candidates={"max_preemptions": 1}))
    jobs = busy(world, LASTING)
    urgent = world.urgent(1, work_s=10_000.0)
    world.run_until(lambda: world.started(urgent) is not None)
    reaches(world, EvictionState.RETURNING)
    (left,) = (p.job_id for p in world.eviction().preemptions)
    forget(world, left, *(job for job in jobs if job != left))
    again(world, left, user="bob", num_nodes=7)
    world.run_until(world.settled)
    assert world.eviction().preemptions[0].state is PreemptionState.ENDED
    world.run_until(lambda: world.started(left) is not None)
    assert world.cluster.jobs[left].job.comment == ""
    second = world.urgent(1, user="otto")
    world.run_until(lambda: world.started(second) is not None)
    assert [p.job.user for p in world.store.evictions()[0].preemptions] == ["bob"]
    shown = world.store.involvements(left, seen=world.cluster.jobs[left].job)
    assert [each.subject.job_id for each in shown] == [second]


@pytest.mark.parametrize("waits", [True, False], ids=["waiting", "running"])
def test_an_urgent_job_whose_id_another_job_has_is_gone(make_world: MakeWorld, waits: bool) -> None:
    """No job leaves for it any more; the other one, which is urgent too, is served as a job of its own."""
    world = make_world(config=config(preemptors=[{"partition": ["urgent"], "max_delay": "600s"}]))
    jobs = busy(world, Program(work_s=1e6, save_s=400.0))
    urgent = world.urgent(1)
    reaches(world, EvictionState.PREEMPTING)
    forget(world, urgent)
    fields: dict[str, Any] = {"user": "bob", "priority": 1_000}
    again(world, urgent, **fields | ({"partitions": ("urgent",)} if waits else {"partitions": ("batch",)}))
    world.tick()
    first = world.store.evictions()[-1]
    assert first.outcome_code is OutcomeCode.POINTLESS
    assert first.outcome == "The urgent job is gone."
    if waits:
        world.run_until(lambda: world.started(urgent) is not None, limit_s=2_000)
        assert [e.preemptor.user for e in world.store.evictions()] == ["bob", "ursula"]
    else:
        world.run_until(world.settled)
        assert {world.state(job) for job in jobs} == {JobState.RUNNING}


def test_an_urgent_job_with_the_id_of_one_that_was_served_is_served(make_world: MakeWorld) -> None:
    """While the return of the jobs that left for the one before is still watched."""
    world = make_world()
    busy(world, LASTING)
    urgent = world.urgent(1, work_s=10_000.0)
    reaches(world, EvictionState.RETURNING)
    forget(world, urgent)
    again(world, urgent, user="bob", partitions=("urgent",), priority=1_000, num_nodes=2)
    world.run_until(lambda: world.started(urgent) is not None, limit_s=300)
    now, before = world.store.evictions()
    assert (now.preemptor.user, before.preemptor.user) == ("bob", "ursula")
    world.run_until(lambda: len(world.store.cases_since(before.created_at)) == 2)
