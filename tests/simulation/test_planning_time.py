"""A cycle plans for as many urgent jobs as it has time for, whatever is submitted. Time is counted in planner calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from clearway.execution.job_batch import WHOLE_S
from clearway.model.cluster import JobState, Reservation
from clearway.model.operations import EvictionState
from clearway.model.plan import Curve
from clearway.model.problem import EvictionProblem
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.simulation.jobs import Program
from tests.builders import NOW, ManualClock
from tests.simulation.bad_days import busy
from tests.simulation.world import World, config

A_SOLUTION_S = 0.2
LIMIT_S = 2.0
A_COMMAND_S = 0.2
MOST_SOLUTIONS = 20  # twice the limit: what is begun in time is ended


class SlowPlanner(EvictionDP):
    """Each solution takes a fifth of a second by the daemon's clock, and nothing else takes any time."""

    def __init__(self, clock: Stopwatch) -> None:
        super().__init__()
        self.clock = clock
        self.solved = 0

    def decide(self, problem: EvictionProblem, *given: Any, **named: Any) -> Curve:
        self.solved += 1
        self.clock.worked_s += A_SOLUTION_S
        return super().decide(problem, *given, **named)


class Stopwatch(ManualClock):
    """A clock whose ``monotonic`` moves with the planner's work."""

    worked_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.worked_s


def hurried(make_world: Callable[..., World], nodes: int = 64, **sections: Any) -> tuple[World, SlowPlanner]:
    """A world of so many nodes, each with a job of its own that saves itself."""
    clock = Stopwatch(NOW)
    settings = config(planning={"time_per_cycle": LIMIT_S}, **sections)
    world = make_world(clock=clock, node_count=nodes, config=settings)
    for number in range(1, nodes + 1):
        world.submit(Program(work_s=1e6), on=(f"n{number}",), ran_s=300.0 * number)
    planner = SlowPlanner(clock)
    world.start_daemon(planner=planner)
    return world, planner


def solutions(world: World, planner: SlowPlanner) -> int:
    before = planner.solved
    world.tick()
    return planner.solved - before


@pytest.mark.fault("A hundred urgent jobs that cannot be served kept the daemon from everything else.", found_by="load")
def test_a_hundred_urgent_jobs_that_cannot_be_served(make_world: Callable[..., World]) -> None:
    world, planner = hurried(make_world)
    jobs = [world.urgent(65) for _ in range(100)]
    assert all(solutions(world, planner) <= MOST_SOLUTIONS for _ in range(20))
    assert planner.solved == 100
    report = world.loop.report
    assert report is not None
    assert {each.preemptor.job.job_id for each in report.waiting} == set(jobs), "all of them are told of"
    assert not any("its turn comes" in each.why for each in report.waiting), "all of them were looked at"
    assert solutions(world, planner) == 0, "and are not looked at again while nothing changes"
    world.cluster.end_run(world.cluster.jobs["1"], requeue=False)
    assert solutions(world, planner) > 0


def test_forty_urgent_jobs_that_can_be_served(make_world: Callable[..., World]) -> None:
    world, planner = hurried(make_world)
    for _ in range(40):
        world.urgent(1)
    for _ in range(40):
        assert solutions(world, planner) <= MOST_SOLUTIONS
    assert len(world.store.evictions(limit=100)) == 40


def test_a_cycle_begins_as_many_evictions_as_it_has_time_for(make_world: Callable[..., World]) -> None:
    world, planner = hurried(make_world)
    clock, create = planner.clock, world.backend.create_reservation

    def slow(reservation: Reservation) -> None:
        clock.worked_s += A_COMMAND_S
        create(reservation)

    world.backend.create_reservation = slow  # type: ignore[method-assign]
    urgent = [world.urgent(1) for _ in range(20)]
    by_commands: list[float] = []
    while len(world.store.evictions(limit=100)) < len(urgent) or sum(by_commands) < len(urgent) * A_COMMAND_S - 1e-6:
        before, solved = clock.worked_s, planner.solved
        world.tick()
        by_commands.append(clock.worked_s - before - (planner.solved - solved) * A_SOLUTION_S)
        assert by_commands[-1] <= WHOLE_S + 2 * A_COMMAND_S  # and the first of those that are planned now
        assert len(by_commands) < 100
        assert world.loop.report is not None
        placed = [e for e in world.store.evictions(limit=100) if e.state is not EvictionState.PLACING]
        if len(placed) < len(world.store.evictions(limit=100)):
            assert world.loop.report.in_arrears, "the next cycle begins at once"
    world.run_until(lambda: all(world.started(job_id) for job_id in urgent))
    assert world.loop.report is not None
    assert not world.loop.report.in_arrears


