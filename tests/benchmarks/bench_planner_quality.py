"""A small sample of ``planner_quality``: the exact planner is the best on recorded workloads, and by how much."""

from __future__ import annotations

import pytest

from tests.benchmarks import planner_quality
from tests.benchmarks.planner_quality import DELAYS_S, KNOWN, PLANNERS, UNKNOWN
from tests.benchmarks.trace_problems import MACHINES
from tests.traces import recorded

PROBLEMS_PER_TRACE = 6


@pytest.mark.timeout(900)
def test_no_rule_beats_the_exact_planner_on_recorded_workloads() -> None:
    recorded(*(machine.file for machine in MACHINES))
    quality = planner_quality.measured(PROBLEMS_PER_TRACE)  # asserts for each problem that nothing beats the optimum
    for delay_s in DELAYS_S:
        row = {planner.name: quality.sums[planner.name, KNOWN, delay_s, ""] for planner in PLANNERS}
        print(f"within {delay_s} s:", ", ".join(f"{name} {entry.ratio:.2f}" for name, entry in row.items()))
        assert row["eviction-dp"].ratio == 1
        assert row["eviction-dp"].problems == quality.feasible[delay_s, ""]
        assert row["slurm-default"].ratio > row["loss-per-node-prune"].ratio > 1
    # what the age of a checkpoint is worth to the exact planner
    assert quality.sums["eviction-dp", UNKNOWN, 0, ""].ratio > 1.2
    assert quality.checked_by_highs
