"""Checkpoints that share bandwidth: the bound beside linear programs and schedules, plans beside trying everything."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise, permutations
from statistics import median

import pytest

from clearway.model.plan import Curve, CurvePoint
from clearway.model.problem import Action, Candidate, EvictionProblem, Option
from clearway.planning.base import Planner
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.planning.formulation.shared_bandwidth import after_others, one_after_another
from clearway.planning.rules import UJFB
from clearway.simulation.jobs import fair_rates
from clearway_lab.baselines import Greedy, WeightedCost
from tests.oracle.bandwidth import (
    Rates,
    Writing,
    can_be_in_time,
    cautious_s,
    in_order,
    least_s,
    played_s,
    program_s,
    random_writings,
)
from tests.oracle.exhaustive import Answer, exhaustive, whole_steps
from tests.oracle.many import AS_GOOD, answers, check_answers, seeds
from tests.oracle.milp import AsProgram, milp_sweep
from tests.oracle.problems import SHAPES, beside_others, random_problem, side_by_side
from tests.oracle.test_core import KINDS, medium_problem

BANDWIDTH = 10.0


def fair(greatest: dict[int, float]) -> Rates:
    rates = fair_rates({str(number): rate for number, rate in greatest.items()}, BANDWIDTH)
    return {int(number): rate for number, rate in rates.items()}


def test_the_condition_for_set_rates_is_that_of_the_linear_program() -> None:
    for seed in range(300):
        writings = random_writings(random.Random(seed), BANDWIDTH)
        assert least_s(writings, BANDWIDTH) == pytest.approx(program_s(writings, BANDWIDTH), rel=1e-6), writings


def test_all_are_complete_within_the_bound_however_bandwidth_is_shared() -> None:
    gaps = []
    for seed in range(1_000):
        rng = random.Random(seed)
        writings = random_writings(rng, BANDWIDTH)
        bound_s = cautious_s(writings, BANDWIDTH)
        orders = list(permutations(range(len(writings))))
        for order in rng.sample(orders, min(20, len(orders))):
            assert played_s(writings, BANDWIDTH, in_order(order, BANDWIDTH)) <= bound_s + 1e-6
        assert played_s(writings, BANDWIDTH, fair) <= bound_s + 1e-6
        best_s = least_s(writings, BANDWIDTH)
        serial_s = sum(each.from_s + each.size_mib / each.rate_mib_s for each in writings)
        assert best_s <= bound_s + 1e-6
        assert bound_s <= min(2 * best_s, serial_s) + 1e-6
        gaps.append((bound_s / best_s, serial_s / best_s))
    print(f"bound {median(gap for gap, _ in gaps):.3f}, serial {median(gap for _, gap in gaps):.3f} times the least")
    assert median(gap for gap, _ in gaps) < 1.4
    assert median(serial for _, serial in gaps) > 1.6


def test_some_sharing_takes_as_long_as_the_bound() -> None:
    """The slow one starves until the others are done: 20 s of others at the whole bandwidth, then 30 s alone."""
    writings = [Writing(100, 10), Writing(100, 10), Writing(30, 1)]
    assert cautious_s(writings, BANDWIDTH) == 20 + 30
    assert played_s(writings, BANDWIDTH, in_order((0, 1, 2), BANDWIDTH)) == pytest.approx(50)
    assert least_s(writings, BANDWIDTH) == pytest.approx(30)
    assert can_be_in_time(writings, BANDWIDTH, 30.0)


def test_fair_sharing_is_not_the_best_there_is() -> None:
    tight = [Writing(40, 10)] * 9 + [Writing(80, 2)]
    assert least_s(tight, BANDWIDTH) == pytest.approx(44)
    assert played_s(tight, BANDWIDTH, fair) == pytest.approx(60), "a share of 1 for 40 s, then 2 for the other 20 s"


@pytest.mark.parametrize("shape", SHAPES)
def test_to_write_at_once_saves_something(shape: str) -> None:
    better = 0
    for seed in seeds(SHAPES, shape, 0, 100):
        problem = side_by_side(random_problem(seed), seed)
        better += exhaustive(problem) != exhaustive(one_after_another(problem))
    assert better >= 5


@pytest.mark.parametrize("planner", [Greedy(), AsProgram(), UJFB, WeightedCost()], ids=lambda planner: planner.name)
def test_every_planner_keeps_to_the_bound(planner: Planner) -> None:
    feasible = 0
    for seed in range(150):
        problem = side_by_side(random_problem(seed), seed)
        best = EvictionDP().solve(problem)
        curve, serial = planner.solve(problem), planner.solve(one_after_another(problem))
        for point, optimum, apart in zip(curve.points, best.points, serial.points, strict=True):
            assert no_worse(point, apart)
            if not point.feasible:
                continue
            feasible += 1
            chosen = {(each.job_id, each.action) for each in point.actions if each.action is not Action.END}
            used = [o for job in problem.candidates for o in job.options if (job.job_id, o.action) in chosen]
            assert within_s(used, problem.step_s) <= point.max_delay_s
            assert no_worse(optimum, point)
    assert feasible > 200


def no_worse(one: CurvePoint, other: CurvePoint) -> bool:
    """In lost work, as far as HiGHS tells it apart."""
    if not other.feasible or not one.feasible:
        return one.feasible or not other.feasible
    return float(one.lost_work_node_s or 0) <= float(other.lost_work_node_s or 0) * (1 + float(AS_GOOD)) + 1e-9


def within_s(used: list[Option], step_s: int) -> int:
    whole = [whole_steps(o.checkpoint_s if o.file_system_s is None else o.file_system_s, step_s) for o in used]
    rest = [whole_steps(o.checkpoint_s, step_s) - mine for o, mine in zip(used, whole, strict=True)]
    return (sum(whole) + max(rest, default=0)) * step_s


def test_what_is_in_time_one_after_another_is_in_time_side_by_side() -> None:
    for seed in range(600):
        problem = side_by_side(random_problem(seed), seed)
        shared, serial = EvictionDP().solve(problem), EvictionDP().solve(one_after_another(problem))
        for ours, theirs in zip(shared.points, serial.points, strict=True):
            assert no_worse(ours, theirs)
        for earlier, later in pairwise(point for point in shared.points if point.feasible):
            assert no_worse(later, earlier)


@pytest.mark.parametrize("shape", SHAPES)
def test_after_others_it_is_the_best_of_all_as_well(shape: str) -> None:
    """The serial problem without the time that others take, which several urgent jobs are planned by."""
    checkpoints = 0
    for seed in seeds(SHAPES, shape, 0, 60):
        problem = beside_others(random_problem(seed), seed)
        expected = exhaustive(problem)
        check_answers(problem, answers(problem, EvictionDP().solve(problem)), expected)
        later = after_others(problem, problem.busy_s)
        assert later.busy_s == 0
        passed = (problem.max_delay_s - later.max_delay_s) // problem.step_s
        check_answers(later, answers(later, EvictionDP().solve(later)), exhaustive(later))
        assert costs(exhaustive(later)) == costs(expected[passed:])
        checkpoints += sum(each is not None and each[1] > 0 for each in expected if problem.busy_s)
    assert checkpoints or shape == "zeros"


def costs(found: list[Answer | None]) -> list[object]:
    return [each and each[:2] for each in found]


def test_two_slow_writers_are_saved_at_once() -> None:
    """Each takes 50 s through its own node and a tenth of the file system: 100 s one after another, 55 s at once."""
    save = Option(Action.APP_CHECKPOINT, checkpoint_s=50, file_system_s=5)
    jobs = tuple(Candidate(job_id, 1, (Option(Action.KILL, 900), save)) for job_id in ("1", "2"))
    problem = EvictionProblem(2, 60, 5, jobs)

    def lost(curve: Curve) -> list[float | None]:
        return [point.lost_work_node_s for point in curve.points]

    assert lost(EvictionDP().solve(problem)) == [1_800] * 10 + [900] + [0, 0]
    assert lost(EvictionDP().solve(one_after_another(problem))) == [1_800] * 10 + [900] * 3
    last = EvictionDP().solve(problem).points[-1]
    assert (last.checkpoint_s, [each.checkpoint_s for each in last.actions]) == (10, [50, 50])


@pytest.mark.fault(
    "Checkpoints written at once were promised in time behind others that leave no time.", found_by="random problems"
)
def test_no_time_is_left_for_a_checkpoint_behind_others() -> None:
    save, kill = Option(Action.APP_CHECKPOINT, checkpoint_s=50, file_system_s=5), Option(Action.KILL, 900)
    problem = EvictionProblem(1, 60, 5, (Candidate("1", 1, (kill, save)),), busy_s=10)
    assert problem.in_time((kill, save)) == (kill, save)
    later = replace(problem, busy_s=11)
    assert later.in_time((kill, save)) == (kill,)
    assert [EvictionDP().solve(each).points[-1].lost_work_node_s for each in (problem, later)] == [0, 900]


@pytest.mark.parametrize("wrong", [-1.0, 10.5, float("nan")])
def test_a_share_that_cannot_be_is_refused(wrong: float) -> None:
    save = Option(Action.APP_CHECKPOINT, checkpoint_s=10, file_system_s=wrong)
    problem = EvictionProblem(1, 60, 5, (Candidate("1", 1, (save,)),))
    with pytest.raises(ValueError, match="file_system_s"):
        EvictionDP().solve(problem)
    right = replace(save, file_system_s=10.0)
    assert EvictionDP().solve(replace(problem, candidates=(Candidate("1", 1, (right,)),))).points[-1].feasible


@pytest.mark.parametrize("kind", KINDS)
def test_lost_work_is_that_of_highs(kind: str) -> None:
    problem = side_by_side(medium_problem(kind, 400), 400)
    curve = EvictionDP().solve(problem)
    assert curve.exact
    found = [None if best is None else int(best[0]) for best in answers(problem, curve)]
    assert found == [None if best is None else best[0] for best in milp_sweep(problem)]
