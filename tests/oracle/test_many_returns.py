"""Every planner on thousands of problems of each shape, where coming back costs something."""

from __future__ import annotations

from tests.oracle.many import check_all, every_block, seeds
from tests.oracle.problems import SHAPES, random_problem, with_returns


@every_block(SHAPES)
def test_planners_keep_what_is_claimed_of_them(shape: str, block: int) -> None:
    check_all(lambda seed: with_returns(random_problem(seed), seed), seeds(SHAPES, shape, block))
