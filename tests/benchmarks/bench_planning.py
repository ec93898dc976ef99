"""How long the planners take on the paper's scenarios, beside sweeps of HiGHS and CP-SAT over the same deadlines.

Run with ``pytest tests/benchmarks/bench_planning.py -s``. Times are processor time of one complete answer for all
deadlines. The planner and the solvers take turns. A limit in seconds holds for the least time, to which others on the
machine add little, and for a quiet machine: where the yardstick takes longer than on one, as much longer is allowed.
A ratio is that of the medians or that of the least times, whichever is larger. What misses its mark is measured again,
four times at most; each mark of a row is to be reached once.
``planning_report`` writes the tables into the documentation.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

import pytest

from clearway.model.plan import Curve
from clearway.model.problem import EvictionProblem
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway_lab.baselines import Backtracking, Greedy
from clearway_lab.studies.scenarios import scenario
from tests.benchmarks.yardstick import Pace
from tests.oracle.cp_sat import cp_sat_again, cp_sat_sweep
from tests.oracle.milp import milp_sweep

SEED = 1
TURNS = 9
REPEATS = 25  # of what takes a millisecond, in each turn
LARGE_REPEATS = 3
LEAST_RATIOS = (200, 100, 50)  # to HiGHS, CP-SAT with a model for each deadline, and CP-SAT with one solved again
SCENARIO_3_MS = 1.0
RUNS = 5
GUARDED_BY = 4  # on a busy machine a ratio may be so many times smaller
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
import re, sys, time
from clearway.planning.dp.eviction_dp import EvictionDP
from tests.benchmarks.large import large_problem
nodes, jobs, needed, deadlines, step_s, multiple, ends = map(int, sys.argv[1:])
problem = large_problem(nodes, jobs, needed, deadlines, step_s, multiple=multiple, ends=ends)
begin = time.process_time()
curve = EvictionDP().solve(problem)
spent_s = time.process_time() - begin
assert curve.exact
with open("/proc/self/status") as status:  # getrusage would tell the parent's, which this process began as
    print(spent_s, int(re.search(r"VmHWM:\\s+(\\d+) kB", status.read())[1]) / 1024)
"""


def large_measured(case: tuple[float, ...]) -> tuple[float, float, float]:
    """A large problem in processes of its own: least seconds, most MiB (Python and numpy included), the pace."""
    command = [sys.executable, "-c", _MEASURE, *[str(number) for number in case[:-1]]]
    pace, done = Pace(time.process_time, arrays=True), []
    for _ in range(LARGE_REPEATS):
        done.append(subprocess.run(command, capture_output=True, text=True, check=True))
        pace.take()
    spent_s, peaks_mib = zip(*[map(float, each.stdout.split()) for each in done], strict=True)
    return min(spent_s), max(peaks_mib), pace.slower


class Measured(NamedTuple):
    """A scenario, and milliseconds: medians, and the least of eviction-dp. ``ratios``: of each solver's least to it."""

    name: str
    jobs: int
    needed: int
    multiple: int
    ours: float
    highs: float
    cp_sat: float
    again: float  # CP-SAT with one model
    greedy: float
    least: float
    ratios: tuple[float, ...]
    slower: float  # the machine, than a quiet one: times


def scenarios_measured(node_multiples: Sequence[int] = (128, 1), turns: int = TURNS) -> list[Measured]:
    rows = []
    for number in (1, 2, 3):
        for node_multiple in node_multiples:
            drawn = scenario(number, SEED, node_multiple=node_multiple)
            problem = drawn.problem()
            curve = EvictionDP().solve(problem)
            for sweep in SOLVERS:
                assert costs(problem, curve) == sweep(problem)
            if number <= BACKTRACKING_UP_TO:
                assert Backtracking().solve(problem).points == curve.points
            pace = Pace(time.process_time)
            spent = _in_turns(problem, pace, turns)
            ours, highs, cp_sat, again, greedy = map(median, spent)
            size = (len(drawn.jobs), drawn.nodes_needed, node_multiple)
            least = min(spent[0])
            ratios = tuple(min(each) / least for each in spent[1:-1])
            rows.append(Measured(drawn.name, *size, ours, highs, cp_sat, again, greedy, least, ratios, pace.slower))
    return rows


def _in_turns(problem: EvictionProblem, pace: Pace, turns: int) -> list[list[float]]:
    """Milliseconds, turn by turn, of eviction-dp, of each solver, of greedy; of short runs the least of a turn.

    A run of a millisecond begins with empty caches whenever somebody else was let in before; a solver's sweep hardly
    notices.
    """
    spent: list[list[float]] = [[] for _ in range(len(SOLVERS) + 2)]
    for _ in range(turns):
        pace.take()
        for place, sweep in enumerate(SOLVERS, start=1):
            spent[0].append(min(spent_ms(lambda: EvictionDP().solve(problem), REPEATS)))
            spent[place] += spent_ms(lambda sweep=sweep: sweep(problem))
        spent[-1].append(min(spent_ms(lambda: Greedy().solve(problem), REPEATS)))
    return spent


@pytest.mark.guard
@pytest.mark.timeout(900)
def test_planning_is_many_times_faster_than_solvers_on_a_busy_machine_too() -> None:
    missed = {1, 2, 3}
    for _ in range(RUNS):
        rows = enumerate(scenarios_measured((1,), turns=3), start=1)
        missed &= {number for number, row in rows if marks_missed(row, GUARDED_BY)}
        if not missed:
            return
    pytest.fail(f"scenarios {missed} in each of {RUNS} runs")


@pytest.mark.timeout(1_800)
def test_planning_is_fast() -> None:
    missed: set[tuple[str, int, str]] | None = None
    for _ in range(RUNS):  # on a machine that others share whole runs are slow
        rows = scenarios_measured()
        for row in rows:
            print(
                f"{row.name} x {row.multiple}: eviction-dp {row.ours:.2f} ms, {row.least:.2f} at best; "
                f"{row.highs / row.ours:.0f} times HiGHS, {row.cp_sat / row.ours:.0f} times CP-SAT, "
                f"{row.again / row.ours:.0f} times it again; at best {'/'.join(f'{each:.0f}' for each in row.ratios)}; "
                f"greedy {row.greedy:.2f} ms; the machine x{row.slower:.1f}"
            )
        now = {(row.name, row.multiple, mark) for row in rows for mark in marks_missed(row)}
        missed = now if missed is None else missed & now
        if not missed:
            return
    pytest.fail(f"missed in each of {RUNS} runs: {missed}; the last: {rows}")


def marks_missed(row: Measured, times: float = 1) -> list[str]:
    """Which marks the row misses even where it may be so many times worse."""
    by_median = (row.highs / row.ours, row.cp_sat / row.ours, row.again / row.ours)
    ratios = zip(("HiGHS", "CP-SAT", "again"), map(max, by_median, row.ratios), LEAST_RATIOS, strict=True)
    missed = [name for name, ratio, least in ratios if ratio * times < least]
    if row.name == "Scenario-3" and row.least >= SCENARIO_3_MS * row.slower * times:
        missed.append("milliseconds")
    return missed


@pytest.mark.timeout(1_800)
def test_large_machines_are_planned_in_seconds() -> None:
    for case in LARGE:
        for _ in range(RUNS):
            spent_s, peak_mib, slower = large_measured(case)
            print(f"{case}: {spent_s:.2f} s, {peak_mib:.0f} MiB, the machine x{slower:.1f}")
            if spent_s < case[-1] * slower:
                break
        assert spent_s < case[-1] * slower, case
        assert peak_mib < 1024, case
