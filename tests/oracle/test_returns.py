"""What coming back costs, as the key after lost work: beside exhaustive search and the tables over all jobs."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from clearway.model.problem import Action, Candidate, EvictionProblem, Option
from clearway.planning.bounds import core
from clearway.planning.dp import eviction_dp
from clearway.planning.dp.eviction_dp import EvictionDP, is_program
from tests.oracle.exhaustive import Answer, exhaustive
from tests.oracle.many import EXACT, answers, check_answers, cost_in_time, seeds
from tests.oracle.problems import SHAPES, random_problem, with_returns
from tests.oracle.test_core import KINDS, medium_problem


@pytest.mark.parametrize("shape", SHAPES)
def test_it_decides_between_plans(shape: str) -> None:
    mattered = 0
    for seed in seeds(SHAPES, shape, 0, 100):
        plain = random_problem(seed)
        mattered += exhaustive(with_returns(plain, seed)) != exhaustive(plain)
    assert mattered >= 5


def test_bounds_and_small_cores_keep_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eviction_dp, "CORE_CELLS", 0)
    monkeypatch.setattr(core, "TRIAL_JOBS", 1)
    for seed in range(400):
        problem = with_returns(random_problem(seed), seed)
        curve = EvictionDP().solve(problem)
        assert curve.exact
        check_answers(problem, answers(problem, curve), exhaustive(problem))


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


@pytest.mark.parametrize("shape", SHAPES)
def test_exact_planners_choose_the_point_that_the_rule_names(shape: str) -> None:
    """The rule of ``model.choose`` once more, over the answers of exhaustive search and pair by pair."""
    differs = 0
    for turn, seed in enumerate(seeds(SHAPES, shape, 0, 100)):
        problem = with_returns(random_problem(seed), seed, most=(9, 200)[turn % 2])
        best = exhaustive(problem)
        curves = [
            planner.solve(problem) for planner in EXACT if planner.name != EvictionDP.name or not is_program(problem)
        ]
        for nodes in (0, 1, 5):
            expected = _chosen(problem, best, nodes)
            for curve in curves:
                point = curve.choose(nodes)
                assert (None if point is None else point.max_delay_s // problem.step_s) == expected, (curve, problem)
            differs += expected != _chosen(problem, best, None)
    assert differs


def _chosen(problem: EvictionProblem, best: list[Answer | None], nodes: int | None) -> int | None:
    """The step of the point that no other point beats."""
    costs = {
        step: cost_in_time(problem, answer[2], step * problem.step_s) for step, answer in enumerate(best) if answer
    }
    if nodes is None:
        return min(costs, key=lambda step: (costs[step], step), default=None)
    least = min(costs.values(), default=None)
    equal = [step for step, cost in costs.items() if least is not None and cost[0] == least[0]]

    spared = [step for step in equal if not costs[step][3]]
    if spared:
        return min(spared)

    def weighed(step: int) -> Fraction:
        return Fraction(costs[step][1] + nodes * step * problem.step_s)

    return min(equal, key=lambda step: (weighed(step), costs[step][2:], step), default=None)


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
