"""The UJFB paper's job scheduling experiments again (its section V-B to V-D), on the same recorded workloads.

The paper: "Preemptive Parallel Job Scheduling for Heterogeneous Systems Supporting Urgent Computing", IEEE Access,
2021, DOI 10.1109/ACCESS.2021.3053162.

Three workloads get urgent jobs injected at busy times, DWD's has its own. Every scheduler replays the same jobs, with
the run time as the limit, as the paper does. A cell is one workload, one seed, one scheduler; cells are independent, so
they run side by side and their order does not matter.

The paper's figures that are published as numbers stand in ``PAPER``; its bars carry none.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from clearway.config import plugins
from clearway_lab.schedulers import GROUP
from clearway_lab.schedulers.clearway import ClearwaySuspend, SuspensionRules
from clearway_lab.schedulers.conservative import Ujfb
from clearway_lab.simulator.engine import Scheduler, replay
from clearway_lab.simulator.measures import measure
from clearway_lab.studies import chart, page
from clearway_lab.studies.injection import held_nodes, urgent_jobs
from clearway_lab.studies.page import absent, chosen, left_out_files
from clearway_lab.sweeps.local import Sweep
from clearway_lab.traces.swf import read_swf
from clearway_lab.traces.trace import Trace, TraceJob

SCHEDULERS = ("fcfs", "ujf", "conservative", "easy", "sjf-backfill", "ujfb", "clearway-suspend", "clearway-sjf")
SWAP_FACTORS = (1, 20, 40)
SWAP_WORKLOAD = "LANL-CM5"
IN_TURN = "UJFB, jobs swap out one after another"  # on that workload, with each factor
BINS = (1.0, 1.1, 1.5, 2.0, 5.0, 10.0, 50.0, float("inf"))  # of the distribution of slowdowns, from below


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    file: str
    nodes: int
    figure: str  # the paper's
    limit: float | None  # what the Urgent Lateness of UJFB must not exceed; None: the lowest of all schedulers'
    urgent_queue: str = ""  # else urgent jobs are injected
    weight: float = 1.0  # how long a replay takes beside others


WORKLOADS = (
    Workload("SDSC-DS", "SDSC-DS-2004-2.1-cln.swf.xz", 1_664, "Figure 10", 1.01, weight=1.0),
    Workload("LANL-CM5", "LANL-CM5-1994-4.1-cln.swf.xz", 1_024, "Figure 11", 1.02, weight=1.4),
    Workload("SX-ACE", "sx-ace-2019.swf.xz", 1_024, "Figure 12", 1.05, weight=2.1),
    Workload("DWD", "dwd-2020-09-17.swf.xz", 1_024, "Figure 16", None, urgent_queue="sx_rout", weight=0.4),
)


def _ruled(*rules: bool, **changed: bool) -> Scheduler:
    return ClearwaySuspend(rules=SuspensionRules(*rules, **changed))


# What UJFB's and Clearway's parts do where urgent jobs are many: each with one thing changed.
VARIATION_WORKLOAD = "DWD"
VARIATIONS: dict[str, Callable[[], Scheduler]] = {
    "UJFB, swapping takes no time": lambda: Ujfb(swap_factor=0),
    "UJFB, suspended jobs return to any nodes": lambda: Ujfb(keep_nodes=False),
    "UJFB, regular jobs start while urgent ones wait": lambda: Ujfb(regular_wait=False),
    "UJFB, urgent jobs wait by submission": lambda: Ujfb(shortest_first=False),
    "UJFB, no job is suspended": lambda: Ujfb(suspends=False),
    "Clearway, urgent jobs wait by submission": lambda: _ruled(shortest_first=False),
    "Clearway, any urgent job takes a suspended one's nodes": lambda: _ruled(return_at_once=False),
    "Clearway, also suspends in vain": lambda: _ruled(never_needlessly=False),
    "Clearway, without all three rules": lambda: _ruled(False, False, False),
}
PAPER = {("SDSC-DS", "ujf"): 62.0, ("SDSC-DS", "ujfb"): 1.01, ("LANL-CM5", "ujfb"): 1.02}
PAPER |= {("SX-ACE", "fcfs"): 90_996.73, ("SX-ACE", "ujf"): 641.61, ("SX-ACE", "conservative"): 32_853.86}
PAPER |= {("SX-ACE", "easy"): 34_688.48, ("SX-ACE", "ujfb"): 1.05}
PAPER_PREEMPTIONS = {("SX-ACE", "ujfb"): 28}
PAPER_ABOVE_2 = 0.059  # DWD: urgent jobs with a slowdown above 2, of all jobs


@dataclass(frozen=True, slots=True)
class Cell:
    workload: str
    seed: int
    scheduler: str
    swap_factor: int
    jobs: int
    urgent_jobs: int
    response_s: float  # mean of the regular jobs
    slowdown: float  # likewise
    urgent_lateness: float
    urgent_slowdown: float  # mean of the urgent jobs
    above_2: float  # urgent jobs with a slowdown above 2, of all jobs
    preemptions: int
    histogram: tuple[int, ...]  # all jobs by slowdown, see BINS


@dataclass(frozen=True, slots=True)
class UrgentStudy:
    cells: tuple[Cell, ...]
    seeds: int
    traces: dict[str, tuple[int, int]]  # by workload: jobs that ran, jobs that never ran
    absent: tuple[str, ...]  # files that were not found

    def of(self, workload: str, scheduler: str, swap_factor: int = 1) -> tuple[Cell, ...]:
        return chosen(self.cells, workload=workload, scheduler=scheduler, swap_factor=swap_factor)

    def mean(self, measure: str, workload: str, scheduler: str, swap_factor: int = 1) -> float:
        """Of a field of the cells, over all seeds."""
        cells = self.of(workload, scheduler, swap_factor)
        return sum(float(getattr(cell, measure)) for cell in cells) / len(cells)

    def lateness(self, workload: str, scheduler: str, swap_factor: int = 1) -> float:
        """The largest over all seeds."""
        return max(cell.urgent_lateness for cell in self.of(workload, scheduler, swap_factor))


def study(folder: Path, seeds: int, sweep: Sweep) -> UrgentStudy:
    """All cells of the workloads whose files the folder has.

    Raises:
        TraceError: when it has none of them, or one cannot be read.
    """
    folder = folder.resolve()  # workers elsewhere have other working directories
    missing = absent(folder, (workload.file for workload in WORKLOADS))
    there = [workload for workload in WORKLOADS if workload.file not in missing]
    tasks = [task for workload in there for task in _tasks(folder, workload, seeds)]
    found = sweep(_cell, tasks, _name, lambda task: float(task[1].weight))
    counts = {cell.workload: recorded for cell, recorded in found}
    return UrgentStudy(tuple(cell for cell, _ in found), seeds, counts, missing)


def _tasks(folder: Path, workload: Workload, seeds: int) -> Iterator[tuple[Path, Workload, int, str, int]]:
    for seed in range(seeds):
        wanted = [(scheduler, 1) for scheduler in SCHEDULERS]
        if workload.name == SWAP_WORKLOAD:
            wanted += [(Ujfb.name, factor) for factor in SWAP_FACTORS[1:]]
            wanted += [(IN_TURN, factor) for factor in SWAP_FACTORS]
        if workload.name == VARIATION_WORKLOAD and not seed:  # where the seed draws swap times only
            wanted += [(name, 1) for name in VARIATIONS]
        for scheduler, factor in wanted:
            yield folder, workload, seed, scheduler, factor


# Cells of one workload and seed follow each other, so a process reads, watches and injects once for all of them.


@lru_cache(maxsize=1)
def _recorded(folder: Path, workload: Workload) -> tuple[Trace, Sequence[tuple[int, int]]]:
    """The record, and how busy it keeps the machine where that is needed."""
    trace = read_swf(folder / workload.file).with_exact_limits()
    if workload.urgent_queue:
        return trace.with_urgent_queues([workload.urgent_queue]), ()
    return trace, held_nodes(trace, workload.nodes)


@lru_cache(maxsize=1)
def _jobs(folder: Path, workload: Workload, seed: int) -> Sequence[TraceJob]:
    trace, held = _recorded(folder, workload)
    if workload.urgent_queue:
        return trace.jobs
    return trace.with_jobs(urgent_jobs(trace, workload.nodes, seed, held=held)).jobs


def _cell(folder: Path, workload: Workload, seed: int, name: str, swap_factor: int) -> tuple[Cell, tuple[int, int]]:
    """The cell; and how many jobs of the record ran, and how many never did."""
    trace, _ = _recorded(folder, workload)
    done = replay(_jobs(folder, workload, seed), workload.nodes, _scheduler(name, swap_factor), seed=seed)
    found = measure(done)
    _, regular = found.jobs["regular"]
    count, urgent = found.jobs["urgent"]
    slow = sum(outcome.slowdown > 2 for outcome in done.outcomes if outcome.job.urgent)
    histogram, _ = np.histogram([outcome.slowdown for outcome in done.outcomes], BINS)
    cell = Cell(
        *(workload.name, seed, name, swap_factor),
        jobs=len(done.outcomes),
        urgent_jobs=count,
        response_s=regular["response_s"].mean,
        slowdown=regular["slowdown"].mean,
        urgent_lateness=found.urgent_lateness or 0.0,
        urgent_slowdown=urgent["slowdown"].mean,
        above_2=slow / len(done.outcomes),
        preemptions=found.preemptions,
        histogram=tuple(map(int, histogram)),
    )
    return cell, (len(trace.jobs), trace.never_ran)


def _name(done: tuple[Cell, object]) -> str:
    cell, _ = done
    return f"{cell.workload}, seed {cell.seed}, {cell.scheduler}"


def _scheduler(name: str, swap_factor: int) -> Scheduler:
    if name in {Ujfb.name, IN_TURN}:
        return Ujfb(swap_factor=swap_factor, swap_together=name != IN_TURN)
    make: Callable[[], Scheduler] = VARIATIONS.get(name) or plugins.load(GROUP, name)
    return make()


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
    there = [workload for workload in WORKLOADS if workload.name in study.traces]
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
        variation_workload=VARIATION_WORKLOAD,
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
    moved = (_texts(preemptions, ",.1f"), [PAPER_PREEMPTIONS.get(key, "") for key in keys])
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
    in_turn = [study.lateness(SWAP_WORKLOAD, IN_TURN, factor) for factor in SWAP_FACTORS]
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
    bins = pairwise(BINS)
    names = [f"{low:g}-{high:g}" if math.isfinite(high) else f"over {low:g}" for low, high in bins]
    shares = [count / dwd.jobs for count in dwd.histogram]
    return {
        "above": page.marked(f"{dwd.above_2:.1%}", good=dwd.above_2 <= PAPER_ABOVE_2),
        "paper": f"{PAPER_ABOVE_2:.1%}",
        "rows": [(name, f"{share:.2%}") for name, share in zip(names, shares, strict=True)],
        "chart": chart.bars("share of all jobs (%)", names, [100 * share for share in shares]),
    }


def _variations(study: UrgentStudy) -> Iterator[Sequence[str | int]]:
    """What each part does on the workload with many urgent jobs, with the drawing that all variations have."""
    first = {cell.scheduler: cell for cell in chosen(study.cells, workload=VARIATION_WORKLOAD, seed=0)}
    base = first["conservative"]
    for name in ("conservative", "easy", *_OURS, *VARIATIONS):
        cell = first[name]
        ratios = (cell.response_s / base.response_s, cell.slowdown / base.slowdown)
        late = (f"{cell.urgent_lateness:,.1f}", f"{cell.urgent_slowdown:.3f}", f"{cell.above_2:.1%}")
        yield (_TITLES.get(name, name), *map(_near, ratios), *late, cell.preemptions)


def _near(ratio: float) -> str:
    return page.marked(f"{ratio:.3f}", good=ratio <= _NEAR)


def found(study: UrgentStudy) -> list[str]:
    names = {"easy": "EASY", "ujfb": "the paper's UJFB", "clearway-suspend": "Clearway", "clearway-sjf": "Clearway-SJF"}
    sentences = []
    for workload in study.traces:
        late = ", ".join(f"{study.lateness(workload, key):,.2f} under {name}" for key, name in names.items())
        sentences.append(f"{workload}: the worst slowdown of an urgent job is {late}.")
    return sentences + left_out_files(study.absent)
