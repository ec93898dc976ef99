"""What sparing, choosing, waiting and simple rules would have cost, beside exhaustive search and direct runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from fractions import Fraction

import pytest

from clearway.model.explanation import Explanation
from clearway.model.plan import Choice, Cost
from clearway.model.problem import Action, EvictionProblem, Option
from clearway.planning.base import Planner, further_deadlines
from clearway.planning.dp.eviction_dp import EvictionDP, is_program
from clearway.planning.rules import LOSS_PER_NODE_PRUNE, SLURM_DEFAULT, YOUNGEST_FIRST, YOUNGEST_PRUNE
from clearway.preemption.explanation import explain
from clearway_lab.baselines import Backtracking
from tests.builders import plan
from tests.oracle.exhaustive import enough_freed, whole_steps
from tests.oracle.problems import SHAPES, random_problem
from tests.oracle.typed_problems import KINDS, typed_problem

PROBLEMS_PER_SHAPE = 25
RULES: tuple[Planner, ...] = (SLURM_DEFAULT, YOUNGEST_FIRST, YOUNGEST_PRUNE, LOSS_PER_NODE_PRUNE)


def problems(shape: str) -> list[EvictionProblem]:
    """Those that have a plan, and need one."""
    first = SHAPES.index(shape)
    seeds = range(first, first + PROBLEMS_PER_SHAPE * len(SHAPES), len(SHAPES))
    made = [random_problem(seed, jobs=1 + seed // len(SHAPES) % 5) for seed in seeds]
    found = [each for each in made if each.nodes_needed > 0 and EvictionDP().solve(each).choose() is not None]
    assert found
    return found


def problems_with_needs(kind: str) -> Iterator[EvictionProblem]:
    """Likewise, where jobs share nodes by parts."""
    first = KINDS.index(kind)
    for seed in range(first, first + PROBLEMS_PER_SHAPE * len(KINDS), len(KINDS)):
        problem = typed_problem(seed, jobs=1 + seed // len(KINDS) % 5)
        chosen = EvictionDP().solve(problem).choose()
        if chosen is not None and chosen.actions:
            yield problem


def explained(problem: EvictionProblem, planner: Planner | None = None, **limits: Callable[[], bool]) -> Explanation:
    planner = planner or EvictionDP()
    curve = planner.solve(problem)
    chosen = curve.choose()
    assert chosen is not None
    return explain(plan(problem=problem, curve=curve, chosen=chosen), planner, **limits)


def least(problem: EvictionProblem, suits: Callable[[Collection[str]], bool]) -> tuple[Fraction, int, int, int] | None:
    """By trying everything: the least cost of a plan for any deadline whose leaving jobs suit."""
    costs = [
        cost
        for step in range(problem.last_step + 1)
        for picked in itertools.product(*[_ways(job.options, step * problem.step_s) for job in problem.candidates])
        if (cost := _cost(problem, picked, step, suits)) is not None
    ]
    return min(costs, default=None)


def _ways(options: tuple[Option, ...], deadline_s: int) -> list[Option | None]:
    ready = [option for option in options if option.ready_s <= deadline_s]
    ends = [option for option in ready if option.action is Action.END]
    return [*ends[:1]] if ends else [None, *ready]


def _cost(
    problem: EvictionProblem, picked: tuple[Option | None, ...], step: int, suits: Callable[[Collection[str]], bool]
) -> tuple[Fraction, int, int, int] | None:
    taken = [(job.job_id, option) for job, option in zip(problem.candidates, picked, strict=True) if option is not None]
    used = [option for _, option in taken if option.action is not Action.END]
    steps = sum(whole_steps(option.checkpoint_s, problem.step_s) for option in used)
    gone = {job_id for job_id, _ in taken}
    if steps > step or not enough_freed(problem, gone) or not suits(gone):
        return None
    lost = sum((Fraction(str(option.lost_work_node_s)) for option in used), Fraction(0))
    return (lost, sum(option.return_node_s for option in used), steps * problem.step_s, len(used))


def same(cost: Cost | None, expected: tuple[Fraction, int, int, int] | None) -> bool:
    if cost is None or expected is None:
        return cost is None and expected is None
    lost = abs(cost.lost_work_node_s - float(expected[0])) < 1e-6
    return lost and (cost.return_node_s, cost.checkpoint_s, cost.preemptees) == expected[1:]


@pytest.mark.parametrize("shape", SHAPES)
def test_sparing_and_choosing_cost_what_exhaustive_search_says(shape: str) -> None:
    assert _told(problems(shape)) >= PROBLEMS_PER_SHAPE


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.fault(
    "Sparing a job that shares nodes counted the nodes as free on which it stayed.", found_by="random problems"
)
def test_parts_of_nodes_are_explained_as_exhaustive_search_says(kind: str) -> None:
    assert _told(problems_with_needs(kind)) >= PROBLEMS_PER_SHAPE / 5


def _told(problems: Iterator[EvictionProblem]) -> int:
    """How many alternatives are told; each must be right."""
    told = 0
    for problem in problems:
        found = explained(problem)
        assert found.complete
        for each in found.alternatives:
            if each.choice is Choice.CHOSEN:
                # it stays on its nodes, also on those that others share with it
                stays = [replace(c, options=()) if c.job_id == each.job_id else c for c in problem.candidates]
                expected = least(replace(problem, candidates=tuple(stays)), lambda _: True)
            else:
                expected = least(problem, lambda gone, job_id=each.job_id: job_id in gone)  # type: ignore[misc]
            assert each.known
            assert same(each.cost, expected), (problem, each, expected)
            told += 1
    return told


@pytest.mark.parametrize("shape", SHAPES)
def test_another_exact_planner_explains_the_same(shape: str) -> None:
    for problem in problems(shape):
        if not is_program(problem):  # it may choose another of equally good plans
            assert explained(problem, Backtracking()).alternatives == explained(problem).alternatives


@pytest.mark.parametrize("shape", SHAPES)
def test_rules_would_have_lost_what_they_lose_when_they_are_run(shape: str) -> None:
    for problem in problems(shape):
        found = explained(problem)
        for outcome, rule in zip(found.rules, RULES, strict=True):
            assert outcome.rule == rule.name
            points = [rule.decide(problem.within(each)).choose() for each in further_deadlines(problem)]
            assert outcome.cost == min([point.cost for point in points if point is not None], default=None)
            assert outcome.cost is None or outcome.cost >= found.cost, "a rule is never better than the optimum"


@pytest.mark.parametrize("shape", SHAPES)
def test_a_later_deadline_saves_what_the_longer_problem_says(shape: str) -> None:
    for problem in problems(shape):
        found = explained(problem)
        longer = EvictionDP().solve(replace(problem, max_delay_s=2 * problem.max_delay_s)).choose()
        assert longer is not None
        best = min([found.cost, *(later.cost for later in found.later)])
        assert best == longer.cost
        assert sorted(found.later, key=lambda later: later.cost, reverse=True) == list(found.later)


def test_jobs_that_end_before_twice_the_delay_are_counted_in() -> None:
    problem = random_problem(0, jobs=3)
    candidate = replace(
        problem.candidates[0], nodes=4, node_names=(), options=(Option(Action.KILL, 500.0),), remaining_s=70.0
    )
    problem = EvictionProblem(nodes_needed=4, max_delay_s=60, step_s=10, candidates=(candidate,))
    (later,) = explained(problem).later
    assert (later.max_delay_s, later.cost) == (100, Cost())  # 70 s, and the 30 s of Slurm's own slack


def test_without_time_nothing_is_claimed() -> None:
    problem = problems("plain")[0]
    counts = iter([True, False])
    found = explained(problem, go_on=lambda: next(counts))
    assert not found.complete
    assert [outcome.rule for outcome in found.rules] == ["slurm-default"]
    assert not any(each.known for each in found.alternatives)
    assert found.later == ()


@pytest.mark.parametrize("seed", range(0, 400, 7))
def test_explaining_changes_nothing_and_does_not_depend_on_the_order_of_candidates(seed: int) -> None:
    problem = random_problem(seed, jobs=4)
    if EvictionDP().solve(problem).choose() is None:
        return
    before = repr(problem)
    turned = replace(problem, candidates=tuple(reversed(problem.candidates)))
    assert explained(problem) == explained(turned)
    assert repr(problem) == before
