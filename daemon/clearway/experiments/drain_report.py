"""How long nodes take to become empty, as one HTML page that needs nothing else, and as a table for other programs."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import astuple, fields

from clearway.experiments.drain_study import BUSY, DRAIN, IMAGES_GIB, REQUEUE, WAIT, Course, DrainStudy, quantile, ways
from clearway.experiments.page import head
from clearway.model.durations import format_duration

SHARES = (0.5, 0.9, 1.0)
_COLUMNS = ("workload", "at_s", "nodes", "way", "image_gib_per_node", *(each.name for each in fields(Course)))
_STYLE = "td{white-space:nowrap}td:nth-child(3),th:nth-child(3){text-align:left}svg{width:46rem}"
_HEAD = (
    "workload", "nodes", "how", "half of them", "nine in ten", "the longest", "quicker than waiting",
    "idle (node-hours)", "jobs moved", "stood still (node-hours)", "work repeated (node-hours)",
)  # fmt: skip
_WIDTH, _ROW, _LEFT, _RIGHT = 760, 18, 230, 20
_LEAST_S, _DECADES = 1.0, 7  # the figure's axis: from a second on, in powers of ten
_COLOURS = {WAIT: "#b2182b", DRAIN: "#2166ac", REQUEUE: "#888888"}
_ABOUT = """\
<h1>How long nodes take to become empty</h1>
<p>Recorded workloads, replayed under EASY backfilling; {moments} moments at which at least {busy:.0%} of the nodes are
in use (seed {seed}). At each of them one busy node, 16 nodes in a row and 5 % of the machine are emptied in three ways,
from the very same state. <b>Waiting</b> is Slurm's DRAIN: the jobs that are there run to their ends. <b>Drain</b> is
what Clearway plans for images of {images} GiB a node, written one after another to a file system of 10,000 MiB/s,
1,000 MiB/s from a node. <b>Requeue</b> ends jobs that cannot be saved. Idle node-hours are those of the chosen nodes
until the last of them is empty; what moved jobs stand still for, and repeat, is counted on all their nodes. Means
beside quantiles of the time.</p>"""
_MEANING = """\
<p>Each bar is a row of the table (workload, number of nodes, how): it begins at the time within which half of the
times all nodes were empty and ends at that of nine in ten. Time grows to the right on a logarithmic axis: every line is
many times as long as the one before it.</p>"""
_LIMITS = """\
<h2>What this is not</h2><ul>
<li>Where and when moved jobs go on is not simulated: on a full machine they wait for other nodes, at the head of the
queue.</li>
<li>Every job can be saved. A job in the way stops a drain, or is requeued by force.</li>
<li>Plans keep to Clearway's defaults, one checkpoint at a time.</li></ul>"""


def as_csv(study: DrainStudy) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for sample in study.samples:
        known = [sample.workload, f"{sample.at_s:.0f}", sample.nodes, sample.way, sample.image_gib]
        writer.writerow([*known, *(f"{figure:.3f}" for figure in astuple(sample.course))])
    return text.getvalue()


def as_html(study: DrainStudy) -> str:
    lines = ["".join(f"<td>{cell}" for cell in row) for row in table(study)]
    moments = len({(sample.workload, sample.at_s) for sample in study.samples})
    parts = [
        head("How long nodes take to become empty", _STYLE),
        _ABOUT.format(moments=moments, busy=BUSY, seed=study.seed, images=" and ".join(map(str, IMAGES_GIB))),
        *(f"<p>Not found, and left out: {name}.</p>" for name in study.absent),
        "<table><tr>" + "".join(f"<th>{name}" for name in _HEAD) + "</tr>",
        *(f"<tr>{line}</tr>" for line in lines),
        "</table>",
        "<h2>From the median to nine in ten</h2>",
        _MEANING,
        _figure(study),
        _LIMITS,
    ]
    return "\n".join(parts) + "\n"


def groups(study: DrainStudy) -> Iterator[tuple[str, int, str, int, Sequence[Course]]]:
    """In the order of the samples: workload, nodes, way, image and what came of it at every moment."""
    for workload, nodes in dict.fromkeys((sample.workload, sample.nodes) for sample in study.samples):
        for way, image_gib in ways():
            yield workload, nodes, way, image_gib, study.of(workload, nodes, way, image_gib)


def table(study: DrainStudy) -> list[tuple[str, ...]]:
    """A row for each workload, number of nodes and way; see ``_HEAD``."""
    rows = []
    for workload, nodes, way, image_gib, courses in groups(study):
        times = [format_duration(quantile([c.empty_s for c in courses], share)) for share in SHARES]
        costs = zip(*((c.idle_node_h, c.jobs, c.still_node_h, c.repeated_node_h) for c in courses), strict=True)
        idle, jobs, still, repeated = (sum(values) / len(courses) for values in costs)
        means = [f"{idle:,.1f}", f"{jobs:.1f}", f"{still:,.2f}", f"{repeated:,.1f}"]
        waited = study.of(workload, nodes, WAIT)
        quicker = sum(c.empty_s < w.empty_s for c, w in zip(courses, waited, strict=True)) / len(courses)
        share = "" if way == WAIT else f"{quicker:.0%}"
        rows.append((workload, str(nodes), label(way, image_gib), *times, share, *means))
    return rows


def label(way: str, image_gib: int) -> str:
    return {WAIT: "waiting", DRAIN: f"drain, {image_gib} GiB a node", REQUEUE: "requeue"}[way]


def _figure(study: DrainStudy) -> str:
    """A bar for each row of the table, on a logarithmic axis of time."""
    found = list(groups(study))
    height = _ROW * (len(found) + 2)
    parts = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="Time until the nodes are empty">']
    marks = ((1, "1 s"), (60, "1 min"), (3_600, "1 h"), (86_400, "1 d"), (864_000, "10 d"))
    for seconds, name in marks:
        x = _x(seconds)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height - _ROW}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - 4}" text-anchor="middle">{name}</text>')
    for place, (workload, nodes, way, image_gib, courses) in enumerate(found):
        y = _ROW * (place + 0.5)
        low, high = (_x(quantile([c.empty_s for c in courses], share)) for share in SHARES[:2])
        name = f"{workload}, {nodes}: {label(way, image_gib)}"
        size = f'width="{max(2.0, high - low):.1f}" height="10"'
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{name}</text>')
        parts.append(f'<rect x="{low:.1f}" y="{y - 5:.1f}" {size} fill="{_COLOURS[way]}"/>')
    return "\n".join([*parts, "</svg>"])


def _x(seconds: float) -> float:
    decades = math.log10(max(seconds, _LEAST_S) / _LEAST_S)
    return _LEFT + min(1.0, decades / _DECADES) * (_WIDTH - _LEFT - _RIGHT)
