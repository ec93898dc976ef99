"""Shared nodes, GPUs of types, cores and memory, chosen nodes and places: the planners beside exhaustive search."""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from fractions import Fraction

import pytest

from clearway.model import Action, Candidate, Curve, EvictionProblem
from clearway.planning import node_groups, shared_core
from clearway.planning.backtracking import Backtracking
from clearway.planning.base import Planner
from clearway.planning.eviction_dp import EvictionDP
from clearway.planning.greedy import Greedy
from clearway.planning.loss_per_node_prune import LossPerNodePrune
from clearway.planning.milp import Milp
from clearway.planning.slurm_default import SlurmDefault
from clearway.planning.ujfb import Ujfb
from clearway.planning.weighted_cost import WeightedCost
from clearway.planning.youngest_first import YoungestFirst
from clearway.planning.youngest_prune import YoungestPrune
from tests.oracle.exhaustive import enough_freed, exhaustive, nodes_freed, whole_steps
from tests.oracle.problems import TIMES
from tests.oracle.typed_problems import KINDS, typed_problem

PROBLEMS_PER_KIND = 125 * TIMES  # 1,000 problems in all
RULES: tuple[Planner, ...] = (
    Greedy(),
    LossPerNodePrune(),
    SlurmDefault(),
    Ujfb(),
    WeightedCost(),
    YoungestFirst(),
    YoungestPrune(),
)

Found = tuple[Fraction, int, tuple[tuple[str, Action], ...], int]


def expected(problem: EvictionProblem) -> list[Found | None]:
    return [None if best is None else _compared(problem, *best) for best in exhaustive(problem)]


def found(problem: EvictionProblem, curve: Curve) -> list[Found | None]:
    assert [point.max_delay_s for point in curve.points] == [
        step * problem.step_s for step in range(problem.last_step + 1)
    ]
    answers: list[Found | None] = []
    for point in curve.points:
        if not point.feasible:
            answers.append(None)
            continue
        assert point.lost_work_node_s is not None
        assert point.checkpoint_s is not None
        assert point.nodes_freed is not None
        actions = tuple((planned.job_id, planned.action) for planned in point.actions)
        lost, steps = Fraction(str(point.lost_work_node_s)), point.checkpoint_s // problem.step_s
        answers.append(_compared(problem, lost, steps, actions, point.nodes_freed))
    return answers


def _compared(
    problem: EvictionProblem, lost: Fraction, steps: int, actions: tuple[tuple[str, Action], ...], nodes: int
) -> Found:
    """Where nodes must lie together a plan tells only of its own place, so nodes and ends are left out."""
    if problem.needs is not None and (problem.needs.contiguous or problem.needs.one_switch):
        return lost, steps, tuple(each for each in actions if each[1] is not Action.END), 0
    return lost, steps, actions, nodes


def seeds(kind: str, count: int = PROBLEMS_PER_KIND) -> range:
    first = KINDS.index(kind)
    return range(first, first + count * len(KINDS), len(KINDS))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("swept", ["whole", "by bounds"])
