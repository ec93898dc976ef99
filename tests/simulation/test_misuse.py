"""An urgent user's other jobs do not gain by what others left for, and jobs do not leave for nothing time and again."""

from __future__ import annotations

import pytest

from clearway.execution.restraints import USER_PAUSES
from clearway.model.cluster import JobState
from clearway.model.operations import EvictionState
from clearway.model.outcome import OutcomeCode
from clearway.model.requests import RequestKind
from clearway.simulation.jobs import Program
from tests.simulation.bad_days import busy, finish
from tests.simulation.world import World


def waits(world: World, job_id: str) -> str:
    report = world.tick()
    return next(each.why for each in report.waiting if each.preemptor.job.job_id == job_id)


def begun(world: World) -> str:
    """An urgent job of two nodes whose eviction is under way, and nothing has left for it yet."""
    busy(world, Program(work_s=1e6, save_s=20.0))
    urgent = world.urgent(2)
    world.tick()
    assert world.eviction().state is EvictionState.PREEMPTING
    return urgent


def stranger(world: World) -> str:
    """An ordinary job of the same user that asks for the placement by its name."""
    placement = world.eviction().placement
    assert placement
    return world.submit(Program(work_s=600.0), num_nodes=1, user="ursula", partitions=("batch",), reservation=placement)


@pytest.mark.fault(
    "A user's ordinary job could run in the placement that was made for the user's urgent one.", found_by="attack"
)
def test_an_ordinary_job_in_the_placement_ends_the_eviction(world: World) -> None:
    urgent = begun(world)
    other = stranger(world)
    world.tick()
    eviction = world.eviction()
    assert eviction.state in (EvictionState.CANCELLING, EvictionState.CANCELLED)
    assert eviction.outcome_code is OutcomeCode.MISUSED
    assert other in eviction.outcome
    world.run_until(world.settled, limit_s=1_800, every_s=5)
    assert not world.leftovers(), "neither job asks for a placement that is gone"
    assert not [p for p in eviction.preemptions if p.requeued_at]
    assert "left to Slurm until" in waits(world, urgent)
    for _ in range(5):
        world.tick(60.0)
    assert len(world.store.evictions()) == 1
    world.tick(3_600.0)
    finish(world, urgent)


def test_one_that_runs_there_already_is_let_out(world: World) -> None:
    begun(world)
    gone = world.eviction().preemptions[0].job_id
    world.cluster.end_run(world.cluster.jobs[gone], requeue=False)
    other = stranger(world)
    world.cluster.advance(world.clock.now())
    world.run_until(world.settled, limit_s=1_800, every_s=5)
    assert world.eviction().outcome_code is OutcomeCode.MISUSED
    assert not world.leftovers()
    assert world.state(other) is not JobState.PENDING or not world.cluster.jobs[other].job.reservation


def test_another_user_is_served_meanwhile_and_a_restart_does_not_forget(world: World) -> None:
    urgent = begun(world)
    stranger(world)
    world.tick()
    world.start_daemon()
    served = world.urgent(1, user="otto")
    assert "left to Slurm until" in waits(world, urgent)
    finish(world, served)


def test_an_operator_may_end_it(world: World) -> None:
    urgent = begun(world)
    other = stranger(world)
    world.tick()
    world.cluster.withdraw(world.cluster.jobs[other])
    world.run_until(world.settled, limit_s=1_800, every_s=5)
    world.store.add_request(RequestKind.RESUME, None, "olga", world.clock.now())
    finish(world, urgent)


def given_up(world: World) -> None:
    """An urgent job that is cancelled once a job has been requeued for it."""
    urgent = world.urgent(2)
    world.run_until(lambda: any(p.requeued_at for e in world.store.open_evictions() for p in e.preemptions))
    world.cluster.withdraw(world.cluster.jobs[urgent])
    world.tick()


def test_after_an_urgent_job_was_given_up_the_user_needs_approval(world: World) -> None:
    busy(world, Program(work_s=1e6, save_s=3.0))
    given_up(world)
    urgent = world.urgent(6)
    assert waits(world, urgent).startswith("Needs approval: until ")
    world.run_until(lambda: world.started(urgent) is not None, limit_s=7_200, every_s=30)
    started = world.started(urgent)
    assert started is not None
    assert (started - world.cluster.jobs[urgent].job.submit_time).total_seconds() >= 3_500


def test_an_urgent_job_that_ran_was_not_given_up(world: World) -> None:
    busy(world, Program(work_s=1e6, save_s=3.0))
    for _ in range(3):
        short = world.urgent(1, work_s=0.2)
        world.run_until(lambda short=short: world.started(short) is not None, limit_s=120)  # type: ignore[misc]
        world.run_until(world.settled, limit_s=1_800, every_s=5)
    assert not world.store.get_value(USER_PAUSES)
