"""The UJFB paper's experiments as one HTML page that needs nothing else, and as a table for other programs."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from clearway.experiments import chart, page, urgent_study
from clearway.experiments.cells import chosen
from clearway.experiments.urgent_study import PAPER, SCHEDULERS, SWAP_FACTORS, SWAP_WORKLOAD, UrgentStudy, Workload

_TITLES = {"fcfs": "FCFS", "ujf": "UJF", "conservative": "Backfill", "easy": "EASY", "ujfb": "UJFB"}
_TITLES |= {"sjf-backfill": "SJF backfill", "clearway-suspend": "Clearway", "clearway-sjf": "Clearway-SJF"}
_OURS = ("ujfb", "clearway-suspend", "clearway-sjf")  # that make room
_NEAR = 1.02  # of EASY and of conservative backfilling, for regular jobs


def as_csv(study: UrgentStudy) -> str:
    rows = [asdict(cell) for cell in study.cells]
    for row in rows:
        row["histogram"] = " ".join(map(str, row["histogram"]))
    return page.as_table(rows[0], (row.values() for row in rows))


def as_html(study: UrgentStudy) -> str:
    there = [workload for workload in urgent_study.WORKLOADS if workload.name in study.traces]
    ran, never = study.traces.get("SDSC-DS", (84_893, 11_176))
    summary = [_summary(study, workload, name) for workload in there for name in _OURS]
    on_dwd = "DWD" in study.traces
    return page.html(
        "urgent.html",
        study,
        schedulers=len(SCHEDULERS),
        near=_NEAR,
        summary=summary,
        everywhere=[
            title for title in map(_TITLES.get, _OURS) if all(row[-1] == "met" for row in summary if row[1] == title)
        ],
        workloads=[_workload(study, workload) for workload in there],
        swap=_swap(study) if SWAP_WORKLOAD in study.traces else None,
        distribution=_distribution(study) if on_dwd else None,
        variation_workload=urgent_study.VARIATION_WORKLOAD,
        variations=list(_variations(study)) if on_dwd else [],
        sdsc=f"{ran:,}",
        sdsc_never=f"{never:,}",
    )


def _summary(study: UrgentStudy, workload: Workload, name: str) -> Sequence[str]:
    """What must hold, and whether it does."""
    others = min(study.lateness(workload.name, other) for other in SCHEDULERS if other not in _OURS)
    late = study.lateness(workload.name, name)
    ratios = [
        study.mean(measure, workload.name, name) / study.mean(measure, workload.name, other)
        for measure in ("response_s", "slowdown")
        for other in ("easy", "conservative")
    ]
    good = late <= workload.limit if workload.limit else late < others
    met = good and max(ratios) <= _NEAR
    return [
        workload.name,
        _TITLES[name],
        page.marked(f"{late:,.3f}", good=good),
        f"at most {workload.limit}" if workload.limit else f"below all others' ({others:,.1f})",
        *map(_near, ratios),
        page.marked("met" if met else "missed", good=met),
    ]


def _workload(study: UrgentStudy, workload: Workload) -> Mapping[str, Any]:
    names = [_TITLES[name] for name in SCHEDULERS]
    keys = [(workload.name, name) for name in SCHEDULERS]
    late = [study.lateness(*key) for key in keys]
    response_s, slowdown, urgent_slowdown, preemptions = (
        [study.mean(measure, *key) for key in keys]
        for measure in ("response_s", "slowdown", "urgent_slowdown", "preemptions")
    )
    response_h = [each / 3_600 for each in response_s]
    ours = (_texts(response_h, ",.2f"), _texts(slowdown, ",.2f"), _texts(late, ",.3f"))
    papers_late = [f"{PAPER[key]:,.2f}" if key in PAPER else "" for key in keys]
    moved = (_texts(preemptions, ",.1f"), [urgent_study.PAPER_PREEMPTIONS.get(key, "") for key in keys])
    return {
        "name": workload.name,
        "figure": workload.figure,
        "rows": list(zip(names, *ours, papers_late, _texts(urgent_slowdown, ",.3f"), *moved, strict=True)),
        "drawn": "" if workload.urgent_queue else " in one drawing, on average",
        "urgent": f"{study.mean('urgent_jobs', workload.name, 'ujfb'):,.1f}".removesuffix(".0"),
        "charts": [
            chart.dots("response of regular jobs (h)", names, response_h),
            chart.dots("slowdown of regular jobs", names, slowdown),
            chart.dots("Urgent Lateness", names, late),
        ],
    }


def _texts(values: Iterable[float], form: str) -> list[str]:
    return [format(value, form) for value in values]


def _swap(study: UrgentStudy) -> Mapping[str, Any]:
    names = [f"x {factor}" for factor in SWAP_FACTORS]
    in_turn = [study.lateness(SWAP_WORKLOAD, urgent_study.IN_TURN, factor) for factor in SWAP_FACTORS]
    measured = {
        "response": [study.mean("response_s", SWAP_WORKLOAD, "ujfb", factor) for factor in SWAP_FACTORS],
        "slowdown": [study.mean("slowdown", SWAP_WORKLOAD, "ujfb", factor) for factor in SWAP_FACTORS],
        "Urgent Lateness": [study.lateness(SWAP_WORKLOAD, "ujfb", factor) for factor in SWAP_FACTORS],
        "Urgent Lateness, one after another": in_turn,
    }
    relative = {title: [each / found[0] for each in found] for title, found in measured.items()}
    return {
        "workload": SWAP_WORKLOAD,
        "in_turn": f"{in_turn[0]:.3f}",
        "paper": PAPER[SWAP_WORKLOAD, "ujfb"],
        "heads": ["", *names],
        "rows": [[title, *_texts(values, ".3f")] for title, values in relative.items()],
        "charts": [chart.bars(f"{title}, relative", names, values) for title, values in relative.items()],
    }


def _distribution(study: UrgentStudy) -> Mapping[str, Any]:
    dwd = study.of("DWD", "ujfb")[0]
    bins = pairwise(urgent_study.BINS)
    names = [f"{low:g}-{high:g}" if math.isfinite(high) else f"over {low:g}" for low, high in bins]
    shares = [count / dwd.jobs for count in dwd.histogram]
    return {
        "above": page.marked(f"{dwd.above_2:.1%}", good=dwd.above_2 <= urgent_study.PAPER_ABOVE_2),
        "paper": f"{urgent_study.PAPER_ABOVE_2:.1%}",
        "rows": [(name, f"{share:.2%}") for name, share in zip(names, shares, strict=True)],
        "chart": chart.bars("share of all jobs (%)", names, [100 * share for share in shares]),
    }


def _variations(study: UrgentStudy) -> Iterator[Sequence[str | int]]:
    """What each part does on the workload with many urgent jobs, with the drawing that all variations have."""
    first = {cell.scheduler: cell for cell in chosen(study.cells, workload=urgent_study.VARIATION_WORKLOAD, seed=0)}
    base = first["conservative"]
    for name in ("conservative", "easy", *_OURS, *urgent_study.VARIATIONS):
        cell = first[name]
        ratios = (cell.response_s / base.response_s, cell.slowdown / base.slowdown)
        late = (f"{cell.urgent_lateness:,.1f}", f"{cell.urgent_slowdown:.3f}", f"{cell.above_2:.1%}")
        yield (_TITLES.get(name, name), *map(_near, ratios), *late, cell.preemptions)


def _near(ratio: float) -> str:
    return page.marked(f"{ratio:.3f}", good=ratio <= _NEAR)
