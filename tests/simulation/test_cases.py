"""What is kept of urgent jobs for the report, on a simulated cluster."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from clearway.model.operations import EvictionState
from clearway.model.urgent_report import Ending
from clearway.preemption.report import report
from clearway.simulation.jobs import Program
from tests.builders import NOW
from tests.simulation.bad_days import busy, finish
from tests.simulation.world import SAVES, World, config


def test_the_first_plan_of_observe_mode_outlives_its_proposal(make_world: Callable[..., World]) -> None:
    world = make_world(config=config("observe"))
    busy(world, Program(work_s=4_000.0), comment="")
    urgent = world.urgent(2)
    world.tick()
    (case,) = world.store.open_cases()
    assert (case.mode, case.acted, case.started_at) == ("observe", False, None)
    first = world.eviction().plan
    while (started := world.started(urgent)) is None:
        world.tick(20.0)
    for _ in range(70):
        world.tick(60.0)
    assert not world.store.evictions(), "the proposal is forgotten"
    (kept,) = world.store.cases_since(NOW)
    assert kept.planned_at == first.made_at
    assert kept.closed_at is not None
    assert kept.started_at == started
    assert {job.job_id for job in kept.jobs} == {job.job_id for job in first.leaving}
    assert all(job.left_at is not None and not job.preempted for job in kept.jobs)
    told = report([kept], NOW, world.clock.now())
    (one,) = told.cases
    assert one.ending is Ending.SOONER
    assert one.sooner_s == (started - kept.expected_start).total_seconds()
    assert told.sums.would_lose_node_s == first.chosen.lost_work_node_s
    assert told.sums.lost_node_s == 0


def test_a_plan_that_is_carried_out_is_kept_with_its_losses(make_world: Callable[..., World]) -> None:
    world = make_world()
    busy(world, Program(work_s=1e6, save_s=3.0), comment=SAVES)
    urgent = world.urgent(2)
    finish(world, urgent)
    eviction = world.eviction()
    assert eviction.state is EvictionState.COMPLETED
    world.run_until(lambda: not world.store.open_cases(), limit_s=4_000, every_s=60.0)
    (case,) = world.store.cases_since(NOW)
    assert case.acted
    assert case.started_at == eviction.started_at
    told = report([case], NOW, world.clock.now())
    assert told.cases[0].ending is Ending.SERVED
    assert told.sums.lost_node_s == eviction.actual_lost_node_s
    assert told.held.starts == told.held.starts_in_time == 1
    assert told.held.checkpoints == len(eviction.preemptions)


def test_a_daemon_that_starts_again_goes_on(make_world: Callable[..., World]) -> None:
    world = make_world(config=config("observe"))
    busy(world, Program(work_s=2_500.0), comment="")
    urgent = world.urgent(1)
    world.tick()
    world.start_daemon()
    for _ in range(30):
        world.tick(10.0)
    (case,) = world.store.cases_since(NOW - timedelta(days=1))
    assert case.job_id == urgent
    assert case.started_at is not None
