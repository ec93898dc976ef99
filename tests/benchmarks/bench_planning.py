"""How long the planners take on the paper's scenarios, beside sweeps of HiGHS and CP-SAT over the same deadlines.

Run with ``pytest tests/benchmarks/bench_planning.py -s``. Times are processor time of one complete answer for all
deadlines. The planner and the solvers take turns, and the median of each counts: a machine that others share is slow
for all of them then. ``planning_report`` writes the tables into the documentation.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

import pytest

from clearway.model import Curve, EvictionProblem
from clearway.planning.backtracking import Backtracking
from clearway.planning.eviction_dp import EvictionDP
from clearway.planning.greedy import Greedy
from clearway.simulation.scenarios import scenario
from tests.oracle.cp_sat import cp_sat_again, cp_sat_sweep
from tests.oracle.milp import milp_sweep

SEED = 1
TURNS = 9
REPEATS = 25  # of what takes a millisecond, in each turn
LARGE_REPEATS = 3
LEAST_RATIO_HIGHS = 200
LEAST_RATIO_CP_SAT = 100  # a model for each deadline
LEAST_RATIO_CP_SAT_AGAIN = 50  # one model solved again
SCENARIO_3_MS = 1.0
BACKTRACKING_UP_TO = 1  # the scenario whose exhaustive search ends in seconds

SOLVERS = (milp_sweep, cp_sat_sweep, cp_sat_again)


def spent_ms(run: Callable[[], object], repeats: int = 1) -> list[float]:
    spent = []
    for _ in range(repeats):
        begin = time.process_time()
        run()
        spent.append((time.process_time() - begin) * 1_000)
    return spent


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
            curve = EvictionDP().solve(problem)
            for sweep in SOLVERS:
                assert costs(problem, curve) == sweep(problem)
            if number <= BACKTRACKING_UP_TO:
                assert Backtracking().solve(problem).points == curve.points
            size = (len(drawn.jobs), drawn.nodes_needed, node_multiple)
            rows.append((drawn.name, *size, *_in_turns(problem)))
    return rows


def _in_turns(problem: EvictionProblem) -> tuple[float, float, float, float, float]:
    """Medians: eviction-dp, the solvers, greedy."""
    spent: list[list[float]] = [[] for _ in range(len(SOLVERS) + 2)]
    for _ in range(TURNS):
        for place, sweep in enumerate(SOLVERS, start=1):
            spent[0] += spent_ms(lambda: EvictionDP().solve(problem), REPEATS)
            spent[place] += spent_ms(lambda sweep=sweep: sweep(problem))
        spent[-1] += spent_ms(lambda: Greedy().solve(problem), REPEATS)
    ours, highs, cp_sat, again, greedy = map(median, spent)
    return ours, highs, cp_sat, again, greedy


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
