"""What coming back costs, as the key after lost work: beside exhaustive search, HiGHS and the tables over all jobs."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from clearway.model import Action, Candidate, Curve, EvictionProblem, Option
from clearway.planning import core, eviction_dp, node_groups
from clearway.planning.backtracking import Backtracking
from clearway.planning.eviction_dp import EvictionDP
from clearway.planning.milp import Milp
from tests.oracle.exhaustive import exhaustive
from tests.oracle.problems import SHAPES, random_problem, with_returns
from tests.oracle.test_core import KINDS, medium_problem
from tests.oracle.test_planners import answers

PROBLEMS_PER_SHAPE = 100
Keys = list[tuple[Fraction, int, int, int] | None]


def keys(curve: Curve) -> Keys:
    """The keys of every point, with the return summed here."""
    found: Keys = []
    for point in curve.points:
        if not point.feasible:
            found.append(None)
            continue
        used = [planned for planned in point.actions if planned.action is not Action.END]
        back = sum(planned.return_node_s for planned in used)
        found.append((Fraction(str(point.lost_work_node_s)), back, point.checkpoint_s or 0, len(used)))
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_the_plan_is_the_one_of_exhaustive_search(shape: str) -> None:
    first = SHAPES.index(shape)
    mattered = 0
    for seed in range(first, first + PROBLEMS_PER_SHAPE * len(SHAPES), len(SHAPES)):
        plain = random_problem(seed)
        problem = with_returns(plain, seed)
        expected = exhaustive(problem)
        for planner in (EvictionDP(), Backtracking()):
            curve = planner.solve(problem)
            assert curve.exact
            assert answers(problem, curve) == expected, f"{planner.name} on {problem}"
        mattered += expected != exhaustive(plain)
    assert mattered >= 5, "it decides between plans"


def test_the_mixed_integer_program_has_the_same_keys() -> None:
    for seed in range(200):
        problem = with_returns(random_problem(seed), seed)
        found = Milp().solve(problem)
        assert found.exact
        assert keys(found) == keys(EvictionDP().solve(problem)), problem


def test_groups_by_bounds_and_small_cores_keep_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_groups, "LABELS_LIMIT", 0)
    monkeypatch.setattr(eviction_dp, "CORE_CELLS", 0)
    monkeypatch.setattr(core, "TRIAL_JOBS", 1)
    for seed in range(400):
        problem = with_returns(random_problem(seed), seed)
        curve = EvictionDP().solve(problem)
        assert curve.exact
        assert answers(problem, curve) == exhaustive(problem), problem


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_and_tables_give_the_same_plan(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(100, 106):
        problem = with_returns(medium_problem(kind, seed), seed, most=100_000)
        with monkeypatch.context() as patch:
            patch.setattr(eviction_dp, "CORE_CELLS", 10**18)
            expected = EvictionDP().solve(problem)
        found = EvictionDP().solve(problem)
        assert found == expected
        for point in found.points:
            assert point.return_node_s == sum(planned.return_node_s for planned in point.actions)


def test_numbers_too_large_for_both_keep_lost_work_exact() -> None:
    def job(job_id: str, lost: int, back: int) -> Candidate:
        return Candidate(job_id, 1, (Option(Action.KILL, lost, return_node_s=back),))

    jobs = (job("1", 10**15, 0), job("2", 10**15 - 1, 4_999_999), job("3", 10**15 - 1, 10_000))
    problem = EvictionProblem(1, 0, 1, jobs)
    (point,) = EvictionDP().solve(problem).points
    assert [planned.job_id for planned in point.actions] == ["3"], "less lost work first, then the cheaper return"
    rough = EvictionProblem(1, 0, 1, (job("1", 10**15, 10_001), job("2", 10**15, 10_000), job("4", 1, 10**15)))
    (point,) = EvictionDP().solve(replace(rough, nodes_needed=2)).points
    assert point.lost_work_node_s == 10**15 + 1
    assert point.return_node_s >= 10**15 + 10_000, "told exactly, however roughly it was compared"


def test_a_return_is_never_negative() -> None:
    problem = EvictionProblem(1, 0, 1, (Candidate("1", 1, (Option(Action.KILL, 1, return_node_s=-1),)),))
    with pytest.raises(ValueError, match="coming back"):
        EvictionDP().solve(problem)
