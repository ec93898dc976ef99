"""The stop switch: it holds from the moment at which it is thrown, whichever way, for every command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clearway.model.cluster import JobState
from clearway.model.operations import EvictionState, Operation, PreemptionState
from clearway.model.records import StepLog
from clearway.simulation.jobs import Program
from tests.simulation import drains, moving_jobs
from tests.simulation.killing import CHANGES
from tests.simulation.test_asked_again import Witness, witnessed
from tests.simulation.world import SAVES, World, config

Throw = Callable[[], None]


def by_request(world: World, _: Path) -> Throw:
    return lambda: world.store.add_request("halt", None, "root (command line)", world.clock.now()) and None


def by_file(_: World, file: Path) -> Throw:
    return file.touch


def unhalt(world: World, file: Path) -> None:
    file.unlink(missing_ok=True)
    world.store.add_request("unhalt", None, "root (command line)", world.clock.now())


def settings(file: Path, **sections: Any) -> Any:
    rules = {"min_runtime": 0, "allow_suspend": True, "allow_cancel": True}
    return config(daemon={"mode": "automatic", "halt_file": str(file)}, candidates=rules, **sections)


class Switch:
    """Throws the switch just before the effect of this number, and sees that no effect comes after it."""

    def __init__(self, world: World, throw: Throw, number: int) -> None:
        self.count, self.thrown, self.after = 0, False, list[str]()
        backend = world.backend
        for name in CHANGES:
            original = getattr(backend, name)
            setattr(backend, name, self._watched(name, original))
        self._throw, self._number = throw, number

    def _watched(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)  # the fence refuses it where it comes too late
            if self.thrown:
                self.after.append(name)
            self.count += 1
            if self.count == self._number:
                self._throw()
                self.thrown = True
            return result

        return watched


def scenario(world: World) -> str:
    world.submit(Program(save_s=3.0, work_s=1_500), on=("n1",), ran_s=900, comment=SAVES)
    world.submit(Program(save_s=3.0, work_s=1_500), on=("n2",), ran_s=900, comment=SAVES)
    for name in ("n3", "n4", "n5"):
        world.submit(on=(name,), ran_s=40, memory_mib=3_000)
    world.submit(on=("n6",), ran_s=40, memory_mib=3_000, requeueable=False)
    world.submit(on=("n7",), ran_s=4_000, memory_mib=500)
    return world.urgent(7, work_s=20.0, memory_mib=2_000)


@pytest.mark.parametrize(
    ("way", "number"), [*((by_request, n) for n in (1, 4, 8, 12, 16)), *((by_file, n) for n in (2, 6, 10, 14))]
)
def test_no_command_comes_after_it_and_all_ends_well_when_it_is_lifted(
    make_world: Callable[..., World], tmp_path: Path, way: Callable[[World, Path], Throw], number: int
) -> None:
    file = tmp_path / "halt"
    world = make_world(config=settings(file), node_count=7)
    urgent = scenario(world)
    switch = Switch(world, way(world, file), number)
    for _ in range(40):
        world.tick()
    assert switch.thrown, f"only {switch.count} effects"
    assert switch.after == [], world.describe()
    assert world.loop.report is not None
    assert world.loop.report.halted
    switch.thrown = False
    unhalt(world, file)
    world.run_until(lambda: world.started(urgent) is not None, limit_s=120)
    world.run_until(world.settled, limit_s=600, every_s=2.0)
    assert world.leftovers() == []
    assert world.cluster.oversubscribed == []
    assert not world.observer.failures


def test_a_job_whose_requeue_was_held_back_counts_as_not_touched(
    make_world: Callable[..., World], tmp_path: Path
) -> None:
    """The switch is thrown between the intent and the command; then the eviction is cancelled."""
    file = tmp_path / "halt"
    world = make_world(config=settings(file), node_count=1)
    job = world.submit(on=("n1",), ran_s=40, memory_mib=3_000)
    original = world.store.save_eviction

    def save_eviction(eviction: Operation, notices: Any = (), log: StepLog | None = None) -> tuple[int, ...]:
        if log is not None and any(step.kind == "requeue" for step in log.begun):
            file.touch()
        return original(eviction, notices, log)

    world.store.save_eviction = save_eviction  # type: ignore[method-assign]
    world.urgent(1, memory_mib=2_000)
    world.run_until(file.exists, limit_s=20)
    (preemption,) = world.eviction().preemptions
    assert (preemption.state, preemption.requeued_at) == (PreemptionState.PLANNED, None)
    assert [s.result for s in world.store.steps(1) if s.kind == "requeue"] == ["held"]
    world.store.add_request("cancel", 1, "root (command line)", world.clock.now())
    world.tick()
    assert world.eviction().state is EvictionState.CANCELLING
    file.unlink()
    world.run_until(world.settled, limit_s=60)
    assert len(world.cluster.jobs[job].runs) == 1
    assert world.leftovers() == []


def test_drains_and_moves_stand_still(make_world: Callable[..., World], tmp_path: Path) -> None:
    file = tmp_path / "halt"
    world = make_world(config=moving_jobs.moving(daemon={"mode": "automatic", "halt_file": str(file)}))
    witness: Witness = witnessed(world)
    saver = drains.saver(world, "n8", save_s=10.0)
    for number in (1, 2):
        moving_jobs.serial(world, f"n{number}")
    moving_jobs.serial(world, "n3", cpus=2)
    drains.drain(world, "n8")
    moving_jobs.ask(world)
    world.run_until(lambda: len(witness.done) >= 2, limit_s=60)
    before = list(witness.done)
    file.touch()
    for _ in range(60):
        world.tick(1.0)
    assert witness.done == before
    assert len(world.cluster.jobs[saver].runs) == 1
    file.unlink()
    world.run_until(lambda: drains.empty(world, "n8"), limit_s=300)


def test_undrain_is_refused_and_a_drain_waits(make_world: Callable[..., World], tmp_path: Path) -> None:
    file = tmp_path / "halt"
    world = make_world(config=settings(file))
    drains.drain(world, "n8")
    world.run_until(lambda: "n8" in drains.held(world) and world.settled(), limit_s=60)
    file.touch()
    assert "halted by the file" in drains.undrain(world, "n8")
    assert "n8" in drains.held(world)
    drains.drain(world, "n7")
    for _ in range(10):
        world.tick()
    assert "n7" not in drains.held(world)
    file.unlink()
    world.run_until(lambda: "n7" in drains.held(world), limit_s=20)


def test_a_file_that_cannot_be_looked_at_halts(make_world: Callable[..., World], tmp_path: Path) -> None:
    """When in doubt, nothing is done: a name in a loop of links here, as root may look at everything."""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    world = make_world(config=settings(loop / "halt"), node_count=1)
    job = world.submit(on=("n1",), ran_s=40)
    world.urgent(1)
    for _ in range(20):
        world.tick()
    assert world.state(job) is JobState.RUNNING
    assert world.loop.report is not None
    assert "cannot be looked at" in world.loop.report.halted
    assert world.loop.report.waiting[0].why == world.loop.report.halted


def test_resume_does_not_lift_it_and_unhalt_does_not_end_a_pause(
    make_world: Callable[..., World], tmp_path: Path
) -> None:
    world = make_world(config=settings(tmp_path / "halt"), node_count=1)
    world.submit(on=("n1",), ran_s=40, memory_mib=3_000)
    urgent = world.urgent(1, memory_mib=2_000)
    for kind in ("pause", "halt", "resume"):
        world.store.add_request(kind, None, "root (command line)", world.clock.now())
    for _ in range(20):
        world.tick()
    assert world.store.evictions() == ()
    for kind in ("pause", "unhalt"):
        world.store.add_request(kind, None, "root (command line)", world.clock.now())
    for _ in range(20):
        world.tick()
    assert world.store.evictions() == ()
    world.store.add_request("resume", None, "root (command line)", world.clock.now())
    world.run_until(lambda: world.started(urgent) is not None, limit_s=60)


@pytest.mark.fault(
    "A reload that protects jobs did not hold for the rest of the cycle that was running.", found_by="reading"
)
def test_a_reload_holds_within_the_cycle_that_is_running(make_world: Callable[..., World], tmp_path: Path) -> None:
    """The log says that the configuration is reloaded: from then on no job may leave by the old one."""
    world = make_world(config=settings(tmp_path / "halt"), node_count=2)
    witness = witnessed(world)
    jobs = [world.submit(on=(f"n{n}",), ran_s=40, memory_mib=3_000, user="vip") for n in (1, 2)]
    protecting = config(candidates={"min_runtime": 0, "protected_users": ["vip"]})
    witness.before = lambda: world.loop.reconfigure(protecting)
    world.urgent(2, memory_mib=2_000)
    for _ in range(40):
        world.tick()
    assert sum(len(witness.of(job)) for job in jobs) == 1, world.describe()
