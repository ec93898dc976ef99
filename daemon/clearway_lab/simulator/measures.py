"""The figures of a replay: for its jobs in categories, and for the machine.

For each job, in seconds: wait (all time that it did not compute), response (from submission to end; the WCJS paper
calls it turnaround), slowdown = response / run time (equation 2 of the UJFB paper), and bounded slowdown, which takes
a run time below ten minutes for ten minutes and is at least 1, so that the shortest jobs do not decide the mean. Urgent
Lateness is the largest slowdown of an urgent job (equation 4 of the UJFB paper).

For the machine: utilisation is the share of its node-seconds that jobs held, from the first submission to the
last end; productive utilisation leaves out what was held for work done again and for saving and restoring
(equation 26 of the WCJS paper). Lost node-hours are work done again; saved node-hours are those that preempted jobs
did not have to do again, since their work so far was kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from clearway_lab.simulator.engine import Outcome, Replay

BOUND_S = 600.0

Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Categories:
    """Where narrow ends and wide begins (nodes), and short and long (seconds of run time); the WCJS paper's are
    4,096 nodes of Mira's 49,152 and two hours.
    """

    wide_above: int
    long_above_s: float = 7_200.0

    @classmethod
    def of_machine(cls, nodes: int) -> Categories:
        """The WCJS paper's share of the machine."""
        return cls(max(1, nodes * 4_096 // 49_152))

    def name(self, outcome: Outcome) -> str:
        width = "wide" if outcome.job.size > self.wide_above else "narrow"
        return f"{width}-{'long' if outcome.job.run_s > self.long_above_s else 'short'}"


@dataclass(frozen=True, slots=True)
class Spread:
    """One measure over one category of jobs."""

    mean: float
    median: float
    p5: float
    p25: float
    p75: float
    p95: float
    largest: float

    @classmethod
    def of(cls, values: Sequence[float] | Floats) -> Spread:
        array = np.asarray(values, dtype=float)
        p5, p25, median, p75, p95 = (float(cut) for cut in np.percentile(array, (5, 25, 50, 75, 95)))
        return cls(float(array.mean()), median, p5, p25, p75, p95, float(array.max()))


@dataclass(frozen=True, slots=True)
class Measures:
    """``jobs`` holds, for each category of jobs, how many there are and the spread of each measure."""

    scheduler: str
    nodes: int
    jobs: dict[str, tuple[int, dict[str, Spread]]]
    urgent_lateness: float | None  # None: no urgent job
    utilisation: float
    productive_utilisation: float
    lost_node_h: float
    saved_node_h: float
    preemptions: int
    preemptions_per_job: float
    preempted_jobs: int

    def as_json(self) -> dict[str, Any]:
        document = asdict(self)
        document["jobs"] = {name: {"count": count} | spreads for name, (count, spreads) in document["jobs"].items()}
        return document


def measure(replay: Replay) -> Measures:
    """Of all jobs; of regular and urgent ones where there are both; and of the regular ones by width and length."""
    outcomes = replay.outcomes
    preempted = [outcome for outcome in outcomes if outcome.preemptions]
    preemptions = sum(outcome.preemptions for outcome in preempted)
    columns = _columns(outcomes)
    begin_s = min((outcome.job.submit_s for outcome in outcomes), default=0)
    end_s = max((outcome.end_s for outcome in outcomes), default=0)
    capacity_node_s = replay.nodes * (end_s - begin_s) or 1
    groups = _groups(outcomes, Categories.of_machine(replay.nodes))
    return Measures(
        scheduler=replay.scheduler,
        nodes=replay.nodes,
        jobs={
            name: (int(group.sum()), {measure: Spread.of(values[group]) for measure, values in columns.items()})
            for name, group in groups.items()
            if group.any()
        },
        urgent_lateness=float(columns["slowdown"][groups["urgent"]].max()) if "urgent" in groups else None,
        utilisation=replay.busy_node_s / capacity_node_s,
        productive_utilisation=sum(each.job.size * each.job.run_s for each in outcomes) / capacity_node_s,
        lost_node_h=sum(each.job.size * each.lost_s for each in preempted) / 3_600,
        saved_node_h=sum(each.job.size * each.saved_s for each in preempted) / 3_600,
        preemptions=preemptions,
        preemptions_per_job=preemptions / len(outcomes) if outcomes else 0.0,
        preempted_jobs=len(preempted),
    )


def _columns(outcomes: Sequence[Outcome]) -> dict[str, Floats]:
    """Each measure of all jobs."""
    run_s = np.array([outcome.job.run_s for outcome in outcomes], dtype=float)
    response_s = np.array([outcome.response_s for outcome in outcomes], dtype=float)
    return {
        "wait_s": response_s - run_s,
        "response_s": response_s,
        "slowdown": response_s / run_s,
        "bounded_slowdown": np.maximum(1.0, response_s / np.maximum(run_s, BOUND_S)),
    }


def _groups(outcomes: Sequence[Outcome], categories: Categories) -> dict[str, npt.NDArray[np.bool_]]:
    """Which jobs belong to each category."""
    urgent = np.array([outcome.job.urgent for outcome in outcomes], dtype=bool)
    wide = np.array([outcome.job.size > categories.wide_above for outcome in outcomes], dtype=bool)
    long = np.array([outcome.job.run_s > categories.long_above_s for outcome in outcomes], dtype=bool)
    groups = {"all": np.ones(len(outcomes), dtype=bool)}
    if urgent.any():
        groups |= {"regular": ~urgent, "urgent": urgent}
    widths, lengths = {"narrow": ~wide, "wide": wide}, {"short": ~long, "long": long}
    for (width, of_width), (length, of_length) in product(widths.items(), lengths.items()):
        groups[f"{width}-{length}"] = of_width & of_length & ~urgent
    return groups
