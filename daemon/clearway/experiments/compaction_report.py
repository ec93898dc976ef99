"""The Slurm+DMTCP paper's simulations as one HTML page that needs nothing else, and as a table for other programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from operator import attrgetter

from clearway.experiments.compaction_study import (
    COMPACTION,
    DAY_S,
    LOADS,
    MEAN_RUN_H,
    NODES,
    NONE,
    OTHER_RUN_H,
    PAPER_PARTLY,
    PAPER_PROMOTION,
    PROMOTION,
    PROMOTION_LOADS,
    CompactionStudy,
)
from clearway.experiments.page import head
from clearway.simulation.shared_nodes import HOUR_S

_COLOURS = {"empty": "#cfe3f5", "partly used": "#d08700", "full": "#2166ac"}
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 620, 280, 40, 16, 54
_STYLE = "td{white-space:nowrap}svg{width:40rem}.misses{color:#b2182b;font-weight:bold}.key span{padding:0 .6em}"
_COLUMNS = (
    *("partitions", "moves", "load", "mean_run_h", "seed", "group", "empty_percent", "partly_used_percent"),
    *("full_percent", "held_percent", "jobs", "finished", "moved", "stalled_node_h", "wait_s"),
)
_ABOUT = """\
<h1>Moving running jobs: the Slurm+DMTCP paper's simulations</h1>
<p>Eight nodes of 16 processors, one day, jobs of exponential sizes (mean 4 processors) and run times (mean {hours:g} h)
at random times; drawings of each: {seeds}. <b>Compaction</b> moves jobs off the emptiest nodes onto other partly used
ones, so that whole nodes become empty; <b>promotion</b> moves jobs from the six lesser nodes to the two better ones.
Both are planned every minute when no job waits, and only where what is gained (node-seconds, by the jobs'
expected ends) exceeds what stands still meanwhile. The planner knows nothing of a job's run time but the mean of all. A
move takes 89 s for one processor to 608 s for 128, as the paper measured, and both places are held until it is
over. On a cluster <code>clearway compact</code> and <code>clearway promote</code> plan by the same rule.</p>"""
_DIFFERENCES = """\
<h2>What differs from the paper</h2><ul>
<li>The paper ran its days on a real cluster, one for each load; these are simulated.</li>
<li>It gives neither the mean size of its jobs nor their mean run time. With those used here the share of partly used
nodes without moves is within ten percentage points of the paper's up to a load of 75 %; at 90 % it is larger, for our
day begins with an empty machine and less of it is in use. The table of other run times shows what depends on that.</li>
<li>Jobs are placed on the fullest node that holds them: a placement that spreads them leaves more to compact.</li>
<li>Jobs that have not ended by the end of the day are cut off there, in both cases.</li>
<li>A node's memory, its features and its network are not looked at.</li></ul>"""

_COMPACTION_HEAD = (
    "<table><tr><th>mean run time<th>load<th>in use<th>partly used, without<th>with<th>fall<th>the paper's<th>fall"
    "<th>jobs<th>moves<th>stood still (node-hours)<th>more empty (node-hours)<th>wait, without (s)<th>with</tr>"
)
_PROMOTION_HEAD = (
    "<table><tr><th>load<th>nodes<th>moves of jobs<th>empty<th>the paper's<th>partly used<th>the paper's"
    "<th>full<th>the paper's<th>moves a day<th>stood still (node-hours)</tr>"
)


def as_csv(study: CompactionStudy) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for cell in study.cells:
        for group, shares in cell.shares.items():
            known = [cell.partitions, cell.moves, cell.load, cell.mean_run_h, cell.seed, group]
            percents = [f"{share:.3f}" for share in (*shares, cell.held)]
            costs = [cell.moved, f"{cell.stalled_node_h:.4f}", f"{cell.wait_s:.1f}"]
            writer.writerow([*known, *percents, cell.jobs, cell.finished, *costs])
    return text.getvalue()


def as_html(study: CompactionStudy) -> str:
    parts = [
        head("Moving running jobs", _STYLE),
        _ABOUT.format(hours=MEAN_RUN_H, seeds=study.seeds),
        "<h2>Compaction (Figures 3 and 4)</h2>",
        _compaction(study, (MEAN_RUN_H,)),
        _figure(study),
        "<h2>Compaction with other run times</h2>",
        _compaction(study, OTHER_RUN_H),
        "<h2>Promotion (Table 2)</h2>",
        _promotion(study),
        _DIFFERENCES,
    ]
    return "\n".join(parts) + "\n"


