"""The Slurm+DMTCP paper's simulations of moved jobs again (Figures 3 and 4, Table 2), by Clearway's own planning.

The paper: "Job migration in HPC clusters by means of checkpoint/restart", The Journal of Supercomputing, 2019, DOI
10.1007/s11227-019-02857-y.

Eight nodes of 16 processors, a day, jobs of exponential sizes and run times at random times, as many as are 25, 50, 75
or 90 % of the machine's processor time. The same jobs are replayed with and without moves. Compaction has one
partition; promotion two, of which the better one has two nodes, and every job tries that first.

A move takes what the paper measured for saving and restarting tasks of 1,000 MB each (its Table 1, the column of the
longest times; in between by straight lines). The planner does not know how long a job will run, only the mean of all:
of an exponential run time nothing more can be known, however long it has run.

The paper gives neither the mean size nor the mean run time. Four processors and three hours ("a few hours", it says of
recorded workloads) bring the share of partly used nodes without moves near the paper's, but for the load of 90 %, where
it is larger. The report shows other run times too.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from random import Random

from clearway.relocation.moves import Host, plan_compaction, plan_promotion
from clearway_lab.simulator.shared_nodes import (
    HOUR_S,
    STILL,
    Moving,
    Planning,
    SharedReplay,
    SubmittedJob,
    replay_shared,
)
from clearway_lab.studies import chart, page
from clearway_lab.studies.page import chosen, means
from clearway_lab.sweeps.local import Sweep

NODES, PROCESSORS, HIGH_NODES = 8, 16, 2
DAY_S = 24 * HOUR_S
LOADS = (25, 50, 75, 90)  # % of the processor time of a day
MEAN_PROCESSORS = 4.0
MEAN_RUN_H = 3.0
OTHER_RUN_H = (1.0, 2.0)
PROMOTION_LOADS = (75, 90)
NONE, COMPACTION, PROMOTION = "none", "compaction", "promotion"
_MOVE_S = ((1, 89.0), (2, 97.0), (4, 115.0), (8, 144.0), (16, 202.0), (32, 343.0), (64, 398.0), (128, 608.0))  # Table 1

PAPER_PARTLY = {25: (33.8, 28.2), 50: (53.5, 41.7), 75: (52.8, 42.0), 90: (30.5, 22.3)}  # %, without and with moves
# By load and partition, empty, partly used and full, without and with moves: Table 2.
PAPER_PROMOTION = {
    (75, "low"): ((20.33, 43.49, 36.18), (19.24, 48.33, 32.43)),
    (75, "high"): ((1.06, 73.36, 25.58), (1.05, 67.31, 31.64)),
    (90, "low"): ((7.72, 31.65, 60.63), (7.72, 36.85, 55.43)),
    (90, "high"): ((1.25, 57.56, 41.19), (1.25, 58.02, 40.73)),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One day: how the nodes spent it, and what the moves cost."""

    partitions: int
    moves: str
    load: int
    mean_run_h: float
    seed: int
    shares: dict[str, tuple[float, float, float]]  # %: empty, partly used, full; of "all", and of "high" and "low"
    held: float  # %: of the processor time; less than the load, for jobs wait, and the day ends
    jobs: int
    finished: int  # by the end of the day
    moved: int  # jobs, each time
    stalled_node_h: float  # that moved jobs stood still
    wait_s: float  # mean, of those that started


@dataclass(frozen=True, slots=True)
class CompactionStudy:
    cells: tuple[Cell, ...]
    seeds: int

    def of(self, partitions: int, moves: str, load: int, mean_run_h: float = MEAN_RUN_H) -> tuple[Cell, ...]:
        return chosen(self.cells, partitions=partitions, moves=moves, load=load, mean_run_h=mean_run_h)

    def shares(
        self, partitions: int, moves: str, load: int, group: str = "all", mean_run_h: float = MEAN_RUN_H
    ) -> tuple[float, ...]:
        """Empty, partly used, full: means over the seeds."""
        return means(cell.shares[group] for cell in self.of(partitions, moves, load, mean_run_h))

    def fall(self, load: int, mean_run_h: float = MEAN_RUN_H) -> float:
        """By how many percentage points compaction makes fewer nodes partly used."""
        without, with_moves = (self.shares(1, moves, load, mean_run_h=mean_run_h)[1] for moves in (NONE, COMPACTION))
        return without - with_moves


