"""What a plan was allowed is asked again before each harmful command: the configuration or the job may have changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from clearway.config.configuration import Config
from clearway.model.cluster import JobState
from clearway.model.errors import SlurmUnavailableError
from clearway.model.operations import EvictionState, Operation
from clearway.simulation.backend import SimulatedBackend
from clearway.simulation.jobs import Program
from tests.simulation import drains, moving_jobs
from tests.simulation.world import SAVES, World, config

FREE = {"min_runtime": 0, "allow_cancel": True}


class Witness(SimulatedBackend):
    """Remembers what was done to jobs; ``before`` is called at the last moment before an act, as another person may."""

    def __init__(self, world: World) -> None:
        super().__init__(world.cluster, world.clock)
        self.done: list[tuple[str, str]] = []
        self.before: Callable[[], None] = lambda: None

    def _note(self, what: str, job_id: str) -> None:
        self.before()
        self.done.append((what, job_id))

    def requeue(self, job: Any) -> None:
        self._note("requeue", job.job_id)
        super().requeue(job)

    def cancel(self, job: Any) -> None:
        self._note("cancel", job.job_id)
        super().cancel(job)

    def suspend(self, job: Any) -> None:
        self._note("suspend", job.job_id)
        super().suspend(job)

    def signal(self, job: Any, signal: str, *, batch_only: bool) -> None:
        self._note("signal", job.job_id)
        super().signal(job, signal, batch_only=batch_only)

    def of(self, job_id: str) -> list[str]:
        return [what for what, whom in self.done if whom == job_id]


def witnessed(world: World) -> Witness:
    witness = Witness(world)
    world.start_daemon(backend=witness)
    return witness


def reload(world: World, new: Config) -> None:
    world.loop.reconfigure(new)


def change(world: World, job_id: str, **fields: Any) -> None:
    entry = world.cluster.jobs[job_id]
    entry.job = replace(entry.job, **fields)


def under_way(world: World) -> Operation:
    (only,) = world.store.open_evictions()
    return only


def slow_save(world: World, *on: str, **fields: Any) -> str:
    return world.submit(
        Program(save_s=20.0, work_s=4_000), on=on, num_nodes=len(on), ran_s=900, comment=SAVES, **fields
    )


@pytest.mark.parametrize(
    "rule",
    [
        {"protected_users": ["vip"]},
        {"protected_qos": ["gold"]},
        {"protected_accounts": ["a1"]},
        {"protected_partitions": ["batch"]},
        {"partitions": ["other"]},
        {"allow_kill": False},
        {"min_runtime": 3_600},
    ],
)
@pytest.mark.fault("A user who was protected after the plan was made lost jobs all the same.", found_by="reading")
def test_a_job_that_was_protected_after_the_plan_is_left_alone(
    make_world: Callable[..., World], rule: dict[str, Any]
) -> None:
    """The kill waits for the other job's checkpoint; meanwhile the configuration changes."""
    world = make_world(config=config(candidates=FREE), node_count=2)
    witness = witnessed(world)
    slow_save(world, "n1", user="bob")
    other = world.submit(on=("n2",), ran_s=300, user="vip", qos="gold", account="a1")
    world.urgent(2)
    world.run_until(lambda: bool(witness.done), limit_s=20)
    reload(world, config(candidates=FREE | rule))
    for _ in range(90):
        world.tick(1.0)
    assert witness.of(other) == [], world.describe()
    assert world.state(other) is JobState.RUNNING
    assert len(world.cluster.jobs[other].runs) == 1
    # The first job was asked to save itself before; it would have left in vain.
    assert all("requeue" not in what for what, _ in witness.done)
    assert not world.observer.failures


def test_an_urgent_jobs_eviction_says_why_it_waits(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(candidates=FREE), node_count=2)
    witness = witnessed(world)
    slow_save(world, "n1", user="bob")
    world.submit(on=("n2",), ran_s=300, user="vip")
    world.urgent(2)
    world.run_until(lambda: bool(witness.done), limit_s=20)
    reload(world, config(candidates=FREE | {"protected_users": ["vip"]}))
    for _ in range(5):
        world.tick()
    told = [step.detail for step in world.store.steps(under_way(world).eviction_id) if step.kind == "event"]
    assert any("its user vip is protected" in text for text in told), told


def test_a_job_that_was_asked_and_then_protected_is_not_requeued(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(candidates=FREE), node_count=1)
    witness = witnessed(world)
    saver = slow_save(world, "n1", user="vip")
    world.urgent(1)
    world.run_until(lambda: witness.of(saver) == ["signal"])
    reload(world, config(candidates=FREE | {"protected_users": ["vip"]}))
    for _ in range(90):
        world.tick(1.0)
    assert witness.of(saver) == ["signal"]
    assert len(world.cluster.jobs[saver].runs) == 1


def test_a_refused_requeue_is_not_tried_again_on_a_job_that_is_protected_now(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(candidates=FREE), node_count=1)
    witness = witnessed(world)
    job = world.submit(on=("n1",), ran_s=300, user="vip")
    world.urgent(1)

    def fail() -> None:
        raise SlurmUnavailableError("not now")

    witness.before = fail
    world.run_until(lambda: under_way(world).preemptions[0].attempts > 0 if world.store.open_evictions() else False)
    witness.before = lambda: None
    reload(world, config(candidates=FREE | {"protected_users": ["vip"]}))
    for _ in range(90):
        world.tick(1.0)
    assert witness.of(job) == []
    assert len(world.cluster.jobs[job].runs) == 1


