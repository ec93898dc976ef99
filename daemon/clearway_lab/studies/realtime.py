"""The WCJS paper's simulations again (its section 7), on two weeks of Mira, and Clearway beside them.

The paper: "Towards Accommodating Real-time Jobs on HPC Platforms", 2021, DOI 10.48550/arXiv.2103.13130.

A cell is one week, one way to choose the real-time jobs, one share of them and one approach, over all seeds. The
machine is 96 blocks of 512 nodes and a partition is any set of blocks: what the torus would forbid is left out, for
all approaches alike. Slowdowns are bounded at 10 minutes (the paper's Definition 2) and turnaround is the time from
submission to end; both count from the run time without checkpoints, so that these cost what they cost.

The baseline treats all jobs alike, as Mira did. The paper's numbers are those of its text; its box plots carry none.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

from clearway_lab.errors import TraceError
from clearway_lab.schedulers.clearway import Clearway, site_with_short_jobs
from clearway_lab.schedulers.realtime import HighPriority, WeightedCost, Wfp
from clearway_lab.simulator import checkpoint_models as models
from clearway_lab.simulator.cluster_view import BATCH, SHORT, URGENT
from clearway_lab.simulator.engine import Outcome, Scheduler, replay
from clearway_lab.simulator.measures import BOUND_S, Categories, Spread
from clearway_lab.studies import chart, page
from clearway_lab.studies import realtime_workloads as workloads
from clearway_lab.studies.offline_optimum import offline_optimum
from clearway_lab.studies.page import absent, chosen, left_out_files, means
from clearway_lab.studies.realtime_workloads import SHORT_PARTITION_S
from clearway_lab.sweeps.local import Sweep, Task
from clearway_lab.traces.swf import read_swf
from clearway_lab.traces.trace import Trace, TraceJob

WEEKS = {"week 1": "mira-2018-wk1.swf.xz", "week 2": "mira-2018-wk2.swf.xz"}
BEAM_TIMES = "aps_rtj_runtimes_seconds.txt"
BLOCKS = 49_152 // models.MIRA.unit_nodes
PERCENTS = (5, 10, 15, 20)
CATEGORIES = ("all", "narrow-short", "narrow-long", "wide-short", "wide-long")
WAYS = {
    "default": "drawn from all jobs",
    "short": "drawn from the jobs that run for less than 90 minutes",
    "beam time": "beside the jobs of the week, with the run times of a beam line's analyses",
}
LOGS = 20
OPTIMUM_LIMIT_S = 20.0


def _clearway(model: models.CheckpointModel) -> Scheduler:
    return Clearway(model, order="wfp", storage=models.MIRA)


def _patient(model: models.CheckpointModel) -> Scheduler:
    return Clearway(model, order="wfp", storage=models.MIRA, max_delay_s=lambda job: max(600, 0.2 * job.limit_s))


def _room_for_short(model: models.CheckpointModel, order: Literal["wfp", "small"] = "wfp") -> Scheduler:
    site = site_with_short_jobs(models.MIRA)
    return Clearway(model, config=site, storage=models.MIRA, order=order, partitions=(BATCH, URGENT, SHORT))


def _weighted_cost(model: models.CheckpointModel) -> Scheduler:
    return WeightedCost(model, unit_nodes=models.MIRA.unit_nodes)


def _weighted_cost_small_first(model: models.CheckpointModel) -> Scheduler:
    return WeightedCost(model, unit_nodes=models.MIRA.unit_nodes, order="small")


# By name a scheduler, and how preempted jobs are saved.
APPROACHES: dict[str, tuple[Callable[[models.CheckpointModel], Scheduler], Callable[[], models.CheckpointModel]]] = {
    "baseline": (lambda _: Wfp(), models.NoCheckpoints),
    "high-priority": (lambda _: HighPriority(), models.NoCheckpoints),
    "WCJS no checkpoints": (_weighted_cost, models.NoCheckpoints),
    "WCJS system": (_weighted_cost, models.SystemCheckpoints),
    "WCJS application 5 %": (_weighted_cost, lambda: models.ApplicationCheckpoints(5)),
    "WCJS application 10 %": (_weighted_cost, lambda: models.ApplicationCheckpoints(10)),
    "WCJS just in time": (_weighted_cost, models.JustInTime),
    "Clearway": (_clearway, models.JustInTime),
}
# Time to write an image first, and the paper's 1.2; not among the above, for batch jobs pay for it on Mira.
PATIENT = "Clearway, patient"
# On a site with a partition for short jobs that comes first; then also with the smaller jobs first in each partition.
# Not among the above either: small jobs first is no order for Mira, where the large ones would wait (decision 0082).
ROOM_FOR_SHORT = "Clearway, room for short jobs"
SMALL_FIRST = "Clearway, room for short jobs, small ones first"
WCJS_SMALL_FIRST = "WCJS just in time, short and small jobs first"
OF_LOGS = {  # the approaches to the random logs by their titles
    "weighted cost": "WCJS just in time",
    "Clearway": "Clearway",
    "Clearway, 0.2 of the limit and 10 minutes at least": PATIENT,
    ROOM_FOR_SHORT: ROOM_FOR_SHORT,
    "weighted cost, short and small jobs first": WCJS_SMALL_FIRST,
    SMALL_FIRST: SMALL_FIRST,
}
_ALL = APPROACHES | {
    PATIENT: (_patient, models.JustInTime),
    ROOM_FOR_SHORT: (_room_for_short, models.JustInTime),
    SMALL_FIRST: (partial(_room_for_short, order="small"), models.JustInTime),
    WCJS_SMALL_FIRST: (_weighted_cost_small_first, models.JustInTime),
}


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs of one kind and category, of all seeds together."""

    jobs: int
    slowdown: Spread
    turnaround_h: Spread


