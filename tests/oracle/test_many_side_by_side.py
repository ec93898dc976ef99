"""Every planner on thousands of problems of each shape, where checkpoints share the file system."""

from __future__ import annotations

from clearway.model.problem import EvictionProblem
from tests.oracle.many import check_all, every_block, seeds
from tests.oracle.problems import SHAPES, beside_others, random_problem, side_by_side, with_returns


@every_block(SHAPES)
def test_planners_keep_what_is_claimed_of_them(shape: str, block: int) -> None:
    check_all(_made, seeds(SHAPES, shape, block))


def _made(seed: int) -> EvictionProblem:
    problem = side_by_side(random_problem(seed), seed)
    problem = with_returns(problem, seed) if seed % 3 == 0 else problem
    return beside_others(problem, seed) if seed // len(SHAPES) % 2 else problem
