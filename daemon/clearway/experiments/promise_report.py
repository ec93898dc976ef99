"""What promised nodes cost, as one HTML page that needs nothing else, and as a table for other programs."""

from dataclasses import astuple, fields

from clearway.experiments import chart, page
from clearway.experiments.promise_study import REACTING, WAYS, Course, PromiseStudy
from clearway.model.durations import format_duration

LEAST_IN_TIME = 0.99
MOST_LOST = 0.5  # of what reacting only loses
MOST_IDLE = 1.01  # of what is idle with reacting only
_COLUMNS = ("workload", "seed", "way", *(each.name for each in fields(Course)))
_HEADS = (
    "workload", "how", "in time", "the latest", "jobs moved", "work repeated (node-hours)", "stood still (node-hours)",
    "idle (node-hours)", "idle, relative", "wasted in all, of the machine", "mean wait of other jobs (h)",
)  # fmt: skip


def as_csv(study: PromiseStudy) -> str:
    rows = [
        (sample.workload, sample.seed, sample.way, *(f"{figure:.3f}" for figure in astuple(sample.course)))
        for sample in study.samples
    ]
    return page.as_table(_COLUMNS, rows)


def as_html(study: PromiseStudy) -> str:
    return page.html("promises.html", study, heads=_HEADS, rows=table(study), charts=_charts(study))


def table(study: PromiseStudy) -> list[tuple[str, ...]]:
    """A row for each workload and way; see ``_HEADS``. What misses the target of a promise is marked."""
    rows: list[tuple[str, ...]] = []
    for workload in study.workloads:
        reacting = study.mean(workload, REACTING)
        for way in WAYS:
            found = study.mean(workload, way)
            in_time = found.in_time / found.promises
            idle = found.idle_node_h / reacting.idle_node_h if reacting.idle_node_h else 1.0
            more = (found.wasted_node_h - reacting.wasted_node_h) / found.capacity_node_h
            lost_too_much = way is not REACTING and found.lost_node_h > MOST_LOST * reacting.lost_node_h
            rows.append(
                (
                    workload,
                    way.name,
                    page.marked(f"{in_time:.1%}", good=in_time >= LEAST_IN_TIME),
                    format_duration(found.latest_s) if found.latest_s else "",
                    f"{found.preemptions:.1f}",
                    page.marked(f"{found.lost_node_h:,.1f}", good=not lost_too_much),
                    f"{found.still_node_h:,.1f}",
                    f"{found.idle_node_h:,.0f}",
                    page.marked(f"{idle - 1:+.2%}", good=idle <= MOST_IDLE),
                    f"{more:+.3%}",
                    f"{found.wait_h:.2f}",
                )
            )
    return rows


def _charts(study: PromiseStudy) -> list[str]:
    return [
        chart.bars(
            f"{workload}: work repeated (node-hours)",
            [way.name for way in WAYS],
            [study.mean(workload, way).lost_node_h for way in WAYS],
        )
        for workload in study.workloads
    ]
