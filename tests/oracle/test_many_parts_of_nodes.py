"""Every planner on thousands of problems of each kind, where jobs share nodes and the need is of parts of nodes."""

from __future__ import annotations

from tests.oracle.many import check_all, every_block, seeds
from tests.oracle.typed_problems import KINDS, typed_problem


@every_block(KINDS)
def test_planners_keep_what_is_claimed_of_them(shape: str, block: int) -> None:
    check_all(typed_problem, seeds(KINDS, shape, block))