def study(seeds: int, sweep: Sweep) -> CompactionStudy:
    """All days of all seeds."""
    days = [(1, moves, load, h) for h in (MEAN_RUN_H, *OTHER_RUN_H) for load in LOADS for moves in (NONE, COMPACTION)]
    days += [(2, moves, load, MEAN_RUN_H) for load in PROMOTION_LOADS for moves in (NONE, PROMOTION)]
    tasks = [(*each, seed) for each in days for seed in range(seeds)]
    return CompactionStudy(tuple(sweep(day, tasks, lambda cell: f"moves: {cell.moves}, load {cell.load} %")), seeds)


def day(partitions: int, moves: str, load: int, mean_run_h: float, seed: int) -> Cell:
    """A replay; the same seed draws the same jobs, with and without moves."""
    high = [Host(f"high{number}", PROCESSORS, rank=1) for number in range(HIGH_NODES if partitions == 2 else 0)]
    low = [Host(f"low{number}", PROCESSORS) for number in range(NODES - len(high))]
    mean_s = mean_run_h * HOUR_S
    jobs = random_jobs(load, mean_s, seed, most=PROCESSORS * len(low))
    planning: dict[str, Planning] = {COMPACTION: plan_compaction, PROMOTION: plan_promotion}
    moving = Moving(planning[moves], move_s, lambda _: mean_s) if moves in planning else STILL
    course = replay_shared(jobs, [high, low] if high else [low], DAY_S, moving)
    groups = {"all": [*high, *low]} | ({"high": high, "low": low} if high else {})
    return Cell(
        *(partitions, moves, load, mean_run_h, seed),
        shares={name: _shares(course, hosts) for name, hosts in groups.items()},
        held=100 * sum(usage.held_processor_s for usage in course.usage.values()) / (NODES * PROCESSORS * DAY_S),
        jobs=len(jobs),
        finished=course.finished,
        moved=course.moved_jobs,
        stalled_node_h=course.stalled_processor_s / PROCESSORS / HOUR_S,
        wait_s=sum(course.waited_s) / len(course.waited_s),
    )


def random_jobs(load: int, mean_run_s: float, seed: int, most: int = NODES * PROCESSORS) -> list[SubmittedJob]:
    """In the order of submission, until they add up to the load; none asks for more than ``most`` processors."""
    rng = Random(f"compaction-{load}-{mean_run_s:g}-{seed}")  # noqa: S311 - a simulation, not a secret
    wanted_s = load / 100 * NODES * PROCESSORS * DAY_S
    drawn: list[tuple[float, int, float]] = []
    work_s = 0.0
    while work_s < wanted_s:
        # An exponential number rounded up to whole processors, with the rate that makes their mean right.
        processors = min(most, 1 + int(rng.expovariate(-math.log1p(-1 / MEAN_PROCESSORS))))
        run_s = rng.expovariate(1 / mean_run_s)
        drawn.append((rng.uniform(0, DAY_S), processors, run_s))
        work_s += processors * run_s
    return [SubmittedJob(str(number), *job) for number, job in enumerate(sorted(drawn), 1)]


def move_s(processors: int) -> float:
    """To save and restart a job of so many tasks; beyond the paper's largest as long as that."""
    for (few, low_s), (many, high_s) in pairwise(_MOVE_S):
        if processors <= many:
            return low_s + (high_s - low_s) * (processors - few) / (many - few)
    return _MOVE_S[-1][1]


def _shares(course: SharedReplay, hosts: Sequence[Host]) -> tuple[float, float, float]:
    spent = [course.usage[host.name] for host in hosts]
    total_s = sum(usage.total_s for usage in spent)
    empty, partly, full = (
        100 * sum(getattr(usage, name) for usage in spent) / total_s for name in ("empty_s", "partly_s", "full_s")
    )
    return empty, partly, full


