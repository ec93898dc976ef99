"""What the dynamic program promises beyond being optimal, which tests/oracle checks."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from random import Random

import pytest

from clearway.model.plan import Curve, PlannedAction
from clearway.model.problem import Action, Candidate, EvictionProblem, Option
from clearway.planning.base import Planner
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.planning.joint.one import OneRequest
from clearway.planning.rules import LOSS_PER_NODE_PRUNE
from clearway_lab.baselines import MOST_JOBS, Backtracking, Greedy

PLANNERS: tuple[Planner, ...] = (EvictionDP(), Backtracking(), Greedy())
every_planner = pytest.mark.parametrize("planner", PLANNERS, ids=lambda planner: planner.name)


def candidate(job_id: str, nodes: int, *options: Option, names: str = "") -> Candidate:
    return Candidate(job_id, nodes, options, tuple(names.split()))


def kill(lost: float) -> Option:
    return Option(Action.KILL, lost_work_node_s=lost)


def app(seconds: float, ready_s: float = 0) -> Option:
    return Option(Action.APP_CHECKPOINT, checkpoint_s=seconds, ready_s=ready_s)


def end(ready_s: float) -> Option:
    return Option(Action.END, ready_s=ready_s)


def problem(nodes_needed: int, *candidates: Candidate, max_delay_s: int = 60) -> EvictionProblem:
    return EvictionProblem(nodes_needed, max_delay_s, 10, candidates)


def actions(planner: Planner, case: EvictionProblem) -> list[list[tuple[str, str]] | None]:
    return [
        [(planned.job_id, planned.action.value) for planned in point.actions] if point.feasible else None
        for point in planner.solve(case).points
    ]


@every_planner
def test_nothing_is_done_when_no_node_is_needed(planner: Planner) -> None:
    for needed in (0, -3):
        case = problem(needed, candidate("1", 4, kill(1), end(0)), max_delay_s=20)
        points = planner.solve(case).points
        assert [point.actions for point in points] == [(), (), ()]
        assert [(point.feasible, point.lost_work_node_s, point.nodes_freed) for point in points] == [(True, 0, 0)] * 3


@every_planner
def test_a_job_that_ends_in_time_is_used_and_one_that_does_not_is_preempted(planner: Planner) -> None:
    case = problem(4, candidate("1", 4, kill(7), end(15)), max_delay_s=20)
    assert actions(planner, case) == [[("1", "kill")], [("1", "kill")], [("1", "end")]]
    last = planner.solve(case).points[-1]
    assert (last.lost_work_node_s, last.checkpoint_s, last.nodes_freed) == (0, 0, 4)
    assert last.actions == (PlannedAction("1", Action.END, 0.0, 0, 15),)


@every_planner
def test_jobs_that_end_are_listed_even_when_others_would_do(planner: Planner) -> None:
    case = problem(2, candidate("1", 2, kill(0)), candidate("2", 1, end(0)), max_delay_s=0)
    assert actions(planner, case) == [[("1", "kill"), ("2", "end")]]


@every_planner
def test_a_shared_node_is_free_only_when_everybody_has_left(planner: Planner) -> None:
    case = problem(
        1,
        candidate("1", 1, kill(1), names="a"),
        candidate("2", 1, app(10), names="a"),
        candidate("3", 1, kill(100), names="b"),
        max_delay_s=10,
    )
    expected_first = [("3", "kill")]
    found = actions(planner, case)
    assert found[0] == expected_first
    if planner.name != "greedy":
        assert found[1] == [("1", "kill"), ("2", "app_checkpoint")]


@every_planner
def test_a_node_shared_with_a_job_that_cannot_leave_is_never_free(planner: Planner) -> None:
    case = problem(1, candidate("1", 1, kill(0), names="a"), candidate("2", 1, names="a"), max_delay_s=0)
    assert actions(planner, case) == [None]


@every_planner
def test_an_option_that_is_not_ready_waits(planner: Planner) -> None:
    case = problem(1, candidate("1", 1, app(0, ready_s=15)), max_delay_s=30)
    assert actions(planner, case) == [None, None, [("1", "app_checkpoint")], [("1", "app_checkpoint")]]


@every_planner
def test_durations_are_rounded_up_to_whole_steps(planner: Planner) -> None:
    case = problem(1, candidate("1", 1, app(10.001)), max_delay_s=20)
    assert actions(planner, case) == [None, None, [("1", "app_checkpoint")]]
    assert planner.solve(case).points[-1].checkpoint_s == 20


def test_job_ids_are_compared_as_text() -> None:
    case = problem(1, candidate("9", 1, kill(1)), candidate("10", 1, kill(1)), max_delay_s=0)
    assert actions(EvictionDP(), case) == [[("10", "kill")]]


@pytest.mark.parametrize("planner", PLANNERS[:2], ids=lambda planner: planner.name)
def test_of_two_jobs_alike_the_first_gets_the_action_that_ranks_first(planner: Planner) -> None:
    ways = (Option(Action.SYS_CHECKPOINT, lost_work_node_s=1, checkpoint_s=10), app(20))
    for names in (("", ""), ("a", "b")):
        twins = [candidate(str(rank), len(name.split()) or 1, *ways, names=name) for rank, name in enumerate(names)]
        case = problem(2, *twins, max_delay_s=30)
        assert actions(planner, case)[-1] == [("0", "app_checkpoint"), ("1", "sys_checkpoint")]


def test_floats_do_not_break_ties() -> None:
    case = problem(
        2, candidate("1", 1, kill(0.1)), candidate("2", 1, kill(0.2)), candidate("3", 2, kill(0.3)), max_delay_s=0
    )
    (point,) = EvictionDP().solve(case).points
    assert [planned.job_id for planned in point.actions] == ["3"]  # as much lost work, one preemptee less
    assert point.lost_work_node_s == 0.3


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (problem(1, candidate("1", 1), candidate("1", 1)), "each job_id once"),
        (problem(1, candidate("1", 2, kill(1), names="a")), "number of its node names"),
        (problem(1, candidate("1", 1, kill(float("nan")))), "finite"),
        (problem(1, candidate("1", 1, app(-1))), "finite numbers of seconds"),
        (replace(problem(1), step_s=0), "step_s > 0"),
        (replace(problem(1), max_delay_s=-1), "max_delay_s >= 0"),
    ],
)
@every_planner
def test_a_problem_that_makes_no_sense_is_refused(planner: Planner, case: EvictionProblem, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        planner.solve(case)


def test_what_is_too_large_is_refused_before_memory_is_taken() -> None:
    sizes = {999_983: 49_991, 999_979: 39_989}
    jobs = [candidate(str(nodes), nodes, kill(1), app(seconds)) for nodes, seconds in sizes.items()]
    case = EvictionProblem(1_500_000, 99_999, 1, tuple(jobs))
    with pytest.raises(ValueError, match="too much to plan"):
        EvictionDP().solve(case)
    many = problem(1, *(candidate(str(rank), 1, kill(1)) for rank in range(MOST_JOBS + 1)))
    with pytest.raises(ValueError, match="at most"):
        Backtracking().solve(many)


def test_a_thousand_jobs_take_little_memory() -> None:
    rng = Random(1)
    jobs = tuple(
        candidate(str(rank), rng.randint(1, 8), kill(rng.randint(1, 10**7)), app(rng.randint(1, 900)))
        for rank in range(1_000)
    )
    case = EvictionProblem(2_048, 900, 60, jobs)
    tracemalloc.start()
    curve = EvictionDP().solve(case)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert curve.points[-1].feasible
    assert peak < 50 * 2**20


@pytest.mark.parametrize(("exact", "better"), [(False, True), (True, False)])
def test_a_curve_that_is_not_proven_is_no_worse_than_a_rules(
    exact: bool, better: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where jobs share nodes one program decides, and may have run out of time."""
    case = problem(1, candidate("1", 1, kill(5), names="a"), candidate("2", 1, kill(9), names="b"), max_delay_s=0)
    case = replace(case, candidates=(*case.candidates, candidate("3", 2, kill(99), names="a c")))
    ((point,), rules) = EvictionDP().solve(case).points, LOSS_PER_NODE_PRUNE.solve(case).points
    assert point.lost_work_node_s == rules[0].lost_work_node_s == 9
    poor = replace(
        point,
        lost_work_node_s=104,
        actions=(PlannedAction("1", Action.KILL, 5, 0), PlannedAction("3", Action.KILL, 99, 0)),
    )
    curve = Curve("eviction-dp", (poor,), exact, 0.0 if exact else 0.5)
    monkeypatch.setattr(OneRequest, "curve", lambda _, __: curve)
    found = EvictionDP().solve(case)
    assert found.points == (rules if better else (poor,))
    assert (found.exact, found.gap) == (curve.exact, curve.gap)
