"""The study as one HTML page that needs nothing else, and as a table for other programs."""

from __future__ import annotations

import csv
import io
import math
from html import escape

from clearway.experiments.page import head
from clearway.experiments.stochastic_study import FIGURE_7_CHUNKS, FIGURE_CHUNKS, TAUS, Cell, Figure, Study
from clearway.walltime.request_sequence import Strategy

_COLOURS = ("#111111", "#d08700", "#2166ac", "#b2182b", "#1b7837", "#762a83", "#a6611a", "#00868b", "#c51b7d")
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _LEGEND = 620, 330, 60, 45, 150
_STYLE = "table{font-size:13px}td,th{padding:2px 6px}svg{width:39rem;font-size:12px}.far{color:#b2182b}"
_MEANING = {
    "Figure 5": "What the five strategies cost as checkpoints and restarts become dearer. Where they are cheap, "
    "checkpointing every request is best; where they are dear, none. Between, only the dynamic program, which chooses, "
    "stays at 1. Where lines coincide, the last of them is seen. Computed with at most "
    f"{FIGURE_CHUNKS:,} chunks.",
    "Figure 6": "How much a coarser grid costs. The bound allows 1 + epsilon; the loss is far less.",
    "Figure 7": "How far each strategy stays from knowing the time beforehand. A checkpoint of ten minutes is cheap "
    "for such jobs: all-ckpt is the best choice, and covers the line of dyn-prog-count. Without checkpoints, the "
    "narrower the distribution for its mean, the nearer to 1. "
    f"At most {FIGURE_7_CHUNKS:,} chunks; the widest would need more.",
}
_ABOUT = """\
<h1>Walltime requests: Table 2 and Figures 5 to 7 of the stochastic-jobs paper</h1>
<p>A job's run time is not known beforehand, only how it is distributed. Whoever asks for too little is stopped and has
to ask again; whoever asks for much waits and pays for what is not used. Which sequence of requests, and which
checkpoints at their ends, cost least on average? <b>dyn-prog-count</b> is the dynamic program that Clearway uses; it
chooses the requests, and which of them end in a checkpoint. <b>all-ckpt</b> and <b>no-ckpt</b> choose the requests
alone. The <b>periodic</b> strategies (per) ask for tau requests of equal length, all of them with a checkpoint or none.
Costs are multiples of another strategy's, so 1 is as good as that, and 2 twice as dear.</p>
<h2>Table 2</h2>
<p>Expected cost of the periodic strategies in multiples of DYN-PROG-COUNT(X, 0.1), for the best number of requests (in
brackets) and six fixed ones. Each row: the paper; our values from its formulas as stated (alpha = 1, beta = gamma = 0,
C = R = 360 s); and our values as its cells show (below). Red: more than 1 % from the paper.</p>"""
_DIFFERENCES = """\
<h2>What differs from the paper</h2><ul>
<li>As stated, {stated} of {all} cells agree; as the cells show, {shown}.</li>
<li>The cells hold a cost of 0.1 h for every request, restarted or not: gamma = 360 s, though the text says gamma = 0. A
request after a checkpoint that ends in one then carries 0.3 h, one without any checkpoint 0.1 h.</li>
<li>Where times begin at a &gt; 0, the cells for NO-CKPT-PER make every request after the first shorter by a. A request
without a checkpoint starts from nothing and needs all of its milestone: by the paper's own model these cells are too
low.</li>
<li>The LogNormal row is another distribution's. It does not follow from mu = 3.0 and sigma = 0.5 under either reading:
at tau = 1 the longest time is only 3.05 times the cost, while the stated quantile at 1 - 1e-7 is more than ten times.
Least squares over twelve of its cells leads to a lognormal with a location, as fits to samples have one: 0.405 h, with
sigma = 0.294 and a median of 2.295 h above it (mean 2.80 h). All fourteen cells follow from that as the others do, the
two best numbers of requests included, which were not fitted. Without a location the best fit is off by 6 %. Whose times
they are, the paper does not say.</li>
<li>Small rests: the paper's own optimum is up to 0.6 % above ours, as from a coarser grid (its Beta row is met with 10
chunks).</li>
<li>Algorithm 1 asks for more chunks at epsilon = 0.1 than the 50 to 1,000 of the paper: {counts}.</li>
<li>The introduction's 43.92 takes the third request to be as long as without the second checkpoint (7 + 60); with what
that checkpoint saves it is 7 + 40, and the cost 42.32.</li></ul>"""


