"""The UJFB paper's experiments as one HTML page that needs nothing else, and as a table for other programs."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from itertools import pairwise

from clearway.experiments.page import head
from clearway.experiments.urgent_study import (
    BINS,
    IN_TURN,
    PAPER,
    PAPER_ABOVE_2,
    PAPER_PREEMPTIONS,
    SCHEDULERS,
    SWAP_FACTORS,
    SWAP_WORKLOAD,
    VARIATION_WORKLOAD,
    VARIATIONS,
    WORKLOADS,
    UrgentStudy,
    Workload,
)

_COLOURS = ("#111111", "#d08700", "#2166ac", "#1b7837", "#5e9c76", "#b2182b", "#762a83", "#9970ab")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 320, 240, 44, 64, 36, 44
_STYLE = "svg{width:20rem}.misses{color:#b2182b;font-weight:bold}"
_TITLES = {
    "fcfs": "FCFS",
    "ujf": "UJF",
    "conservative": "Backfill",
    "easy": "EASY",
    "ujfb": "UJFB",
    "sjf-backfill": "SJF backfill",
    "clearway-suspend": "Clearway",
    "clearway-sjf": "Clearway-SJF",
}
_OURS = ("ujfb", "clearway-suspend", "clearway-sjf")  # that make room
_NEAR = 1.02  # of EASY and of conservative backfilling, for regular jobs
_ABOUT = """\
<h1>Urgent jobs on a shared machine: the UJFB paper's experiments</h1>
<p>A recorded workload is replayed under {count} schedulers. In three workloads an urgent job of 128 processors for 10
minutes, 256 for 6.5 or 512 for 4 comes at a busy moment of every 720 hours; DWD has urgent jobs of its own, weather
forecasts. <b>FCFS</b> starts jobs in the order in which they came. <b>UJF</b> does too, but urgent ones first.
<b>Backfill</b> (conservative) and <b>EASY</b> let jobs overtake where nobody, or not the first, is delayed.
<b>UJFB</b> is Backfill, but an urgent job starts at once, and jobs are suspended in memory where nodes are missing.
<b>SJF backfill</b> is EASY, but of the jobs that may overtake the shortest goes first. <b>Clearway</b> is EASY and
<b>Clearway-SJF</b> is SJF backfill with this product's own detection, policy and planner, which suspend the fewest
jobs, nobody in vain, and have everybody back when the urgent job that they left for ends. The paper has none of these
three.</p>
<p><i>Slowdown</i> is the time from submission to end divided by the run time: 1 means no delay. <i>Urgent Lateness</i>
is the largest slowdown of any urgent job. Response times and slowdowns are means over the regular jobs. Where urgent
jobs are injected, drawings replayed: {seeds}; means are over all, lateness is the largest of all.</p>"""
_DIFFERENCES = """\
<h2>Where our data and our model differ from the paper's</h2><ul>
<li>SDSC-DS: {sdsc} jobs ran and are replayed; the log counts {sdsc_never} more that were cancelled before they ran. The
paper counts all 96,089.</li>
<li>LANL-CM5: the paper counts 201,387 jobs, which is the size of the log before cleaning; the cleaned one holds
122,060. The paper takes swap times from each job's recorded memory; here they are drawn, as for the others.</li>
<li>SX-ACE: 1,024 nodes as in the paper, for which the recorded jobs are far too many (the log's own header says 2,560):
the queue grows all year, and response times are those of a queue, not of a schedule.</li>
<li>Swap times are drawn for each job: out 0.2 to 2 s, in 0.1 to 2 s; the paper derives similar ones from process
sizes drawn between 0.5 and 1.25 GB. Which moments of a month are drawn, the paper does not say. Jobs that make room
together swap out at the same time here; the paper says so of the processes of one job only.</li>
<li>DWD: most urgent jobs that are late wait for other urgent jobs. The paper does not say in which order the urgent
queue is served; here the shortest goes first. Nor does it say whether regular jobs start meanwhile, and whether their
nodes wait for suspended ones: here they do not, and the nodes go to urgent jobs first.</li>
<li>The paper ran the Alea simulator; its bars carry no numbers, so only those that its text or tables state stand
here.</li></ul>"""


def as_csv(study: UrgentStudy) -> str:
    text = io.StringIO()
    rows = [asdict(cell) for cell in study.cells]
    for row in rows:
        row["histogram"] = " ".join(map(str, row["histogram"]))
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_html(study: UrgentStudy) -> str:
    parts = [
        head("Urgent jobs", _STYLE),
        _ABOUT.format(count=len(SCHEDULERS), seeds=study.seeds),
    ]
    if study.absent:
        parts.append(f"<p class=misses>Not found, so left out: {escape(', '.join(study.absent))}.</p>")
    there = [workload for workload in WORKLOADS if workload.name in study.traces]
    parts.append(_summary(study, there))
    for workload in there:
        parts += [f"<h2>{workload.name} ({workload.figure})</h2>", _table(study, workload), _figure(study, workload)]
    if SWAP_WORKLOAD in study.traces:
        parts.append(_swap(study))
    if "DWD" in study.traces:
        parts += [_distribution(study), _variations(study)]
    ran, never = study.traces.get("SDSC-DS", (84_893, 11_176))
    parts.append(_DIFFERENCES.format(sdsc=f"{ran:,}", sdsc_never=f"{never:,}"))
    return "\n".join(parts) + "\n"


def _summary(study: UrgentStudy, workloads: Sequence[Workload]) -> str:
    """What must hold, and whether it does."""
    rows = [
        (
            "<h2>What was to be shown</h2><table><tr><th>workload<th>scheduler<th>Urgent Lateness<th>to be<th>"
            "response / EASY<th>response / Backfill<th>slowdown / EASY<th>slowdown / Backfill<th>all</tr>"
        )
    ]
    all_met = dict.fromkeys(_OURS, True)
    for workload in workloads:
        others = min(study.lateness(workload.name, name) for name in SCHEDULERS if name not in _OURS)
        wanted = f"at most {workload.limit}" if workload.limit else f"below all others' ({others:,.1f})"
        for name in _OURS:
            late = study.lateness(workload.name, name)
            ratios = [
                _mean(study, workload, name, measure) / _mean(study, workload, other, measure)
                for measure in ("response_s", "slowdown")
                for other in ("easy", "conservative")
            ]
            good = late <= workload.limit if workload.limit else late < others
            met = good and max(ratios) <= _NEAR
            all_met[name] &= met
            cells = [f"<td>{workload.name}<td>{_TITLES[name]}", _marked(f"{late:,.3f}", good=good), f"<td>{wanted}"]
            cells += [_marked(f"{ratio:.3f}", good=ratio <= _NEAR) for ratio in ratios]
            cells.append(_marked("met" if met else "missed", good=met))
            rows.append("<tr>" + "".join(cells))
    everywhere = [_TITLES[name] for name in _OURS if all_met[name]]
    return "\n".join(
        [
            *rows,
            (
                f"</table><p>Responses and slowdowns are to be at most {_NEAR} times those of both. Red: not so. Met "
                f"everywhere: {', '.join(everywhere) or 'by none of them'}. UJFB's regular "
                "jobs are scheduled by conservative backfilling, so where that and EASY differ, UJFB is as far from "
                "EASY as conservative backfilling itself, and Clearway, which stands beside EASY, as far from "
                "conservative backfilling as EASY: nothing that schedules regular jobs as one of them does is near "
                "both. Clearway-SJF is below both since SJF backfill is; what urgent jobs cost the regular ones is its "
                "distance from that, in the tables below.</p>"
            ),
        ]
    )


def _table(study: UrgentStudy, workload: Workload) -> str:
    rows = [
        (
            "<table><tr><th>scheduler<th>response (h)<th>slowdown<th>Urgent Lateness<th>the paper's<th>"
            "mean slowdown of urgent jobs<th>preemptions a drawing<th>the paper's</tr>"
        )
    ]
    for name in SCHEDULERS:
        key = (workload.name, name)
        paper = f"{PAPER[key]:,.2f}" if key in PAPER else ""
        preempted = str(PAPER_PREEMPTIONS.get(key, ""))
        rows.append(
            f"<tr><td>{_TITLES[name]}<td>{_mean(study, workload, name, 'response_s') / 3_600:,.2f}"
            f"<td>{_mean(study, workload, name, 'slowdown'):,.2f}<td>{study.lateness(workload.name, name):,.3f}"
            f"<td>{paper}<td>{_mean(study, workload, name, 'urgent_slowdown'):,.3f}"
            f"<td>{_mean(study, workload, name, 'preemptions'):,.1f}<td>{preempted}"
        )
    urgent = _mean(study, workload, "ujfb", "urgent_jobs")
    drawn = "" if workload.urgent_queue else " in one drawing, on average"
    return "\n".join([*rows, f"</table><p>Urgent jobs{drawn}: {f'{urgent:,.1f}'.removesuffix('.0')}.</p>"])


def _figure(study: UrgentStudy, workload: Workload) -> str:
    names = [_TITLES[name] for name in SCHEDULERS]
    responses = [_mean(study, workload, name, "response_s") / 3_600 for name in SCHEDULERS]
    slowdowns = [_mean(study, workload, name, "slowdown") for name in SCHEDULERS]
    late = [study.lateness(workload.name, name) for name in SCHEDULERS]
    meaning = (
        "<p>Response: how long a regular job takes from submission to end. Slowdown: how many times its run time that "
        "is. Both want low bars, and UJFB's as low as Backfill's and EASY's: that is the price of urgency. Urgent "
        "Lateness: the worst delay of an urgent job, where 1 is none. Logarithmic axes; k: thousand, M: million.</p>"
    )
    return meaning + "".join(
        (
            _bars("response of regular jobs (h)", names, responses),
            _bars("slowdown of regular jobs", names, slowdowns),
            _bars("Urgent Lateness", names, late),
        )
    )


def _swap(study: UrgentStudy) -> str:
    names = [f"x {factor}" for factor in SWAP_FACTORS]
    measures = ("response_s", "slowdown")
    relative = [
        [_swap_mean(study, measure, factor) / _swap_mean(study, measure, 1) for factor in SWAP_FACTORS]
        for measure in measures
    ]
    late = [study.lateness(SWAP_WORKLOAD, "ujfb", factor) for factor in SWAP_FACTORS]
    in_turn = [study.lateness(SWAP_WORKLOAD, IN_TURN, factor) for factor in SWAP_FACTORS]
    relative += [[each / some[0] for each in some] for some in (late, in_turn)]
    titles = ("response", "slowdown", "Urgent Lateness", "Urgent Lateness, one after another")
    heads = "".join(f"<th>{name}" for name in names)
    rows = "".join(
        f"<tr><td>{title}" + "".join(f"<td>{value:.3f}" for value in values)
        for title, values in zip(titles, relative, strict=True)
    )
    return (
        f"<h2>Longer swapping times (Figure 13, {SWAP_WORKLOAD})</h2><p>UJFB with swap times as drawn, and 20 and "
        "40 times as long, as from disks; each measure divided by its value for the first. Regular jobs hardly feel "
        "it, urgent jobs do (the paper: up to 1.95 times). The paper's figure is that of a delay of 2.5 % with the "
        "shortest swaps, six seconds of a job of four minutes: more than any one swap in its range. Where those who "
        "make room for one urgent job swap out one after another instead of together, lateness is "
        f"{in_turn[0]:.3f} with the shortest (the paper: {PAPER[SWAP_WORKLOAD, 'ujfb']}) and grows as the last row "
        f"says.</p><table><tr><th>{heads}{rows}</table>"
        + "".join(
            _bars(f"{title}, relative", names, values, logarithmic=False)
            for title, values in zip(titles, relative, strict=True)
        )
    )


def _distribution(study: UrgentStudy) -> str:
    dwd = study.of("DWD", "ujfb")[0]
    names = [f"{low:g}-{high:g}" if math.isfinite(high) else f"over {low:g}" for low, high in pairwise(BINS)]
    shares = [count / dwd.jobs for count in dwd.histogram]
    rows = "".join(f"<tr><td>{name}<td>{share:.2%}" for name, share in zip(names, shares, strict=True))
    good = dwd.above_2 <= PAPER_ABOVE_2
    verdict = f"<span{'' if good else ' class=misses'}>{dwd.above_2:.1%}</span>"
    return (
        "<h2>Slowdowns on DWD under UJFB (Figure 17)</h2><p>How many of all jobs have which slowdown. Urgent jobs with "
        f"more than 2 are {verdict} of all jobs (the paper: {PAPER_ABOVE_2:.1%}); the others are hardly "
        f"delayed.</p><table><tr><th>slowdown<th>jobs{rows}</table>"
        + _bars("share of all jobs (%)", names, [100 * share for share in shares])
    )


def _variations(study: UrgentStudy) -> str:
    """What each part does on the workload with many urgent jobs, with the drawing that all variations have."""
    first = {cell.scheduler: cell for cell in study.cells if cell.workload == VARIATION_WORKLOAD and cell.seed == 0}
    base = first["conservative"]
    rows = []
    for name in ("conservative", "easy", *_OURS, *VARIATIONS):
        cell = first[name]
        ratios = (cell.response_s / base.response_s, cell.slowdown / base.slowdown)
        rows.append(
            f"<tr><td>{_TITLES.get(name, name)}"
            + "".join(_marked(f"{ratio:.3f}", good=ratio <= _NEAR) for ratio in ratios)
            + f"<td>{cell.urgent_lateness:,.1f}<td>{cell.urgent_slowdown:.3f}<td>{cell.above_2:.1%}"
            + f"<td>{cell.preemptions}"
        )
    return (
        f"<h2>What each part does on {VARIATION_WORKLOAD}</h2><p>One thing changed at a time. What costs UJFB's "
        "regular jobs their time is not swapping: a suspended job returns to its own nodes, and during hours in which "
        "urgent jobs ask for more than the machine those go from one urgent job to the next.</p>"
        "<table><tr><th>scheduler<th>"
        "response / Backfill<th>slowdown / Backfill<th>Urgent Lateness<th>mean slowdown of urgent jobs<th>urgent jobs "
        f"above 2, of all<th>preemptions{''.join(rows)}</table>"
    )


def _mean(study: UrgentStudy, workload: Workload, scheduler: str, measure: str) -> float:
    return study.mean(workload.name, scheduler, lambda cell: float(getattr(cell, measure)))


def _swap_mean(study: UrgentStudy, measure: str, factor: int) -> float:
    return study.mean(SWAP_WORKLOAD, "ujfb", lambda cell: float(getattr(cell, measure)), factor)


def _marked(text: str, *, good: bool) -> str:
    return f"<td>{text}" if good else f"<td class=misses>{text}"


def _bars(title: str, names: Sequence[str], values: Sequence[float], *, logarithmic: bool = True) -> str:
    """A bar for each name; a logarithmic axis begins at a power of ten below the smallest."""
    positive = [value for value in values if value > 0]
    low = 10.0 ** math.floor(math.log10(min(positive, default=1)) - 1e-9) if logarithmic else 0.0
    high = max(positive, default=1.0)
    span = math.log10(high / low) if logarithmic else high

    def height(value: float) -> float:
        share = (math.log10(value / low) if value > low else 0.0) if logarithmic else value
        return share / (span or 1.0) * (_HEIGHT - _TOP - _BOTTOM)

    width = (_WIDTH - _LEFT - _RIGHT) / len(names)  # the last name reaches to the right of its bar
    floor = _HEIGHT - _BOTTOM
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">',
        f'<text x="{_WIDTH / 2}" y="13" text-anchor="middle">{escape(title)}</text>',
        f'<line x1="{_LEFT - 4}" x2="{_WIDTH}" y1="{floor}" y2="{floor}" stroke="#888"/>',
        f'<text x="{_LEFT - 6}" y="{floor + 4}" text-anchor="end">{label(low)}</text>',
    ]
    for number, (name, value) in enumerate(zip(names, values, strict=True)):
        x, tall = _LEFT + number * width, height(value)
        middle = x + width / 2
        parts += [
            (
                f'<rect x="{x + width * 0.15:.1f}" y="{floor - tall:.1f}" width="{width * 0.7:.1f}" '
                f'height="{tall:.1f}" fill="{_COLOURS[number % len(_COLOURS)]}"/>'
            ),
            f'<text x="{middle:.1f}" y="{floor - tall - 3:.1f}" text-anchor="middle">{label(value)}</text>',
            f'<text transform="translate({middle + 4:.1f},{floor + 8}) rotate(30)">{escape(name)}</text>',
        ]
    return "\n".join([*parts, "</svg>"])


def label(value: float) -> str:
    """Narrower than a bar: the table has more digits."""
    if value >= 999_500:
        return f"{value / 1e6:.1f}M"
    if value >= 1_000:
        return f"{value / 1_000:.0f}k" if value >= 9_950 else f"{value / 1_000:.1f}k"
    if value >= 100 or not value:
        return f"{value:.0f}"
    return f"{value:.3g}" if value >= 1 else f"{value:.2g}"