def test_the_plan_is_the_one_of_exhaustive_search(kind: str, swept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if swept == "by bounds":
        monkeypatch.setattr(node_groups, "LABELS_LIMIT", 0)
    planned = 0
    for seed in seeds(kind, PROBLEMS_PER_KIND if swept == "whole" else PROBLEMS_PER_KIND // 3):
        problem = typed_problem(seed)
        best = expected(problem)
        curve = EvictionDP().solve(problem)
        assert curve.exact
        assert curve.gap == 0
        assert found(problem, curve) == best, problem
        planned += any(answer is not None and answer[2] for answer in best)
    assert planned > 5


@pytest.mark.parametrize("kind", KINDS)
def test_backtracking_and_highs_agree(kind: str) -> None:
    for seed in seeds(kind, 40 * TIMES):
        problem = typed_problem(seed)
        best = expected(problem)
        assert found(problem, Backtracking().solve(problem)) == best, problem
        highs = found(problem, Milp().solve(problem))
        assert [answer and (*answer[:2], _preempted(answer)) for answer in highs] == [
            answer and (*answer[:2], _preempted(answer)) for answer in best
        ], problem


def _preempted(answer: Found) -> int:
    return sum(action is not Action.END for _, action in answer[2])


@pytest.mark.parametrize("jobs", [0, 1])
def test_no_job_and_one_job(jobs: int) -> None:
    for seed in range(160):
        problem = typed_problem(seed, jobs=jobs)
        assert found(problem, EvictionDP().solve(problem)) == expected(problem), problem


def test_all_nodes_and_more_than_there_are() -> None:
    for seed in range(160):
        problem = typed_problem(seed)
        for needed in (len(problem.nodes), len(problem.nodes) + 1):
            asks = replace(problem, nodes_needed=needed)
            assert found(asks, EvictionDP().solve(asks)) == expected(asks), asks


@pytest.mark.parametrize("planner", RULES, ids=lambda planner: planner.name)
def test_rules_are_valid_and_never_better(planner: Planner) -> None:
    feasible = 0
    for seed in range(0, 1_200, 5):
        problem = typed_problem(seed)
        before = copy.deepcopy(problem)
        curve = planner.solve(problem)
        assert problem == before
        assert planner.solve(_in_another_order(problem, seed)) == curve
        for point, answer, best in zip(curve.points, found(problem, curve), expected(problem), strict=True):
            if answer is None:
                continue
            feasible += 1
            assert best is not None
            assert answer[:2] >= best[:2]
            gone = {planned.job_id for planned in point.actions}
            assert enough_freed(problem, gone | _ended(problem, point.max_delay_s))
    assert feasible > 200


def _ended(problem: EvictionProblem, deadline_s: int) -> set[str]:
    return {
        job.job_id
        for job in problem.candidates
        if any(option.action is Action.END and option.ready_s <= deadline_s for option in job.options)
    }


def test_a_plan_that_is_not_proven_is_valid_and_its_gap_is_honest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_groups, "LABELS_LIMIT", 0)
    monkeypatch.setattr(shared_core, "TRIAL_LABELS", 1)
    monkeypatch.setattr(shared_core, "MOST_LABELS", 1)
    inexact = worse = 0
    for kind in ("gpus", "types", "all resources", "chosen nodes", "whole nodes"):
        for seed in seeds(kind, 60):
            problem = typed_problem(seed)
            curve, best = EvictionDP().solve(problem), expected(problem)
            if curve.exact:
                assert found(problem, curve) == best
                continue
            inexact += 1
            for point, least in zip(curve.points, best, strict=True):
                if not point.feasible:
                    continue
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


@pytest.mark.parametrize("swept", ["whole", "by bounds"])
def test_the_order_of_the_candidates_does_not_matter(swept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if swept == "by bounds":
        monkeypatch.setattr(node_groups, "LABELS_LIMIT", 0)
    for seed in range(120):
        problem = typed_problem(seed)
        before = copy.deepcopy(problem)
        curve = EvictionDP().solve(problem)
        assert problem == before
        assert EvictionDP().solve(_in_another_order(problem, seed)) == curve


def _in_another_order(problem: EvictionProblem, seed: int) -> EvictionProblem:
    rng = random.Random(seed)
    candidates = rng.sample(problem.candidates, len(problem.candidates))
    return replace(problem, candidates=tuple(_shuffled(rng, candidate) for candidate in candidates))


def _shuffled(rng: random.Random, candidate: Candidate) -> Candidate:
    order = rng.sample(range(len(candidate.node_names)), len(candidate.node_names))
    return replace(
        candidate,
        options=tuple(rng.sample(candidate.options, len(candidate.options))),
        node_names=tuple(candidate.node_names[index] for index in order),
        holds=tuple(candidate.holds[index] for index in order) if candidate.holds else (),
    )
