"""Writes docs/explanation/planning-benchmarks.md and its plot: ``python -m tests.benchmarks.planning_report``.

Growth is measured one size at a time around a middle problem; an exponent is the slope of the least-squares line
through the logarithms. Every time is processor time.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("svg")
from matplotlib import pyplot as plt

from clearway.model.plan import Curve
from clearway.planning.dp.eviction_dp import EvictionDP
from tests.benchmarks.bench_planning import (
    LARGE,
    LEAST_RATIOS,
    REPEATS,
    SCENARIO_3_MS,
    SOLVERS,
    TURNS,
    large_measured,
    scenarios_measured,
    spent_ms,
)
from tests.benchmarks.bench_shared_nodes import DEADLINES, LARGER, SEEDS, Row, measured
from tests.benchmarks.large import large_problem

_DOCS = Path(__file__).parents[2] / "docs"
_PAGE = _DOCS / "explanation" / "planning-benchmarks.md"
_PLOT = _DOCS / "images" / "planning-growth.svg"
_SEEDS = 3
_MIDDLE = {"N jobs": 800, "K nodes needed": 4_096, "T deadlines": 256}
_SIZES = {
    "N jobs": (200, 400, 800, 1_600, 3_200),
    "K nodes needed": (512, 1_024, 2_048, 4_096, 8_192),
    "T deadlines": (64, 128, 256, 512, 1_024),
}
_MACHINE_NODES = 16_384


def _growth() -> dict[str, tuple[list[float], float]]:
    """Seconds for each size, and the fitted exponent."""
    found = {}
    for axis, sizes in _SIZES.items():
        seconds = []
        for size in sizes:
            jobs, needed, deadlines = ({**_MIDDLE, axis: size}).values()
            drawn = [large_problem(_MACHINE_NODES, jobs, needed, deadlines, 1, seed=seed) for seed in range(_SEEDS)]
            curves: list[Curve] = []
            spent = [
                spent_ms(lambda problem=problem, curves=curves: curves.append(EvictionDP().solve(problem)))[0]
                for problem in drawn
            ]
            assert all(curve.exact for curve in curves)
            seconds.append(float(np.median(spent)) / 1_000)
        found[axis] = (seconds, float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0]))
    return found


def _plot(growth: dict[str, tuple[list[float], float]]) -> None:
    mpl.rcParams["svg.hashsalt"] = "clearway"
    figure, panels = plt.subplots(1, 3, figsize=(10, 3.2), sharey=True, layout="constrained")
    for panel, (axis, (seconds, exponent)) in zip(panels, growth.items(), strict=True):
        panel.loglog(_SIZES[axis], seconds, "o-")
        panel.set_xticks(_SIZES[axis], [f"{size:,}" for size in _SIZES[axis]], fontsize=8)
        panel.minorticks_off()
        panel.set(xlabel=axis, title=f"exponent {exponent:.2f}")
        panel.grid(visible=True, which="both", alpha=0.3)
    panels[0].set_ylabel("processor time (s)")
    figure.savefig(_PLOT, metadata={"Date": None})


def _shared() -> list[str]:
    rows = [measured(seed) for seed in SEEDS] + [measured(1, *size, ()) for size in LARGER]
    return [
        "## Nodes that jobs share",
        "",
        "1,000 nodes x 8 GPUs, 3,000 jobs of 1 to 64 GPUs that share them, 16 deadlines. The planner answers all of",
        "them; CP-SAT answers the same model for two of them, one thread, and is stopped after a fixed amount of work.",
        "",
        "| seed | nodes needed | GPUs on each | eviction-dp s | gap | CP-SAT s | proven by CP-SAT | ratio |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|",
        *(_shared_row(row) for row in rows),
        "",
    ]


def _shared_row(row: Row) -> str:
    gap = f"{row.gap:.2%}" if row.gap else "proven"
    beside = f"{row.cp_sat_s:.1f} | {row.cp_sat_proven} of {len(DEADLINES)} | {row.cp_sat_s / row.ours_s:.0f}"
    if (row.needed, row.gpus) in LARGER:
        beside = "- | - | -"
    return f"| {row.seed} | {row.needed} | {row.gpus} | {row.ours_s:.2f} | {gap} | {beside} |"


def main() -> None:
    scenarios = [
        f"| {row.name} | {row.jobs} | {row.needed:,} | {f'x {row.multiple}' if row.multiple > 1 else 'arbitrary'} | "
        f"{row.ours:.2f} | {row.least:.2f} | {row.highs:.0f} | {row.highs / row.ours:.0f} | "
        f"{row.cp_sat:.0f} | {row.cp_sat / row.ours:.0f} | {row.again:.0f} | {row.again / row.ours:.0f} |"
        for row in scenarios_measured()
    ]
    large = [
        f"| {case[0]:,} | {case[1]:,} | {case[2]:,} | {case[3]} x {case[4]} s | "
        f"{f'x {case[5]}' if case[5] > 1 else 'arbitrary'} | {case[6]} | {seconds:.2f} | {mib:.0f} |"
        for case in LARGE
        for seconds, mib, _ in [large_measured(case)]
    ]
    growth = _growth()
    _plot(growth)
    sizes = [f"| {axis} | {exponent:.2f} |" for axis, (_, exponent) in growth.items()]
    around = (
        f"Around {_MIDDLE['N jobs']} jobs, K = {_MIDDLE['K nodes needed']:,} and {_MIDDLE['T deadlines']} "
        f"deadlines on {_MACHINE_NODES:,} nodes; the median of {_SEEDS} problems."
    )
    turns = TURNS * len(SOLVERS)
    repeats = (
        f"They take turns, and each time is the median: of {TURNS} sweeps of a solver, and {turns} times the least of "
        f"{REPEATS} runs of eviction-dp."
    )
    asked = "Of the least times the benchmark asks for {} times HiGHS, {} times CP-SAT,".format(*LEAST_RATIOS[:2])
    most = f"{LEAST_RATIOS[-1]} times it again, and for one below {SCENARIO_3_MS:g} ms in Scenario-3."
    _PAGE.write_text(
        "\n".join(
            [
                "# How fast plans are made",
                "",
                "Written by `python -m tests.benchmarks.planning_report`; do not edit. Times are processor time on one",
                "core, every plan is proven optimal, and ratios are of the same run.",
                "",
                "## The CoSim paper's scenarios, 16 deadlines, milliseconds",
                "",
                "HiGHS and CP-SAT solve one model per deadline on one thread, for lost work and checkpoint time alone.",
                "*Again* is CP-SAT with one model whose deadline is changed, and the answer before as a hint; scipy,",
                "which calls HiGHS here, cannot do that.",
                repeats,
                asked,
                most,
                "",
                "| | jobs | K | sizes | eviction-dp | least | HiGHS | ratio | CP-SAT | ratio | again | ratio |",
                "|---|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|",
                *scenarios,
                "",
                "## Large machines",
                "",
                "Jobs fill the machine, drawn as in the paper; some end by themselves before the last deadline, at",
                "times of their own. Memory is at most what the whole process held.",
                "",
                "| nodes | jobs | K | deadlines | sizes | ends | s | MiB |",
                "|--:|--:|--:|---|---|--:|--:|--:|",
                *large,
                "",
                *_shared(),
                "## Growth",
                "",
                around,
                "",
                "![Time against jobs, nodes needed and deadlines](../images/planning-growth.svg)",
                "",
                "| size | fitted exponent |",
                "|---|--:|",
                *sizes,
                "",
                "Tables over all jobs would grow with the product of the three. What is solved instead are the jobs",
                "in doubt (`planning/bounds/core.py`): their number hangs on how close the bounds are, not on the",
                "machine.",
                "",
            ]
        )
    )


if __name__ == "__main__":
    main()
