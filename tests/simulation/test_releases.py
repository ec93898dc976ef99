"""With a release of Slurm that was never tried nothing begins, and what is under way leaves no job half-way."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from clearway.model.cluster import JobState
from clearway.model.operations import EvictionState as E
from clearway.model.operations import PreemptionState as P
from clearway.model.outcome import OutcomeCode
from clearway.model.records import STATUS
from clearway.simulation.jobs import Program
from tests.simulation import drains, moving_jobs
from tests.simulation.bad_days import busy
from tests.simulation.world import World, config

NEWER = "31.05.1"
MakeWorld = Callable[..., World]


def site_upgrades(world: World, version: str = NEWER) -> None:
    world.backend.slurm_version = version


def quiet(world: World) -> None:
    """Cycles for ten minutes of the cluster's time."""
    for _ in range(120):
        world.tick(5.0)


@pytest.mark.parametrize("version", [NEWER, "21.08.8", ""])
def test_nothing_is_begun_whatever_the_mode(make_world: MakeWorld, version: str) -> None:
    world = make_world()
    site_upgrades(world, version)
    jobs = busy(world, Program())
    world.urgent(2)
    for _ in range(20):
        report = world.tick()
    assert report.only_observes
    assert {world.state(job) for job in jobs} == {JobState.RUNNING}
    assert world.leftovers() == []
    assert {e.state for e in world.store.open_evictions()} == {E.PROPOSED}  # it plans all the same, and tells


def test_a_site_may_say_otherwise(make_world: MakeWorld) -> None:
    world = make_world(config=config(slurm={"act_on_release": "31.05"}))
    site_upgrades(world)
    busy(world, Program())
    urgent = world.urgent(2)
    world.run_until(lambda: world.started(urgent) is not None)
    assert world.loop.report is not None
    assert world.loop.report.only_observes == ""


def test_it_acts_again_when_the_release_is_known_again(make_world: MakeWorld) -> None:
    world = make_world()
    site_upgrades(world, "")
    busy(world, Program())
    urgent = world.urgent(2, comment="clearway:max_delay=10m")
    world.tick()
    assert world.store.open_evictions()[0].state is E.PROPOSED
    site_upgrades(world, "24.11.5")
    world.run_until(lambda: world.started(urgent) is not None)


@pytest.mark.parametrize("state", [P.CHECKPOINTING, P.VACATING, P.QUEUED])
def test_an_eviction_under_way_is_called_off_and_its_jobs_return(make_world: MakeWorld, state: P) -> None:
    """Jobs that save themselves stay, jobs that have left come back, and nothing of ours stays on the cluster."""
    world = make_world()
    jobs = busy(world, Program(save_s=3.0, work_s=10_000))  # written one after another: some have left before others
    world.urgent(8)
    world.run_until(
        lambda: bool(world.store.evictions()) and any(p.state is state for p in world.eviction().preemptions)
    )
    before = world.eviction()
    left = {p.job_id for p in before.preemptions if not p.state.cancellable}
    assert any(p.state.cancellable for p in before.preemptions)
    site_upgrades(world)
    world.run_until(lambda: world.store.eviction(before.eviction_id).state.terminal)
    after = world.store.eviction(before.eviction_id)
    assert after.outcome_code is OutcomeCode.CALLED_OFF
    assert NEWER in after.outcome
    assert {p.job_id for p in after.preemptions if p.state is not P.SPARED} == left
    world.run_until(lambda: {world.state(job) for job in jobs} == {JobState.RUNNING})
    assert world.leftovers() == []
    assert world.observer.failures == []


def test_an_eviction_whose_jobs_have_all_left_comes_to_its_end(make_world: MakeWorld) -> None:
    """The work is lost already, and the nodes are freed: giving them to another job would help none."""
    world = make_world()
    busy(world, Program())
    urgent = world.urgent(2)
    world.run_until(
        lambda: bool(world.store.evictions()) and not any(p.state.cancellable for p in world.eviction().preemptions)
    )
    site_upgrades(world)
    world.run_until(lambda: world.started(urgent) is not None)
    world.run_until(world.settled, limit_s=3_000, every_s=5.0)
    assert world.leftovers() == []


def test_an_eviction_waits_while_the_version_is_not_known(make_world: MakeWorld) -> None:
    """As after a restart of the daemon: nothing new, but what may go on in a moment is not called off."""
    world = make_world()
    busy(world, Program(save_s=20.0))
    urgent = world.urgent(2, comment="clearway:max_delay=10m")
    world.run_until(lambda: any(p.state is P.CHECKPOINTING for e in world.store.evictions() for p in e.preemptions))
    world.start_daemon()
    site_upgrades(world, "")
    for _ in range(5):
        world.tick()
    assert world.eviction().state is E.PREEMPTING
    site_upgrades(world, "26.05.5")
    world.run_until(lambda: world.started(urgent) is not None)


def test_a_drain_is_called_off_and_a_drained_node_stays(make_world: MakeWorld) -> None:
    world = make_world()
    drains.saver(world, "n1")
    done = drains.drain(world, "n2")
    world.run_until(lambda: drains.now(world, done).state is E.COMPLETED)
    under_way = drains.drain(world, "n1")
    world.run_until(lambda: "n1" in drains.held(world))
    site_upgrades(world)
    world.run_until(lambda: drains.now(world, under_way).state.terminal)
    quiet(world)
    assert set(drains.held(world)) == {"n2"}  # an operator asked for it, and has it
    assert "brought back" in drains.undrain(world, "n2") or not drains.held(world)


def test_requests_that_begin_something_are_refused(make_world: MakeWorld) -> None:
    world = make_world(config=moving_jobs.moving())
    site_upgrades(world)
    drains.saver(world, "n1")
    world.tick()
    answer = drains.answer
    for request in (drains.ask(world, "n1"), drains.ask(world, "n1,n2", rolling=1)):
        world.tick()
        assert "Clearway only observes: Slurm 31.05.1 is newer than" in answer(world, request)
    assert "Clearway only observes" in moving_jobs.ask(world)[0]
    assert drains.held(world) == {}


def test_a_plan_that_awaits_approval_is_not_approved(make_world: MakeWorld) -> None:
    world = make_world(config=config("approve"))
    jobs = busy(world, Program())
    world.urgent(2, comment="clearway:max_delay=10m")
    world.tick()
    number = world.eviction().eviction_id
    site_upgrades(world)
    request = world.store.add_request("approve", number, "root (command line)", world.clock.now())
    quiet(world)
    assert "Clearway only observes" in drains.answer(world, request)
    assert {world.state(job) for job in jobs} == {JobState.RUNNING}


def test_a_scheduled_drain_waits(make_world: MakeWorld) -> None:
    world = make_world()
    drains.saver(world, "n1")
    later = drains.drain(world, "n1", at=world.clock.now() + timedelta(minutes=8))
    assert later.state is E.SCHEDULED
    site_upgrades(world)
    quiet(world)
    assert drains.now(world, later).state is E.SCHEDULED
    site_upgrades(world, "26.05.5")
    world.run_until(lambda: drains.now(world, later).state is E.COMPLETED)


def test_what_status_shows(make_world: MakeWorld) -> None:
    world = make_world(config=config())
    site_upgrades(world)
    world.tick()
    kept: dict[str, Any] = world.store.get_value(STATUS)
    assert kept["slurm_version"] == NEWER
    assert "newer than" in kept["only_observes"]
    site_upgrades(world, "26.05.5")
    world.tick()  # at once, not only every few seconds
    assert world.store.get_value(STATUS)["only_observes"] == ""
