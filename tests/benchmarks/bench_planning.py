"""How long the planners take on the paper's scenarios, beside a sweep of scipy's HiGHS over the same deadlines.

Run with ``pytest tests/benchmarks/bench_planning.py -s``. Times are the best of several repeats of one complete
answer for all 16 deadlines; the solver's is one sweep in the same run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import pytest
from rich.console import Console
from rich.table import Table

from clearway.model import Curve, EvictionProblem
from clearway.planning.backtracking import Backtracking
from clearway.planning.eviction_dp import EvictionDP
from clearway.planning.greedy import Greedy
from clearway.simulation.scenarios import scenario
from tests.oracle.milp import milp_sweep

SEED = 1
REPEATS = 100
LEAST_RATIO = 100
SCENARIO_3_MS = 2.0
BACKTRACKING_UP_TO = 1  # the scenario whose exhaustive search ends in seconds

_Result = TypeVar("_Result")


def best_ms(run: Callable[[], _Result], repeats: int) -> tuple[_Result, float]:
    result, best = run(), float("inf")
    for _ in range(repeats):
        begin = time.perf_counter()
        result = run()
        best = min(best, time.perf_counter() - begin)
    return result, best * 1_000


def costs(problem: EvictionProblem, curve: Curve) -> list[tuple[float, int] | None]:
    return [
        None
        if point.lost_work_node_s is None or point.checkpoint_s is None
        else (point.lost_work_node_s, point.checkpoint_s // problem.step_s)
        for point in curve.points
    ]


@pytest.mark.timeout(600)
def test_planning_is_fast() -> None:
    table = Table(title="Planning for 16 deadlines, milliseconds", title_justify="left")
    for heading in ("", "jobs", "K", "nodes", "eviction-dp", "HiGHS sweep", "ratio", "greedy", "backtracking"):
        table.add_column(heading, justify="right")
    measured: list[tuple[str, float, float]] = []
    for number in (1, 2, 3):
        for node_multiple in (128, 1):
            drawn = scenario(number, SEED, node_multiple=node_multiple)
            problem = drawn.problem()
            curve, ours_ms = best_ms(lambda problem=problem: EvictionDP().solve(problem), REPEATS)
            begin = time.perf_counter()
            expected = milp_sweep(problem)
            solver_ms = (time.perf_counter() - begin) * 1_000
            assert costs(problem, curve) == expected
            _, greedy_ms = best_ms(lambda problem=problem: Greedy().solve(problem), 10)
            backtracking = "-"
            if number <= BACKTRACKING_UP_TO:
                exhaustive, exhaustive_ms = best_ms(lambda problem=problem: Backtracking().solve(problem), 1)
                assert exhaustive.points == curve.points
                backtracking = f"{exhaustive_ms:,.1f}"
            measured.append((drawn.name, ours_ms, solver_ms / ours_ms))
            table.add_row(
                drawn.name,
                str(len(drawn.jobs)),
                f"{drawn.nodes_needed:,}",
                f"x {node_multiple}" if node_multiple > 1 else "arbitrary",
                f"{ours_ms:.2f}",
                f"{solver_ms:,.0f}",
                f"{solver_ms / ours_ms:,.0f}",
                f"{greedy_ms:.2f}",
                backtracking,
            )
    Console(width=110).print(table)
    for name, ours_ms, ratio in measured:
        assert ratio >= LEAST_RATIO, f"{name}: only {ratio:.0f} times faster than HiGHS"
        assert name != "Scenario-3" or ours_ms < SCENARIO_3_MS
