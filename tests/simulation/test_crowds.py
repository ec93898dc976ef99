"""A crowd of urgent jobs for GPUs is planned in one cycle, and nobody needs an exact curve for that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clearway.model.plan import Curve
from clearway.model.problem import EvictionProblem
from clearway.planning.dp.eviction_dp import EvictionDP
from tests.benchmarks.gpu_world import KINDS, Spent, shared_gpus, urgent_gpu_jobs
from tests.builders import ManualClock
from tests.simulation.world import World


class Counting(EvictionDP):
    solved = 0

    def decide(self, problem: EvictionProblem, *given: Any, **named: Any) -> Curve:
        self.solved += 1
        return super().decide(problem, *given, **named)


@pytest.fixture
def time_per_cycle() -> float:
    return 60.0


@pytest.fixture
def crowded(tmp_path: Path, time_per_cycle: float, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[World, Counting]]:
    """64 nodes that 200 jobs share. Planning takes no time, so that only what it is expected to take counts."""
    monkeypatch.setattr(Spent, "monotonic", ManualClock.monotonic)
    world = shared_gpus(tmp_path, 1, nodes=64, jobs=200, time_per_cycle=time_per_cycle)
    planner = Counting()
    world.start_daemon(planner=planner)
    world.tick()
    yield world, planner
    world.store.close()


def test_a_crowd_is_planned_in_one_cycle(crowded: tuple[World, Counting]) -> None:
    world, planner = crowded
    jobs = urgent_gpu_jobs(world, 20, 1)
    world.tick()
    plans = {each.preemptor.job_id: each.plan for each in world.store.evictions(limit=100)}
    assert plans.keys() == set(jobs)
    assert planner.solved == 0
    for plan in plans.values():
        assert plan.together
        assert "may be needless at most" in plan.note
        assert not plan.curve.exact
        assert plan.curve.points == (plan.chosen,)
    placed = [name for plan in plans.values() for name in plan.placement_nodes]
    assert len(placed) == len(set(placed))
    world.run_until(lambda: all(world.started(job_id) for job_id in jobs), limit_s=1_000, every_s=5)


def test_those_that_are_impossible_are_told_why_and_remembered(crowded: tuple[World, Counting]) -> None:
    world, planner = crowded
    many = world.urgent(65, cpus_per_node=8, gpus=(("", 1),), user="wide", comment="clearway:max_delay=600s")
    world.tick()
    alone = {each.preemptor.job.job_id: each.why for each in world.loop.report.waiting}  # type: ignore[union-attr]
    assert alone[many].startswith("65 nodes asked, 0 free, and at most 64 more could be freed")
    other = world.urgent(65, cpus_per_node=8, gpus=(("", 1),), user="broad", comment="clearway:max_delay=600s")
    jobs = urgent_gpu_jobs(world, 20, 1)
    world.tick()
    assert world.loop.report is not None
    told = {each.preemptor.job.job_id: each.why for each in world.loop.report.waiting}
    assert told[other] == alone[many]
    assert {each.preemptor.job_id for each in world.store.evictions(limit=100)} == set(jobs)
    solved = planner.solved
    assert solved <= 3
    world.tick()
    assert planner.solved <= solved + 2, "what is under way has changed, so that they are looked at once more"
    world.tick()


def test_few_are_solved_for_alone_as_before(crowded: tuple[World, Counting]) -> None:
    world, planner = crowded
    [only] = urgent_gpu_jobs(world, 1, 1, KINDS[5:6])
    world.tick()
    [eviction] = world.store.evictions()
    assert eviction.preemptor.job_id == only
    assert eviction.plan.curve.planner == "eviction-dp"
    assert planner.solved > 0


@pytest.mark.parametrize("time_per_cycle", [60.0, 0.2])
def test_a_few_are_planned_together_without_a_curve_each(crowded: tuple[World, Counting]) -> None:
    world, planner = crowded
    few = urgent_gpu_jobs(world, 3, 1)
    world.tick()
    plans = {each.preemptor.job_id: each.plan for each in world.store.evictions()}
    assert not planner.solved
    assert plans.keys() == set(few)
    assert all(plan.together for plan in plans.values())
    world.run_until(lambda: all(world.started(job_id) for job_id in few), limit_s=1_000, every_s=5)
