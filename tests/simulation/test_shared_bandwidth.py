"""Checkpoints that are written at once, with the whole daemon on a simulated cluster whose file system shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clearway.model.cluster import JobState
from clearway.model.operations import EvictionState
from clearway.model.problem import Action
from clearway.simulation.jobs import Program
from tests.simulation.world import World, config

SIZE_MIB, NODE_MIB_S = 3_000, 100  # 30 s through the node's own link, and 2 s around it
COMMENT = f"clearway:checkpoint=signal,size_mib={SIZE_MIB}"


def shared(bandwidth_mib_s: float, checkpoints: str = "shared", **candidates: Any) -> dict[str, Any]:
    settings = config(
        planning={"checkpoints": checkpoints},
        costs={"file_system_mib_s": bandwidth_mib_s, "node_mib_s": NODE_MIB_S},
        candidates={"min_runtime": 0, "protected_users": ["vip"], "allow_kill": False} | candidates,
    )
    return {"config": settings, "file_system_mib_s": bandwidth_mib_s}


def occupy(world: World, savers: int) -> list[str]:
    """So many jobs that save themselves, and others on the rest of the nodes."""
    program = Program(save_mib=SIZE_MIB, save_mib_s=NODE_MIB_S, work_s=9_999)
    jobs = [world.submit(program, on=(f"n{n}",), ran_s=900, comment=COMMENT) for n in range(1, savers + 1)]
    for n in range(savers + 1, 9):
        world.submit(Program(work_s=9_999), on=(f"n{n}",), ran_s=900, user="vip")
    return jobs


def saving(world: World) -> int:
    return sum("state=saving" in entry.job.comment for entry in world.cluster.jobs.values())


def most_saving(world: World, urgent: str) -> int:
    """How many jobs write checkpoints at once, at most, until the urgent job starts."""
    most = 0

    def started() -> bool:
        nonlocal most
        most = max(most, saving(world))
        return world.started(urgent) is not None

    world.run_until(started, limit_s=60)
    return most


@pytest.mark.parametrize("bandwidth_mib_s", [250.0, 160.0], ids=["room for both", "slower at once"])
def test_two_are_saved_at_once_where_one_after_another_is_too_late(
    make_world: Callable[..., World], bandwidth_mib_s: float
) -> None:
    world = make_world(**shared(bandwidth_mib_s))
    jobs = occupy(world, 2)
    urgent = world.urgent(2, work_s=5.0)
    assert most_saving(world, urgent) == 2
    done = world.eviction()
    assert done.started_at is not None
    assert done.started_at <= done.plan.deadline
    assert not done.late
    assert [p.action for p in done.preemptions] == [Action.APP_CHECKPOINT] * 2
    assert all(p.checkpointed_at is not None and p.actual_lost_node_s < 5 for p in done.preemptions)
    writing_s = max(SIZE_MIB / NODE_MIB_S, 2 * SIZE_MIB / bandwidth_mib_s)
    for planned, p in zip(done.plan.chosen.actions, done.preemptions, strict=True):
        assert planned.file_system_s == pytest.approx(32 * NODE_MIB_S / bandwidth_mib_s, abs=0.001)
        assert p.actual_checkpoint_s == pytest.approx(writing_s, abs=2.0)
    world.run_until(world.settled, limit_s=400)
    assert [world.state(job_id) for job_id in jobs] == [JobState.RUNNING] * 2
    assert world.leftovers() == []


def test_one_after_another_there_is_no_plan(make_world: Callable[..., World]) -> None:
    world = make_world(**shared(250.0, "serial"))
    occupy(world, 2)
    world.urgent(2)
    for _ in range(20):
        world.tick()
    assert world.store.evictions() == ()
    (waiting,) = world.tick().waiting
    assert "not enough within" in waiting.why


def test_a_plan_that_is_under_way_is_not_made_late_by_the_next_one(make_world: Callable[..., World]) -> None:
    """160 MiB/s: two at once take up to 52 s of the 54 s; a third beside them could make that 72 s."""
    world = make_world(**shared(160.0))
    occupy(world, 3)
    first = world.urgent(2, work_s=5.0)
    world.run_until(lambda: saving(world) == 2)
    second = world.urgent(1, work_s=5.0, comment="clearway:max_delay=200")
    most = 0

    def both() -> bool:
        nonlocal most
        most = max(most, saving(world))
        return world.started(first) is not None and world.started(second) is not None

    world.run_until(both, limit_s=200)
    assert most == 2, "the third one waited"
    evictions = world.store.evictions()
    assert len(evictions) == 2
    for done in evictions:
        assert done.started_at is not None
        assert done.started_at <= done.plan.deadline
        assert done.state is not EvictionState.FAILED


def test_the_next_one_joins_where_there_is_time(make_world: Callable[..., World]) -> None:
    """500 MiB/s: two take up to 38 s of the 54 s, three up to 45 s."""
    world = make_world(**shared(500.0))
    occupy(world, 3)
    world.urgent(2, work_s=5.0)
    world.run_until(lambda: saving(world) == 2)
    world.urgent(1, work_s=5.0, comment="clearway:max_delay=200")
    world.run_until(lambda: saving(world) == 3, limit_s=10)
    world.run_until(world.settled, limit_s=600)
    assert all(e.started_at is not None and e.started_at <= e.plan.deadline for e in world.store.evictions())


def test_a_daemon_that_takes_over_counts_what_is_being_written(make_world: Callable[..., World]) -> None:
    world = make_world(**shared(160.0))
    occupy(world, 3)
    first = world.urgent(2, work_s=5.0)
    world.run_until(lambda: saving(world) == 2)
    world.start_daemon()
    world.urgent(1, work_s=5.0, comment="clearway:max_delay=200")
    assert most_saving(world, first) == 2, "the third one waits, as it would without the change of daemons"
    world.run_until(world.settled, limit_s=600)
    assert all(e.started_at is not None and e.started_at <= e.plan.deadline for e in world.store.evictions())
    assert world.leftovers() == []


def test_urgent_jobs_of_one_cycle_are_served_as_one_after_another(make_world: Callable[..., World]) -> None:
    world = make_world(**shared(250.0))
    occupy(world, 4)
    urgent = [world.urgent(1, work_s=5.0, comment=f"clearway:max_delay={delay_s}") for delay_s in (60, 120)]
    world.run_until(lambda: all(world.started(job_id) is not None for job_id in urgent), limit_s=120)
    evictions = world.store.evictions()
    assert len(evictions) == 2
    for done in evictions:
        assert done.plan.together
        assert done.started_at is not None
        assert done.started_at <= done.plan.deadline
