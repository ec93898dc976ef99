"""The exact planners beside exhaustive search where something is special; the thousands are in ``test_many_*``."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from operator import attrgetter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clearway.model.plan import Cost, CurvePoint
from clearway.model.problem import Action, Candidate, EvictionProblem, Option
from clearway.planning.dp import eviction_dp, node_time_tables
from clearway.planning.dp.eviction_dp import EvictionDP, is_program
from tests.oracle.exhaustive import Answer, exhaustive, nodes_freed, whole_steps
from tests.oracle.many import EXACT, answer, answers, check_answers
from tests.oracle.problems import random_problem

SPECIAL = 2_000  # problems beside exhaustive search
ONE_PATCH = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
_ACTION = attrgetter("action")


def assert_exact(problem: EvictionProblem) -> None:
    expected = exhaustive(problem)
    for planner in EXACT:
        curve = planner.solve(problem)
        assert curve.planner == planner.name
        assert curve.exact
        if planner.name == EvictionDP.name:
            check_answers(problem, answers(problem, curve), expected)
        else:
            assert answers(problem, curve) == expected, f"{planner.name} on {problem}"


OPTIONS = st.builds(
    Option,
    action=st.sampled_from([action for action in Action if action is not Action.END]),
    lost_work_node_s=st.sampled_from([0, 0, 1, 2, 0.1, 0.2, 0.3, 5]),
    checkpoint_s=st.sampled_from([0, 1, 10, 20, 30, 9.5]),
    ready_s=st.sampled_from([0, 0, 0, 10, 25]),
)
ENDS = st.builds(Option, action=st.just(Action.END), ready_s=st.sampled_from([0, 10, 25, 90]))


@st.composite
def problems(draw: st.DrawFn) -> EvictionProblem:
    names = ["n1", "n2", "n3", "n4"]
    candidates = []
    for job_id in draw(st.lists(st.sampled_from(["1", "2", "10", "11", "9"]), unique=True)):
        mine = tuple(draw(st.lists(st.sampled_from(names), unique=True, max_size=2)))
        nodes = len(mine) or draw(st.integers(1, 4))
        ways = draw(st.lists(OPTIONS, max_size=3, unique_by=lambda option: option.action))
        ways += draw(st.lists(ENDS, max_size=1))
        candidates.append(Candidate(job_id, nodes, tuple(ways), mine))
    return EvictionProblem(draw(st.integers(-1, 9)), draw(st.integers(0, 45)), 10, tuple(candidates))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(problems())
def test_no_problem_that_hypothesis_finds_differs(problem: EvictionProblem) -> None:
    assert_exact(problem)


@pytest.mark.fault(
    "Sixty steps rounded checkpoints up: a plan lost three times as much as needed, and was called exact.",
    found_by="recorded workloads",
)
def test_a_checkpoint_that_takes_longer_than_the_wait_for_enough_ends() -> None:
    ends = Candidate("1", 4, (Option(Action.END, ready_s=50),))
    slow = Candidate("2", 1, (Option(Action.SYS_CHECKPOINT, checkpoint_s=76),))
    quick = Candidate("3", 1, (Option(Action.SYS_CHECKPOINT, checkpoint_s=38),))
    assert_exact(EvictionProblem(1, 88, 2, (ends, slow, quick)))
    assert_exact(EvictionProblem(1, 88, 2, (ends, slow)))


@st.composite
def alike(draw: st.DrawFn) -> EvictionProblem:
    """Nine jobs of two kinds, of which some can be killed at a loss of their own; few nodes are needed."""
    kinds = [
        (draw(st.integers(1, 3)), draw(st.lists(OPTIONS, min_size=1, max_size=2, unique_by=_ACTION))) for _ in "12"
    ]
    candidates = []
    for number in range(9):
        nodes, ways = kinds[draw(st.integers(0, 1))]
        if draw(st.booleans()):
            ways = [*[way for way in ways if way.action is not Action.KILL], Option(Action.KILL, number + 1)]
        candidates.append(Candidate(str(number + 5), nodes, tuple(ways)))  # "10" comes before "5"
    return EvictionProblem(draw(st.integers(1, 5)), draw(st.integers(0, 65)), 10, tuple(candidates))


@pytest.mark.parametrize("cells", [0, None], ids=["by bounds", "by tables"])
@settings(
    max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(problem=alike())
def test_of_jobs_that_are_alike_the_first_leave(
    monkeypatch: pytest.MonkeyPatch, cells: int | None, problem: EvictionProblem
) -> None:
    with monkeypatch.context() as patched:
        if cells is not None:
            patched.setattr(eviction_dp, "CORE_CELLS", cells)
        assert_exact(problem)


@pytest.mark.parametrize("jobs", [0, 1])
def test_no_job_and_one_job(jobs: int) -> None:
    for seed in range(SPECIAL):
        assert_exact(random_problem(seed, jobs=jobs))


def test_all_jobs_are_needed_and_more_than_there_are() -> None:
    for seed in range(SPECIAL // 2):
        problem = random_problem(seed)
        everybody = nodes_freed(problem, {candidate.job_id for candidate in problem.candidates})
        assert_exact(replace(problem, nodes_needed=everybody))
        assert_exact(replace(problem, nodes_needed=everybody + 1))


def test_python_integers_give_the_same_plan() -> None:
    for seed in range(300):
        problem = random_problem(seed)
        if not is_program(problem):
            problem = _with_lost_work_times(problem, 10**18)
        check_answers(problem, answers(problem, EvictionDP().solve(problem)), exhaustive(problem))


def test_what_tables_would_take_too_much_memory_for_is_decided_by_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = next(each for seed in range(100) if _is_for_tables(each := random_problem(seed)))
    (expected,) = EvictionDP().decide(problem).points
    monkeypatch.setattr(node_time_tables, "_MOST_BYTES", 0)
    (found,) = EvictionDP().decide(problem).points
    assert found.cost == expected.cost
    with pytest.raises(ValueError, match="are too much to plan: use larger steps"):
        EvictionDP().solve(problem)


def _is_for_tables(problem: EvictionProblem) -> bool:
    return not is_program(problem) and EvictionDP().decide(problem).points[0].cost > Cost()


def _with_lost_work_times(problem: EvictionProblem, factor: int) -> EvictionProblem:
    return replace(
        problem,
        candidates=tuple(
            replace(
                candidate,
                options=tuple(
                    replace(option, lost_work_node_s=round(option.lost_work_node_s * 1_000) * factor)
                    for option in candidate.options
                ),
            )
            for candidate in problem.candidates
        ),
    )


def assert_not_better(problem: EvictionProblem, point: CurvePoint, best: Answer | None) -> None:
    found = answer(problem, point)
    if found is not None:
        assert best is not None
        assert found[:2] >= best[:2]


def assert_valid(problem: EvictionProblem, point: CurvePoint) -> None:
    """Each listed action is one of the job's options, everything fits, and the sums are right."""
    if not point.feasible:
        return
    candidates = {candidate.job_id: candidate for candidate in problem.candidates}
    gone = [planned.job_id for planned in point.actions]
    assert gone == sorted(set(gone))
    assert point.nodes_freed == nodes_freed(problem, set(gone))
    assert point.nodes_freed >= problem.nodes_needed
    lost, steps = Fraction(0), 0
    for planned in point.actions:
        options = [
            option
            for option in candidates[planned.job_id].options
            if option.action is planned.action and option.ready_s <= point.max_delay_s
        ]
        assert options
        if planned.action is not Action.END:
            lost += Fraction(str(options[0].lost_work_node_s))
            steps += whole_steps(options[0].checkpoint_s, problem.step_s)
    assert steps * problem.step_s <= point.max_delay_s
    assert point.lost_work_node_s is not None
    assert (Fraction(str(point.lost_work_node_s)), point.checkpoint_s) == (lost, steps * problem.step_s)


def test_more_time_never_costs_more() -> None:
    for seed in range(300):
        points = EvictionDP().solve(random_problem(seed, jobs=8)).points
        for earlier, later in itertools.pairwise(points):
            if earlier.feasible:
                assert later.feasible
                assert later.lost_work_node_s is not None
                assert earlier.lost_work_node_s is not None
                assert later.lost_work_node_s <= earlier.lost_work_node_s