def test_what_is_under_way_advances_in_every_cycle(make_world: Callable[..., World]) -> None:
    world, planner = hurried(make_world)
    served = world.urgent(2)
    world.tick()
    for _ in range(100):
        world.urgent(60)
    world.run_until(lambda: world.started(served) is not None, limit_s=8)
    assert planner.solved


def test_one_users_jobs_do_not_keep_another_users_job_waiting(make_world: Callable[..., World]) -> None:
    world, _ = hurried(make_world)
    for _ in range(100):
        world.urgent(65, user="greedy")
    world.tick()
    late = world.urgent(1, user="modest")
    world.tick()
    assert any(e.preemptor.job_id == late for e in world.store.open_evictions())


def test_the_users_take_turns(make_world: Callable[..., World]) -> None:
    world, _ = hurried(make_world)
    for _ in range(20):
        world.urgent(1, user="greedy")
    for _ in range(3):
        world.urgent(1, user="modest")
    world.run_until(lambda: len(world.store.evictions(limit=100)) >= 6, limit_s=60)
    users = [e.preemptor.user for e in world.store.evictions(limit=100)]
    assert users.count("modest") == 3


def test_few_urgent_jobs_are_planned_together_as_before(make_world: Callable[..., World]) -> None:
    """One job of four nodes is cheap to lose: together they need only that one."""
    clock = Stopwatch(NOW)
    world = make_world(clock=clock, config=config(planning={"time_per_cycle": LIMIT_S}))
    big = world.submit(Program(work_s=1e6), on=("n1", "n2", "n3", "n4"), num_nodes=4, ran_s=500.0)
    for number in range(5, 9):
        world.submit(Program(work_s=1e6), on=(f"n{number}",), ran_s=1_500.0)
    world.start_daemon(planner=SlowPlanner(clock))
    world.urgent(2)
    world.urgent(2)
    world.tick()
    evictions = world.store.evictions()
    assert len(evictions) == 2
    assert [p.job_id for e in evictions for p in e.preemptions] == [big]


def test_an_eviction_for_which_no_other_plan_is_possible_is_not_planned_anew_in_every_cycle(
    make_world: Callable[..., World],
) -> None:
    world, planner = hurried(make_world, nodes=8, execution={"kill_allowance": "6s", "late_checkpoint": "wait"})
    world.urgent(8)
    world.tick()
    (eviction,) = world.store.evictions()
    assert eviction.state is EvictionState.PREEMPTING
    world.cluster.nodes["n1"] = replace(world.cluster.nodes["n1"], available=False)
    world.tick()
    world.tick()
    assert sum(solutions(world, planner) for _ in range(10)) <= 2


@pytest.mark.parametrize("requests", [3])
@pytest.mark.fault("systemd ended a daemon in a long cycle, which was at work.", found_by="load")
def test_the_watchdog_is_fed_within_a_cycle(make_world: Callable[..., World], requests: int) -> None:
    world = make_world()
    jobs = busy(world)
    for _ in range(requests):
        world.urgent(2)
    beats: list[str] = []
    world.loop._alive = lambda: beats.append("alive")
    world.tick()
    planned = len(beats)
    assert planned >= requests
    world.tick()
    assert len(beats) - planned >= requests, "with every operation under way"
    assert all(world.state(job_id) is JobState.RUNNING for job_id in jobs[6:])
