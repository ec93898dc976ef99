"""The planners beside HiGHS on a thousand problems of each shape, and HiGHS as a planner beside exhaustive search."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clearway.model.problem import EvictionProblem
from clearway.planning.dp.eviction_dp import EvictionDP, is_program
from tests.oracle.exhaustive import Sets, exhaustive
from tests.oracle.many import AS_GOOD, answers, cost_in_time, seeds
from tests.oracle.milp import AsProgram, milp_sweep
from tests.oracle.problems import SHAPES, TIMES, in_another_order, random_problem, side_by_side, with_returns
from tests.oracle.typed_problems import KINDS, typed_problem

IN_A_TEST = 100
WHOLE_NODES = 1_000 * TIMES  # of each shape; a problem takes HiGHS ten times as long as exhaustive search
SIDE_BY_SIDE = 200 * TIMES
AS_A_PLANNER = 100 * TIMES  # it solves four programs where the oracle solves one
AT_A_TIME = 10
TURNED_EVERY = 5  # and once more in another order on so many times fewer


def _side_by_side(seed: int) -> EvictionProblem:
    return side_by_side(random_problem(seed), seed)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("block", range(WHOLE_NODES // IN_A_TEST))
def test_lost_work_and_checkpoint_time_are_those_of_highs(shape: str, block: int) -> None:
    _beside_highs(random_problem, seeds(SHAPES, shape, block, IN_A_TEST))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("block", range(SIDE_BY_SIDE // IN_A_TEST))
def test_checkpoints_at_once_cost_what_highs_says(shape: str, block: int) -> None:
    _beside_highs(_side_by_side, seeds(SHAPES, shape, block, IN_A_TEST))


def _beside_highs(made: Callable[[int], EvictionProblem], numbers: range) -> None:
    planned = 0
    for seed in numbers:
        problem = made(seed)
        expected = milp_sweep(problem)
        found = answers(problem, EvictionDP().solve(problem))
        for mine, least in zip([answer and answer[:2] for answer in found], expected, strict=True):
            if mine != least:  # of whole nodes nothing else will do
                assert is_program(problem), problem
                assert mine is not None, problem
                assert least is not None, problem
                assert least[0] < mine[0] <= least[0] * (1 + AS_GOOD), problem
        planned += any(answer is not None and answer[2] for answer in found)
    assert planned >= len(numbers) / 5


MADE: dict[str, Callable[[int], EvictionProblem]] = {
    **dict.fromkeys(SHAPES, random_problem),
    **{f"{shape}, returns": lambda seed: with_returns(random_problem(seed), seed) for shape in SHAPES},
    **{f"{shape}, at once": _side_by_side for shape in SHAPES},
}


@pytest.mark.parametrize("shape", MADE)
@pytest.mark.parametrize("block", range(AS_A_PLANNER // AT_A_TIME))
def test_highs_as_a_planner_keeps_every_key_but_the_last(shape: str, block: int) -> None:
    _as_a_planner(MADE[shape], seeds(SHAPES, shape.split(",", maxsplit=1)[0], block, AT_A_TIME))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", range(AS_A_PLANNER // AT_A_TIME))
def test_highs_as_a_planner_keeps_every_key_but_the_last_on_parts_of_nodes(kind: str, block: int) -> None:
    _as_a_planner(typed_problem, seeds(KINDS, kind, block, AT_A_TIME))


def _as_a_planner(made: Callable[[int], EvictionProblem], numbers: range) -> None:
    for turn, seed in enumerate(numbers):
        problem = made(seed)
        sets = Sets(problem)
        curve = AsProgram().solve(problem)
        assert curve.exact, problem
        for point, answer, best in zip(curve.points, answers(problem, curve), exhaustive(problem, sets), strict=True):
            assert (answer is None) == (best is None), problem
            if answer is not None and best is not None:
                cost = cost_in_time(problem, answer[2], point.max_delay_s)
                least = cost_in_time(problem, best[2], point.max_delay_s)
                assert cost == least or least[0] < cost[0] <= least[0] * (1 + AS_GOOD), problem
                assert (cost[0], cost[2]) == answer[:2], problem
                gone = {job_id for job_id, _ in answer[2]}
                assert problem.needs is not None or answer[3] == sets.nodes_freed(gone), problem
        if turn % TURNED_EVERY == 0:
            assert AsProgram().solve(in_another_order(problem, seed)) == curve, problem
        assert problem == made(seed), "a planner has changed its input"
