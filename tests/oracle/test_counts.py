"""The documentation says on how many problems the planners are tried by default; here it is held to that."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.oracle import many, test_many_highs, test_planners, test_several, test_several_needs, test_typed
from tests.oracle.problems import SHAPES, TIMES
from tests.oracle.sampled import CHANGED, RECENT, UNCHANGED, Share
from tests.oracle.typed_problems import KINDS

ROOT = Path(__file__).parents[2]
PAGE = " ".join(
    (ROOT / "docs/explanation/planners.md").read_text().partition("## How their answers are checked")[2].split()
)


def test_the_page_tells_what_is_run_by_default() -> None:
    rows = [
        tuple(int(each.replace(",", "")) for each in row)
        for row in re.findall(r"\| (\d+) \| ([\d,]+) \| ([\d,]+) \|", PAGE)
    ]
    each = many.PROBLEMS // TIMES
    expected = [(len(shapes), each, len(shapes) * each) for shapes in (SHAPES, SHAPES, SHAPES, KINDS)]
    for several in (test_several, test_several_needs):
        together = several.BLOCKS * several.IN_A_TEST // TIMES
        expected.append((len(several.SHAPES), together, len(several.SHAPES) * together))
    assert rows == expected
    assert f"on {test_many_highs.WHOLE_NODES // TIMES:,} problems of each shape of whole nodes" in PAGE
    assert f"on {test_many_highs.SIDE_BY_SIDE // TIMES} of each where checkpoints share" in PAGE
    assert f"every key but the last on {test_many_highs.AS_A_PLANNER // TIMES} problems of each shape" in PAGE
    assert test_planners.SPECIAL == test_typed.SPECIAL == 2_000
    assert "2,000 problems of one job, and 2,000 where all jobs are needed" in PAGE
    assert many.RULES_EVERY == 4
    assert len(many.RULES) == 7
    assert "every fourth of these problems the seven rules" in PAGE
    assert f"{RECENT} commits" in PAGE
    assert f"one block in {CHANGED}," in PAGE
    assert f"one in {UNCHANGED} otherwise" in PAGE


def test_every_block_of_problems_is_another() -> None:
    numbers = [
        seed
        for shape in SHAPES
        for block in range(many.PROBLEMS // many.IN_A_TEST)
        for seed in many.seeds(SHAPES, shape, block)
    ]
    assert len(set(numbers)) == len(numbers) == len(SHAPES) * many.PROBLEMS


@pytest.mark.parametrize("of", [1, CHANGED, UNCHANGED])
def test_every_block_of_problems_has_its_turn(of: int) -> None:
    tried = [[place for place in range(20) if Share(of, turn).has(place)] for turn in range(of)]
    assert all(tried)
    assert sorted(place for each in tried for place in each) == list(range(20))
