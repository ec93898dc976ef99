"""Shared nodes, GPUs of types, cores and memory, chosen nodes and places: what is special beside exhaustive search."""

from __future__ import annotations

import copy
from dataclasses import replace
from fractions import Fraction

import pytest

from clearway.model.problem import EvictionProblem
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.planning.joint import one
from clearway.planning.rules import LOSS_PER_NODE_PRUNE
from tests.oracle.exhaustive import Sets, exhaustive
from tests.oracle.many import AS_GOOD, answers, check_answers, check_decided, cost_in_time, ended, seeds
from tests.oracle.problems import TIMES, in_another_order
from tests.oracle.typed_problems import KINDS, typed_problem

SPECIAL = 2_000  # problems beside exhaustive search
DECIDED = 50 * TIMES  # of each kind


def check(problem: EvictionProblem) -> None:
    curve = EvictionDP().solve(problem)
    assert curve.exact
    check_answers(problem, answers(problem, curve), exhaustive(problem))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_carried_out_is_the_best_point_of_the_curve(kind: str) -> None:
    for seed in seeds(KINDS, kind, 0, DECIDED):
        check_decided(typed_problem(seed), (0, 1, 3)[seed % 3])


@pytest.mark.parametrize("jobs", [0, 1])
def test_no_job_and_one_job(jobs: int) -> None:
    for seed in range(SPECIAL):
        check(typed_problem(seed, jobs=jobs))


def test_all_nodes_and_more_than_there_are() -> None:
    for seed in range(SPECIAL // 2):
        problem = typed_problem(seed)
        for needed in (len(problem.nodes), len(problem.nodes) + 1):
            check(replace(problem, nodes_needed=needed))


def test_a_plan_that_is_not_proven_is_valid_and_its_gap_is_honest(monkeypatch: pytest.MonkeyPatch) -> None:
    """HiGHS has no time at all: what is left is the simple rule's plan."""
    monkeypatch.setattr(one, "MOST_S", 0.0)
    inexact = 0
    for kind in ("gpus", "types", "all resources", "chosen nodes", "whole nodes"):
        for seed in seeds(KINDS, kind, 0, 60):
            problem = typed_problem(seed)
            curve, best = EvictionDP().decide(problem), exhaustive(problem)[-1]
            inexact += not curve.exact
            (point,) = curve.points
            if not point.feasible:
                assert not curve.exact or best is None
                assert not LOSS_PER_NODE_PRUNE.decide(problem).points[0].feasible
                continue
            assert best is not None
            actions = tuple((each.job_id, each.action) for each in point.actions)
            lost, *_ = cost_in_time(problem, actions, problem.max_delay_s)
            least, *_ = cost_in_time(problem, best[2], problem.max_delay_s)
            gone = {job_id for job_id, _ in actions} | ended(problem, problem.max_delay_s)
            assert Sets(problem).frees_enough(gone), problem
            assert lost <= least * (1 + AS_GOOD) if curve.exact else lost - least <= Fraction(curve.gap + 1e-9) * lost
    assert inexact > 30


def test_the_order_of_the_candidates_does_not_matter() -> None:
    for seed in range(120):
        problem = typed_problem(seed)
        before = copy.deepcopy(problem)
        curve = EvictionDP().solve(problem)
        assert problem == before
        assert EvictionDP().solve(in_another_order(problem, seed)) == curve
