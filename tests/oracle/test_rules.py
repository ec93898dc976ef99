"""The rules of schedulers and papers beside exhaustive search, and HiGHS as a planner beside the exact ones."""

from __future__ import annotations

import copy
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearway.model import Action, Candidate, Curve, EvictionProblem, Option
from clearway.planning.base import Planner
from clearway.planning.eviction_dp import EvictionDP
from clearway.planning.loss_per_node_prune import LossPerNodePrune
from clearway.planning.milp import Milp
from clearway.planning.slurm_default import SlurmDefault
from clearway.planning.ujfb import Ujfb
from clearway.planning.weighted_cost import WeightedCost
from clearway.planning.youngest_first import YoungestFirst
from clearway.planning.youngest_prune import YoungestPrune
from tests.oracle.exhaustive import exhaustive
from tests.oracle.problems import SHAPES, TIMES, random_problem
from tests.oracle.test_planners import assert_not_better, assert_valid, seeds

RULES: tuple[Planner, ...] = (
    Ujfb(),
    WeightedCost(),
    SlurmDefault(),
    YoungestFirst(),
    YoungestPrune(),
    LossPerNodePrune(),
)
each_rule = pytest.mark.parametrize("planner", RULES, ids=lambda planner: planner.name)


def ruled_problem(seed: int) -> EvictionProblem:
    """A random problem whose jobs have a past and a future as well; ties among them are frequent."""
    problem, rng = random_problem(seed), random.Random(seed)
    return replace(
        problem,
        preemptor_nodes=rng.choice((0, problem.nodes_needed, problem.nodes_needed + 2, 40)),
        candidates=tuple(
            replace(
                candidate,
                ran_s=rng.choice((0, 60, 60, 5_000)),
                remaining_s=rng.choice((None, 0, 600, 600, 20_000)),
                waited_s=rng.choice((0, 0, 900, 30_000)),
                preempt_priority=rng.choice((0, 0, 1)),
                job_nodes=candidate.nodes + rng.choice((0, 0, 3)),
            )
            for candidate in problem.candidates
        ),
    )


def shuffled(problem: EvictionProblem, seed: int) -> EvictionProblem:
    rng = random.Random(seed)
    return replace(
        problem,
        candidates=tuple(
            replace(
                candidate,
                options=tuple(rng.sample(candidate.options, len(candidate.options))),
                node_names=tuple(rng.sample(candidate.node_names, len(candidate.node_names))),
            )
            for candidate in rng.sample(problem.candidates, len(problem.candidates))
        ),
    )


@each_rule
@settings(max_examples=300, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_a_rule_gives_valid_plans_that_are_never_better_whatever_the_order(planner: Planner, seed: int) -> None:
    problem = ruled_problem(seed)
    before = copy.deepcopy(problem)
    curve = planner.solve(problem)
    assert problem == before
    assert (curve.planner, curve.exact) == (planner.name, False)
    assert [point.max_delay_s for point in curve.points] == [
        step * problem.step_s for step in range(problem.last_step + 1)
    ]
    for point, best in zip(curve.points, exhaustive(problem), strict=True):
        assert_valid(problem, point)
        assert_not_better(problem, point, best)
    assert planner.solve(shuffled(problem, seed)) == curve


@each_rule
def test_a_rule_finds_plans_of_every_shape(planner: Planner) -> None:
    """Else the test above could pass with planners that never find anything."""
    for shape in SHAPES:
        problems = [ruled_problem(seed) for seed in seeds(shape, 30)]
        assert any(point.feasible and point.actions for each in problems for point in planner.solve(each).points)


def keys(curve: Curve) -> list[tuple[object, ...]]:
    return [(point.feasible, point.lost_work_node_s, point.checkpoint_s, len(point.actions)) for point in curve.points]


@pytest.mark.parametrize("shape", SHAPES)
def test_highs_and_the_dynamic_program_agree_in_every_key_but_the_last(shape: str) -> None:
    for seed in seeds(shape, 12 * TIMES):
        problem = random_problem(seed)
        found, expected = Milp().solve(problem), EvictionDP().solve(problem)
        assert found.exact, problem
        assert expected.exact, problem
        assert keys(found) == keys(expected), problem
        for point in found.points:
            assert_valid(problem, point)
        assert Milp().solve(shuffled(problem, seed)) == found


# -- Slurm ---------------------------------------------------------------------------------------------------------


def slurms_own(problem: EvictionProblem, *, youngest_first: bool) -> set[str] | None:
    """Slurm's search as its manual tells it, for jobs on nodes of their own that can all be killed at once."""

    def until_it_fits(order: list[Candidate]) -> list[Candidate] | None:
        for count in range(len(order) + 1):
            if sum(job.nodes for job in order[:count]) >= problem.nodes_needed:
                return order[:count]
        return None

    order = sorted(problem.candidates, key=lambda job: job.job_id)
    if youngest_first:
        order.sort(key=lambda job: job.ran_s)
    else:
        order.sort(key=lambda job: job.job_nodes)
        order.sort(key=lambda job: job.preempt_priority)
    removed = until_it_fits(order)
    for _ in range(2):
        if removed:
            largest_first = sorted(removed[:-1], key=lambda job: job.nodes, reverse=True)
            order = removed[-1:] + largest_first + [job for job in order if job not in removed]
            removed = until_it_fits(order)
    return None if removed is None else {job.job_id for job in removed}


@pytest.mark.parametrize("youngest_first", [False, True])
def test_slurm_is_what_its_manual_tells(youngest_first: bool) -> None:
    planner: Planner = YoungestFirst() if youngest_first else SlurmDefault()
    spared = 0
    for seed in range(600):
        rng = random.Random(seed)
        jobs = tuple(
            Candidate(
                str(job_id),
                nodes := rng.randint(1, 9),
                (Option(Action.KILL, rng.randint(0, 99)),),
                ran_s=rng.randint(0, 5),
                preempt_priority=rng.choice((0, 0, 7)),
                job_nodes=nodes + rng.choice((0, 0, 3)),
            )
            for job_id in rng.sample(range(1, 130), rng.randint(1, 9))
        )
        problem = EvictionProblem(rng.randint(1, 2 + sum(job.nodes for job in jobs)), 0, 60, jobs)
        (point,) = planner.solve(problem).points
        expected = slurms_own(problem, youngest_first=youngest_first)
        assert point.feasible == (expected is not None)
        assert {planned.job_id for planned in point.actions} == (expected or set()), problem
        spared += expected is not None and len(expected) < len(jobs) - 1
    assert spared > 200
