"""A Slurm whose every command takes a while: urgent jobs are served all the same, and no plan is lost by its age.

A large site's squeue takes half a second, and a cycle asks it and other commands several times.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from clearway.model.operations import EvictionState
from clearway.simulation.backend import SimulatedBackend
from clearway.simulation.jobs import Program
from tests.simulation.test_het_jobs import het_job
from tests.simulation.world import SAVES, World, config

_FREE = ("available", "fenced_by", "close", "slurm_version", "name", "before_change")
READS = frozenset({"snapshot", "look_at", "job"})  # what squeue alone answers
COMMANDS = {"snapshot": 2, "look_at": 2}  # of a call that is more than one
PAUSE_S = 0.5
TIME_S = 0.99  # for plans in a cycle: about what a site has
SETTLES_S = 8.0  # from the last requeue to the start: the allowance for kills, and two looks of Slurm's own


class SlowBackend(SimulatedBackend):
    """Each of these calls takes so long by the world's clock; None: all calls do."""

    def __init__(self, world: World, takes_s: float, slow: frozenset[str] | None) -> None:
        super().__init__(world.cluster, world.clock)
        self._takes = takes_s, slow

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or name in _FREE or not callable(found):
            return found
        takes_s, slow = self._takes
        if slow is None or name in slow:
            self._clock.advance(takes_s * COMMANDS.get(name, 1))  # type: ignore[attr-defined]  # a test's clock
        return found


def slow_world(
    make_world: Callable[..., World], takes_s: float, slow: frozenset[str] | None, delay_s: float, **sections: Any
) -> World:
    """Eight nodes, each with a job that saves itself within two seconds; the daemon's own limits on its time."""
    rule = {"partition": ["urgent"], "max_delay": delay_s}
    world = make_world(config=config(preemptors=[rule], planning={"time_per_cycle": TIME_S}, **sections))
    for number in range(1, 9):
        program = Program(work_s=1e6, save_s=2.0)
        world.submit(program, on=(f"n{number}",), ran_s=300.0 * number, comment=f"{SAVES},took=2")
    world.start_daemon(backend=SlowBackend(world, takes_s, slow))
    return world


def cycle(world: World) -> float:
    """One cycle after its pause; what it takes, with the pause."""
    report, began = world.loop.report, world.clock.monotonic()
    world.clock.advance(0.0 if report is not None and report.in_arrears else PAUSE_S)
    world.loop.cycle()
    return world.clock.monotonic() - began


def served(world: World, started: Callable[[], list[datetime | None]], limit_s: float) -> float:
    """Cycle until all have started; the longest cycle."""
    longest_s, ends = 0.0, world.clock.monotonic() + limit_s
    while not all(started()):
        assert world.clock.monotonic() < ends, f"not served: {world.describe()}"
        longest_s = max(longest_s, cycle(world))
    return longest_s


def aged(world: World) -> int:
    return sum("too much time" in e.outcome for e in world.store.evictions(limit=200))


def submit(world: World, kind: str) -> list[str]:
    if kind == "heterogeneous":
        return het_job(world, {"nodes": 1}, {"nodes": 2})
    if kind == "array":
        fields = {"array_job_id": str(world.cluster.next_id), "pending_tasks": 2}
        return [world.urgent(1, **fields)]
    return [world.urgent(2)]


def starts(world: World, kind: str, ids: list[str]) -> list[datetime | None]:
    if kind == "array":
        tasks = [e.job for e in world.cluster.jobs.values() if e.job.array_job_id == ids[0]]
        return [task.start_time if task.state.holds_nodes else None for task in tasks]
    return [world.started(job_id) for job_id in ids]


@pytest.mark.parametrize("slow", [READS, None], ids=["squeue", "all"])
@pytest.mark.parametrize("delay_s", [0.0, 15.0, 60.0])
@pytest.mark.parametrize("takes_s", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("kind", ["single", "array", "heterogeneous"])
@pytest.mark.fault(
    "With a squeue of half a second an urgent job without any delay was planned again and again, and never served.",
    found_by="trial",
)
def test_an_urgent_job_is_served_within_its_delay_and_two_cycles(
    make_world: Callable[..., World], kind: str, takes_s: float, delay_s: float, slow: frozenset[str] | None
) -> None:
    world = slow_world(make_world, takes_s, slow, delay_s)
    for _ in range(3):
        cycle(world)
    submitted = world.clock.now()
    ids = submit(world, kind)
    longest_s = served(world, lambda: starts(world, kind, ids), delay_s + 60.0)
    took_s = max((at - submitted).total_seconds() for at in starts(world, kind, ids) if at is not None)
    assert took_s <= delay_s + 2 * longest_s + SETTLES_S, world.describe()
    assert aged(world) <= 1
    evictions = world.store.evictions(limit=200)
    assert not [e for e in evictions if e.state in (EvictionState.CANCELLED, EvictionState.FAILED)], world.describe()
    assert len(evictions) <= 2 * len(ids)
