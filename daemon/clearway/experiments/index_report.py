"""The page that leads to all experiments' reports: what each asks, what came out, and how to read it. Pure.

Every number is computed from the studies that the reports show; nothing is written down here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clearway.estimates.learning import quantile
from clearway.experiments import compaction_study, drain_study, page, promise_study
from clearway.experiments.compaction_study import LOADS, CompactionStudy
from clearway.experiments.cosim_study import DELAYS_S, CosimStudy
from clearway.experiments.drain_study import IMAGES_GIB, MANY, DrainStudy
from clearway.experiments.promise_study import PromiseStudy
from clearway.experiments.realtime_study import RealtimeStudy
from clearway.experiments.stochastic_report import near
from clearway.experiments.stochastic_study import StochasticStudy
from clearway.experiments.urgent_study import UrgentStudy
from clearway.model.durations import format_duration


@dataclass(frozen=True, slots=True)
class Entry:
    """One experiment. ``found``: sentences with its results; empty where it could not be made, and ``missing`` why."""

    name: str  # its folder; the template knows its title, what it asks and how to read its figures
    found: Sequence[str] = ()
    missing: str = ""


def as_html(entries: Iterable[Entry]) -> str:
    return page.html("index.html", entries=list(entries))


def _absent(files: Sequence[str]) -> list[str]:
    return [f"Not found, so left out: {', '.join(files)}."] if files else []


def cosim(study: CosimStudy) -> list[str]:
    times, losses = study.times[-1], study.losses[-1]
    took_ms, search_ms = times.dynamic[-1] / 1e3, times.backtracking[-1] / 1e3
    dynamic = f"Clearway's dynamic program answers all {len(DELAYS_S)} deadlines in {took_ms:.1f} ms"
    search = f"exhaustive search took {search_ms:,.0f} ms for {len(times.backtracking)} of them"
    return [
        f"With {len(times.scenario.jobs)} jobs, {dynamic}; {search}.",
        f"The greedy choice loses up to {max(losses):,.0f} node-hours more than the best one.",
    ]


def stochastic(study: StochasticStudy) -> list[str]:
    good = f"{sum(near(cell, cell.shown, cell.shown_tau) for cell in study.cells)} of {len(study.cells)} numbers"
    read = "once its costs are read from the numbers themselves; the report says where the text and they differ"
    return [f"{good} of the paper's table come out again, {read}."]


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


def promises(study: PromiseStudy) -> list[str]:
    sentences = []
    for workload in study.workloads:
        reacting, promise = (study.mean(workload, way) for way in (promise_study.REACTING, promise_study.PROMISE))
        sentences.append(
            f"{workload}: promised nodes are free in time in {promise.in_time / promise.promises:.1%} of cases; "
            f"{promise.lost_node_h:,.0f} node-hours of work are repeated, by reacting only {reacting.lost_node_h:,.0f}."
        )
    return sentences + _absent(study.absent)


def urgent(study: UrgentStudy) -> list[str]:
    names = {"easy": "EASY", "ujfb": "the paper's UJFB", "clearway-suspend": "Clearway", "clearway-sjf": "Clearway-SJF"}
    sentences = []
    for workload in study.traces:
        late = ", ".join(f"{study.lateness(workload, key):,.2f} under {name}" for key, name in names.items())
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
