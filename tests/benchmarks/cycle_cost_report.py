"""Writes docs/explanation/cycle-cost.md and its picture: ``python -m tests.benchmarks.cycle_cost_report``.

It needs the dependency group ``bench``, 5 GiB of memory and some three minutes. Beside the sixth size the model is held
against a quarter of the site that the page speaks of, which is far beyond the sizes that it was fitted at.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

from matplotlib.ticker import LogLocator, NullLocator

from tests.benchmarks.cycle_cost import BESIDE_IDLE, CHECKED, FITTED, KINDS, Measured, Model, Size, fitted, measured_at
from tests.benchmarks.pictures import save, subplots

_DOCS = Path(__file__).parents[2] / "docs"
_PAGE = _DOCS / "explanation" / "cycle-cost.md"
_PICTURE = _DOCS / "images" / "cycle-cost.svg"
SITE = Size(160_000, 160_000, 1_000_000, 5_000)
WIDE = Size(160_000, 20_000, 1_000_000, 5_000)  # the same with jobs of eight nodes
QUARTER = SITE.times(0.25)
_HEADINGS = " | ".join(f"{kind} {'MiB' if kind == 'memory' else 's'}" for kind in KINDS)
_SHARE = 0.25  # of one processor, for the daemon's changing cycles


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

Written by `python -m tests.benchmarks.cycle_cost_report`; do not edit. Each time is processor time of the daemon on one
machine of two processors, without REST, with the backend `cli`. What squeue and slurmctld themselves take is not in it:
the answers come from files.

- The *first* cycle of a daemon reads all records.
- In an *idle* one no record has changed since the last one. Each is looked up by its text ([decision
  0064](../decisions/0064-records-that-have-not-changed.md)).
- In a *changing* one some have. A change is one record of each kind: the load of a node, the priority of a waiting job,
  the Comment of a running one.
- *Priorities*: Slurm has worked out those of all waiting jobs again, as it does every few minutes
  (`PriorityCalcPeriod`).
- A *planning* one makes and begins an eviction for one urgent job of 64 nodes, with every running job a candidate.

Times are the least of five cycles; the first one and the planning one are measured once. Memory is at most so much, up
to two cycles after the one that plans.

![Predicted and measured time of five kinds of cycle, and memory](../images/cycle-cost.svg)

## The model

A cycle takes a fixed time, and a time for each node, each running and each pending job, and each change. What cycles of
the three last kinds take is the line of its kind and the line of an idle cycle together. The costs are fitted to the
measurements at five sizes (least squares of the relative errors; no cost is below zero).

| | fixed | a node | a running job | a pending job | a change |
|---|--:|--:|--:|--:|--:|
{_coefficients(model)}

An empty cell is no part of the model. In a changing cycle what follows from all jobs is found out again, so running and
pending jobs cost the same there.

## Measured and predicted

The first five sizes are fitted. The sixth is not: there the model is off by at most {_percent(off)}, and the benchmark
(`bench_cycle_cost.py`) asks for 25 %. The last is a quarter of the site below, five to eight times as large as any size
that was fitted. The percentages are how far the prediction is above (+) or below (-) what was measured. The text is
what Slurm answers in one cycle.

| nodes | running | pending | changes | {_HEADINGS} | text MiB |
|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
{_rows(measured, model)}

## 160,000 nodes and 1,000,000 pending jobs

{_site(model, quarter)}
"""