@dataclass(frozen=True, slots=True)
class Cell:
    week: str
    way: str
    percent: int
    approach: str
    groups: dict[tuple[str, str], Group]  # by kind ("urgent", "batch") and category
    preemptions: float  # a seed


@dataclass(frozen=True, slots=True)
class Log:
    """One random log. ``slowdowns``: means of the (batch, urgent) jobs, of "optimum" and of each of ``OF_LOGS``."""

    seed: int
    threshold: float  # the optimum's
    proven: bool
    slowdowns: dict[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class RealtimeStudy:
    cells: tuple[Cell, ...]
    logs: tuple[Log, ...]
    seeds: int
    absent: tuple[str, ...]

    def cell(self, week: str, way: str, percent: int, approach: str) -> Cell:
        (found,) = chosen(self.cells, week=week, way=way, percent=percent, approach=approach)
        return found

    def change(self, week: str, percent: int, approach: str, kind: str, way: str = "default") -> float:
        """Mean slowdown beside the baseline's: -0.4 is 40 % less."""
        own, base = (
            self.cell(week, way, percent, name).groups[kind, "all"].slowdown.mean for name in (approach, "baseline")
        )
        return own / base - 1

    @property
    def weeks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cell.week for cell in self.cells))

    @property
    def ways(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cell.way for cell in self.cells))


def study(folder: Path, seeds: int, sweep: Sweep) -> RealtimeStudy:
    """All cells of the weeks that the folder has.

    Raises:
        TraceError: when it has none of them, or a file cannot be read.
    """
    folder = folder.resolve()  # workers elsewhere have other working directories
    missing = absent(folder, WEEKS.values())
    weeks = [week for week, file in WEEKS.items() if file not in missing]
    there = (folder / BEAM_TIMES).exists()
    ways = [way for way in WAYS if way != "beam time" or there]
    kinds = product(weeks, ways, PERCENTS, APPROACHES)
    tasks = [(folder, *kind, seeds) for kind in kinds]
    logs = sweep(_log, [(seed,) for seed in range(LOGS)], lambda log: f"optimum of random log {log.seed}")
    cells = sweep(_cell, tasks, lambda cell: f"{cell.week}, {cell.way}, {cell.percent} %, {cell.approach}", _weight)
    return RealtimeStudy(tuple(cells), tuple(logs), seeds, (*missing, *[BEAM_TIMES] * (not there)))


