"""Whether the model of the cost of a cycle holds: fitted at five sizes, it says what a sixth and larger one takes.

Run with ``pytest tests/benchmarks/bench_cycle_cost.py -s``. Times are processor time, each the least of several cycles
(but for the first and the planning one), so other work on the machine counts little; what is above the limit is
measured again, three times at most. That no kind of cycle grows faster than the cluster is looked at on a busy machine,
too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from tests.benchmarks.cycle_cost import CHECKED, FITTED, KINDS, TERMS, Measured, Model, Size, fitted, measured_at

MOST_OFF = 0.25  # of what was measured at the sixth size
MOST_OFF_FITTED = 0.35  # at the five; the model is linear, and a cycle is so but nearly
RUNS = 3
# What costs with the square of the cluster's size would take sixteen times as long.
SMALL, GROWS, MOST_GROWN = Size(1_000, 1_000, 5_000, 100), 4, 8


def test_a_model_says_what_a_larger_cluster_takes(tmp_path: Path) -> None:
    off = set(KINDS)
    for run in range(RUNS):
        folder = tmp_path / str(run)
        folder.mkdir()
        measured = measured_at((*FITTED, CHECKED), folder)
        model = fitted(measured[:-1])
        show(measured, model)
        assert all(any(model.coefficients[kind].values()) for kind in KINDS)
        limits = [MOST_OFF_FITTED] * len(FITTED) + [MOST_OFF]
        off &= {
            kind
            for kind in KINDS
            if any(abs(model.error(kind, each)) > limit for each, limit in zip(measured, limits, strict=True))
        }
        if not off:
            return
    pytest.fail(f"in {RUNS} runs the model was off by more than {MOST_OFF:.0%}: {off}")


@pytest.mark.guard
def test_on_four_times_the_cluster_a_cycle_takes_at_most_eight_times_as_long(tmp_path: Path) -> None:
    small, large = measured_at((SMALL, SMALL.times(GROWS)), tmp_path)
    grown = {kind: getattr(large, kind) / getattr(small, kind) for kind in KINDS}
    Console().print(
        f"{GROWS} times the cluster: " + ", ".join(f"{kind} x {times:.1f}" for kind, times in grown.items())
    )
    assert {kind: times for kind, times in grown.items() if times > MOST_GROWN} == {}


def show(measured: Sequence[Measured], model: Model) -> None:
    table = Table(title="s, or MiB (predicted, relative to that)", title_justify="left")
    for heading in ("nodes", "running", "pending", "changes", *KINDS):
        table.add_column(heading, justify="right")
    for each in measured:
        size = each.size
        numbers = (f"{number:,}" for number in (size.nodes, size.running, size.pending, size.changes))
        table.add_row(*numbers, *(f"{getattr(each, kind):.3f} ({model.error(kind, each):+.0%})" for kind in KINDS))
    console = Console(width=150)
    console.print(table)
    for kind in KINDS:
        told = (f"{model.coefficients[kind][term]:.2e} x {term}" for term in TERMS[kind])
        console.print(f"{kind}: {' + '.join(told)}")
