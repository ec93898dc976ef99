"""An urgent job that would not start any more: no job leaves for it, nothing is held, and once it may it is served."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from clearway.execution.restraints import USER_PAUSES
from clearway.model.cluster import Job, JobState, Reservation
from clearway.model.limits import Limits, Partition
from clearway.model.operations import EvictionState
from clearway.model.outcome import OutcomeCode
from clearway.simulation.jobs import Program
from clearway.slurm.base import Failures
from tests.simulation.bad_days import busy
from tests.simulation.test_asked_again import Witness
from tests.simulation.world import SAVES, World, config

OVER = {"eligible_time": None, "dependency": "", "reason": "Priority", "priority": 1_000, "reservation": None}


def change(world: World, job_id: str, **fields: Any) -> None:
    entry = world.cluster.jobs[job_id]
    entry.job = replace(entry.job, **fields)


def in_two_minutes(world: World) -> dict[str, Any]:
    return {"eligible_time": world.clock.now() + timedelta(seconds=120)}


CHANGES: Mapping[str, Callable[[World], dict[str, Any]]] = {
    "StartTime": in_two_minutes,
    "Dependency": lambda _: {"dependency": "afterany:1(unfulfilled)", "reason": "Dependency"},
    "hold": lambda _: {"priority": 0, "reason": "JobHeldUser"},
    "hold by an administrator": lambda _: {"priority": 0, "reason": "JobHeldAdmin"},
    "another reservation": lambda _: {"reservation": "course"},
    "a limit of its own": lambda _: {"reason": "QOSMaxWallDurationPerJobLimit"},
    "its account is gone": lambda _: {"reason": "InvalidAccount"},
    "a word that is not known": lambda _: {"reason": "MoonInTheWrongPhase"},
}


@pytest.mark.parametrize("what", CHANGES)
def test_no_job_leaves_for_it_and_it_is_served_later(world: World, what: str) -> None:
    """Jobs save themselves; the change comes before the first of them leaves."""
    if what == "another reservation":
        begins, ends = world.clock.now() + timedelta(days=1), world.clock.now() + timedelta(days=2)
        world.cluster.reservations["course"] = Reservation(
            name="course", nodes=(), start_time=begins, end_time=ends, users=("ursula",)
        )
    jobs = busy(world, Program(work_s=1e6, save_s=8.0), f"{SAVES},took=8")
    urgent = world.urgent(2)
    for _ in range(3):
        world.tick()
    assert world.eviction().state is EvictionState.PREEMPTING
    change(world, urgent, **CHANGES[what](world))
    world.tick()
    world.tick()
    assert world.settled()
    assert world.leftovers() == ([urgent] if what == "another reservation" else [])
    for _ in range(60):
        world.tick()
    assert all(len(world.cluster.jobs[job_id].runs) == 1 for job_id in jobs)
    assert len(world.store.evictions()) == 1
    assert "would not start" in world.eviction().outcome
    change(world, urgent, **OVER)
    world.run_until(lambda: world.started(urgent) is not None, limit_s=40)


def dying_slowly(world: World) -> list[str]:
    return busy(world, Program(work_s=1e6, exit_s=5.0), "")


def until_left(world: World) -> None:
    world.run_until(lambda: any(p.requeued_at for e in world.store.evictions() for p in e.preemptions), limit_s=20)


def test_once_jobs_have_left_nothing_is_held_either(world: World) -> None:
    """And what its owner gave up that late costs the user automatic plans for a while."""
    dying_slowly(world)
    urgent = world.urgent(2)
    until_left(world)
    change(world, urgent, **in_two_minutes(world))
    world.tick()
    world.tick()
    assert world.leftovers() == []
    world.run_until(lambda: len(world.store.evictions()) == 2, limit_s=200)
    first, second = sorted(world.store.evictions(), key=lambda e: e.eviction_id)
    assert first.outcome_code is OutcomeCode.POINTLESS
    assert second.state is EvictionState.AWAITING_APPROVAL
    assert "more than was planned or approved" in second.outcome
    assert "given up" in str(world.store.get_value(USER_PAUSES))


def test_a_partition_that_goes_down_once_jobs_have_left(world: World) -> None:
    dying_slowly(world)
    urgent = world.urgent(2)
    until_left(world)
    world.cluster.limits = Limits(partitions={"urgent": Partition(name="urgent", state="DOWN")})
    world.tick()
    world.tick()
    assert world.leftovers() == []
    assert world.started(urgent) is None
    world.cluster.limits = Limits()
    world.run_until(lambda: world.started(urgent) is not None, limit_s=40)
    assert any(e.outcome_code is OutcomeCode.CALLED_OFF for e in world.store.evictions())


def test_it_starts_while_limits_are_read(make_world: Callable[..., World]) -> None:
    """What it has itself counts as used then."""
    world = make_world()
    slurm = changing(world)
    dying_slowly(world)
    urgent = world.urgent(2)
    until_left(world)
    reads = slurm.limits

    def limits(jobs: Sequence[Job]) -> Limits:
        world.clock.advance(6.0)  # the others are gone by now
        reads(jobs)
        return replace(reads(jobs), unknown="", partitions={"urgent": Partition(name="urgent", max_nodes=1)})

    slurm.limits = limits  # type: ignore[method-assign]
    world.tick()
    world.tick()
    assert world.started(urgent) is not None
    assert world.eviction().outcome_code is OutcomeCode.STARTED


def test_one_that_is_late_already_is_not_left_alone_for_good(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(execution={"kill_allowance": "2s"}, budget={"cancelled_pause": 0}))
    world.cluster.kill_wait_s = 200.0
    busy(world, Program(work_s=1e6, exit_s=100.0), "")
    urgent = world.urgent(2)
    world.run_until(lambda: any(e.late for e in world.store.evictions()), limit_s=90)
    change(world, urgent, eligible_time=world.clock.now() + timedelta(days=1))
    world.run_until(world.settled, limit_s=200)
    assert world.eviction().state is EvictionState.FAILED
    change(world, urgent, **OVER)
    world.run_until(lambda: len(world.store.evictions()) == 2, limit_s=40)


class Changing(Witness):
    """``at_look`` is called as jobs are looked at just before a command: after the snapshot that it was decided by."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.at_look: Callable[[], None] = lambda: None

    def look_at(self, job_ids: Sequence[str], *, whole: bool = False) -> tuple[Mapping[str, Job], Failures]:
        if not whole:
            self.at_look()
        return super().look_at(job_ids, whole=whole)


