"""The UJFB paper's job scheduling experiments again (its section V-B to V-D), on the same recorded workloads.

The paper: "Preemptive Parallel Job Scheduling for Heterogeneous Systems Supporting Urgent Computing", IEEE Access,
2021, DOI 10.1109/ACCESS.2021.3053162.

Three workloads get urgent jobs injected at busy times, DWD's has its own. Every scheduler replays the same jobs, with
the run time as the limit, as the paper does. A cell is one workload, one seed, one scheduler; cells are independent, so
they run side by side and their order does not matter.

The paper's figures that are published as numbers stand in ``PAPER``; its bars carry none.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from clearway.config import plugins
from clearway.experiments.cells import absent, chosen
from clearway.experiments.sweeps.base import Sweep
from clearway.simulation.engine import Scheduler, replay
from clearway.simulation.measures import measure
from clearway.simulation.schedulers.clearway_suspend import ClearwaySuspend, SuspensionRules
from clearway.simulation.schedulers.ujfb import Ujfb
from clearway.simulation.traces.injection import held_nodes, urgent_jobs
from clearway.simulation.traces.swf import read_swf
from clearway.simulation.traces.trace import Trace, TraceJob

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
    make: Callable[[], Scheduler] = VARIATIONS.get(name) or plugins.load(plugins.SCHEDULERS, name)
    return make()
