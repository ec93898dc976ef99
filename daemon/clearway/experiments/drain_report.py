"""How long nodes take to become empty, as one HTML page that needs nothing else, and as a table for other programs."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, fields

from clearway.estimates.learning import quantile
from clearway.experiments import chart, page
from clearway.experiments.cells import means
from clearway.experiments.drain_study import BUSY, DRAIN, IMAGES_GIB, REQUEUE, WAIT, Course, DrainStudy, ways
from clearway.model.durations import format_duration

SHARES = (0.5, 0.9, 1.0)
_COLUMNS = ("workload", "at_s", "nodes", "way", "image_gib_per_node", *(each.name for each in fields(Course)))
_HEADS = (
    "workload", "nodes", "how", "half of them", "nine in ten", "the longest", "quicker than waiting",
    "idle (node-hours)", "jobs moved", "stood still (node-hours)", "work repeated (node-hours)",
)  # fmt: skip
_COLOURS = {WAIT: "#b2182b", DRAIN: "#2166ac", REQUEUE: "#888888"}
_MARKS = {1: "1 s", 60: "1 min", 3_600: "1 h", 86_400: "1 d", 864_000: "10 d"}


def as_csv(study: DrainStudy) -> str:
    rows = []
    for sample in study.samples:
        known = [sample.workload, f"{sample.at_s:.0f}", sample.nodes, sample.way, sample.image_gib]
        rows.append([*known, *(f"{figure:.3f}" for figure in astuple(sample.course))])
    return page.as_table(_COLUMNS, rows)


def as_html(study: DrainStudy) -> str:
    return page.html(
        "drain.html",
        study,
        moments=len({(sample.workload, sample.at_s) for sample in study.samples}),
        busy=f"{BUSY:.0%}",
        images=" and ".join(map(str, IMAGES_GIB)),
        heads=_HEADS,
        rows=table(study),
        chart=_chart(study),
    )


def groups(study: DrainStudy) -> Iterator[tuple[str, int, str, int, Sequence[Course]]]:
    """In the order of the samples: workload, nodes, way, image and the result at every moment."""
    for workload, nodes in dict.fromkeys((sample.workload, sample.nodes) for sample in study.samples):
        for way, image_gib in ways():
            yield workload, nodes, way, image_gib, study.of(workload, nodes, way, image_gib)


def table(study: DrainStudy) -> list[tuple[str, ...]]:
    """A row for each workload, number of nodes and way; see ``_HEADS``."""
    rows = []
    for workload, nodes, way, image_gib, courses in groups(study):
        times = [format_duration(quantile([c.empty_s for c in courses], share)) for share in SHARES]
        _, idle, jobs, still, repeated = means(map(astuple, courses))
        costs = [f"{idle:,.1f}", f"{jobs:.1f}", f"{still:,.2f}", f"{repeated:,.1f}"]
        waited = study.of(workload, nodes, WAIT)
        quicker = sum(c.empty_s < w.empty_s for c, w in zip(courses, waited, strict=True)) / len(courses)
        share = "" if way == WAIT else f"{quicker:.0%}"
        rows.append((workload, str(nodes), label(way, image_gib), *times, share, *costs))
    return rows


def label(way: str, image_gib: int) -> str:
    return {WAIT: "waiting", DRAIN: f"drain, {image_gib} GiB a node", REQUEUE: "requeue"}[way]


def _chart(study: DrainStudy) -> str:
    rows = []
    for workload, nodes, way, image_gib, courses in groups(study):
        low, high = (max(1.0, quantile([c.empty_s for c in courses], share)) for share in SHARES[:2])
        rows.append((f"{workload}, {nodes}: {label(way, image_gib)}", low, high, _COLOURS[way]))
    return chart.ranges("Time until the nodes are empty", rows, _MARKS)
