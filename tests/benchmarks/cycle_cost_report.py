"""Writes docs/explanation/cycle-cost.md and its picture: ``python -m tests.benchmarks.cycle_cost_report``.

It needs the dependency group ``bench``, 5 GiB of memory and some three minutes. Beside the sixth size the model is held
against a quarter of the site that the page speaks of, which is far beyond the sizes that it was fitted at.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.cycle_cost import CHECKED, FITTED, KINDS, Measured, Model, Size, fitted, measured_at
from tests.benchmarks.pictures import save, subplots

_DOCS = Path(__file__).parents[2] / "docs"
_PAGE = _DOCS / "explanation" / "cycle-cost.md"
_PICTURE = _DOCS / "images" / "cycle-cost.svg"
SITE = Size(160_000, 160_000, 1_000_000, 5_000)
WIDE = Size(160_000, 20_000, 1_000_000, 5_000)  # the same with jobs of eight nodes
QUARTER = SITE.times(0.25)
_SHARE = 0.1  # of one processor, for the daemon
_NAMES = {"idle": "idle", "changing": "changing, beside idle", "planning": "planning, beside idle", "memory": "memory"}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        measured = measured_at((*FITTED, CHECKED, QUARTER), Path(folder))
    model = fitted(measured[: len(FITTED)])
    draw(measured, model)
    _PAGE.write_text(page(measured, model), encoding="utf-8")


def page(measured: Sequence[Measured], model: Model) -> str:
    checked, quarter = measured[-2:]
    off = max(abs(model.error(kind, checked)) for kind in KINDS)
    return f"""# What a cycle costs

Written by `python -m tests.benchmarks.cycle_cost_report`; do not edit. Each time is processor time of the daemon,
without REST, with the backend `cli`, on one machine of two processors. A machine twice as fast takes half of it. What
squeue and slurmctld themselves take is not in it: answers come from files.

The *first* cycle of a daemon reads all records. A later one is *idle* where nothing has changed since the last one, *changing* where some records have, and *planning* where
it makes and begins an eviction of 64 nodes with every running job a candidate. A change is one record of each kind: the
load of a node, the priority of a waiting job, the Comment of a running one.

![Predicted and measured time of four kinds of cycle, and memory](../images/cycle-cost.svg)

## The model

Each number of things has a cost of its own. Costs are fitted to the measurements at five sizes (least squares of the
relative errors; no cost is below zero).

| | fixed | a node | a running job | a pending job | a change |
|---|--:|--:|--:|--:|--:|
{_coefficients(model)}

A changing cycle finds anew what was found of all jobs, so its cost for a job is the same for running and pending ones.
Memory is at most so much, before the first plan.

## Measured and predicted

The first five sizes are fitted. The sixth is checked: the model is off by at most {off:.0%}, and the benchmark
(`bench_cycle_cost.py`) asks for 25 %. The last is a quarter of the site below, four to five times as large as any size
that was fitted. Percentages are what the model predicts, relative to what was measured.

| nodes | running | pending | changes | first s | idle s | changing s | planning s | memory MiB | Slurm's text MiB |
|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
{_rows(measured, model)}

## 160,000 nodes and 1,000,000 pending jobs