def _coefficients(model: Model) -> str:
    lines = []
    for kind in KINDS:
        costs = dict(model.coefficients[kind])
        for_each_job = costs.get("running and pending", 0.0)
        if "running and pending" in costs:
            costs |= {"running": for_each_job, "pending": for_each_job + costs.get("pending", 0.0)}
        scale, fixed_scale, units = (1024, 1, ("MiB", "KiB")) if kind == "memory" else (1e6, 1e3, ("ms", "µs"))
        cells = [f"{costs['1'] * fixed_scale:.0f} {units[0]}" if "1" in costs else ""]
        others = ("nodes", "running", "pending", "changes")
        cells += [f"{_two_digits(costs[term] * scale)} {units[1]}" if term in costs else "" for term in others]
        lines.append(f"| {kind}{', beside idle' if kind in BESIDE_IDLE else ''} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _percent(share: float, sign: str = "") -> str:
    return f"{round(100 * share):{sign}d} %"


def _two_digits(number: float) -> str:
    return f"{float(f'{number:.2g}'):,g}"


def _rows(measured: Sequence[Measured], model: Model) -> str:
    lines = []
    for each in measured:
        size = each.size
        numbers = [f"{number:,}" for number in (size.nodes, size.running, size.pending, size.changes)]
        digits = {kind: ",.0f" if kind == "memory" else ".3g" for kind in KINDS}
        found = [f"{getattr(each, kind):{digits[kind]}} ({_percent(model.error(kind, each), '+')})" for kind in KINDS]
        lines.append(f"| {' | '.join((*numbers, *found, f'{each.answers_mib:,.0f}'))} |")
    return "\n".join(lines)


def _site(model: Model, quarter: Measured) -> str:
    def told(size: Size, what: str, missed: bool = False) -> tuple[list[float], str]:
        found = [model.predicted(kind, size) / (1 + missed * model.error(kind, quarter)) for kind in KINDS]
        times, memory_gib = found[:-1], found[-1] / 1024
        return (
            found,
            f"| {size.running:,} | {what} | {' | '.join(f'{each:.0f}' for each in times)} | {memory_gib:.1f} |",
        )

    _, wide = told(WIDE, "the model")
    _, narrow = told(SITE, "the model")
    likely, corrected = told(SITE, "with what it missed at a quarter", missed=True)
    first_s, _, changing_s, priorities_s, planning_s, memory_mib = likely
    pause_s = _up(changing_s * (1 / _SHARE - 1), 10)
    least_off = min(model.error(kind, quarter) for kind in KINDS)
    memory_gib = math.ceil(memory_mib / 1024 * 4 / 3)
    text_gib = quarter.answers_mib / 0.25 / 1024
    return f"""With {SITE.changes:,} changes a cycle, for jobs of eight nodes and of one:

| running jobs | | {_HEADINGS.replace("MiB", "GiB")} |
|--:|---|--:|--:|--:|--:|--:|--:|
{wide}
{narrow}
{corrected}

Nothing was measured at that size: this is a prediction. On large clusters a cycle takes longer than the sum says: at a
quarter of the site it says up to {_percent(-least_off)} too little. The last line is what is to be expected if as much
is missed at the whole site; it may be more. On a processor twice as fast each time is about half.

Such a site needs a processor for the daemon, and {memory_gib} GiB of memory: a third more than the last line, because
how memory goes on for weeks was not measured. For jobs of one node:

```toml
[daemon]
poll_interval = "{pause_s}s"
active_interval = "5s"
lease = "{_up(1.5 * max(first_s, planning_s), 30)}s"
snapshot_limit = "{_up(2 * planning_s, 30)}s"
stale_after = "{_up(2 * (pause_s + max(first_s, planning_s, priorities_s)), 60)}s"

[slurm]
timeout = "2m"

[planning]
time_per_cycle = "10s"
```

- `daemon.poll_interval` is the pause from the end of a cycle to the begin of the next one. With {pause_s} s, changing
  cycles take at most a quarter of a processor. An urgent job waits {(pause_s + changing_s) / 2:.0f} s in the mean
  until a cycle begins that sees it. From its submission to the first command for its room pass up to
  {pause_s + changing_s + planning_s:.0f} s, and {priorities_s - changing_s:.0f} s more where all priorities change
  meanwhile, beside what squeue takes. Urgent jobs need a max delay well above that.
- `daemon.active_interval` is the pause while an eviction is under way. REST answers from the same process, and is slow
  while a cycle computes.
- `daemon.lease` is longer than any step of a cycle, between which it is renewed: the records of a first cycle are read
  in one step, and a plan is one. Otherwise a second daemon takes over in the middle of it. Where there is one, it takes
  over from a dead one that much later.
- `daemon.snapshot_limit`: the age of a view of the cluster counts from the begin of the cycle, so squeue's time and the
  plan's are both in it. A plan that took longer is not carried out.
- `daemon.stale_after` is well beyond the longest cycle with its pause. The limit of the alert `ClearwayNoCycle` (120 s)
  has to be so, too.
- `slurm.timeout`: Slurm's text of one cycle has about {text_gib:.1f} GiB, and the limit of a call holds from its
  start until the text is taken.
- `planning.time_per_cycle` counts where several urgent jobs come at once. A single plan is never interrupted.
- In the systemd unit, `MemoryMax` is {memory_gib}G or more; the limit of the alert `ClearwayMemory` goes with it. The
  unit expects the first cycle within five minutes (`TimeoutStartSec`), and a sign of life every five (`WatchdogSec`).

`slurm.backend = "rest"` is not for such a site. All records are read again whenever one has changed, and 1,000 jobs are
8 MB ([decision 0051](../decisions/0051-slurmrestd.md)): 9 GB a cycle.

What is not in the model:

- slurmctld packs {SITE.pending + SITE.running:,} job records for each cycle, and its scheduler waits meanwhile.
  That may limit such a site before Clearway does.
- squeue is asked for the excluded nodes of all jobs every five minutes, and whenever more than 500 jobs are new. The
  first cycle does this, the others here do not.
- Urgent jobs of more nodes, several of them at once, and nodes that jobs share: [planning
  benchmarks](planning-benchmarks.md).
- Answers over REST.

An array that waits is one record in squeue's answer, however many tasks it has."""


def _up(seconds: float, to: int) -> int:
    """The next multiple."""
    return math.ceil(seconds / to) * to


def draw(measured: Sequence[Measured], model: Model) -> None:
    picture, axes = subplots(2, 3, figsize=(9.0, 5.4))
    for axis, kind in zip(axes.flat, KINDS, strict=True):
        for name, part, mark in (
            ("fitted", measured[: len(FITTED)], "o"),
            ("checked", measured[-2:-1], "s"),
            ("a quarter of the site", measured[-1:], "^"),
        ):
            found = [getattr(each, kind) for each in part]
            axis.plot([model.predicted(kind, each.size) for each in part], found, mark, label=name, markersize=5)
        ends = [pick(getattr(each, kind) for each in measured) for pick in (min, max)]
        axis.plot(ends, ends, "-", color="gray", linewidth=0.8, zorder=0, label="as predicted")
        axis.set(xscale="log", yscale="log", title=f"{kind}, {'MiB' if kind == 'memory' else 's'}")
        for each in (axis.xaxis, axis.yaxis):
            each.set_major_locator(LogLocator(subs=(1, 2, 5)))
            each.set_major_formatter("{x:,g}")
            each.set_minor_locator(NullLocator())
    for axis in axes[-1]:
        axis.set_xlabel("predicted")
    for axis in axes[:, 0]:
        axis.set_ylabel("measured")
    axes[0, 0].legend(fontsize=7)
    save(picture, _PICTURE)


if __name__ == "__main__":
    main()
