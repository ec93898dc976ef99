"""The stochastic-jobs paper's Table 2 and Figures 5 to 7, computed again from its formulas.

The paper: "Reservation and Checkpointing Strategies for Stochastic Jobs", IPDPS, 2020 (hal-03029298).

Two readings of the table are computed. *As stated*: alpha = 1, beta = gamma = 0, C = R = 360 s. *As the cells show*:
gamma = 360 s as well, that is 0.1 h for every request whether it restarts or not; and a NO-CKPT-PER request after the
first is shorter by the distribution's lower bound a. The second reading was found by taking the cells apart: for the
exponential distribution a request costs its length plus 0.10 h without checkpoints, 0.30 h with.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from clearway.walltime.distributions import FAMILIES, Continuous, continuous
from clearway.walltime.request_sequence import (
    Costs,
    Strategy,
    best_periods,
    chunks,
    dynamic,
    expected_cost,
    omniscient_cost,
    periodic_cost,
)
from clearway_lab.studies import chart, page
from clearway_lab.sweeps.local import Sweep, Task

HOUR_S = 3_600.0
TAUS = (1, 200, 400, 600, 800, 1_000)
PERIODIC = (Strategy.ALL_CKPT_PER, Strategy.NO_CKPT_PER)
STATED = Costs(360.0, 360.0)
SHOWN = Costs(360.0, 360.0, gamma=360.0)
_DYNAMIC = Strategy.DYN_PROG_COUNT
EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # of Figure 6; the first is Table 2's
FIGURE_CHUNKS = 2_000
FIGURE_7_CHUNKS = 20_000

# By distribution: best tau, its cost, then the costs at TAUS; of ALL-CKPT-PER, then of NO-CKPT-PER.
PAPER_TABLE_2: Mapping[str, tuple[float, ...]] = {
    "exponential": (23, 1.00, 8.60, 2.55, 4.51, 6.48, 8.46, 10.43, 12, 1.38, 8.60, 7.81, 15.04, 22.27, 29.50, 36.74),
    "weibull": (291, 1.06, 81.56, 1.09, 1.08, 1.17, 1.29, 1.43, 68, 2.54, 81.56, 3.85, 6.66, 9.56, 12.49, 15.43),
    "gamma": (13, 1.02, 5.35, 4.07, 7.54, 11.02, 14.49, 17.97, 8, 1.26, 5.35, 10.44, 20.29, 30.14, 39.99, 49.84),
    "lognormal": (9, 1.11, 3.05, 4.52, 8.24, 11.96, 15.69, 19.41, 3, 1.24, 3.05, 18.26, 35.74, 53.21, 70.68, 88.16),
    "pareto": (574, 1.00, 105.79, 1.19, 1.02, 1.00, 1.02, 1.04, 261, 1.32, 105.79, 1.35, 1.39, 1.57, 1.79, 2.01),
    "truncnormal": (9, 1.10, 2.18, 3.28, 5.67, 8.07, 10.46, 12.86, 2, 1.23, 2.18, 30.78, 60.69, 90.60, 120.50, 150.41),
    "uniform": (8, 1.01, 1.57, 3.17, 5.51, 7.86, 10.20, 12.54, 1, 1.57, 1.57, 51.08, 101.33, 151.58, 201.83, 252.09),
    "beta": (2, 1.06, 1.11, 30.77, 60.99, 91.21, 121.42, 151.64, 1, 1.11, 1.11, 40.85, 81.14, 121.42, 161.71, 202.00),
    "boundedpareto": (32, 1.01, 7.53, 1.73, 2.71, 3.70, 4.70, 5.69, 14, 1.44, 7.53, 6.51, 12.28, 18.06, 23.83, 29.61),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of Table 2; costs are multiples of DYN-PROG-COUNT(X, 0.1)."""

    distribution: str
    strategy: Strategy
    best: bool
    paper_tau: int
    paper: float
    tau: int
    stated: float
    shown_tau: int
    shown: float  # the second reading, at ``shown_tau`` requests


Line: TypeAlias = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Figure:
    title: str
    across: str
    up: str
    series: Mapping[str, Line]  # points by name


@dataclass(frozen=True, slots=True)
class StochasticStudy:
    cells: tuple[Cell, ...]
    chunks: Mapping[str, int]
    figures: tuple[Figure, ...]


def of_paper(name: str) -> Continuous:
    return continuous(name, FAMILIES[name], HOUR_S)


