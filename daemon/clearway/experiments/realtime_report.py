"""The WCJS paper's simulations as one HTML page that needs nothing else, and as a table for other programs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, fields
from typing import Any

from clearway.experiments import chart, page
from clearway.experiments.cells import means
from clearway.experiments.realtime_study import APPROACHES, CATEGORIES, PERCENTS, WAYS, WEEKS, RealtimeStudy
from clearway.experiments.realtime_workloads import SHORT_PARTITION_S
from clearway.simulation.measures import Spread

_COLOURS = {
    "baseline": "#777777",
    "WCJS application 10 %": "#d08700",
    "WCJS application 5 %": "#2166ac",
    "WCJS just in time": "#1b7837",
    "Clearway": "#b2182b",
}
_SPREAD = tuple(each.name for each in fields(Spread))
_COLUMNS = (
    *("week", "way", "percent", "approach", "preemptions", "kind", "category", "jobs"),
    *(f"{measure}_{name}" for measure in ("slowdown", "turnaround_h") for name in _SPREAD),
)
_KINDS = ("urgent", "batch")
_PERCENT = 10  # that the paper's text speaks of
URGENT_TARGET, BATCH_TARGET = -0.40, 0.05
PAPER_CHANGE = (1.25 / 1.94 - 1, 2.51 / 2.26 - 1)  # section 7.2: 1.94 to 1.25, 2.26 to 2.51
PAPER_TABLE_3 = {"optimum": (1.50, 1.08), "weighted cost": (2.54, 1.50)}


def as_csv(study: RealtimeStudy) -> str:
    rows = []
    for cell in study.cells:
        for (kind, category), group in cell.groups.items():
            numbers = [f"{value:.4f}" for value in (*astuple(group.slowdown), *astuple(group.turnaround_h))]
            known = [cell.week, cell.way, cell.percent, cell.approach, f"{cell.preemptions:.1f}"]
            rows.append([*known, kind, category, group.jobs, *numbers])
    return page.as_table(_COLUMNS, rows)


def as_html(study: RealtimeStudy) -> str:
    return page.html(
        "realtime.html",
        study,
        percent=_PERCENT,
        paper_gain=f"{-PAPER_CHANGE[0]:.0%}",
        paper_cost=f"{PAPER_CHANGE[1]:.0%}",
        gain=f"{-URGENT_TARGET:.0%}",
        cost=f"{BATCH_TARGET:.0%}",
        summary=list(_summary(study)),
        table_3=list(_table_3(study)),
        short_minutes=SHORT_PARTITION_S // 60,
        colours=_COLOURS,
        weeks=[_week(study, week) for week in study.weeks],
        ways=[(WAYS[way], list(_other_way(study, way))) for way in study.ways],
        way_heads=["", *(f"{kind}, {week}" if kind == "urgent" else kind for week in study.weeks for kind in _KINDS)],
    )


def _summary(study: RealtimeStudy) -> Iterator[Sequence[str]]:
    """What must hold with 10 % urgent jobs, and whether it does."""
    yield "the paper", f"{PAPER_CHANGE[0]:+.0%}", f"{PAPER_CHANGE[1]:+.0%}"
    for week in study.weeks:
        for name in ("high-priority", "WCJS just in time", "Clearway"):
            urgent, batch = (study.change(week, _PERCENT, name, kind) for kind in _KINDS)
            free = name != "Clearway"
            yield (
                f"{week}, {name}",
                page.marked(f"{urgent:+.0%}", good=free or urgent <= URGENT_TARGET),
                page.marked(f"{batch:+.0%}", good=free or batch <= BATCH_TARGET),
            )


def _table_3(study: RealtimeStudy) -> Iterator[Sequence[str]]:
    for title in study.logs[0].slowdowns:
        here = means(log.slowdowns[title] for log in study.logs)
        paper = [f"{value:.2f}" for value in PAPER_TABLE_3[title]] if title in PAPER_TABLE_3 else ["", ""]
        yield [title, *paper, *(f"{value:.2f}" for value in here)]


def _week(study: RealtimeStudy, week: str) -> Mapping[str, Any]:
    rows = []
    for approach in APPROACHES:
        row = [approach]
        for percent in PERCENTS:
            cell = study.cell(week, "default", percent, approach)
            row += [_mean(cell.groups, "urgent"), f"{_mean(cell.groups, 'batch')} ({cell.preemptions:.0f})"]
        rows.append(row)
    charts = [
        ("All jobs" if category == "all" else f"{category.capitalize()} jobs", _charts(study, week, category))
        for category in CATEGORIES
    ]
    heads = ["", *(text for percent in PERCENTS for text in (f"urgent, {percent} %", "batch"))]
    return {"title": f"{week} ({WEEKS[week]})", "heads": heads, "rows": rows, "charts": charts}


def _mean(groups: Mapping[tuple[str, str], Any], kind: str) -> str:
    return f"{groups[kind, 'all'].slowdown.mean:.2f}"


def _other_way(study: RealtimeStudy, way: str) -> Iterator[Sequence[str]]:
    for name in ("baseline", "WCJS just in time", "Clearway"):
        cells = [study.cell(week, way, _PERCENT, name) for week in study.weeks]
        yield [name, *(_mean(cell.groups, kind) for cell in cells for kind in _KINDS)]


def _charts(study: RealtimeStudy, week: str, category: str) -> Sequence[str]:
    charts = []
    for measure, unit in (("slowdown", "slowdown"), ("turnaround_h", "turnaround (h)")):
        for kind in _KINDS:
            groups = []
            for percent in PERCENTS:
                found = ((name, study.cell(week, "default", percent, name).groups) for name in _COLOURS)
                there = {
                    name: getattr(each[kind, category], measure) for name, each in found if (kind, category) in each
                }
                groups.append((f"{percent} %", there))
            if any(spreads for _, spreads in groups):
                charts.append(chart.boxes(f"{unit} of {kind} jobs, by share of urgent jobs", groups, _COLOURS))
    return charts
