"""Two hundred jobs leave a Slurm that takes its time for each of them: every cycle stays short, and none is lost."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import pytest

from clearway.execution.job_batch import CYCLE_S
from clearway.execution.lifecycle import is_placement
from clearway.model.report import CycleReport
from clearway.simulation.jobs import Program
from tests.simulation.world import World

JOBS = 200


def full(make_world: Callable[..., World], job_s: float) -> tuple[World, list[str], str]:
    """A job on each node, an urgent one that needs them all, and commands that take so long for each job."""
    world = make_world(node_count=JOBS)
    jobs = [world.submit(Program(exit_s=1.0), on=(f"n{number}",), ran_s=40) for number in range(1, JOBS + 1)]
    urgent = world.urgent(JOBS)
    world.backend.before_change = lambda _call, _limit_s: world.clock.advance(job_s)
    return world, jobs, urgent


def requeues(world: World) -> Counter[str]:
    steps = world.store.steps(1) if world.store.evictions() else ()
    return Counter(step.job_id or "" for step in steps if step.kind == "requeue")


@pytest.mark.parametrize("job_s", [0.002, 0.01, 0.03])
@pytest.mark.fault("Commands for many jobs, two processes each, made cycles of half a minute.", found_by="load")
def test_every_cycle_is_short(make_world: Callable[..., World], job_s: float) -> None:
    world, jobs, urgent = full(make_world, job_s)
    held: list[int] = []
    reports: list[CycleReport] = []
    leaving = 0
    while world.started(urgent) is None:
        reports.append(world.tick(0.0 if reports and reports[-1].in_arrears else 0.5))
        held += [len(r.nodes) for r in world.cluster.reservations.values() if is_placement(r)]
        leaving += len(requeues(world)) < JOBS
        assert len(reports) < 60, world.describe()
    longest = max(report.seconds for report in reports)
    # The first batch is given before it is known what a job takes; and a cycle has some commands for no job.
    assert longest <= max(CYCLE_S, 20 * job_s) + 5 * job_s
    assert longest <= 1.0
    assert requeues(world) == dict.fromkeys(jobs, 1)
    assert set(held) == {JOBS}  # the placement is there from the first command for a job on, and stays
    # What has left waits with its return until the last one leaves; the first cycles are small.
    assert leaving <= JOBS * job_s / CYCLE_S + 4


def test_the_next_cycle_begins_at_once_while_commands_wait(make_world: Callable[..., World]) -> None:
    world, jobs, urgent = full(make_world, 0.02)
    stop, pauses = threading.Event(), list[tuple[bool, float]]()
    report = world.loop.cycle

    def cycle() -> CycleReport:
        found = report()
        if world.started(urgent) is not None:
            stop.set()
        return found

    def pause(ends: float) -> None:
        assert world.loop.report is not None
        pauses.append((world.loop.report.in_arrears, ends - world.clock.monotonic()))
        world.clock.advance(max(0.0, pauses[-1][1]))

    world.loop.cycle, world.loop._pause = cycle, pause  # type: ignore[method-assign]
    world.loop.run(stop)
    assert sum(in_arrears for in_arrears, _ in pauses) > 4
    assert {round(seconds, 3) for in_arrears, seconds in pauses if in_arrears} == {0.0}
    assert all(seconds >= 0.5 for in_arrears, seconds in pauses if not in_arrears)
    assert requeues(world) == dict.fromkeys(jobs, 1)


def test_a_cycle_that_fails_is_followed_by_a_pause(make_world: Callable[..., World]) -> None:
    """Whatever the one before it has left to do."""
    world, _, _ = full(make_world, 0.02)
    world.observer.tolerant = True
    stop, pauses, done = threading.Event(), list[float](), list[bool]()
    snapshot = world.backend.snapshot

    def fails() -> object:
        if done and done[-1]:
            stop.set()
            raise OSError
        return snapshot()

    def pause(ends: float) -> None:
        assert world.loop.report is not None
        done.append(world.loop.report.in_arrears)
        pauses.append(ends - world.clock.monotonic())
        world.clock.advance(max(0.0, pauses[-1]))

    world.backend.snapshot = fails  # type: ignore[assignment, method-assign]
    world.loop._pause = pause  # type: ignore[method-assign]
    world.loop.run(stop)
    assert pauses[-2] <= 0.0
    assert pauses[-1] >= 0.5
