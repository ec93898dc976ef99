"""A wall clock that is set: no deadline, checkpoint or return is judged by it until it can be believed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from clearway.model.cluster import ClusterSnapshot
from clearway.model.operations import PreemptionState
from clearway.service.leadership import LASTS_S, LASTS_UNDER_WAY_S
from clearway.simulation.cluster import Program
from tests.builders import ManualClock
from tests.simulation.two_daemons import second_daemon
from tests.simulation.world import SAVES, World, config


class SetClock(ManualClock):
    """The daemon's, ahead of the cluster's by what it was set to; the monotonic one is not set."""

    def __init__(self, true: ManualClock) -> None:
        self._true = true
        self.ahead_s = 0.0

    def now(self) -> datetime:
        return self._true.now() + timedelta(seconds=self.ahead_s)

    def monotonic(self) -> float:
        return self._true.monotonic()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    world = make_world(config=config(execution={"late_checkpoint": "kill"}))
    world.store.close()
    world.start_daemon(clock=SetClock(world.clock))
    for number in range(1, 9):
        world.submit(Program(work_s=5_000.0, save_s=20.0), on=(f"n{number}",), ran_s=100 * number, comment=SAVES)
    world.tick()
    return world


def clock(world: World) -> SetClock:
    found = world.parts.clock
    assert isinstance(found, SetClock)
    return found


@pytest.mark.parametrize("step_s", [400.0, -400.0])
@pytest.mark.parametrize("cycles", [1, 5])
def test_a_step_of_the_clock_does_not_make_a_checkpoint_late(world: World, step_s: float, cycles: int) -> None:
    urgent = world.urgent(1)
    world.run_until(lambda: bool(world.store.evictions()))
    world.run_until(lambda: world.eviction().preemptions[0].state is PreemptionState.CHECKPOINTING)
    clock(world).ahead_s = step_s
    for _ in range(cycles):
        assert world.tick().clock_doubt == f"the wall clock was set by {step_s:+.0f} s"
    (preemption,) = world.eviction().preemptions
    assert preemption.state is PreemptionState.CHECKPOINTING
    clock(world).ahead_s = 0.0
    assert not world.tick().clock_doubt
    world.run_until(lambda: world.started(urgent) is not None, 60.0)
    (preemption,) = world.eviction().preemptions
    assert preemption.checkpointed_at is not None
    assert not preemption.note


def cycles_until_believed(world: World) -> float:
    began = world.clock.monotonic()
    while world.tick(1.0).clock_doubt:
        assert world.clock.monotonic() - began < 1_000.0
    return world.clock.monotonic() - began


def test_a_time_that_lasts_is_believed(world: World) -> None:
    clock(world).ahead_s = 3_600.0
    assert cycles_until_believed(world) <= LASTS_S + 1.0, "nothing is under way"
    urgent = world.urgent(1)
    world.run_until(lambda: bool(world.store.evictions()))
    clock(world).ahead_s = 0.0
    assert LASTS_UNDER_WAY_S <= cycles_until_believed(world) <= LASTS_UNDER_WAY_S + 2.0
    assert urgent


@pytest.mark.fault(
    "After the clock had been ahead, a lease that lay in the future kept every daemon from leading.",
    found_by="random faults",
)
def test_a_lease_from_a_time_that_never_came_does_not_outlast_its_leader(world: World) -> None:
    """The one clock of a host was set ahead when the leader renewed the lease, and was set back; then it was killed."""
    clock(world).ahead_s = 3_600.0
    world.tick()
    clock(world).ahead_s = 0.0
    with second_daemon(world) as other:
        began = world.clock.monotonic()
        while other.cycle().standby:
            world.clock.advance(1.0)
            assert world.clock.monotonic() - began < 60.0


@pytest.mark.fault(
    "A job asked by a clock that was an hour ahead, and then set back, was not requeued for that hour.",
    found_by="random faults",
)
@pytest.mark.parametrize("called_off", [False, True])
def test_a_time_to_save_itself_that_began_in_a_time_that_never_came_is_over(
    make_world: Callable[..., World], called_off: bool
) -> None:
    world = make_world(node_count=1, config=config())
    world.store.close()
    world.start_daemon(clock=SetClock(world.clock))
    silent = "clearway:checkpoint=signal,signal=USR1,to=batch,grace=20"
    job = world.cluster.jobs[world.submit(Program(save_s=3.0), on=("n1",), ran_s=900, comment=silent)]
    world.tick()
    clock(world).ahead_s = 3_600.0
    cycles_until_believed(world)
    urgent = world.urgent(1)
    world.run_until(lambda: job.asked_at is not None)
    if called_off:
        world.cluster.withdraw(world.cluster.jobs[urgent])
        world.tick()
    clock(world).ahead_s = 0.0
    world.run_until(lambda: job.job.restart_count == 1, LASTS_UNDER_WAY_S + 60.0)


def test_a_small_correction_and_a_slow_drift_are_no_step(world: World) -> None:
    for _ in range(100):
        clock(world).ahead_s += 0.5
        assert not world.tick().clock_doubt


def test_slow_answers_of_slurm_are_no_step(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = world.backend.snapshot
    for took_s in (0.0, 8.0, 0.0, 8.0):

        def slow(took_s: float = took_s) -> ClusterSnapshot:
            world.clock.advance(took_s)
            return snapshot()

        monkeypatch.setattr(world.backend, "snapshot", slow)
        assert not world.tick().clock_doubt
