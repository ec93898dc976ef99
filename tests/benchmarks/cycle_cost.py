"""A model of the cost of a cycle, fitted to measurements at five sizes and checked at a sixth and larger one.

Model, each term with a coefficient that is not negative:

- *first*, of a daemon that has just started: 1, nodes, running, pending. Every record is read.
- *idle*: 1, nodes, running, pending. Every record is looked up by its text.
- *changing*, beside idle: jobs, changes. What is found of all jobs is found anew, and what changed is read.
- *priorities*, beside idle: jobs, pending. Slurm has worked out the priorities of all waiting jobs again.
- *planning*, beside idle: 1, nodes, running, pending. Every running job is a candidate for one urgent job of 64 nodes.
- *memory*: 1, nodes, running, pending.

Memory is at most so much, up to two cycles after the one that plans. A change is one record of each kind: a node's
load, a waiting job's priority, a running job's Comment. Fitted are the least squares of the relative errors (Lawson and
Hanson's non-negative least squares), so that small sizes count as much as large ones. Cost of a fit: nothing beside the
measurements.

Every time is processor time of the daemon's process. ``cycle_cost_report`` writes a page of the documentation from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

from tests.benchmarks.large_slurm import Cycled, Daemon, LargeSlurm

CYCLES = 5  # idle and changing ones, of which the least time counts; there is one that is first, and one that plans
CARRIED_ON = 2  # cycles after the one that plans
KINDS = ("first", "idle", "changing", "priorities", "planning", "memory")
BESIDE_IDLE = ("changing", "priorities", "planning")
TERMS = {
    "first": ("1", "nodes", "running", "pending"),
    "idle": ("1", "nodes", "running", "pending"),
    "changing": ("running and pending", "changes"),
    "priorities": ("running and pending", "pending"),
    "planning": ("1", "nodes", "running", "pending"),
    "memory": ("1", "nodes", "running", "pending"),
}


@dataclass(frozen=True)
class Size:
    nodes: int
    running: int
    pending: int
    changes: int

    @property
    def terms(self) -> Mapping[str, float]:
        return {
            "1": 1.0,
            "nodes": self.nodes,
            "running": self.running,
            "pending": self.pending,
            "running and pending": self.running + self.pending,
            "changes": self.changes,
        }

    def times(self, factor: float) -> Size:
        return Size(*(round(factor * each) for each in (self.nodes, self.running, self.pending, self.changes)))


# So that no number of things follows from the others.
FITTED = (
    Size(1_000, 1_000, 2_000, 100),
    Size(8_000, 1_000, 5_000, 1_000),
    Size(4_000, 4_000, 1_000, 800),
    Size(2_000, 500, 30_000, 200),
    Size(8_000, 8_000, 20_000, 500),
)
CHECKED = Size(10_000, 10_000, 50_000, 500)


@dataclass(frozen=True)
class Measured:
    """Seconds of processor time, and MiB of memory at most, two cycles after the one that plans included."""

    size: Size
    first: float
    idle: float
    changing: float
    priorities: float
    planning: float
    memory: float
    answers_mib: float  # of text that one cycle reads

    def beside_idle(self, kind: str) -> float:
        found: float = getattr(self, kind)
        return found - self.idle if kind in BESIDE_IDLE else found


@dataclass(frozen=True)
class Model:
    """By kind, the coefficients of its terms."""

    coefficients: Mapping[str, Mapping[str, float]]

    def beside_idle(self, kind: str, size: Size) -> float:
        return sum(each * size.terms[term] for term, each in self.coefficients[kind].items())

    def predicted(self, kind: str, size: Size) -> float:
        """Seconds of a cycle, or MiB."""
        rest = self.beside_idle("idle", size) if kind in BESIDE_IDLE else 0.0
        return rest + self.beside_idle(kind, size)

    def error(self, kind: str, measured: Measured) -> float:
        """What is predicted, relative to what was measured, less one."""
        found: float = getattr(measured, kind)
        return self.predicted(kind, measured.size) / found - 1


def measure(size: Size, folder: Path, cycles: int = CYCLES) -> Measured:
    """One daemon on a stand-in for Slurm of this size."""
    slurm = LargeSlurm(folder, size.nodes, size.running, size.pending)
    daemon = Daemon(slurm)
    try:
        first = daemon.cycle()

        def least(act: Callable[[], None]) -> Cycled:
            found = []
            for _ in range(cycles):
                act()
                found.append(daemon.cycle())
            return min(found, key=lambda each: each.seconds)

        idle = least(lambda: None)
        changing = least(lambda: slurm.change(size.changes))
        priorities = least(slurm.age)
        slurm.submit_urgent()
        planning = daemon.cycle()
        assert planning.under_way == 1
        carried_on = [daemon.cycle() for _ in range(CARRIED_ON)]
        text_mib = sum(file.stat().st_size for file in (*folder.glob("answer.*"), folder / "nodes.txt")) / 2**20
    finally:
        daemon.close()
    return Measured(
        size=size,
        first=first.seconds,
        idle=idle.seconds,
        changing=changing.seconds,
        priorities=priorities.seconds,
        planning=planning.seconds,
        memory=carried_on[-1].memory_mib,
        answers_mib=text_mib,
    )


def measured_at(sizes: Sequence[Size], folder: Path, cycles: int = CYCLES) -> list[Measured]:
    found = []
    for number, size in enumerate(sizes):
        (folder / str(number)).mkdir()
        found.append(measure(size, folder / str(number), cycles))
    return found


def fitted(measured: Sequence[Measured]) -> Model:
    coefficients = {}
    for kind, terms in TERMS.items():
        rows = np.array([[each.size.terms[term] for term in terms] for each in measured])
        told = np.array([each.beside_idle(kind) for each in measured])
        # Relative to the whole cycle: what is measured as the rest of two times has the errors of both.
        weights = 1 / np.array([getattr(each, kind) for each in measured])
        found, _ = nnls(rows * weights[:, None], told * weights)
        coefficients[kind] = dict(zip(terms, found.tolist(), strict=True))
    return Model(coefficients)
