"""Shared nodes, GPUs of types, cores and memory, chosen nodes and places: what is special beside exhaustive search."""

from __future__ import annotations

import copy
from dataclasses import replace
from fractions import Fraction

import pytest

from clearway.model.plan import Curve
from clearway.model.problem import Action, EvictionProblem
from clearway.planning.bounds import shared_core
from clearway.planning.dp import eviction_dp
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.planning.formulation import node_groups
from clearway.planning.rules import LOSS_PER_NODE_PRUNE
from tests.oracle.exhaustive import Answer, exhaustive, nodes_freed, whole_steps
from tests.oracle.many import answers, seeds, told
from tests.oracle.problems import TIMES, in_another_order
from tests.oracle.typed_problems import KINDS, typed_problem

SPECIAL = 2_000  # problems beside exhaustive search
PROBLEMS_BY_BOUNDS = 100 * TIMES  # of each kind


def expected(problem: EvictionProblem) -> list[Answer | None]:
    return told(problem, exhaustive(problem))


def found(problem: EvictionProblem, curve: Curve) -> list[Answer | None]:
    return told(problem, answers(problem, curve))


@pytest.mark.parametrize("kind", KINDS)
def test_the_plan_found_by_bounds_is_the_one_of_exhaustive_search(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_groups, "LABELS_LIMIT", 0)
    planned = 0
    for seed in seeds(KINDS, kind, 0, PROBLEMS_BY_BOUNDS):
        problem = typed_problem(seed)
        best = expected(problem)
        curve = EvictionDP().solve(problem)
        assert curve.exact
        assert curve.gap == 0
        assert found(problem, curve) == best, problem
        planned += any(answer is not None and answer[2] for answer in best)
    assert planned > 5


@pytest.mark.parametrize("jobs", [0, 1])
def test_no_job_and_one_job(jobs: int) -> None:
    for seed in range(SPECIAL):
        problem = typed_problem(seed, jobs=jobs)
        assert found(problem, EvictionDP().solve(problem)) == expected(problem), problem


def test_all_nodes_and_more_than_there_are() -> None:
    for seed in range(SPECIAL // 2):
        problem = typed_problem(seed)
        for needed in (len(problem.nodes), len(problem.nodes) + 1):
            asks = replace(problem, nodes_needed=needed)
            assert found(asks, EvictionDP().solve(asks)) == expected(asks), asks


@pytest.mark.parametrize("few", ["at a time", "in all"])
def test_a_plan_that_is_not_proven_is_valid_and_its_gap_is_honest(few: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_groups, "LABELS_LIMIT", 0)
    if few == "at a time":
        monkeypatch.setattr(shared_core, "TRIAL_LABELS", 1)
        monkeypatch.setattr(shared_core, "MOST_LABELS", 1)
    else:
        monkeypatch.setattr(eviction_dp, "MOST_LABELS_IN_ALL", 12)
    monkeypatch.setattr(eviction_dp, "SETTLED", 1.0)  # no programs, which would find the best plans
    inexact = worse = 0
    for kind in ("gpus", "types", "all resources", "chosen nodes", "whole nodes"):
        for seed in seeds(KINDS, kind, 0, 60):
            problem = typed_problem(seed)
            curve, best = EvictionDP().solve(problem), expected(problem)
            if curve.exact:
                assert found(problem, curve) == best
                continue
            inexact += 1
            rule = LOSS_PER_NODE_PRUNE.solve(problem)
            for point, least, simple in zip(curve.points, best, rule.points, strict=True):
                if not point.feasible:
                    assert not simple.feasible
                    continue
                assert not simple.feasible or (point.lost_work_node_s or 0) <= (simple.lost_work_node_s or 0)
                assert least is not None
                assert point.lost_work_node_s is not None
                lost = Fraction(str(point.lost_work_node_s))
                worse += lost > least[0]
                assert least[0] <= lost
                assert float(lost - least[0]) <= curve.gap * float(lost) * (1 + 1e-9)
                assert point.nodes_freed == nodes_freed(problem, {planned.job_id for planned in point.actions})
                assert _steps(problem, point.actions) * problem.step_s <= point.max_delay_s
    assert inexact > 30
    assert worse > 0


def _steps(problem: EvictionProblem, actions: tuple) -> int:  # type: ignore[type-arg]
    by_job = {job.job_id: job for job in problem.candidates}
    return sum(
        min(
            whole_steps(option.checkpoint_s, problem.step_s)
            for option in by_job[planned.job_id].options
            if option.action is planned.action
        )
        for planned in actions
        if planned.action is not Action.END
    )


def test_the_order_of_the_candidates_does_not_matter_by_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_groups, "LABELS_LIMIT", 0)
    for seed in range(120):
        problem = typed_problem(seed)
        before = copy.deepcopy(problem)
        curve = EvictionDP().solve(problem)
        assert problem == before
        assert EvictionDP().solve(in_another_order(problem, seed)) == curve
