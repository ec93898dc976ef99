"""How long the planners take on the paper's scenarios, beside sweeps of HiGHS and CP-SAT over the same deadlines.

Run with ``pytest tests/benchmarks/bench_planning.py -s``. Times are processor time, the best of several repeats of
one complete answer for all deadlines; a solver's is one sweep in the same run. ``planning_report`` writes the
tables into the documentation.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import TypeVar

import pytest

from clearway.model import Curve, EvictionProblem
from clearway.planning.backtracking import Backtracking
from clearway.planning.eviction_dp import EvictionDP
from clearway.planning.greedy import Greedy
from clearway.simulation.scenarios import scenario
from tests.oracle.cp_sat import cp_sat_again, cp_sat_sweep
from tests.oracle.milp import milp_sweep

SEED = 1
REPEATS = 100
SOLVER_REPEATS = 3
LARGE_REPEATS = 3
# Limits leave room for a machine that others share: the same run has shown 95 and 155 times CP-SAT in the same row.
LEAST_RATIO_HIGHS = 150  # about 220 to 350 on a quiet machine
LEAST_RATIO_CP_SAT = 70  # a model for each deadline: about 105 to 220
LEAST_RATIO_CP_SAT_AGAIN = 40  # one model solved again: about 70 to 150
SCENARIO_3_MS = 1.25  # about 0.55 for multiples of 128 nodes, 0.85 for arbitrary sizes
BACKTRACKING_UP_TO = 1  # the scenario whose exhaustive search ends in seconds

_Result = TypeVar("_Result")


def best_ms(run: Callable[[], _Result], repeats: int) -> tuple[_Result, float]:
    best = float("inf")
    for _ in range(repeats + 1):
        begin = time.process_time()
        result = run()
        best = min(best, time.process_time() - begin)
    return result, best * 1_000


def costs(problem: EvictionProblem, curve: Curve) -> list[tuple[float, int] | None]:
    return [
        None
        if point.lost_work_node_s is None or point.checkpoint_s is None
        else (point.lost_work_node_s, point.checkpoint_s // problem.step_s)
        for point in curve.points
    ]


LARGE = (  # nodes, jobs, nodes needed, deadlines, seconds between, sizes in multiples of, jobs that end, seconds
    (9_408, 1_000, 940, 900, 1, 1, 0, 1.0),
    (9_408, 1_000, 940, 900, 1, 1, 20, 1.0),
    (9_408, 1_000, 4_704, 900, 1, 1, 0, 1.0),
    (9_408, 1_000, 4_704, 900, 1, 1, 20, 1.0),
    (9_408, 1_000, 4_704, 900, 1, 8, 0, 1.0),
    (158_976, 5_000, 15_897, 60, 15, 1, 0, 5.0),
    (158_976, 5_000, 79_488, 60, 15, 1, 0, 5.0),
    (158_976, 5_000, 79_488, 60, 60, 1, 0, 5.0),
    (158_976, 5_000, 79_488, 60, 60, 1, 20, 5.0),
    (158_976, 5_000, 79_488, 60, 60, 8, 0, 5.0),
)
_MEASURE = """
import resource, sys, time
from clearway.planning.eviction_dp import EvictionDP
from tests.benchmarks.large import large_problem
nodes, jobs, needed, deadlines, step_s, multiple, ends = map(int, sys.argv[1:])
problem = large_problem(nodes, jobs, needed, deadlines, step_s, multiple=multiple, ends=ends)
begin = time.process_time()
curve = EvictionDP().solve(problem)
spent_s = time.process_time() - begin
assert curve.exact
print(spent_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def large_measured() -> list[tuple[tuple[float, ...], float, float]]:
    """Each large problem in processes of its own: least seconds and most MiB, Python and numpy included."""
    rows = []
    for case in LARGE:
        command = [sys.executable, "-c", _MEASURE, *[str(number) for number in case[:-1]]]
        done = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(LARGE_REPEATS)]
        spent_s, peaks_mib = zip(*[map(float, each.stdout.split()) for each in done], strict=True)
        rows.append((case, min(spent_s), max(peaks_mib)))
    return rows


def scenarios_measured() -> list[tuple[str, int, int, int, float, float, float, float, float]]:
    """Name, jobs, K, multiple; milliseconds of eviction-dp, HiGHS, CP-SAT, CP-SAT solved again, and greedy."""
    rows = []
    for number in (1, 2, 3):
        for node_multiple in (128, 1):
            drawn = scenario(number, SEED, node_multiple=node_multiple)
            problem = drawn.problem()
            curve, ours_ms = best_ms(lambda problem=problem: EvictionDP().solve(problem), REPEATS)
            solvers_ms = []
            for sweep in (milp_sweep, cp_sat_sweep, cp_sat_again):
                expected, spent_ms = best_ms(lambda sweep=sweep, problem=problem: sweep(problem), SOLVER_REPEATS)
                assert costs(problem, curve) == expected
                solvers_ms.append(spent_ms)
            again, again_ms = best_ms(lambda problem=problem: EvictionDP().solve(problem), REPEATS)
            assert again == curve
            ours_ms = min(ours_ms, again_ms)  # before and after the solvers: others may use the machine as well
            _, greedy_ms = best_ms(lambda problem=problem: Greedy().solve(problem), 10)
            if number <= BACKTRACKING_UP_TO:
                assert Backtracking().solve(problem).points == curve.points
            size = (len(drawn.jobs), drawn.nodes_needed, node_multiple)
            rows.append((drawn.name, *size, ours_ms, *solvers_ms, greedy_ms))
    return rows


@pytest.mark.timeout(600)
def test_planning_is_fast() -> None:
    for name, _, _, multiple, ours_ms, highs_ms, cp_sat_ms, again_ms, greedy_ms in scenarios_measured():
        print(
            f"{name} x {multiple}: eviction-dp {ours_ms:.2f} ms, HiGHS {highs_ms:.0f}, "
            f"CP-SAT {cp_sat_ms:.0f} ({again_ms:.0f} from one model), greedy {greedy_ms:.2f}"
        )
        assert highs_ms / ours_ms >= LEAST_RATIO_HIGHS, f"{name}: only {highs_ms / ours_ms:.0f} times HiGHS"
        assert cp_sat_ms / ours_ms >= LEAST_RATIO_CP_SAT, f"{name}: only {cp_sat_ms / ours_ms:.0f} times CP-SAT"
        assert again_ms / ours_ms >= LEAST_RATIO_CP_SAT_AGAIN, f"{name}: only {again_ms / ours_ms:.0f} times, from one"
        assert name != "Scenario-3" or ours_ms < SCENARIO_3_MS


@pytest.mark.timeout(600)
def test_large_machines_are_planned_in_seconds() -> None:
    for case, spent_s, peak_mib in large_measured():
        print(f"{case}: {spent_s:.2f} s, {peak_mib:.0f} MiB")
        assert spent_s < case[-1], case
        assert peak_mib < 1024, case