def study(sweep: Sweep, names: Sequence[str] = tuple(FAMILIES)) -> StochasticStudy:
    """Everything; about half a minute of one processor."""
    rows = sweep(of_distribution, [(name,) for name in names], lambda row: f"Table 2, {row[0][0].distribution}")
    # The longest first.
    drawings: list[Task] = [(figure_5, "exponential"), (figure_7, "mean"), (figure_7, "deviation")]
    drawings += [(figure_5, "boundedpareto")]
    exponential, mean, deviation, pareto = sweep(_drawn, drawings, lambda figure: figure.title)
    lines = dict(zip(names, (line for _, line in rows), strict=True))
    counts = {name: chunks(of_paper(name), STATED, 0.1) for name in names}
    cells = tuple(cell for row, _ in rows for cell in row)
    return StochasticStudy(cells, counts, (exponential, pareto, figure_6(lines), mean, deviation))


def _drawn(figure: Callable[[Any], Figure], of: Any) -> Figure:
    return figure(of)


def of_distribution(name: str) -> tuple[list[Cell], Line]:
    """Its row of Table 2 and its line in Figure 6, both of which are multiples of the same cost."""
    times = of_paper(name)
    base = best_stated(times)
    return table_2(name, times, base), over_epsilon(times, base)


def best_stated(times: Continuous) -> float:
    """What all costs as stated are multiples of."""
    return _cost(times, STATED, _DYNAMIC, chunks(times, STATED, EPSILONS[0]))


def table_2(name: str, times: Continuous, base: float) -> list[Cell]:
    """The row of a distribution, with the paper's own parameters or others; ``base`` is ``best_stated``."""
    shown_base = _cost(times, SHOWN, _DYNAMIC, chunks(times, SHOWN, EPSILONS[0]))
    paper = PAPER_TABLE_2[name]
    half = len(paper) // 2
    cells: list[Cell] = []
    for strategy, (best_tau, best_cost, *costs_at) in zip(PERIODIC, (paper[:half], paper[half:]), strict=True):
        best = best_periods(times, STATED, strategy)
        shown = {tau: as_cells_show(times, strategy, tau) / shown_base for tau in range(1, 1_001)}
        shown_best = min(shown, key=lambda tau: (shown[tau], tau))
        rows = [(True, int(best_tau), best_cost, best, shown_best)]
        rows += [(False, tau, cost, tau, tau) for tau, cost in zip(TAUS, costs_at, strict=True)]
        for is_best, paper_tau, cost, tau, shown_tau in rows:
            stated = _cost(times, STATED, strategy, tau) / base
            cells.append(Cell(name, strategy, is_best, paper_tau, cost, tau, stated, shown_tau, shown[shown_tau]))
    return cells


def as_cells_show(times: Continuous, strategy: Strategy, tau: int) -> float:
    """The second reading of a periodic strategy's cost; see the module's docstring."""
    cost = _cost(times, SHOWN, strategy, tau)
    if strategy is Strategy.NO_CKPT_PER and times.low > 0:
        ends = np.linspace(times.low, times.high, tau + 1)[1:-1]
        cost -= times.low * float(times.survival(ends).sum())
    return cost


def figure_5(name: str) -> Figure:
    """Costs over C = R, in multiples of DYN-PROG-COUNT."""
    times = of_paper(name)
    relative = {}
    for overhead_s in map(float, np.geomspace(10, 2 * HOUR_S, 11)):
        costs = Costs(overhead_s, overhead_s)
        found = _costs(times, costs, min(chunks(times, costs, 0.1), FIGURE_CHUNKS))
        relative[overhead_s] = {each: cost / found[_DYNAMIC] for each, cost in found.items()}
    return Figure(f"Figure 5: {name}", "C = R, seconds", "cost / DYN-PROG-COUNT", _lines(relative))


def over_epsilon(times: Continuous, base: float) -> Line:
    """DYN-PROG-COUNT over epsilon, in multiples of its cost at 0.1, which is ``base``."""
    costs = [(e, _cost(times, STATED, _DYNAMIC, chunks(times, STATED, e))) for e in EPSILONS[1:]]
    return [(EPSILONS[0], 1.0), *((epsilon, cost / base) for epsilon, cost in costs)]


def figure_6(lines: Mapping[str, Line]) -> Figure:
    return Figure("Figure 6: C = R = 360 s", "epsilon", "cost / cost at epsilon = 0.1", lines)


