"""What nodes cost that are free at a promised time: promised before, reserved, or taken then; on recorded workloads.

A workload is replayed under EASY backfilling. In each period of it one promise is drawn by a seed: a moment, a share
of the machine, and one to four hours. At that moment a job comes that takes these nodes for all of that time. Every
way (``WAYS``) replays the same workload with the same promises; ``schedulers.promised`` says what each does.

- *Reacting only* knows nothing before the moment. Jobs are then requeued at once, or saved first, which takes time.
- *A plain reservation* is made a day before, which is longer than most limits: no job leaves.
- *A promise* holds nodes from a few hours before, and jobs that are still in the way are saved as late as possible. The
  same is replayed for a site where no job can be saved: those that are left are requeued at the promised time.

Room is in time when the promised job starts in the very second that was promised. Idle node-hours are those of the
whole machine, from the first period to the last submission. They are compared with reacting only by requeueing, which
has the same jobs; that repeats work, and a node that repeats work is not idle, so what is wasted in all ways together
(idle, work repeated, and jobs that hold nodes for writing or reading images) stands beside it.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from itertools import chain
from pathlib import Path
from random import Random

from clearway.model.durations import format_duration
from clearway_lab.errors import SimulationError
from clearway_lab.schedulers.promised import Leaving, Promised
from clearway_lab.simulator.checkpoint_models import MIRA, NODES, Storage
from clearway_lab.simulator.engine import Outcome, replay
from clearway_lab.simulator.machine import Machine
from clearway_lab.studies import chart, page
from clearway_lab.studies.page import absent, chosen, left_out_files, means
from clearway_lab.sweeps.local import Sweep, Task
from clearway_lab.traces.swf import read_swf
from clearway_lab.traces.trace import TraceJob

HOUR_S = 3_600
DAY_S = 24 * HOUR_S
SHARES = (0.05, 0.1, 0.25)  # of the machine
DURATIONS_S = (HOUR_S, 2 * HOUR_S, 4 * HOUR_S)


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    file: str
    nodes: int  # the trace's sizes count these units
    storage: Storage
    processors_per_node: int = 1  # of the trace's, in one of these units
    every_s: int = DAY_S  # a promise in each such period
    last_s: int = 0  # only the last so many seconds have promises; 0: all of it


# Jobs of the Mira weeks that ran when the week began were submitted up to 44 days before: the machine is empty then.
WORKLOADS = (
    Workload("SDSC-DS", "SDSC-DS-2004-2.1-cln.swf.xz", 208, NODES, 8, every_s=3 * DAY_S),
    Workload("Mira, week 1", "mira-2018-wk1.swf.xz", 96, MIRA, 512, last_s=7 * DAY_S),
    Workload("Mira, week 2", "mira-2018-wk2.swf.xz", 96, MIRA, 512, last_s=7 * DAY_S),
)


@dataclass(frozen=True, slots=True)
class Way:
    name: str
    leaving: Leaving
    hold_s: int


REACTING = Way("reacting only, requeue", Leaving.REQUEUE, 0)
RESERVATION = Way("plain reservation, 24 h before", Leaving.STAY, DAY_S)
PROMISE = Way("promise, 1 h before", Leaving.SAVE_IN_TIME, HOUR_S)
WAYS = (
    REACTING,
    Way("reacting only, save", Leaving.SAVE_THEN, 0),
    RESERVATION,
    *(Way(f"promise, {h} h before", Leaving.SAVE_IN_TIME, h * HOUR_S) for h in (1, 2, 4)),
    *(Way(f"promise, {h} h before, no job can be saved", Leaving.REQUEUE, h * HOUR_S) for h in (1, 4, 12)),
)


@dataclass(frozen=True, slots=True)
class Course:
    """What came of all promises of one replay; node-hours are those of nodes, not of the trace's units."""

    promises: float
    in_time: float
    latest_s: float  # of the promise that was kept last
    lost_node_h: float  # work that is done again
    still_node_h: float  # jobs that held nodes without computing: images were written and read
    idle_node_h: float
    preemptions: float
    wait_h: float  # mean of all other jobs
    capacity_node_h: float

    @property
    def wasted_node_h(self) -> float:
        return self.lost_node_h + self.still_node_h + self.idle_node_h


@dataclass(frozen=True, slots=True)
class Sample:
    workload: str
    seed: int
    way: str
    course: Course


@dataclass(frozen=True, slots=True)
class PromiseStudy:
    samples: tuple[Sample, ...]
    seeds: int
    absent: tuple[str, ...]  # files that were not found

    @property
    def workloads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(sample.workload for sample in self.samples))

    def mean(self, workload: str, way: Way) -> Course:
        """Over the seeds; of ``latest_s`` the latest."""
        courses = [sample.course for sample in chosen(self.samples, workload=workload, way=way.name)]
        mean = list(means(astuple(course) for course in courses))
        mean[2] = max(course.latest_s for course in courses)
        return Course(*mean)