def changing(world: World) -> Changing:
    slurm = Changing(world)
    world.start_daemon(backend=slurm)
    return slurm


@pytest.mark.parametrize("saves", [True, False])
@pytest.mark.parametrize(
    "fields",
    [{"dependency": "singleton"}, {"reason": "DeadLine"}, {"state": JobState.ENDED}, {"time_limit_s": 7}],
    ids=str,
)
def test_the_last_look_is_at_the_urgent_job_as_well(world: World, fields: dict[str, Any], saves: bool) -> None:
    slurm = changing(world)
    jobs = busy(world, Program(work_s=1e6, save_s=8.0), f"{SAVES},took=8" if saves else "")
    urgent = world.urgent(2)
    slurm.at_look = lambda: change(world, urgent, **fields)
    world.run_until(lambda: bool(world.store.evictions()), limit_s=10)
    assert [slurm.of(job_id) for job_id in jobs] == [[]] * len(jobs)
    for _ in range(4):
        world.tick()
    if "time_limit_s" not in fields:  # another plan is made for that
        assert [slurm.of(job_id) for job_id in jobs] == [[]] * len(jobs)
        assert world.settled()


@pytest.mark.parametrize("state", [JobState.ENDED, JobState.RUNNING])
@pytest.mark.parametrize("saves", [True, False])
@pytest.mark.fault("Jobs left for an array of which no task waited any more.", found_by="random faults")
def test_the_last_look_is_at_the_tasks_that_wait(world: World, state: JobState, saves: bool) -> None:
    """The last of an array's tasks bears its id: none waits where that one runs, or has ended."""
    slurm = changing(world)
    jobs = busy(world, Program(work_s=1e6, save_s=8.0), f"{SAVES},took=8" if saves else "")
    array = world.urgent(1, pending_tasks=2)
    slurm.at_look = lambda: change(world, array, state=state, pending_tasks=1)
    world.run_until(lambda: bool(world.store.evictions()), limit_s=10)
    assert world.eviction().plan.tasks == 2
    assert [slurm.of(job_id) for job_id in jobs] == [[]] * len(jobs)


