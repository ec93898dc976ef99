"""Curves that many urgent jobs share are those that the exact planner finds for each of them."""

from __future__ import annotations

from dataclasses import replace

from clearway.model.problem import EvictionProblem
from clearway.planning.dp import numbers
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.planning.dp.numbers import curves_for_many
from tests.oracle.problems import TIMES, random_problem

CASES = 400 * TIMES
STEPS = 5


def own_steps(problem: EvictionProblem) -> EvictionProblem:
    """The problem with the steps of its kind of delays."""
    longest_s = numbers._SHORTEST_S
    while longest_s < problem.max_delay_s:
        longest_s *= 2
    step_s = -(-longest_s // STEPS)
    return replace(problem, step_s=step_s, max_delay_s=problem.max_delay_s // step_s * step_s)


def test_shared_curves_are_those_of_each_problem_alone() -> None:
    """Ties and ends included; where its own kind has no plan, the curve is the problem's own."""
    planner, shared = EvictionDP(), 0
    for seed in range(CASES):
        first = random_problem(seed)
        first = replace(first, max_delay_s=first.max_delay_s * 10)
        most = sum(job.nodes for job in first.candidates)
        many = curves_for_many(planner, most, STEPS)
        for nodes in range(most + 2):
            for delay_s in (first.max_delay_s // 3, first.max_delay_s):
                problem = replace(first, nodes_needed=nodes, max_delay_s=delay_s)
                found, expected = many.solve(problem), planner.solve(own_steps(problem))
                if nodes and expected.choose() is not None and found != planner.solve(problem):
                    assert found == expected, (seed, nodes, delay_s)
                    shared += 1
                else:
                    assert found in (expected, planner.solve(problem)), (seed, nodes, delay_s)
    assert shared > CASES
