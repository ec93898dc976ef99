"""The stochastic-jobs paper's Table 2 and Figures 5 to 7 as one HTML page, and as a table for other programs."""

from collections.abc import Callable, Iterator, Sequence

from clearway.experiments import chart, page
from clearway.experiments.stochastic_study import FIGURE_7_CHUNKS, FIGURE_CHUNKS, TAUS, Cell, Figure, StochasticStudy
from clearway.walltime.request_sequence import Strategy

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