def _weight(task: Task) -> float:
    """How long a cell takes beside others: Clearway plans, and the queue of week 2 is long."""
    _, week, _, _, approach, _ = task
    return (4.0 if week == "week 2" else 1.0) * (5.0 if approach == "Clearway" else 1.0)


def bounded_slowdown(outcome: Outcome) -> float:
    """Definition 2 of the paper."""
    length_s = max(outcome.job.run_s, BOUND_S)
    return (outcome.wait_s + length_s) / length_s


def replayed(jobs: Sequence[TraceJob], approach: str, blocks: int = BLOCKS) -> list[Outcome]:
    """The outcome of each job, with the job as it was submitted: without the time that checkpoints add."""
    make, model_of = _ALL[approach]
    model = model_of()
    submitted = {job.job_id: job for job in jobs}
    if approach in (ROOM_FOR_SHORT, SMALL_FIRST, WCJS_SMALL_FIRST):
        jobs = workloads.with_short_partition(jobs)
    done = replay([model.lengthened(job) for job in jobs], blocks, make(model))
    return [outcome._replace(job=submitted[outcome.job.job_id]) for outcome in done.outcomes]


def _cell(folder: Path, week: str, way: str, percent: int, approach: str, seeds: int) -> Cell:
    trace = read_swf(folder / WEEKS[week]).on_nodes(models.MIRA.unit_nodes)
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    preemptions = 0
    categories = Categories.of_machine(BLOCKS)
    for seed in range(seeds):
        for outcome in replayed(_drawn(folder, trace, way, percent, seed).jobs, approach):
            preemptions += outcome.preemptions
            values = (bounded_slowdown(outcome), outcome.response_s / 3_600)
            kind = "urgent" if outcome.job.urgent else "batch"
            for category in ("all", categories.name(outcome)):
                found.setdefault((kind, category), []).append(values)
    groups = {
        key: Group(len(values), Spread.of([each for each, _ in values]), Spread.of([each for _, each in values]))
        for key, values in sorted(found.items())
    }
    return Cell(week, way, percent, approach, groups, preemptions / seeds)


def _drawn(folder: Path, trace: Trace, way: str, percent: int, seed: int) -> Trace:
    if way == "beam time":
        times_s = [float(line) for line in (folder / BEAM_TIMES).read_text(encoding="ascii").split()]
        return workloads.with_beam_time_jobs(trace, percent, seed, times_s, models.MIRA.unit_nodes)
    return workloads.some_of_all(trace, percent, seed, workloads.SHORT_S if way == "short" else None)


def _log(seed: int) -> Log:
    jobs = workloads.random_log(seed)
    best = offline_optimum(workloads.as_offline(jobs), workloads.RANDOM_BLOCKS, time_limit_s=OPTIMUM_LIMIT_S)
    if best is None:
        raise TraceError(f"no schedule for random log {seed} within {OPTIMUM_LIMIT_S:g} s")
    slowdowns = {"optimum": (best.batch_slowdown, best.urgent_slowdown)}
    for title, name in OF_LOGS.items():
        slowdowns[title] = _mean_slowdowns(replayed(jobs, name, workloads.RANDOM_BLOCKS))
    return Log(seed, best.threshold, best.batch_slowdown - best.bound < 1e-3, slowdowns)


def _mean_slowdowns(done: Sequence[Outcome]) -> tuple[float, float]:
    batch = [outcome.slowdown for outcome in done if not outcome.job.urgent]
    urgent = [outcome.slowdown for outcome in done if outcome.job.urgent]
    return sum(batch) / len(batch), sum(urgent) / len(urgent)


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


def found(study: RealtimeStudy) -> list[str]:
    sentences = []
    for week in study.weeks:
        changes = []
        for approach, name in (("WCJS just in time", "the paper's heuristic"), ("Clearway", "Clearway")):
            own, others = (study.change(week, 10, approach, kind) for kind in ("urgent", "batch"))
            changes.append(f"{name} {own:+.0%} and {others:+.0%}")
        sentences.append(
            f"Mira, {week}, one job in ten urgent: mean slowdowns of urgent and of batch jobs beside a machine that "
            f"treats all jobs alike: {'; '.join(changes)}."
        )
    return sentences + left_out_files(study.absent)
