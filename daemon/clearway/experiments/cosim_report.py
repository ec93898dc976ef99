"""The CoSim paper's Figures 5 to 8 as one HTML page that needs nothing else, and as a table for other programs."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from html import escape

from clearway.experiments.cosim_study import DELAYS_S, CosimStudy, Times
from clearway.experiments.page import head

_COLOURS = ("#2166ac", "#1b7837", "#b2182b")
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 400, 270, 64, 62, 40
_STYLE = "td:first-child,th:first-child{white-space:nowrap}svg{width:25rem}"
_PAPER = {
    "Scenario-1": "backtracking is faster than the dynamic program",
    "Scenario-2": "backtracking falls behind the dynamic program",
    "Scenario-3": "the dynamic program is up to five orders of magnitude faster than backtracking",
}
_ABOUT = """\
<h1>Who makes room: Figures 5 to 8 of the CoSim paper</h1>
<p>An urgent job needs 512, 1,024 or 2,048 nodes of a machine on which 12, 16 or 24 jobs hold 4,352, within 0 to 15
minutes. Jobs are killed, or write a checkpoint of their own or of the whole process first, where time allows. Three
planners choose: the <b>dynamic program</b> (Clearway's own method) and <b>backtracking</b> (exhaustive search) find
the least loss, <b>greedy</b> finds some choice. The paper does not publish its jobs; these are drawn as it
describes.</p>"""
_RESPONSE = """\
<h2>How long an answer takes (Figures 5 to 7)</h2>
<p>Up: time to answer all deadlines up to the one below, on a logarithmic axis; low is good. The dynamic program answers
all sixteen in one pass, so its line is flat; greedy and backtracking search once for each. The machine and language of
the paper are not known: compare ratios and shapes, not microseconds. Backtracking is asked no further deadline after an
answer that took longer than {patience:g} s.</p>"""
_LOSS = """\
<h2>What greedy loses more than the optimum (Figure 8)</h2>
<p>Up: node-hours of work lost beyond the least possible, the mean of {seeds} drawn problems; 0 would be as good as the
dynamic program. The paper shows one problem for each scenario, with a gap that grows with the deadline but for the
end of Scenario-3, on axes that reach 125, 400 and 800 node-hours. With jobs as drawn here the gap closes again where
both planners have the time to checkpoint most of the jobs that they need.</p>"""


def as_csv(study: CosimStudy) -> str:
    """A line for each scenario and deadline; an empty cell where backtracking was not asked any more."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["scenario", "deadline_s", "eviction_dp_us", "greedy_us", "backtracking_us", "greedy_more_lost_node_h"]
    )
    for times, loss in zip(study.times, study.losses, strict=True):
        for place, delay_s in enumerate(DELAYS_S):
            took = f"{times.backtracking[place]:.1f}" if place < len(times.backtracking) else ""
            writer.writerow(
                [
                    times.scenario.name,
                    delay_s,
                    f"{times.dynamic[place]:.1f}",
                    f"{times.greedy[place]:.1f}",
                    took,
                    f"{loss[place]:.3f}",
                ]
            )
    return text.getvalue()


def as_html(study: CosimStudy) -> str:
    parts = [
        head("Who makes room", _STYLE),
        _ABOUT,
        _RESPONSE.format(patience=study.patience_s),
        _times_table(study.times),
    ]
    parts += [
        _lines(
            f"{each.scenario.name}: K = {each.scenario.nodes_needed:,}",
            "time (ms)",
            {
                "dynamic program": [value / 1e3 for value in each.dynamic],
                "greedy": [value / 1e3 for value in each.greedy],
                "backtracking": [value / 1e3 for value in each.backtracking],
            },
            logarithmic=True,
        )
        for each in study.times
    ]
    parts += [_LOSS.format(seeds=study.seeds), _loss_table(study)]
    parts += [
        _lines(times.scenario.name, "node-hours", {"greedy - optimum": loss}, logarithmic=False)
        for times, loss in zip(study.times, study.losses, strict=True)
    ]
    return "\n".join(parts) + "\n"


