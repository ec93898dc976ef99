"""Plans that the cluster or the urgent job has left behind: they are not carried out and preempt nothing."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from clearway.model.cluster import Job, JobState
from clearway.model.errors import UnknownEvictionError
from clearway.model.operations import EvictionState
from clearway.simulation.jobs import Program
from tests.simulation.bad_days import busy, untouched, wrapped
from tests.simulation.world import World, config


def lose_the_run(world: World, job_id: str) -> None:
    """Somebody else requeues the job while the plan is made."""
    entry = world.cluster.jobs[job_id]
    if entry.job.restart_count == 0:
        entry.job = replace(entry.job, restart_count=1)


def suspend(world: World, job_id: str) -> None:
    entry = world.cluster.jobs[job_id]
    if entry.job.state is JobState.RUNNING:
        world.cluster.suspend(entry)


def withdraw_the_urgent_job(world: World, _: str) -> None:
    for entry in world.cluster.jobs.values():
        if entry.job.partitions == ("urgent",) and entry.job.state is JobState.PENDING:
            world.cluster.withdraw(entry)


@pytest.mark.parametrize("change", [lose_the_run, suspend, withdraw_the_urgent_job], ids=lambda change: change.__name__)
def test_a_plan_that_aged_while_it_was_made_is_not_carried_out(
    world: World, change: Callable[[World, str], None]
) -> None:
    backend = wrapped(world)
    jobs = busy(world, Program(), comment="")
    world.urgent(1)
    seen = [0]

    def once() -> None:
        seen[0] += 1
        if seen[0] == 1:  # after the snapshot that the plan is made from, before the fresh one
            change(world, jobs[0])

    backend.after_snapshot = once
    report = world.tick()
    assert [waiting.why for waiting in report.waiting] == ["the cluster changed while the plan was made"]
    assert not world.store.evictions()
    assert not world.leftovers()
    assert set(backend.calls) <= {"snapshot", "reservations", "look_at", "limits"}


def change_urgent(world: World, urgent: str, **fields: object) -> None:
    entry = world.cluster.jobs[urgent]
    job: Job = replace(entry.job, **fields)  # type: ignore[arg-type]  # as the caller names them
    entry.job = job


@pytest.mark.parametrize(
    "fields", [{"num_nodes": 3}, {"priority": 0}, {"features": "big"}, {"comment": "clearway:max_delay=9m"}], ids=str
)
def test_a_plan_that_aged_while_it_waited_for_approval_is_not_carried_out(
    make_world: Callable[..., World], fields: dict[str, object]
) -> None:
    world = make_world(config=config("approve"))
    jobs = busy(world)
    urgent = world.urgent(2)
    world.tick()
    first = world.eviction()
    assert first.state is EvictionState.AWAITING_APPROVAL
    change_urgent(world, urgent, **fields)
    world.store.add_request("approve", first.eviction_id, "olga", world.clock.now())
    for _ in range(10):
        world.tick()
    assert world.store.eviction(first.eviction_id).state is EvictionState.SUPERSEDED
    assert untouched(world, jobs), "only another plan, approved by itself, may be carried out"


def test_an_approval_that_comes_too_late_is_not_carried_out(make_world: Callable[..., World]) -> None:
    world = make_world(config=config("approve"))
    jobs = busy(world, Program(work_s=1e6, save_s=3.0))
    world.urgent(2)
    world.tick()
    first = world.eviction()
    world.store.add_request("approve", first.eviction_id, "olga", world.clock.now())
    world.tick(3_600)
    assert world.store.eviction(first.eviction_id).state is EvictionState.SUPERSEDED
    assert untouched(world, jobs)


@pytest.mark.parametrize("kind", ["approve", "cancel", "nonsense"])
def test_requests_that_make_no_sense_are_refused(world: World, kind: str) -> None:
    jobs = busy(world)
    for eviction_id in (99, -1):
        with pytest.raises(UnknownEvictionError):
            world.store.add_request(kind, eviction_id, "olga", world.clock.now())
    request_id = world.store.add_request(kind, None, "olga", world.clock.now())
    world.tick()
    request = world.store.request(request_id)
    assert request is not None
    assert request.result.startswith("refused: ")
    assert untouched(world, jobs)
