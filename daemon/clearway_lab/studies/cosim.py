"""Figures 5 to 8 of the CoSim paper: how long three planners take for every deadline, and what greedy loses.

The paper: "CoSim: A Simulator for Co-Scheduling of Batch and On-Demand Jobs in HPC Datacenters", DS-RT, 2020,
DOI 10.1109/DS-RT50469.2020.9213578.

The scenarios are rebuilt from the paper's description (``clearway_lab.studies.scenarios``), with jobs in multiples of
128 nodes. The paper's rule: greedy and backtracking search once for each deadline, so that their times for all
deadlines up to each one add up; the dynamic program answers all of them in one pass. Times are wall clock times of
this machine, the least of some repetitions.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from clearway.model.problem import EvictionProblem
from clearway.planning.base import Planner
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.simulation.theta import MAX_DELAY_S, STEP_S
from clearway_lab.baselines import Backtracking, Greedy
from clearway_lab.studies import chart, page
from clearway_lab.studies.scenarios import Scenario, scenario

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


_COLOURS = ("#2166ac", "#1b7837", "#b2182b")
_PAPER = {
    "Scenario-1": "backtracking is faster than the dynamic program",
    "Scenario-2": "backtracking falls behind the dynamic program",
    "Scenario-3": "the dynamic program is up to five orders of magnitude faster than backtracking",
}
_COLUMNS = ("scenario", "deadline_s", "eviction_dp_us", "greedy_us", "backtracking_us", "greedy_more_lost_node_h")


def as_csv(study: CosimStudy) -> str:
    """A line for each scenario and deadline; an empty cell where backtracking was not asked any more."""
    rows = []
    for times, loss in zip(study.times, study.losses, strict=True):
        series = zip(times.dynamic, times.greedy, [*times.backtracking, *[None] * len(DELAYS_S)], loss, strict=False)
        for delay_s, (*took_us, more_node_h) in zip(DELAYS_S, series, strict=True):
            known = ["" if each is None else f"{each:.1f}" for each in took_us]
            rows.append([times.scenario.name, delay_s, *known, f"{more_node_h:.3f}"])
    return page.as_table(_COLUMNS, rows)


def as_html(study: CosimStudy) -> str:
    return page.html(
        "cosim.html",
        study,
        times=[_times(each) for each in study.times],
        time_charts=[_time_chart(each) for each in study.times],
        losses=[_losses(each.scenario.name, loss) for each, loss in zip(study.times, study.losses, strict=True)],
        loss_charts=[
            _chart(each.scenario.name, "node-hours", {"greedy - optimum": loss}, "")
            for each, loss in zip(study.times, study.losses, strict=True)
        ],
    )


def _times(each: Times) -> Sequence[str | int]:
    last = len(each.backtracking) - 1
    return (
        each.scenario.name,
        len(each.scenario.jobs),
        f"{each.dynamic[-1] / 1e3:.2f}",
        f"{each.dynamic[-1] / each.greedy[-1]:.1f}",
        f"{each.backtracking[last] / 1e3:,.1f}",
        DELAYS_S[last] // 60,
        f"{each.backtracking[last] / each.dynamic[last]:,.0f}",
        _PAPER[each.scenario.name],
    )


def _losses(name: str, loss: Sequence[float]) -> Sequence[str | int]:
    most = max(range(len(loss)), key=lambda place: (loss[place], -place))
    return name, f"{loss[0]:,.0f}", f"{loss[most]:,.0f}", DELAYS_S[most] // 60, f"{loss[-1]:,.0f}"


def _time_chart(each: Times) -> str:
    series = {"dynamic program": each.dynamic, "greedy": each.greedy, "backtracking": each.backtracking}
    in_ms = {name: [value / 1e3 for value in values] for name, values in series.items()}
    return _chart(f"{each.scenario.name}: K = {each.scenario.nodes_needed:,}", "time (ms)", in_ms, "y")


def _chart(title: str, up: str, series: Mapping[str, Sequence[float]], logarithmic: str) -> str:
    """Over the deadlines in minutes."""
    points = {
        name: [(delay_s / 60, value) for delay_s, value in zip(DELAYS_S, values, strict=False)]
        for name, values in series.items()
    }
    return chart.lines(title, "deadline (minutes)", up, points, logarithmic=logarithmic, colours=_COLOURS)


def found(study: CosimStudy) -> list[str]:
    times, losses = study.times[-1], study.losses[-1]
    took_ms, search_ms = times.dynamic[-1] / 1e3, times.backtracking[-1] / 1e3
    dynamic = f"Clearway's dynamic program answers all {len(DELAYS_S)} deadlines in {took_ms:.1f} ms"
    search = f"exhaustive search took {search_ms:,.0f} ms for {len(times.backtracking)} of them"
    return [
        f"With {len(times.scenario.jobs)} jobs, {dynamic}; {search}.",
        f"The greedy choice loses up to {max(losses):,.0f} node-hours more than the best one.",
    ]