def _times_table(times: Sequence[Times]) -> str:
    rows = [
        (
            "<table><tr><th>scenario<th>jobs<th>dynamic program (ms)<th>/ greedy<th>backtracking (ms)<th>up to (min)"
            "<th>/ dynamic program<th>in the paper</tr>"
        )
    ]
    for each in times:
        last = len(each.backtracking) - 1
        rows.append(
            f"<tr><td>{escape(each.scenario.name)}<td>{len(each.scenario.jobs)}<td>{each.dynamic[-1] / 1e3:.2f}"
            f"<td>{each.dynamic[-1] / each.greedy[-1]:.1f}<td>{each.backtracking[last] / 1e3:,.1f}"
            f"<td>{DELAYS_S[last] // 60}<td>{each.backtracking[last] / each.dynamic[last]:,.0f}"
            f"<td>{_PAPER[each.scenario.name]}"
        )
    return "\n".join(
        [*rows, "</table><p>In the paper the dynamic program takes at least 30 times as long as greedy.</p>"]
    )


def _loss_table(study: CosimStudy) -> str:
    rows = ["<table><tr><th>scenario<th>at once<th>at most<th>within (min)<th>within 15 min</tr>"]
    for times, loss in zip(study.times, study.losses, strict=True):
        most = max(range(len(loss)), key=lambda place: (loss[place], -place))
        rows.append(
            f"<tr><td>{escape(times.scenario.name)}<td>{loss[0]:,.0f}<td>{loss[most]:,.0f}"
            f"<td>{DELAYS_S[most] // 60}<td>{loss[-1]:,.0f}"
        )
    return "\n".join([*rows, "</table>"])


def _lines(title: str, up: str, series: Mapping[str, Sequence[float]], *, logarithmic: bool) -> str:
    """A line for each series over the deadlines in minutes; the axis begins at 0 or at a power of ten."""
    values = [value for each in series.values() for value in each]
    low = math.floor(math.log10(min(values))) if logarithmic else 0.0
    high = max(low + 1, math.ceil(math.log10(max(values)))) if logarithmic else _round_up(max(values))
    floor = _HEIGHT - _BOTTOM

    def x(delay_s: float) -> float:
        return _LEFT + delay_s / DELAYS_S[-1] * (_WIDTH - _LEFT - 16)

    def y(place: float) -> float:
        return floor - (place - low) / (high - low) * (floor - _TOP)

    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">',
        f'<text x="{_WIDTH / 2}" y="14" text-anchor="middle">{escape(title)}</text>',
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 6}" text-anchor="middle">deadline (minutes)</text>',
        f'<text transform="translate(12,{_HEIGHT / 2}) rotate(-90)" text-anchor="middle">{escape(up)}</text>',
    ]
    steps = round(high - low) if logarithmic else 4
    for step in range(steps + 1):
        place = low + (high - low) * step / steps
        label = f"{10**place if logarithmic else place:,.6g}"
        parts += [
            f'<line x1="{_LEFT}" x2="{_WIDTH - 16}" y1="{y(place):.1f}" y2="{y(place):.1f}" stroke="#ddd"/>',
            f'<text x="{_LEFT - 6}" y="{y(place) + 4:.1f}" text-anchor="end">{label}</text>',
        ]
    for minutes in range(0, DELAYS_S[-1] // 60 + 1, 3):
        parts.append(f'<text x="{x(minutes * 60):.1f}" y="{floor + 15}" text-anchor="middle">{minutes}</text>')
    for number, (name, each) in enumerate(series.items()):
        places = [math.log10(value) if logarithmic else value for value in each]
        points = " ".join(f"{x(delay_s):.1f},{y(place):.1f}" for delay_s, place in zip(DELAYS_S, places, strict=False))
        colour = _COLOURS[number]
        parts += [
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>',
            f'<text x="{_LEFT + 4 + number * 110}" y="34" fill="{colour}">{escape(name)}</text>',
        ]
    return "\n".join([*parts, "</svg>"])


def _round_up(value: float) -> float:
    """The top of an axis whose quarters are round numbers."""
    unit = 4 * 10.0 ** math.floor(math.log10(value / 4)) if value > 0 else 4.0
    return max(1, math.ceil(value / unit)) * unit