def _compaction(study: CompactionStudy, run_h: Sequence[float]) -> str:
    rows = [_COMPACTION_HEAD]
    for hours in run_h:
        for load in LOADS:
            without, with_moves = (study.shares(1, moves, load, mean_run_h=hours) for moves in (NONE, COMPACTION))
            before, after = PAPER_PARTLY[load]
            fall = study.fall(load, hours)
            good = "" if fall >= before - after else " class=misses"
            emptied_h = (with_moves[0] - without[0]) / 100 * NODES * DAY_S / HOUR_S
            jobs, moved, stalled_h, wait_s = (
                study.mean(attrgetter(name), COMPACTION, load, hours)
                for name in ("jobs", "moved", "stalled_node_h", "wait_s")
            )
            before_wait_s, held = (study.mean(attrgetter(name), NONE, load, hours) for name in ("wait_s", "held"))
            rows.append(
                f"<tr><td>{hours:g} h<td>{load} %<td>{held:.1f} %<td>{without[1]:.1f} %<td>{with_moves[1]:.1f} %"
                f"<td{good}>{fall:.1f}<td>{before} to {after} %<td>{before - after:.1f}"
                f"<td>{jobs:.0f}<td>{moved:.0f}<td>{stalled_h:.2f}<td>{emptied_h:.1f}"
                f"<td>{before_wait_s:.0f}<td>{wait_s:.0f}</tr>"
            )
    return "\n".join(
        [
            *rows,
            (
                "</table><p>Shares of all nodes and of the whole day; falls in percentage points, red where smaller "
                "than the paper's. Jobs, moves and node-hours are of one day. What is in use, without moves, is less "
                "than the load since jobs wait and the day ends.</p>"
            ),
        ]
    )


def _promotion(study: CompactionStudy) -> str:
    rows = [_PROMOTION_HEAD]
    for load in PROMOTION_LOADS:
        for group in ("low", "high"):
            for moves, paper in zip((NONE, PROMOTION), PAPER_PROMOTION[load, group], strict=True):
                shares = study.shares(2, moves, load, group)
                pairs = "".join(f"<td>{own:.1f} %<td>{theirs:.1f} %" for own, theirs in zip(shares, paper, strict=True))
                moved, stalled_h = (
                    study.mean(attrgetter(name), moves, load, partitions=2) for name in ("moved", "stalled_node_h")
                )
                rows.append(
                    f"<tr><td>{load} %<td>{group}<td>{'with' if moves == PROMOTION else 'without'}{pairs}"
                    f"<td>{moved:.0f}<td>{stalled_h:.2f}</tr>"
                )
    return "\n".join([*rows, "</table><p>The better nodes ought to be full more of the time.</p>"])


def _figure(study: CompactionStudy) -> str:
    """Two stacked bars for each load: how the nodes spend the day without and with moves."""
    tall, floor = _HEIGHT - _TOP - _BOTTOM, _HEIGHT - _BOTTOM
    width = (_WIDTH - _LEFT) / len(LOADS)
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="How nodes spend the day">']
    for percent in (0, 50, 100):
        y = floor - percent / 100 * tall
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{percent} %</text>')
    for number, load in enumerate(LOADS):
        x = _LEFT + number * width
        middle = x + width / 2
        parts.append(f'<text x="{middle:.1f}" y="{floor + 34}" text-anchor="middle">load {load} %</text>')
        for place, moves in enumerate((NONE, COMPACTION)):
            left, y = x + width * (0.08 + 0.44 * place), float(floor)
            for share, colour in zip(reversed(study.shares(1, moves, load)), reversed(_COLOURS.values()), strict=True):
                y -= share / 100 * tall
                parts.append(
                    f'<rect x="{left:.1f}" y="{y:.1f}" width="{width * 0.4:.1f}" height="{share / 100 * tall:.1f}" '
                    f'fill="{colour}"/>'
                )
            name = "with" if place else "without"
            parts.append(f'<text x="{left + width * 0.2:.1f}" y="{floor + 16}" text-anchor="middle">{name}</text>')
    meaning = (
        "<p>How eight nodes of that mean run time spend the day, the left bar of each pair without moves, the right "
        "one with them. The middle colour, nodes that hold jobs but have room left, ought to shrink.</p>"
    )
    key = "".join(f'<span style="border-left:1em solid {colour}">{name}</span>' for name, colour in _COLOURS.items())
    return "\n".join([meaning, *parts, "</svg>", f"<p class=key>{key}</p>"])
