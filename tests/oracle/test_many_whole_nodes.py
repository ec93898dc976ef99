"""Every planner on thousands of problems of each shape, on nodes that are taken whole."""

from __future__ import annotations

from tests.oracle.many import check_all, every_block, seeds
from tests.oracle.problems import SHAPES, random_problem


@every_block(SHAPES)
def test_planners_keep_what_is_claimed_of_them(shape: str, block: int) -> None:
    check_all(random_problem, seeds(SHAPES, shape, block))
