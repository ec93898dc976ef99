"""Problems structured like the paper's Scenarios 1 to 3, beside an independent solver."""

from __future__ import annotations

import pytest

from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.simulation.theta import CHECKPOINT_INTERVAL_S, FILE_SYSTEM_GB_S, NODE_MEMORY_GB, OCCUPIED_NODES
from clearway_lab.baselines import Backtracking
from clearway_lab.studies.scenarios import lost_work_node_s, scenario, sys_checkpoint_s
from tests.oracle.milp import milp_sweep


@pytest.mark.parametrize("node_multiple", [128, 1])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_lost_work_and_checkpoint_time_are_those_of_highs(number: int, node_multiple: int) -> None:
    for seed in range(2):
        problem = scenario(number, seed, node_multiple=node_multiple).problem()
        curve = EvictionDP().solve(problem)
        found = [
            None
            if point.lost_work_node_s is None or point.checkpoint_s is None
            else (point.lost_work_node_s, point.checkpoint_s // problem.step_s)
            for point in curve.points
        ]
        assert found == milp_sweep(problem)


@pytest.mark.parametrize(("number", "jobs", "needed"), [(1, 12, 512), (2, 16, 1_024), (3, 24, 2_048)])
def test_a_scenario_is_drawn_as_the_paper_says(number: int, jobs: int, needed: int) -> None:
    for node_multiple in (1, 128):
        drawn = scenario(number, 7, node_multiple=node_multiple)
        assert drawn == scenario(number, 7, node_multiple=node_multiple)
        assert drawn != scenario(number, 8, node_multiple=node_multiple)
        assert (len(drawn.jobs), drawn.nodes_needed) == (jobs, needed)
        assert sum(job.nodes for job in drawn.jobs) == OCCUPIED_NODES
        assert all(job.nodes > 0 and job.nodes % node_multiple == 0 for job in drawn.jobs)
        for job in drawn.jobs:
            assert 0.4 <= job.memory_gb / NODE_MEMORY_GB <= 0.9
            assert 0.2 <= job.app_checkpoint_gb / job.memory_gb <= 0.6
            assert lost_work_node_s(job) == job.nodes * (job.elapsed_s % CHECKPOINT_INTERVAL_S)
            assert sys_checkpoint_s(job) >= job.nodes * job.memory_gb / FILE_SYSTEM_GB_S
        assert len(EvictionDP().solve(drawn.problem()).points) == 16


def test_backtracking_agrees_on_scenario_1() -> None:
    problem = scenario(1, 0).problem()
    assert Backtracking().solve(problem).points == EvictionDP().solve(problem).points
