"""How long nodes take to become empty: by waiting, or by a drain that moves their jobs; on recorded workloads.

The comparison of the Slurm+DMTCP paper's section on draining ("Job migration in HPC clusters by means of
checkpoint/restart", The Journal of Supercomputing, 2019, DOI 10.1007/s11227-019-02857-y), in numbers of real machines.
A workload is replayed under EASY backfilling. At busy moments, drawn by a seed, some nodes are chosen: one that is
busy, or several in a row as a rack has them. From the very same moment three ways are compared:

- ``wait``: nothing new starts there, and the jobs that are there run to their ends (Slurm's DRAIN). Each job's
  true run time is recorded, and so is the end of the last one.
- ``drain``: Clearway's own plan (``drain.plan.plan_drain``) for images of so many GiB a node. Checkpoints are written
  one after another, in the plan's order; a job that ends before its turn ends by itself. The nodes of a job are free
  when it is saved, and at most ``execution.kill_allowance`` later.
- ``requeue``: the same plan where no job can be saved and the order is forced: quick, and all the work is repeated.

Idle node-hours are those of the chosen nodes, from when a node holds no job until the last one is empty. What a moved
job stands still for (its checkpoint and reading it again) is counted on all its nodes. Where and when moved jobs go on
is not simulated.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import chain
from pathlib import Path
from random import Random

from clearway.config.configuration import Config
from clearway.drain.plan import plan_drain
from clearway.eligibility.context import PlanningContext
from clearway.model.cluster import JobState
from clearway.model.durations import format_duration
from clearway.model.orders import DrainOrder
from clearway.model.plan import DrainPlan, NoPlan
from clearway.model.problem import Action
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.walltime.remaining import quantile
from clearway_lab.errors import SimulationError
from clearway_lab.schedulers.easy import Easy
from clearway_lab.simulator.cluster_view import ClusterView
from clearway_lab.simulator.engine import replay
from clearway_lab.simulator.machine import Machine, State
from clearway_lab.studies import chart, page
from clearway_lab.studies.page import absent, chosen, left_out_files, means
from clearway_lab.sweeps.local import Sweep
from clearway_lab.traces.swf import read_swf
from clearway_lab.traces.trace import TraceJob

WAIT, DRAIN, REQUEUE = "wait", "drain", "requeue"
MOMENTS = 100
BUSY = 0.75  # share of the nodes in use at a moment that is looked at
IMAGES_GIB = (4, 64)  # for each node
MANY = 16
SHARE = 0.05
_MIB = 1_024
_HOUR_S = 3_600.0
_SAVES = "clearway:checkpoint=signal"


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    file: str
    nodes: int
    processors_per_node: int = 1  # of the trace's


WORKLOADS = (
    Workload("KTH-SP2", "KTH-SP2-1996-2.1-cln.swf.xz", 100),
    Workload("SDSC-DS", "SDSC-DS-2004-2.1-cln.swf.xz", 208, 8),
    Workload("LANL-CM5", "LANL-CM5-1994-4.1-cln.swf.xz", 1_024),
    Workload("SX-ACE", "sx-ace-2019.swf.xz", 1_024),
)


@dataclass(frozen=True, slots=True)
class Course:
    """What came of emptying some nodes in one way."""

    empty_s: float
    idle_node_h: float
    jobs: int  # that were moved
    still_node_h: float  # that moved jobs stood still
    repeated_node_h: float  # of work that is done again


@dataclass(frozen=True, slots=True)
class Sample:
    workload: str
    at_s: float  # since the workload's beginning
    nodes: int
    way: str
    image_gib: int  # for each node; 0: nothing is saved
    course: Course


@dataclass(frozen=True, slots=True)
class DrainStudy:
    samples: tuple[Sample, ...]
    seed: int
    absent: tuple[str, ...]  # files that were not found

    def of(self, workload: str, nodes: int, way: str, image_gib: int = 0) -> tuple[Course, ...]:
        found = chosen(self.samples, workload=workload, nodes=nodes, way=way, image_gib=image_gib)
        return tuple(sample.course for sample in found)


def study(folder: Path, seed: int, sweep: Sweep) -> DrainStudy:
    """All workloads whose files the folder has.

    Raises:
        TraceError: when it has none of them, or one cannot be read.
    """
    folder = folder.resolve()  # workers elsewhere have other working directories
    missing = absent(folder, (workload.file for workload in WORKLOADS))
    found = [workload for workload in WORKLOADS if workload.file not in missing]
    tasks = [(folder, workload, seed) for workload in found]
    made = sweep(_of_file, tasks, lambda samples: samples[0].workload if samples else "never busy")
    return DrainStudy(tuple(chain.from_iterable(made)), seed, missing)


def _of_file(folder: Path, workload: Workload, seed: int) -> list[Sample]:
    trace = read_swf(folder / workload.file).on_nodes(workload.processors_per_node)
    return sampled(trace.jobs, workload.name, workload.nodes, seed=seed)


def sampled(jobs: Sequence[TraceJob], name: str, nodes: int, *, seed: int = 0, moments: int = MOMENTS) -> list[Sample]:
    """Replay these jobs, and look at so many moments (fewer where the machine is not busy for long)."""
    rng = Random(f"drain-{name}-{seed}")  # noqa: S311 - a simulation, not a secret
    due = sorted((rng.uniform(jobs[0].submit_s, jobs[-1].submit_s) for _ in range(moments)), reverse=True)
    counts = sorted({1, min(MANY, nodes), math.ceil(SHARE * nodes)})
    samples: list[Sample] = []

    def look(machine: Machine) -> None:
        if not due or machine.now_s < due[-1] or machine.used < BUSY * machine.nodes:
            return
        while due and due[-1] <= machine.now_s:
            due.pop()
        busy = sorted(number for _, _, job in machine.running for number in job.nodes)
        for count in counts:
            first = rng.choice(busy) if count == 1 else rng.randrange(machine.nodes - count + 1)
            emptying = frozenset(range(first, first + count))
            for way, image_gib in ways():
                course = emptied(machine, emptying, way, image_gib)
                samples.append(Sample(name, machine.now_s, count, way, image_gib, course))

    replay(jobs, nodes, Easy(), seed=seed, observe=look)
    return samples


def ways() -> tuple[tuple[str, int], ...]:
    return ((WAIT, 0), *((DRAIN, image_gib) for image_gib in IMAGES_GIB), (REQUEUE, 0))


def emptied(machine: Machine, emptying: frozenset[int], way: str, image_gib: int) -> Course:
    """What becomes of these nodes from now on."""
    there = {str(job.job_id): job for _, _, job in machine.running if not emptying.isdisjoint(job.nodes)}
    left_s = {name: job.run_s - job.worked_s(machine.now_s) for name, job in there.items()}
    leave_s, moved, still_node_s, repeated_node_s = left_s, 0, 0.0, 0.0
    if way != WAIT:
        plan, kill_allowance_s = _plan(machine, emptying, way, image_gib)
        leave_s = dict(left_s)
        write_s = {c.job_id: o.checkpoint_s for c in plan.problem.candidates for o in c.options}
        saved_s = 0.0
        for planned in plan.chosen.actions:
            name, size = planned.job_id, there[planned.job_id].size
            if planned.action is Action.END or left_s[name] <= saved_s:
                continue  # it ends by itself, at the latest before its turn
            if planned.action is not Action.KILL:
                saved_s += write_s[name]
                still_node_s += size * 2 * write_s[name]  # reading takes as long as writing
            moved += 1
            repeated_node_s += planned.lost_work_node_s
            leave_s[name] = min(left_s[name], saved_s + kill_allowance_s)
    empty_s = max(leave_s.values(), default=0.0)
    held_s = sum(leave_s[name] * len(emptying.intersection(job.nodes)) for name, job in there.items())
    idle_node_s = empty_s * len(emptying) - held_s
    return Course(empty_s, idle_node_s / _HOUR_S, moved, still_node_s / _HOUR_S, repeated_node_s / _HOUR_S)


def _plan(machine: Machine, emptying: frozenset[int], way: str, image_gib: int) -> tuple[DrainPlan, float]:
    """Clearway's own, by its defaults, and the time that a killed job has to leave; a job's whole image is written."""
    config = Config.model_validate({"costs": {"app_memory_fraction": 1.0 if image_gib else 0.4}})
    memory_mib = max(1, image_gib) * _MIB
    cluster = ClusterView(
        machine,
        states={State.LEAVING: JobState.COMPLETING, State.SUSPENDED: JobState.SUSPENDED},
        comment=lambda _: _SAVES if way == DRAIN else "",
        node_memory_mib=memory_mib,
        job_memory_mib=memory_mib,
    )
    nodes = tuple(cluster.names[number] for number in sorted(emptying))
    order = DrainOrder(nodes=nodes, actor="study", force=way == REQUEUE)
    snapshot = cluster.snapshot(())
    context = PlanningContext(snapshot=snapshot, config=config, now=snapshot.taken_at)
    plan = plan_drain(order, context, EvictionDP())
    if isinstance(plan, NoPlan):
        raise SimulationError(f"no drain is possible: {plan.why}")
    return plan, config.execution.kill_allowance


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


def found(study: DrainStudy) -> list[str]:
    sentences = []
    for workload in dict.fromkeys(sample.workload for sample in study.samples):
        ways = ((WAIT, 0), (DRAIN, IMAGES_GIB[-1]))
        waited, drained = ([course.empty_s for course in study.of(workload, MANY, *way)] for way in ways)
        if waited and drained:
            sentences.append(
                f"{workload}: half of the times, {MANY} nodes are empty within {format_duration(quantile(waited, 0.5))}"
                f" by waiting, within {format_duration(quantile(drained, 0.5))} when jobs with images of "
                f"{IMAGES_GIB[-1]} GiB a node are moved."
            )
    return sentences + left_out_files(study.absent)