def as_csv(study: Study) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [
            "distribution",
            "strategy",
            "cell",
            "paper_tau",
            "paper",
            "tau",
            "as_stated",
            "as_cells_show_tau",
            "as_cells_show",
        ]
    )
    for cell in study.cells:
        name = "best" if cell.best else f"tau={cell.tau}"
        numbers = [cell.paper_tau, cell.paper, cell.tau, f"{cell.stated:.4f}", cell.shown_tau, f"{cell.shown:.4f}"]
        writer.writerow([cell.distribution, cell.strategy.value, name, *numbers])
    return text.getvalue()


def near(cell: Cell, value: float, tau: int) -> bool:
    """Within 1 % of the paper's cell (or its rounding); the best number of requests within 1 %, or one."""
    if cell.best and abs(tau - cell.paper_tau) > max(1, cell.paper_tau // 100):
        return False
    return abs(value - cell.paper) <= max(0.01 * cell.paper, 0.0051)


def as_html(study: Study) -> str:
    stated = sum(near(cell, cell.stated, cell.tau) for cell in study.cells)
    shown = sum(near(cell, cell.shown, cell.shown_tau) for cell in study.cells)
    counts = ", ".join(f"{name} {count:,}" for name, count in study.chunks.items())
    parts = [
        head("Stochastic jobs", _STYLE),
        _ABOUT,
        *(_table(study, strategy) for strategy in (Strategy.ALL_CKPT_PER, Strategy.NO_CKPT_PER)),
        _DIFFERENCES.format(stated=stated, shown=shown, all=len(study.cells), counts=counts),
    ]
    for figure in study.figures:
        parts += [f"<h2>{escape(figure.title)}</h2><p>{_MEANING[figure.title[:8]]}</p>", _svg(figure)]
    return "\n".join(parts) + "\n"


def _table(study: Study, strategy: Strategy) -> str:
    heads = "".join(f"<th>tau = {tau:,}" for tau in TAUS)
    rows = [f"<h3>{strategy.value.upper()}</h3><table><tr><th>distribution<th><th>best{heads}"]
    for name in study.chunks:
        cells = [cell for cell in study.cells if cell.distribution == name and cell.strategy is strategy]
        rows.append(f"<tr><td>{name}<td>paper" + "".join(_cell(each, each.paper, each.paper_tau) for each in cells))
        rows.append("<tr><td><td>as stated" + "".join(_cell(each, each.stated, each.tau) for each in cells))
        rows.append("<tr><td><td>as cells show" + "".join(_cell(each, each.shown, each.shown_tau) for each in cells))
    return "\n".join([*rows, "</table>"])


def _cell(cell: Cell, value: float, tau: int) -> str:
    far = "" if near(cell, value, tau) else " class=far"
    return f"<td{far}>{value:.2f}" + (f" ({tau})" if cell.best else "")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.4g}"


def _svg(figure: Figure) -> str:
    """A line chart; both axes are logarithmic."""
    xs = [math.log10(x) for each in figure.series for x, _ in each.points]
    ys = [math.log10(y) for each in figure.series for _, y in each.points]
    low_x, high_x, low_y, high_y = min(xs), max(xs), min(ys), max(*ys, min(ys) + 0.01)

    def across(x: float) -> float:
        return _LEFT + (math.log10(x) - low_x) / (high_x - low_x) * (_WIDTH - _LEFT - _LEGEND)

    def up(y: float) -> float:
        return 10 + (high_y - math.log10(y)) / (high_y - low_y) * (_HEIGHT - _BOTTOM - 10)

    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(figure.title)}">']
    for step in range(5):
        x, y = 10 ** (low_x + (high_x - low_x) * step / 4), 10 ** (low_y + (high_y - low_y) * step / 4)
        parts += [
            f'<line x1="{_LEFT}" x2="{_WIDTH - _LEGEND}" y1="{up(y):.1f}" y2="{up(y):.1f}" stroke="#ddd"/>',
            f'<text x="{_LEFT - 6}" y="{up(y) + 4:.1f}" text-anchor="end">{_number(y)}</text>',
            f'<text x="{across(x):.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{_number(x)}</text>',
        ]
    for number, each in enumerate(figure.series):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in each.points)
        parts += [
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>',
            f'<text x="{_WIDTH - _LEGEND + 8}" y="{22 + 17 * number}" fill="{colour}">{escape(each.name)}</text>',
        ]
    middle = (_LEFT + _WIDTH - _LEGEND) / 2
    parts += [
        f'<text x="{middle}" y="{_HEIGHT - 6}" text-anchor="middle">{escape(figure.across)}</text>',
        f'<text transform="translate(13,{_HEIGHT / 2}) rotate(-90)" text-anchor="middle">{escape(figure.up)}</text>',
        "</svg>",
    ]
    return "\n".join(parts)
