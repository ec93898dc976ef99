"""Programs where nodes are shared: their plans are valid, and their bounds below what any plan loses."""

from __future__ import annotations

import pytest

from clearway.planning.bounds import in_doubt, programs
from clearway.planning.bounds.programs import SETTLED, with_programs
from clearway.planning.bounds.search import Solved
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.planning.formulation.windows import Contest
from tests.oracle.problems import TIMES, random_problem
from tests.oracle.typed_problems import typed_problem

CASES = 120 * TIMES


@pytest.mark.parametrize(("most", "doubt"), [(0, 0.005), (100, 0.005), (1_000_000, 0.005), (1_000_000, 0.0)])
def test_plans_by_programs_are_valid_and_as_good_as_they_say(
    monkeypatch: pytest.MonkeyPatch, most: int, doubt: float
) -> None:
    monkeypatch.setattr(programs, "MOST_CELLS", most)
    monkeypatch.setattr(in_doubt, "DOUBT", doubt)
    checked = solved = settled = 0
    for seed in range(CASES):
        for problem in (random_problem(seed), typed_problem(seed)):
            if problem.needs is not None and problem.needs.together:
                continue
            curve = EvictionDP().solve_plain(problem)
            assert curve.exact, seed
            contest = Contest(problem)
            windows = list(contest.windows())
            found = with_programs(windows, Solved(proven=False, gap=1.0))
            points = contest.points(windows, lambda _, answers=found.answers: answers.get)
            for best, point in zip(curve.points, points, strict=True):
                if most == 1_000_000:
                    assert point.feasible == best.feasible, seed
                if not point.feasible:
                    continue
                assert best.feasible, seed
                assert best.lost_work_node_s is not None
                assert point.lost_work_node_s is not None
                assert point.lost_work_node_s >= best.lost_work_node_s, seed
                assert point.lost_work_node_s * (1 - found.gap) <= best.lost_work_node_s + 1e-6, seed
                checked += 1
            solved += bool(found.answers)
            settled += bool(found.answers) and found.gap <= SETTLED
    assert checked > CASES // 2 or not most
    assert most < 1_000_000 or settled > 0.9 * solved


def test_the_last_deadline_comes_first_and_every_one_once() -> None:
    for count in range(20):
        order = programs._halves(count)
        assert sorted(order) == list(range(count))
        assert order[:1] == [count - 1] * bool(count)
