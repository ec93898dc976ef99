"""The rules of schedulers and papers: they find plans, and Slurm's are those that its manual tells."""

from __future__ import annotations

import random

import pytest

from clearway.model.problem import Action, Candidate, EvictionProblem, Option
from clearway.planning.base import Planner
from clearway.planning.rules import SLURM_DEFAULT, YOUNGEST_FIRST
from tests.oracle.many import RULES, seeds
from tests.oracle.problems import SHAPES, random_problem, with_histories

each_rule = pytest.mark.parametrize("planner", RULES, ids=lambda planner: planner.name)


@each_rule
def test_a_rule_finds_plans_of_every_shape(planner: Planner) -> None:
    """Else the tests beside exhaustive search could pass with planners that never find anything."""
    for shape in SHAPES:
        problems = [with_histories(random_problem(seed), seed) for seed in seeds(SHAPES, shape, 0, 30)]
        assert any(point.feasible and point.actions for each in problems for point in planner.solve(each).points)


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
    planner: Planner = YOUNGEST_FIRST if youngest_first else SLURM_DEFAULT
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