@pytest.mark.parametrize(
    "fields", [{"qos": "gold"}, {"user": "vip"}, {"requeueable": False}, {"nodes": ("n1",)}], ids=str
)
def test_the_last_look_is_at_what_protects_a_job(make_world: Callable[..., World], fields: dict[str, Any]) -> None:
    rules = {"protected_qos": ["gold"], "protected_users": ["vip"], "min_runtime": 0}
    world = make_world(config=config(candidates=rules), node_count=2)
    slurm = changing(world)
    both = world.submit(Program(work_s=1e6), on=("n1", "n2"), num_nodes=2, ran_s=300)
    urgent = world.urgent(2)
    slurm.at_look = lambda: change(world, both, **fields)
    for _ in range(20):
        world.tick()
    assert slurm.of(both) == []
    assert world.started(urgent) is None
    assert any(s.result == "held" for e in world.store.evictions() for s in world.store.steps(e.eviction_id))


def test_a_node_that_leaves_the_partition_is_no_node_for_it(world: World) -> None:
    jobs = busy(world, Program(work_s=1e6, save_s=8.0), f"{SAVES},took=8")
    urgent = world.urgent(2)
    for _ in range(3):
        world.tick()
    lost = world.eviction().plan.placement_nodes[0]
    world.cluster.nodes[lost] = replace(world.cluster.nodes[lost], partitions=("batch",))
    world.run_until(lambda: world.started(urgent) is not None, limit_s=40)
    assert lost not in world.cluster.jobs[urgent].job.nodes
    assert world.eviction().revision == 1
    spared = next(job_id for job_id in jobs if lost in world.cluster.jobs[job_id].runs[0])
    assert len(world.cluster.jobs[spared].runs) == 1


def test_a_reservation_of_others_over_its_nodes(world: World) -> None:
    """From now on: Slurm admits that with OVERLAP, and starts no job of others there."""
    jobs = busy(world, Program(work_s=1e6, save_s=8.0), f"{SAVES},took=8")
    world.urgent(2)
    for _ in range(3):
        world.tick()
    now = world.clock.now()
    world.cluster.reservations["course"] = Reservation(
        name="course",
        nodes=world.eviction().plan.placement_nodes,
        start_time=now,
        end_time=now + timedelta(hours=1),
        users=("root",),
    )
    world.tick()
    first = min(world.store.evictions(), key=lambda e: e.eviction_id)
    assert "reservation course takes node" in first.outcome
    assert all(len(world.cluster.jobs[job_id].runs) == 1 for job_id in jobs)


@pytest.mark.fault(
    "Nodes were kept for minutes for an urgent job whose owner had asked for another node meanwhile.",
    found_by="random faults",
)
def test_an_urgent_job_that_asks_for_a_node_that_it_cannot_have_keeps_no_others(
    make_world: Callable[..., World],
) -> None:
    world = make_world(config=config(candidates={"protected_users": ["vip"]}), node_count=3)
    for number in (1, 2):
        world.submit(Program(work_s=1e6, save_s=20.0), on=(f"n{number}",), ran_s=100, comment=f"{SAVES},took=20")
    world.submit(Program(work_s=1e6), on=("n3",), ran_s=100, user="vip")
    urgent = world.urgent(1)
    world.run_until(lambda: bool(world.store.evictions()), limit_s=20)
    change(world, urgent, required_nodes=("n3",))
    world.run_until(world.settled, limit_s=20)
    assert world.eviction().outcome.endswith("was changed (required nodes), and no other plan is possible.")
    assert world.leftovers() == []
    assert not any(entry.job.restart_count for entry in world.cluster.jobs.values())