def study(folder: Path, seeds: int, sweep: Sweep) -> PromiseStudy:
    """All workloads whose files the folder has, with so many drawings of promises.

    Raises:
        TraceError: when it has none of them, or one cannot be read.
    """
    folder = folder.resolve()  # workers elsewhere have other working directories
    missing = absent(folder, (workload.file for workload in WORKLOADS))
    tasks = [
        (folder, workload, seed) for workload in WORKLOADS if workload.file not in missing for seed in range(seeds)
    ]
    made = sweep(_of_file, tasks, lambda samples: f"{samples[0].workload}, drawing {samples[0].seed}", _weight)
    return PromiseStudy(tuple(chain.from_iterable(made)), seeds, missing)


def _weight(task: Task) -> float:
    """How long a task takes beside others: as its file is long."""
    folder, workload, _ = task
    return float((folder / workload.file).stat().st_size)


def _of_file(folder: Path, workload: Workload, seed: int) -> list[Sample]:
    return compared(read_swf(folder / workload.file).on_nodes(workload.processors_per_node).jobs, workload, seed)


def compared(jobs: Sequence[TraceJob], workload: Workload, seed: int) -> list[Sample]:
    """Every way, with the same promises."""
    begin_s, last_s = jobs[0].submit_s, jobs[-1].submit_s
    if workload.last_s:
        begin_s = max(begin_s, last_s - workload.last_s)
    promises = drawn(jobs, workload, seed, begin_s)
    courses = ((way, course(jobs, promises, workload, way, begin_s)) for way in WAYS)
    return [Sample(workload.name, seed, way.name, found) for way, found in courses]


def drawn(jobs: Sequence[TraceJob], workload: Workload, seed: int, begin_s: int) -> list[TraceJob]:
    """One promised job in each period; one ends before the next begins.

    Raises:
        SimulationError: the workload is shorter than a period.
    """
    rng = Random(f"promise-{workload.name}-{seed}")  # noqa: S311 - a simulation, not a secret
    next_id = max(job.job_id for job in jobs) + 1
    promises: list[TraceJob] = []
    for period_s in range(begin_s, jobs[-1].submit_s - workload.every_s + 1, workload.every_s):
        at_s = period_s + rng.randrange(workload.every_s - max(DURATIONS_S))
        size, long_s = max(1, round(workload.nodes * rng.choice(SHARES))), rng.choice(DURATIONS_S)
        promises.append(TraceJob(next_id + len(promises), at_s, long_s, size, long_s, urgent=True))
    if not promises:
        raise SimulationError(f"{workload.name}: it is shorter than {workload.every_s} s, so nothing is promised")
    return promises


def course(
    jobs: Sequence[TraceJob], promises: Sequence[TraceJob], workload: Workload, way: Way, begin_s: int
) -> Course:
    last_s, unit_nodes = jobs[-1].submit_s, workload.storage.unit_nodes
    idle_unit_s, seen_s, idle = 0.0, float(begin_s), workload.nodes

    def look(machine: Machine) -> None:
        nonlocal idle_unit_s, seen_s, idle
        now_s = min(max(machine.now_s, begin_s), last_s)
        idle_unit_s += idle * (now_s - seen_s)
        seen_s, idle = now_s, machine.nodes - machine.used

    scheduler = Promised(promises, hold_s=way.hold_s, leaving=way.leaving, storage=workload.storage)
    outcomes = replay((*jobs, *promises), workload.nodes, scheduler, observe=look).outcomes
    late_s = [outcome.start_s - outcome.job.submit_s for outcome in outcomes if outcome.job.urgent]
    others = [outcome for outcome in outcomes if not outcome.job.urgent]
    unit_h = unit_nodes / HOUR_S
    return Course(
        promises=len(late_s),
        in_time=sum(each == 0 for each in late_s),
        latest_s=max(late_s),
        lost_node_h=unit_h * _summed(others, "lost_s"),
        still_node_h=unit_h * _summed(others, "overhead_s"),
        idle_node_h=unit_h * idle_unit_s,
        preemptions=sum(outcome.preemptions for outcome in others),
        wait_h=sum(outcome.wait_s for outcome in others) / len(others) / HOUR_S,
        capacity_node_h=unit_h * workload.nodes * (last_s - begin_s),
    )


def _summed(outcomes: Sequence[Outcome], field: str) -> float:
    return sum(outcome.job.size * float(getattr(outcome, field)) for outcome in outcomes)


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


def found(study: PromiseStudy) -> list[str]:
    sentences = []
    for workload in study.workloads:
        reacting, promise = (study.mean(workload, way) for way in (REACTING, PROMISE))
        sentences.append(
            f"{workload}: promised nodes are free in time in {promise.in_time / promise.promises:.1%} of cases; "
            f"{promise.lost_node_h:,.0f} node-hours of work are repeated, by reacting only {reacting.lost_node_h:,.0f}."
        )
    return sentences + left_out_files(study.absent)
