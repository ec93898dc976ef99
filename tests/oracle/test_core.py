"""The planner that looks only at the jobs in doubt: the plans of exhaustive search, and of HiGHS where that ends."""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from fractions import Fraction

import pytest

from clearway.model.problem import Action, Candidate, EvictionProblem, Option
from clearway.planning.bounds import core
from clearway.planning.dp import eviction_dp
from clearway.planning.dp.eviction_dp import EvictionDP, is_program
from tests.oracle.exhaustive import exhaustive
from tests.oracle.many import answers, check_answers, seeds
from tests.oracle.milp import milp_sweep
from tests.oracle.problems import SHAPES, random_problem
from tests.oracle.test_planners import assert_not_better, assert_valid


@pytest.fixture(autouse=True)
def _core_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eviction_dp, "CORE_CELLS", 0)


@pytest.mark.parametrize("trial", ["all jobs at once", "one job, growing", "one job, then those left"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("block", range(10))
def test_the_plan_is_the_one_of_exhaustive_search(
    shape: str, block: int, trial: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if trial != "all jobs at once":
        monkeypatch.setattr(core, "TRIAL_JOBS", 1)
    if trial == "one job, growing":
        monkeypatch.setattr(core, "FEW_CELLS", 0)
    for seed in seeds(SHAPES, shape, block, 10):
        problem = random_problem(seed)
        before = copy.deepcopy(problem)
        curve = EvictionDP().solve(problem)
        check_answers(problem, answers(problem, curve), exhaustive(problem))
        assert problem == before
        shuffled = replace(problem, candidates=problem.candidates[::-1])
        assert EvictionDP().solve(shuffled) == curve


def test_numbers_too_large_for_all_keys_prove_by_lost_work_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "TRIAL_JOBS", 1)
    problems = [problem for seed in range(0, 200, 10) if not is_program(problem := random_problem(seed))]
    assert problems
    for factor in (10**13, 10**15, 10**18):
        for each in problems:
            problem = replace(each, candidates=tuple(_with_lost_work_times(job, factor) for job in each.candidates))
            assert answers(problem, EvictionDP().solve(problem)) == exhaustive(problem)


def _with_lost_work_times(job: Candidate, factor: int) -> Candidate:
    options = [replace(option, lost_work_node_s=round(option.lost_work_node_s) * factor) for option in job.options]
    return replace(job, options=tuple(options))


KINDS = ("arbitrary", "common sizes", "ties", "zeros", "no kill", "everybody", "too many")


def medium_problem(kind: str, seed: int) -> EvictionProblem:
    """40 to 200 jobs as no exhaustive search ends with them; lost work is whole, nobody shares or ends."""
    rng = random.Random(f"{kind} {seed}")
    jobs = []
    for index in range(rng.randint(40, 200)):
        nodes = rng.choice((8, 16, 32, 64)) if kind == "common sizes" else rng.randint(1, 60)
        lost = {"ties": rng.randint(1, 3), "zeros": rng.choice((0, 0, 0, 7))}.get(kind, nodes * rng.randint(0, 60))
        options = [Option(Action.KILL, lost)] if kind != "no kill" or index % 3 else []
        options.append(Option(Action.APP_CHECKPOINT, 0, rng.randint(2, 30)))
        options.append(Option(Action.SYS_CHECKPOINT, lost // 4, rng.randint(1, 12)))
        jobs.append(Candidate(str(index), nodes, tuple(options)))
    nodes = sum(job.nodes for job in jobs)
    needed = {"everybody": nodes, "too many": nodes + 1}.get(kind, round(nodes * rng.choice((0.05, 0.3, 0.6, 0.9))))
    return EvictionProblem(needed, rng.randint(3, 7) * 5, 5, tuple(jobs))


@pytest.mark.parametrize("kind", KINDS)
def test_lost_work_and_checkpoint_time_are_those_of_highs(kind: str) -> None:
    for seed in range(3):
        problem = medium_problem(kind, seed)
        curve = EvictionDP().solve(problem)
        assert curve.exact
        found = [None if best is None else (int(best[0]), best[1]) for best in answers(problem, curve)]
        assert found == milp_sweep(problem)
        for point in curve.points:
            assert_valid(problem, point)


@pytest.mark.parametrize("kind", KINDS)
def test_the_plan_is_the_one_of_the_tables_over_all_jobs(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(100, 112):
        problem = medium_problem(kind, seed)
        with monkeypatch.context() as patch:
            patch.setattr(eviction_dp, "CORE_CELLS", 10**18)
            expected = EvictionDP().solve(problem)
        assert EvictionDP().solve(problem) == expected


def test_jobs_that_end_or_wait_are_planned_as_by_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = set()
    for seed in range(300, 316):
        problem = medium_problem(KINDS[seed % len(KINDS)], seed)
        rng = random.Random(seed)
        candidates = list(problem.candidates)
        for index in rng.sample(range(len(candidates)), 6):
            options = [replace(option, ready_s=rng.choice((0, 0, 8, 12))) for option in candidates[index].options]
            if index % 2:
                options.append(Option(Action.END, ready_s=rng.randint(0, problem.max_delay_s + 5)))
            candidates[index] = replace(candidates[index], options=tuple(options))
        problem = replace(problem, candidates=tuple(candidates))
        with monkeypatch.context() as patch:
            patch.setattr(eviction_dp, "CORE_CELLS", 10**18)
            expected = EvictionDP().solve(problem)
        assert EvictionDP().solve(problem) == expected
        for point in expected.points:
            assert_valid(problem, point)
            plans |= {planned.action for planned in point.actions}
    assert Action.END in plans


def test_without_a_proof_the_gap_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "MOST_CELLS", 40_000)
    monkeypatch.setattr(core, "FEW_CELLS", 0)
    monkeypatch.setattr(core, "TRIAL_JOBS", 4)
    inexact = 0
    for kind in KINDS:
        for seed in range(200, 206):
            problem = medium_problem(kind, seed)
            curve = EvictionDP().solve(problem)
            with monkeypatch.context() as patch:
                patch.setattr(eviction_dp, "CORE_CELLS", 10**18)
                optimum = EvictionDP().solve(problem)
            if curve.exact:
                assert curve == optimum
                continue
            inexact += 1
            for point, best in zip(curve.points, answers(problem, optimum), strict=True):
                assert_valid(problem, point)
                assert_not_better(problem, point, best)
                assert point.feasible == (best is not None)
                if best is not None:
                    lost = Fraction(str(point.lost_work_node_s))
                    assert lost - best[0] <= lost * Fraction(curve.gap) * (1 + Fraction(1, 10**9))
    assert inexact > 4


@pytest.mark.parametrize("trial", [1, 24])
def test_of_jobs_that_are_alike_the_first_leave(trial: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "TRIAL_JOBS", trial)
    for seed in range(200):
        rng = random.Random(seed)
        kinds = [
            (
                rng.randint(1, 2),
                (
                    *([Option(Action.KILL, rng.randint(0, 9))] if rng.random() < 0.8 else []),
                    Option(Action.APP_CHECKPOINT, rng.randint(0, 2), rng.randint(1, 4)),
                    *([Option(Action.END, ready_s=rng.randint(0, 6))] if rng.random() < 0.2 else []),
                ),
            )
            for _ in range(2)
        ]
        jobs = tuple(Candidate(str(index), *rng.choice(kinds)) for index in range(7))
        problem = EvictionProblem(rng.randint(1, 8), 6, 1, jobs)
        assert answers(problem, EvictionDP().solve(problem)) == exhaustive(problem), problem