_COLOURS = {"empty": "#cfe3f5", "partly used": "#d08700", "full": "#2166ac"}
_COLUMNS = (
    *("partitions", "moves", "load", "mean_run_h", "seed", "group", "empty_percent", "partly_used_percent"),
    *("full_percent", "held_percent", "jobs", "finished", "moved", "stalled_node_h", "wait_s"),
)
_COSTS = attrgetter("jobs", "moved", "stalled_node_h", "wait_s", "held")


def as_csv(study: CompactionStudy) -> str:
    rows: list[Sequence[object]] = []
    for cell in study.cells:
        for group, shares in cell.shares.items():
            known = [cell.partitions, cell.moves, cell.load, cell.mean_run_h, cell.seed, group]
            percents = [f"{share:.3f}" for share in (*shares, cell.held)]
            costs = [cell.moved, f"{cell.stalled_node_h:.4f}", f"{cell.wait_s:.1f}"]
            rows.append([*known, *percents, cell.jobs, cell.finished, *costs])
    return page.as_table(_COLUMNS, rows)


def as_html(study: CompactionStudy) -> str:
    return page.html(
        "compaction.html",
        study,
        hours=f"{MEAN_RUN_H:g}",
        usual=[_compaction(study, MEAN_RUN_H, load) for load in LOADS],
        chart=_chart(study),
        other=[_compaction(study, hours, load) for hours in OTHER_RUN_H for load in LOADS],
        promotion=list(_promotion(study)),
    )


def _compaction(study: CompactionStudy, hours: float, load: int) -> Sequence[str]:
    before, after = PAPER_PARTLY[load]
    without, with_moves = (study.shares(1, moves, load, mean_run_h=hours) for moves in (NONE, COMPACTION))
    fall = study.fall(load, hours)
    node_h = NODES * DAY_S / HOUR_S
    emptied_h = (with_moves[0] - without[0]) / 100 * node_h
    jobs, moved, stalled_h, wait_s, _ = means(map(_COSTS, study.of(1, COMPACTION, load, hours)))
    *_, before_wait_s, held = means(map(_COSTS, study.of(1, NONE, load, hours)))
    shares = [f"{share:.1f} %" for share in (held, without[1], with_moves[1])]
    falls = [page.marked(f"{fall:.1f}", good=fall >= before - after), f"{before} to {after} %", f"{before - after:.1f}"]
    costs = [f"{jobs:.0f}", f"{moved:.0f}", f"{stalled_h:.2f}", f"{emptied_h:.1f}", f"{before_wait_s:.0f}"]
    return [f"{hours:g} h", f"{load} %", *shares, *falls, *costs, f"{wait_s:.0f}"]


def _promotion(study: CompactionStudy) -> Iterator[Sequence[str]]:
    for (load, group), paper in PAPER_PROMOTION.items():
        for moves, theirs in zip((NONE, PROMOTION), paper, strict=True):
            shares = study.shares(2, moves, load, group)
            pairs = [f"{share:.1f} %" for pair in zip(shares, theirs, strict=True) for share in pair]
            _, moved, stalled_h, *_ = means(map(_COSTS, study.of(2, moves, load)))
            known = [f"{load} %", group, "with" if moves == PROMOTION else "without"]
            yield [*known, *pairs, f"{moved:.0f}", f"{stalled_h:.2f}"]


def _chart(study: CompactionStudy) -> str:
    columns = [
        (f"{name}\n{load} %", study.shares(1, moves, load))
        for load in LOADS
        for name, moves in (("without", NONE), ("with", COMPACTION))
    ]
    return chart.stacks("How nodes spend the day, by load", columns, _COLOURS)


def found(study: CompactionStudy) -> list[str]:
    load = LOADS[-2]
    before, after = (study.shares(1, moves, load)[1] for moves in (NONE, COMPACTION))
    return [f"At {load} % load, moves bring the share of partly used nodes from {before:.0f} % to {after:.0f} %."]
