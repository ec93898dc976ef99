"""Figures 5 to 8 of the CoSim paper as a page of the documentation.

Run from the repository's root as ``python -m tests.benchmarks.planner_figures`` (with the dependency group
``bench``): it writes docs/explanation/planner-figures.md and its pictures. What is measured, and how:
``clearway_lab.studies.cosim``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from clearway_lab.studies.cosim import DELAYS_S, NUMBERS, PATIENCE_S, SEEDS, Times, study

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/explanation/planner-figures.md"
TIMES_PICTURE = ROOT / "docs/images/planner-times.svg"
LOSS_PICTURE = ROOT / "docs/images/planner-greedy-loss.svg"

# -- the page --------------------------------------------------------------------------------------------------------


def page(times: Sequence[Times], losses: Sequence[Sequence[float]]) -> str:
    return f"""# The CoSim paper's figures, measured again

Figures 5 to 8 of “CoSim: A Simulator for Co-Scheduling of Batch and On-Demand Jobs in HPC Datacenters” (DS-RT,
2020, DOI 10.1109/DS-RT50469.2020.9213578) for the three scenarios rebuilt from its description: 12, 16 and 24 jobs on
4,352 nodes, 512, 1,024 and 2,048 nodes to be freed within 0 to 15 minutes. This page and its pictures are written by
`tests/benchmarks/planner_figures.py`; do not edit them. What the [planners](planners.md) are is told elsewhere.

## Figures 5 to 7: response time

![Response time against deadline for three planners](../images/planner-times.svg)

Times add up over the deadlines for greedy and backtracking, which answer one at a time; the dynamic program answers
all sixteen in one pass.

{"".join(_sentence(figure, each) for figure, each in zip((5, 6, 7), times, strict=True))}
The paper's machine and language are not known, so only ratios and shapes compare, not milliseconds.

## Figure 8: what greedy loses more than the optimum

![Relative loss of greedy against deadline](../images/planner-greedy-loss.svg)

The mean of {SEEDS} drawn problems for each scenario, in node-hours.

{"".join(_loss_sentence(number, loss) for number, loss in zip(NUMBERS, losses, strict=True))}
The paper shows one problem for each scenario, whose jobs it does not publish, with a gap that grows with the deadline
but for the end of Scenario-3, on axes that reach 125, 400 and 800 node-hours.
{_shape(losses)}
"""


_PAPERS = {
    5: "in the paper backtracking is the faster of the two here",
    6: "in the paper backtracking falls behind here",
    7: "in the paper the dynamic program is up to five orders of magnitude faster here",
}


def _sentence(figure: int, times: Times) -> str:
    last, done = len(DELAYS_S) - 1, len(times.backtracking) - 1
    greedy = times.dynamic[0] / times.greedy[last]
    text = (
        f"- **Figure {figure}, {times.scenario.name}** ({len(times.scenario.jobs)} jobs, "
        f"K = {times.scenario.nodes_needed:,}): the dynamic program takes {times.dynamic[0] / 1e3:.2f} ms for all "
        f"deadlines, {greedy:.1f} times as long as greedy (in the paper at least 30 times); "
    )
    took, answered = times.backtracking[done], "all deadlines"
    if done < last:
        text += f"backtracking is not asked again after an answer that takes longer than {PATIENCE_S} s; it "
        answered = f"those up to {done} minutes"
    else:
        text += "backtracking "
    ratio = took / times.dynamic[0]
    return f"{text}takes {took / 1e3:,.0f} ms for {answered}, {ratio:,.0f} times as long; {_PAPERS[figure]}.\n"


def _loss_sentence(number: int, loss: Sequence[float]) -> str:
    most = max(range(len(loss)), key=lambda index: loss[index])
    return (
        f"- **Scenario-{number}**: {loss[0]:,.0f} node-hours when the urgent job must start at once, "
        f"{loss[most]:,.0f} at most (within {DELAYS_S[most] // 60} minutes), {loss[-1]:,.0f} within 15 minutes.\n"
    )


def _shape(losses: Sequence[Sequence[float]]) -> str:
    if all(max(loss) == loss[-1] for loss in losses):
        return "It grows here as well."
    return (
        "Here it grows over the first minutes only and then shrinks, because in the end both can checkpoint most of "
        "the jobs that they need: greedy is worst where time is short but not nil."
    )


def plot(times: Sequence[Times], losses: Sequence[Sequence[float]]) -> None:
    from tests.benchmarks.pictures import save, subplots

    minutes = [delay_s / 60 for delay_s in DELAYS_S]
    picture, axes = subplots(1, len(times), figsize=(11, 3.6))
    for axis, each in zip(axes, times, strict=True):
        for label, values in (
            ("eviction-dp", each.dynamic),
            ("greedy", each.greedy),
            ("backtracking", each.backtracking),
        ):
            in_ms = [microseconds / 1e3 for microseconds in values]
            axis.plot(minutes[: len(in_ms)], in_ms, marker=".", label=label)
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter("{x:,.10g}")
        axis.set_title(f"{each.scenario.name}: K = {each.scenario.nodes_needed:,}")
        axis.set_xlabel("deadline (minutes)")
    axes[0].set_ylabel("response time (ms)")
    axes[0].legend()
    save(picture, TIMES_PICTURE)
    picture, axes = subplots(1, len(losses), figsize=(11, 3.2))
    for number, axis, loss in zip(NUMBERS, axes, losses, strict=True):
        axis.plot(minutes, loss, marker=".", color="tab:red")
        axis.set_ylim(bottom=0)
        axis.set_title(f"Scenario-{number}")
        axis.set_xlabel("deadline (minutes)")
    axes[0].set_ylabel("more node-hours than the optimum")
    save(picture, LOSS_PICTURE)


def main() -> int:
    made = study()
    PAGE.write_text(page(made.times, made.losses), encoding="utf-8")
    plot(made.times, made.losses)
    print(f"written: {PAGE.relative_to(ROOT)} and its pictures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