def figure_7(varied: str) -> Figure:
    """Costs over the mean or the standard deviation of a lognormal, in multiples of the omniscient bound."""
    relative = {}
    costs = Costs(600.0, 600.0)
    for factor in map(float, np.geomspace(0.25, 4, 9)):
        mean, deviation = 21.4 * (factor if varied == "mean" else 1), 19.7 * (factor if varied == "deviation" else 1)
        variance = float(np.log1p((deviation / mean) ** 2))
        times = continuous("lognormal", {"mu": float(np.log(mean)) - variance / 2, "sigma": variance**0.5}, HOUR_S)
        found = _costs(times, costs, min(chunks(times, costs, 1.0), FIGURE_7_CHUNKS))
        relative[factor] = {each: cost / omniscient_cost(times, costs) for each, cost in found.items()}
    of = "mean / 21.4 h" if varied == "mean" else "standard deviation / 19.7 h"
    return Figure(f"Figure 7: {varied} varied, C = R = 600 s", of, "cost / omniscient", _lines(relative))


def _lines(costs: Mapping[float, Mapping[Strategy, float]]) -> Mapping[str, Line]:
    """A line for each strategy over what was varied."""
    return {each.value: [(varied, found[each]) for varied, found in costs.items()] for each in Strategy}


def _costs(times: Continuous, costs: Costs, count: int) -> dict[Strategy, float]:
    """Of every strategy; the periodic ones with their best numbers of requests, the others with so many chunks."""
    return {
        each: _cost(times, costs, each, best_periods(times, costs, each) if each.periodic else count)
        for each in Strategy
    }


def _cost(times: Continuous, costs: Costs, strategy: Strategy, count: int) -> float:
    """``count``: requests of a periodic strategy, chunks of another."""
    if strategy.periodic:
        return periodic_cost(times, costs, strategy, count)
    return expected_cost(dynamic(times, costs, strategy, count), times, costs)


_COLUMNS = (
    *("distribution", "strategy", "cell", "paper_tau", "paper", "tau"),
    *("as_stated", "as_cells_show_tau", "as_cells_show"),
)
_ROWS: dict[str, Callable[[Cell], tuple[float, int]]] = {
    "paper": lambda cell: (cell.paper, cell.paper_tau),
    "as stated": lambda cell: (cell.stated, cell.tau),
    "as cells show": lambda cell: (cell.shown, cell.shown_tau),
}


def as_csv(study: StochasticStudy) -> str:
    rows = []
    for cell in study.cells:
        name = "best" if cell.best else f"tau={cell.tau}"
        numbers = [cell.paper_tau, cell.paper, cell.tau, f"{cell.stated:.4f}", cell.shown_tau, f"{cell.shown:.4f}"]
        rows.append([cell.distribution, cell.strategy.value, name, *numbers])
    return page.as_table(_COLUMNS, rows)


def near(cell: Cell, value: float, tau: int) -> bool:
    """Within 1 % of the paper's cell (or its rounding); the best number of requests within 1 %, or one."""
    if cell.best and abs(tau - cell.paper_tau) > max(1, cell.paper_tau // 100):
        return False
    return abs(value - cell.paper) <= max(0.01 * cell.paper, 0.0051)


def as_html(study: StochasticStudy) -> str:
    return page.html(
        "stochastic.html",
        heads=["distribution", "", "best", *(f"tau = {tau:,}" for tau in TAUS)],
        tables=[
            (strategy.value.upper(), list(_table(study, strategy)))
            for strategy in (Strategy.ALL_CKPT_PER, Strategy.NO_CKPT_PER)
        ],
        stated=sum(near(cell, cell.stated, cell.tau) for cell in study.cells),
        shown=sum(near(cell, cell.shown, cell.shown_tau) for cell in study.cells),
        all=len(study.cells),
        counts=", ".join(f"{name} {count:,}" for name, count in study.chunks.items()),
        figures=[(figure.title, _chart(figure)) for figure in study.figures],
        most=(f"{FIGURE_CHUNKS:,}", f"{FIGURE_7_CHUNKS:,}"),
    )


def _table(study: StochasticStudy, strategy: Strategy) -> Iterator[Sequence[str]]:
    for name in study.chunks:
        cells = [cell for cell in study.cells if cell.distribution == name and cell.strategy is strategy]
        for row, value_of in _ROWS.items():
            yield [name if row == "paper" else "", row, *(_cell(cell, *value_of(cell)) for cell in cells)]


def _cell(cell: Cell, value: float, tau: int) -> str:
    return page.marked(f"{value:.2f}" + (f" ({tau})" if cell.best else ""), good=near(cell, value, tau))


def _chart(figure: Figure) -> str:
    return chart.lines(figure.title, figure.across, figure.up, figure.series, logarithmic="xy")


def found(study: StochasticStudy) -> list[str]:
    good = f"{sum(near(cell, cell.shown, cell.shown_tau) for cell in study.cells)} of {len(study.cells)} numbers"
    read = "once its costs are read from the numbers themselves; the report says where the text and they differ"
    return [f"{good} of the paper's table come out again, {read}."]
