"""Clocks that disagree: with Slurm's, with the database's, and after a step that stays."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from clearway.model.clock import ScaledClock
from clearway.model.cluster import ClusterSnapshot, JobState
from clearway.model.operations import EvictionState, PreemptionState
from clearway.model.outcome import OutcomeCode
from clearway.service.leadership import ClockWatch
from clearway.simulation.jobs import Program
from clearway.store.repository import Store
from tests.builders import NOW, ManualClock
from tests.simulation import drains
from tests.simulation.test_asked_again import Witness
from tests.simulation.world import SAVES, World, config


class WrongClock(ManualClock):
    """Goes as the world's clock does, but shows another time of day."""

    def __init__(self, right: ManualClock) -> None:
        self.right, self.wrong_s = right, 0.0

    def now(self) -> datetime:
        return self.right.now() + timedelta(seconds=self.wrong_s)

    def monotonic(self) -> float:
        return self.right.monotonic()


def begun(make_world: Callable[..., World], **sections: dict[str, object]) -> tuple[World, WrongClock, Witness]:
    """A job has been asked to save itself, which takes 20 s; the delay is one minute."""
    settings = {"execution": {"kill_allowance": "6s", "late_checkpoint": "kill"}} | sections
    world = make_world(config=config(**settings), node_count=2)
    world.submit(Program(save_s=20.0, work_s=9_000), on=("n1",), ran_s=2_000, comment=SAVES)
    world.submit(on=("n2",), ran_s=300)
    clock, witness = WrongClock(world.clock), Witness(world)
    world.start_daemon(backend=witness, clock=clock)
    world.urgent(2)
    world.run_until(lambda: ("signal", "1") in witness.done, limit_s=20)
    return world, clock, witness


def test_after_a_step_that_stays_it_is_planned_anew(make_world: Callable[..., World]) -> None:
    world, clock, witness = begun(make_world)
    clock.wrong_s = 400.0
    for _ in range(320):
        world.tick(1.0)
    assert witness.done[0] == ("signal", "1"), world.describe()
    first = world.store.eviction(1)
    assert (first.state, first.outcome_code) == (EvictionState.CANCELLED, OutcomeCode.CALLED_OFF), world.describe()
    assert "+400 s while it was under way" in first.outcome
    assert {p.state for p in first.preemptions} == {PreemptionState.SPARED}
    assert not world.observer.failures


def test_a_step_behind_slurms_clock_is_never_believed(make_world: Callable[..., World]) -> None:
    """Jobs were submitted later than it says: nothing is done until it is right again."""
    world, clock, witness = begun(make_world)
    clock.wrong_s = -400.0
    for _ in range(100):
        world.tick(1.0)
    assert witness.done == [("signal", "1")]
    clock.wrong_s = 0.0
    world.run_until(lambda: len(witness.done) > 1, limit_s=60)


def test_a_drain_is_called_off_after_a_step_that_stays(make_world: Callable[..., World]) -> None:
    world = make_world()
    job = drains.saver(world, "n1", save_s=60.0)
    clock, witness = WrongClock(world.clock), Witness(world)
    world.start_daemon(backend=witness, clock=clock)
    drain = drains.drain(world, "n1", force=True)
    world.run_until(lambda: bool(witness.done), limit_s=20)
    clock.wrong_s = 90_000.0
    for _ in range(320):
        world.tick(1.0)
    assert witness.of(job) == ["signal"]
    assert drains.now(world, drain).state is EvictionState.CANCELLED
    assert drains.held(world) == {}


def test_a_clock_behind_slurms_is_not_believed_from_the_first_cycle_on(make_world: Callable[..., World]) -> None:
    """After a restart there is nothing to compare with but the clocks of others."""
    world = make_world(node_count=1)
    job = world.submit(on=("n1",), ran_s=5)
    clock = WrongClock(world.clock)
    clock.wrong_s = -3_600.0
    world.start_daemon(clock=clock, backend=Witness(world))
    urgent = world.urgent(1)
    for _ in range(50):
        world.tick(1.0)
    assert world.state(job) is JobState.RUNNING
    assert world.store.evictions() == ()
    clock.wrong_s = 0.0
    world.run_until(lambda: world.started(urgent) is not None, limit_s=120)


def test_a_database_with_another_time_of_day(make_world: Callable[..., World]) -> None:
    world = make_world(node_count=1)
    theirs = [world.clock.now() + timedelta(hours=1)]

    def with_a_clock(store: Store) -> Store:
        store.server_time = lambda: theirs[0]  # type: ignore[method-assign]
        return store

    world.start_daemon(fuse=with_a_clock)
    job = world.submit(on=("n1",), ran_s=5)
    world.urgent(1)
    for _ in range(20):
        world.tick(1.0)
    assert world.state(job) is JobState.RUNNING
    theirs[0] = world.clock.now()
    world.run_until(lambda: world.state(job) is not JobState.RUNNING, limit_s=20)


def test_the_demos_clock_is_believed_although_it_runs_faster() -> None:
    clock = ScaledClock(NOW, 1_000.0)
    watch = ClockWatch(clock)
    empty = ClusterSnapshot(taken_at=NOW, jobs=(), nodes=())
    assert [watch.doubt(clock.now(), clock.steady(), empty, under_way=False) for _ in range(20)] == [""] * 20
