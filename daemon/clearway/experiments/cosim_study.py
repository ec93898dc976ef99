"""Figures 5 to 8 of the CoSim paper: how long three planners take for every deadline, and what greedy loses.

The paper: "CoSim: A Simulator for Co-Scheduling of Batch and On-Demand Jobs in HPC Datacenters", DS-RT, 2020,
DOI 10.1109/DS-RT50469.2020.9213578.

The scenarios are rebuilt from the paper's description (``clearway.simulation.scenarios``), with jobs in multiples of
128 nodes. The paper's rule: greedy and backtracking search once for each deadline, so that their times for all
deadlines up to each one add up; the dynamic program answers all of them in one pass. Times are wall clock times of
this machine, the least of some repetitions.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

from clearway.model.problem import EvictionProblem
from clearway.planning.base import Planner
from clearway.planning.baselines.backtracking import Backtracking
from clearway.planning.baselines.greedy import Greedy
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.simulation.scenarios import MAX_DELAY_S, STEP_S, Scenario, scenario

NUMBERS = (1, 2, 3)
SEED = 1  # of the problem that is timed
SEEDS = 50  # of the problems whose losses are averaged
PATIENCE_S = 40  # the exhaustive search is asked no further deadline after an answer that took longer
DELAYS_S = range(0, MAX_DELAY_S + 1, STEP_S)
_REPEATS = 20
_QUICK_US = 1e5  # a search that takes longer is measured once
_ENOUGH_US = 2e5  # measurements that take so long together are enough


@dataclass(frozen=True, slots=True)
class Times:
    """Microseconds for all deadlines up to each one; ``backtracking`` ends where its patience did."""

    scenario: Scenario
    dynamic: Sequence[float]
    greedy: Sequence[float]
    backtracking: Sequence[float]


@dataclass(frozen=True, slots=True)
class CosimStudy:
    """``losses``: node-hours that greedy loses more, by scenario and deadline."""

    times: tuple[Times, ...]
    losses: tuple[Sequence[float], ...]
    seeds: int
    patience_s: float


def study(
    tell: Callable[[str], None] = lambda _: None, *, seeds: int = SEEDS, patience_s: float = PATIENCE_S
) -> CosimStudy:
    times = []
    for number in NUMBERS:
        tell(f"Scenario-{number}: response times ...")
        times.append(timed(number, patience_s))
    tell("what greedy loses ...")
    return CosimStudy(tuple(times), tuple(relative_losses(number, seeds) for number in NUMBERS), seeds, patience_s)


def timed(number: int, patience_s: float = PATIENCE_S) -> Times:
    drawn = scenario(number, SEED)
    problem = drawn.problem()
    by_deadline = [replace(problem, max_delay_s=delay_s) for delay_s in DELAYS_S]
    dynamic = [_best_us(EvictionDP(), problem)] * len(DELAYS_S)
    greedy = [_best_us(Greedy(), shorter) for shorter in by_deadline]
    backtracking: list[float] = []
    for shorter in by_deadline:
        took_us = _once_us(Backtracking(), shorter)
        backtracking.append(took_us if took_us >= _QUICK_US else min(took_us, _best_us(Backtracking(), shorter)))
        if took_us > patience_s * 1e6:
            break
    return Times(drawn, dynamic, greedy, backtracking)


def relative_losses(number: int, seeds: int = SEEDS) -> list[float]:
    """Node-hours that greedy loses more than the optimum, for each deadline; the mean of many problems."""
    more: list[list[float]] = []
    for seed in range(seeds):
        problem = scenario(number, seed).problem()
        pairs = zip(Greedy().solve(problem).points, EvictionDP().solve(problem).points, strict=True)
        lost_node_s = [(point.lost_work_node_s or 0, best.lost_work_node_s or 0) for point, best in pairs]
        more.append([(theirs - least) / 3_600 for theirs, least in lost_node_s])
    return [statistics.fmean(column) for column in zip(*more, strict=True)]


def _once_us(planner: Planner, problem: EvictionProblem) -> float:
    begin = time.perf_counter()
    planner.solve(problem)
    return (time.perf_counter() - begin) * 1e6


def _best_us(planner: Planner, problem: EvictionProblem) -> float:
    best_us, all_us = inf, 0.0
    for _ in range(_REPEATS):
        took_us = _once_us(planner, problem)
        best_us, all_us = min(best_us, took_us), all_us + took_us
        if all_us > _ENOUGH_US:
            break
    return best_us