{_site(model, quarter)}
"""


def _coefficients(model: Model) -> str:
    lines = []
    for kind in KINDS:
        costs = model.coefficients[kind]
        if "running and pending" in costs:
            costs = dict(costs) | dict.fromkeys(("running", "pending"), costs["running and pending"])
        scale, fixed, unit = (1024, "MiB", "KiB") if kind == "memory" else (1e6, "ms", "µs")
        first = costs.get("1", 0.0) * (1 if kind == "memory" else 1e3)
        cells = [f"{first:.0f} {fixed}" if "1" in costs else ""]
        others = ("nodes", "running", "pending", "changes")
        cells += [f"{costs[term] * scale:.2g} {unit}" if term in costs else "" for term in others]
        lines.append(f"| {_NAMES[kind]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _rows(measured: Sequence[Measured], model: Model) -> str:
    lines = []
    for each in measured:
        size = each.size
        numbers = [f"{number:,}" for number in (size.nodes, size.running, size.pending, size.changes)]
        digits = {kind: 0 if kind == "memory" else 2 for kind in KINDS}
        found = [f"{getattr(each, kind):,.{digits[kind]}f} ({model.error(kind, each):+.0%})" for kind in KINDS]
        lines.append(f"| {' | '.join((*numbers, *found, f'{each.answers_mib:,.0f}'))} |")
    return "\n".join(lines)


def _site(model: Model, quarter: Measured) -> str:
    def told(size: Size) -> str:
        first, idle, changing, planning, memory = (model.predicted(kind, size) for kind in KINDS)
        numbers = f"{first:.0f} | {idle:.1f} | {changing:.1f} | {planning:.0f} | {memory / 1024:.1f}"
        return f"| {size.running:,} | {numbers} |"

    every_s = round(model.predicted("changing", SITE) / _SHARE / 10) * 10
    text_gib = quarter.answers_mib / 0.25 / 1024
    memory_gib = model.predicted("memory", SITE) / 1024
    return f"""What the model says, with {SITE.changes:,} changes a cycle:

| running jobs | first s | idle s | changing s | planning s | memory GiB |
|--:|--:|--:|--:|--:|--:|
{told(WIDE)}
{told(SITE)}

Nothing was measured at that size: this is a prediction. A quarter of it was measured, in the table above. There is no
picture of how it goes on for weeks, and none of REST, which answers from the same process.

Such a site needs:

- a processor for the daemon, and {math.ceil(memory_gib * 4 / 3)} GiB of memory (a third more than the model says, because a
  plan needs some as well);
- `daemon.poll_interval = "{every_s}s"`: changing cycles then take a tenth of a processor. An urgent job waits half of
  that in the mean before it is seen. `daemon.active_interval` is to be some seconds as well;
- `slurm.timeout = "2m"`: Slurm's text of one cycle has about {text_gib:.1f} GiB, and the time limit of a call holds from
  its start until the text is taken;
- `daemon.snapshot_limit` longer than a planning cycle with what squeue takes, "3m" for example: its age counts from the
  cycle's begin, and no command is given by an older view;
- `daemon.lease` longer than that as well where a second daemon waits, which would take over in the middle of a plan or
  of the first cycle otherwise. The takeover from a daemon that is dead takes that much longer;
- `planning.time_per_cycle` of some seconds where several urgent jobs come at once;
- preemptor rules by partition, QoS, account or user: a job that no rule can make urgent by these is not looked at
  further.

`slurm.backend = "rest"` is worth a trial there: slurmrestd says in a moment that nothing has changed, and slurmctld packs no
record then. What it costs is not in this model.

slurmctld has to pack {SITE.pending + SITE.running:,} records for each cycle, and its scheduler waits meanwhile. That is not
measured here, and may limit such a site before Clearway does. An array that waits is one record in squeue's answer, and
costs Clearway as much as one job, however many tasks it has."""


def draw(measured: Sequence[Measured], model: Model) -> None:
    kinds = [kind for kind in KINDS if kind != "memory"]
    picture, axes = subplots(1, len(kinds) + 1, figsize=(12.0, 2.9))
    for axis, kind in zip(axes, (*kinds, "memory"), strict=True):
        for name, part, mark in (
            ("fitted", measured[: len(FITTED)], "o"),
            ("checked", measured[-2:-1], "s"),
            ("a quarter of the site", measured[-1:], "^"),
        ):
            found = [getattr(each, kind) for each in part]
            axis.plot([model.predicted(kind, each.size) for each in part], found, mark, label=name, markersize=5)
        ends = [pick(getattr(each, kind) for each in measured) for pick in (min, max)]
        axis.plot(ends, ends, "-", color="gray", linewidth=0.8, zorder=0)
        title = f"{kind}, {'MiB' if kind == 'memory' else 's'}"
        axis.set(xscale="log", yscale="log", title=title, xlabel="predicted")
    axes[0].set_ylabel("measured")
    axes[0].legend(fontsize=7)
    save(picture, _PICTURE)


if __name__ == "__main__":
    main()