def test_jobs_do_not_leave_for_one_that_is_not_urgent_any_more(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(candidates=FREE), node_count=1)
    witness = witnessed(world)
    saver = slow_save(world, "n1")
    world.urgent(1)
    world.run_until(lambda: witness.of(saver) == ["signal"])
    reload(world, config(candidates=FREE, preemptors=[{"partition": ["other"], "max_delay": "60s"}]))
    for _ in range(60):
        world.tick(1.0)
    assert witness.of(saver) == ["signal"]
    assert len(world.cluster.jobs[saver].runs) == 1


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.fault("A job that was made requeueable after the plan was made was cancelled.", found_by="reading")
def test_a_job_that_was_made_requeueable_is_not_cancelled(make_world: Callable[..., World], *, late: bool) -> None:
    """``late``: between the look and the command; then Slurm is asked again, and the job is requeued after that."""
    world = make_world(config=config(candidates=FREE), node_count=2)
    witness = witnessed(world)
    slow_save(world, "n1")
    fixed = world.submit(on=("n2",), ran_s=300, requeueable=False)
    urgent = world.urgent(2)
    world.run_until(lambda: bool(witness.done), limit_s=20)
    if late:

        def make_requeueable() -> None:
            change(world, fixed, requeueable=True)

        witness.before = make_requeueable
    else:
        change(world, fixed, requeueable=True)
    world.run_until(lambda: world.started(urgent) is not None, limit_s=120)
    world.run_until(world.settled, limit_s=1_200, every_s=2.0)
    assert world.cluster.jobs[fixed].job.restart_count == 1, world.describe()
    assert len(world.cluster.jobs[fixed].runs) == 2, world.describe()


@pytest.mark.parametrize("may_cancel", [False, True])
def test_a_job_that_cannot_be_requeued_any_more_is_left_alone(
    make_world: Callable[..., World], *, may_cancel: bool
) -> None:
    """Not cancelled either, where that is allowed: the plan was to requeue it."""
    world = make_world(config=config(candidates={"min_runtime": 0, "allow_cancel": may_cancel}), node_count=2)
    witness = witnessed(world)
    slow_save(world, "n1")
    fixed = world.submit(on=("n2",), ran_s=300)
    urgent = world.urgent(2)
    world.run_until(lambda: bool(witness.done), limit_s=20)
    change(world, fixed, requeueable=False)
    for _ in range(60):
        world.tick(1.0)
    assert witness.of(fixed) == [], world.describe()
    assert world.started(urgent) is None


def test_suspension_that_is_not_allowed_any_more(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(candidates=FREE | {"allow_suspend": True}), node_count=2)
    witness = witnessed(world)
    slow_save(world, "n1", memory_mib=3_900)
    sleeper = world.submit(on=("n2",), ran_s=3_000, memory_mib=100)
    world.urgent(2, memory_mib=500)
    world.run_until(lambda: bool(witness.done), limit_s=20)
    reload(world, config(candidates=FREE | {"allow_kill": False}))
    for _ in range(60):
        world.tick(1.0)
    assert witness.of(sleeper) == [], world.describe()


def test_a_drain_ends_without_touching_a_job_that_was_protected_after_its_plan(
    make_world: Callable[..., World],
) -> None:
    world = make_world(config=config())
    witness = witnessed(world)
    first = drains.saver(world, "n1", save_s=20.0)
    vip = drains.saver(world, "n2", user="vip")
    drain = drains.drain(world, "n[1-2]")
    world.run_until(lambda: ("signal", first) in witness.done)
    assert witness.of(vip) == []
    reload(world, config(candidates={"protected_users": ["vip"]}))
    world.run_until(world.settled, limit_s=120)
    assert witness.of(vip) == []
    assert "requeue" not in witness.of(first)
    assert drains.now(world, drain).state is EvictionState.CANCELLED
    assert "its user vip is protected" in drains.now(world, drain).outcome
    assert drains.held(world) == {}


def test_a_forced_drain_takes_protected_jobs_as_before(make_world: Callable[..., World]) -> None:
    world = make_world(config=config())
    witness = witnessed(world)
    vip = drains.saver(world, "n2", user="vip", save_s=10.0)
    drains.drain(world, "n2", force=True)
    world.run_until(lambda: witness.of(vip) == ["signal"])
    reload(world, config(candidates={"protected_users": ["vip"]}))
    world.run_until(lambda: drains.empty(world, "n2"), limit_s=120)


def test_a_move_is_called_off_for_a_job_that_was_protected_after_its_plan(make_world: Callable[..., World]) -> None:
    world = make_world(config=moving_jobs.moving())
    witness = witnessed(world)
    jobs = [moving_jobs.serial(world, f"n{number}", user="vip") for number in (1, 2)]
    moving_jobs.serial(world, "n3", cpus=2)
    _, move = moving_jobs.ask(world)
    assert move is not None
    protected = moving_jobs.moving(candidates={"protected_users": ["vip"]})
    reload(world, protected)
    world.run_until(world.settled, limit_s=600)
    assert [witness.of(job) for job in jobs] == [[], []], world.describe()
    moving_jobs.assert_nothing_is_left(world)
