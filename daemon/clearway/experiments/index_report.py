"""The page that leads to all experiments' reports: what each asks, what came out, and how to read it. Pure.

Every number is computed from the studies that the reports show; nothing is written down here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clearway.experiments import compaction_study, drain_study, page
from clearway.experiments.compaction_study import LOADS, CompactionStudy
from clearway.experiments.cosim_study import DELAYS_S, CosimStudy
from clearway.experiments.drain_study import IMAGES_GIB, MANY, DrainStudy, quantile
from clearway.experiments.realtime_study import RealtimeStudy
from clearway.experiments.stochastic_report import near
from clearway.experiments.stochastic_study import StochasticStudy
from clearway.experiments.urgent_study import UrgentStudy
from clearway.model.durations import format_duration


@dataclass(frozen=True, slots=True)
class Entry:
    """One experiment. ``found``: sentences with its results; empty where it could not be made, and ``missing`` why."""

    name: str  # its folder
    title: str
    question: str
    reading: str  # how to read the report's figures
    found: Sequence[str] = ()
    missing: str = ""


def as_html(entries: Iterable[Entry]) -> str:
    return page.html("index.html", entries=list(entries))


COSIM = Entry(
    "cosim",
    "Which jobs make room? (CoSim)",
    "Many jobs could leave for an urgent one. Which choice loses least, and how long does it take to find it?",
    "In the first figures a low line is a quick answer; one step up is ten times as long. In the others the line is "
    "what the quick greedy choice loses more than the best one: zero is as good.",
)
STOCHASTIC = Entry(
    "stochastic",
    "How long to ask for? (stochastic jobs)",
    "A job's run time is not known beforehand. Which time limits, and which checkpoints, cost least on average?",
    "Costs are multiples of what Clearway's method comes to: 1 is as good, 2 costs twice as much. Lines near the "
    "bottom are cheap strategies.",
)
COMPACTION = Entry(
    "compaction",
    "Do moves make whole nodes free? (Slurm+DMTCP)",
    "Small jobs are scattered over the nodes. What is gained by moving them together while they run?",
    "In each pair of columns the left one is a day without moves, the right one with them. The middle colour, nodes "
    "that are partly used, is to shrink.",
)
DRAIN = Entry(
    "drain",
    "How soon is a node empty? (Slurm+DMTCP)",
    "Nodes have to be emptied for maintenance. How long does that take by waiting, and how long when jobs are moved?",
    "A bar reaches from the time within which half of the drains end to that of nine in ten. The axis is logarithmic: "
    "its marks are a second, a minute, an hour and a day.",
)
URGENT = Entry(
    "urgent",
    "How late are urgent jobs? (UJFB)",
    "Urgent jobs come to a busy machine. How long do they wait under each scheduler, and what do regular jobs lose?",
    "Urgent Lateness is the worst delay of an urgent job (1 is none); the other figures are those of regular jobs. A "
    "dot further left is better. Axes are logarithmic: equal steps to the right multiply by equal factors.",
)
REALTIME = Entry(
    "realtime",
    "What do real-time jobs cost the others? (WCJS)",
    "A share of the jobs wants to start within a fraction of its length. What do batch jobs lose by that?",
    "Each box holds the middle half of the jobs, the line in it the median, the dot the mean; whiskers leave out one "
    "job in twenty at either end. Low boxes on the left are urgent jobs that start soon, on the right "
    "batch jobs that lose little.",
)


def _absent(files: Sequence[str]) -> list[str]:
    return [f"Not found, so left out: {', '.join(files)}."] if files else []


def cosim(study: CosimStudy) -> list[str]:
    times, losses = study.times[-1], study.losses[-1]
    return [
        (
            f"With {len(times.scenario.jobs)} jobs, Clearway's dynamic program answers all {len(DELAYS_S)} deadlines "
            f"in {times.dynamic[-1] / 1e3:.1f} ms; exhaustive search took {times.backtracking[-1] / 1e3:,.0f} ms for "
            f"{len(times.backtracking)} of them."
        ),
        f"The greedy choice loses up to {max(losses):,.0f} node-hours more than the best one.",
    ]


def stochastic(study: StochasticStudy) -> list[str]:
    good = sum(near(cell, cell.shown, cell.shown_tau) for cell in study.cells)
    return [
        (
            f"{good} of {len(study.cells)} numbers of the paper's table come out again, once its costs are read from "
            "the numbers themselves; the report says where the text and they differ."
        )
    ]


def compaction(study: CompactionStudy) -> list[str]:
    load = LOADS[-2]
    before, after = (study.shares(1, moves, load)[1] for moves in (compaction_study.NONE, compaction_study.COMPACTION))
    return [f"At {load} % load, moves bring the share of partly used nodes from {before:.0f} % to {after:.0f} %."]


def drain(study: DrainStudy) -> list[str]:
    sentences = []
    for workload in dict.fromkeys(sample.workload for sample in study.samples):
        ways = ((drain_study.WAIT, 0), (drain_study.DRAIN, IMAGES_GIB[-1]))
        waited, drained = ([course.empty_s for course in study.of(workload, MANY, *way)] for way in ways)
        if waited and drained:
            sentences.append(
                f"{workload}: half of the times, {MANY} nodes are empty within {format_duration(quantile(waited, 0.5))}"
                f" by waiting, within {format_duration(quantile(drained, 0.5))} when jobs with images of "
                f"{IMAGES_GIB[-1]} GiB a node are moved."
            )
    return sentences + _absent(study.absent)


def urgent(study: UrgentStudy) -> list[str]:
    names = (
        ("easy", "EASY"),
        ("ujfb", "the paper's UJFB"),
        ("clearway-suspend", "Clearway"),
        ("clearway-sjf", "Clearway-SJF"),
    )
    sentences = []
    for workload in study.traces:
        late = ", ".join(f"{study.lateness(workload, key):,.2f} under {name}" for key, name in names)
        sentences.append(f"{workload}: the worst slowdown of an urgent job is {late}.")
    return sentences + _absent(study.absent)


def realtime(study: RealtimeStudy) -> list[str]:
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
    return sentences + _absent(study.absent)
