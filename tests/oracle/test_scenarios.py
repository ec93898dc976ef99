"""Problems structured like the paper's Scenarios 1 to 3, beside an independent solver."""

from __future__ import annotations

import pytest

from clearway.planning.backtracking import Backtracking
from clearway.planning.eviction_dp import EvictionDP
from clearway.simulation.scenarios import scenario
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


def test_backtracking_agrees_on_scenario_1() -> None:
    problem = scenario(1, 0).problem()
    assert Backtracking().solve(problem).points == EvictionDP().solve(problem).points
