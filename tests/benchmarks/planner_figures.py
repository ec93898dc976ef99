"""Figures 5 to 8 of the CoSim paper, measured here.

Run from the repository's root as ``python -m tests.benchmarks.planner_figures`` (with the dependency group
``figures``): it writes docs/explanation/planner-figures.md and its pictures. The scenarios are rebuilt from the
paper's description (``clearway.simulation.scenarios``), with jobs in multiples of 128 nodes.
"""

from __future__ import annotations

import signal
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from clearway.model import EvictionProblem
from clearway.planning.backtracking import Backtracking
from clearway.planning.base import Planner
from clearway.planning.eviction_dp import EvictionDP
from clearway.planning.greedy import Greedy
from clearway.simulation.scenarios import MAX_DELAY_S, STEP_S, Scenario, scenario

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/explanation/planner-figures.md"
TIMES_PICTURE = ROOT / "docs/images/planner-times.svg"
LOSS_PICTURE = ROOT / "docs/images/planner-greedy-loss.svg"
NUMBERS = (1, 2, 3)
SEED = 1  # of the problem that is timed
SEEDS = 50  # of the problems whose losses are averaged
REPEATS = 20
QUICK_US = 1e5  # what takes longer is measured once
PATIENCE_S = 40  # for one answer of the exhaustive search
DELAYS_S = range(0, MAX_DELAY_S + 1, STEP_S)


@dataclass(frozen=True, slots=True)
class Times:
    """Microseconds for all deadlines up to each one; ``backtracking`` ends where its patience did."""

    scenario: Scenario
    dynamic: Sequence[float]
    greedy: Sequence[float]
    backtracking: Sequence[float]


def timed(number: int) -> Times:
    """The paper's rule: greedy and backtracking run once for each deadline, and their times add up."""
    drawn = scenario(number, SEED)
    problem = drawn.problem()
    dynamic = [_best_us(EvictionDP(), problem)] * len(DELAYS_S)  # one pass answers every deadline
    greedy = [_best_us(Greedy(), _up_to(problem, delay_s)) for delay_s in DELAYS_S]
    backtracking: list[float] = []
    for delay_s in DELAYS_S:
        shorter = _up_to(problem, delay_s)
        took = _within(PATIENCE_S, partial(_best_us, Backtracking(), shorter, 1))
        if took is not None and took < QUICK_US:
            took = min(took, _best_us(Backtracking(), shorter))
        if took is None:
            break
        backtracking.append(took)
    return Times(drawn, dynamic, greedy, backtracking)


def _up_to(problem: EvictionProblem, delay_s: int) -> EvictionProblem:
    return replace(problem, max_delay_s=delay_s)


def _once_us(planner: Planner, problem: EvictionProblem) -> float:
    begin = time.perf_counter()
    planner.solve(problem)
    return (time.perf_counter() - begin) * 1e6


def _best_us(planner: Planner, problem: EvictionProblem, repeats: int = REPEATS) -> float:
    return min(_once_us(planner, problem) for _ in range(repeats))


class _Impatient(Exception):  # noqa: N818 - not an error
    pass


def _within(seconds: int, run: Callable[[], float]) -> float | None:
    """What ``run`` returns; None when it takes longer."""

    def stop(*_: object) -> None:
        raise _Impatient

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        return run()
    except _Impatient:
        return None
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def relative_losses(number: int, seeds: int = SEEDS) -> list[float]:
    """Node-hours that greedy loses more than the optimum, for each deadline; the mean of many problems."""
    more: list[list[float]] = []
    for seed in range(seeds):
        problem = scenario(number, seed).problem()
        pairs = zip(Greedy().solve(problem).points, EvictionDP().solve(problem).points, strict=True)
        more.append(
            [
                ((point.lost_work_node_s or 0) - (best.lost_work_node_s or 0)) / 3_600
                for point, best in pairs
                if point.feasible == best.feasible  # always: every job of the scenarios can be killed
            ]
        )
    return [statistics.fmean(column) for column in zip(*more, strict=True)]


# -- the page --------------------------------------------------------------------------------------------------------


def page(times: Sequence[Times], losses: Sequence[Sequence[float]]) -> str:
    return f"""# The CoSim paper's figures, measured again

Figures 5 to 8 of the paper for the three scenarios rebuilt from its description: 12, 16 and 24 jobs on 4,352 nodes,
512, 1,024 and 2,048 nodes to be freed within 0 to 15 minutes. This page and its pictures are written by
`tests/benchmarks/planner_figures.py`; do not edit them. What the [planners](planners.md) are is told elsewhere.

## Figures 5 to 7: response time

![Response time against deadline for three planners](../images/planner-times.svg)

Times add up over the deadlines for greedy and backtracking, which answer one at a time; the dynamic program answers
all sixteen in one pass.

{"".join(_sentence(figure, each) for figure, each in zip((5, 6, 7), times, strict=True))}
The paper's machine and language are not known, so only ratios and shapes compare, not microseconds.

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
    if done < 0:
        return text + f"backtracking has no answer at all within {PATIENCE_S} s; {_PAPERS[figure]}.\n"
    took, answered = times.backtracking[done], "all deadlines"
    if done < last:
        text += f"backtracking gives up after {PATIENCE_S} s for deadlines up to {done + 1} minutes; it "
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
            axis.plot(minutes[: len(values)], values, marker=".", label=label)
        axis.set_yscale("log")
        axis.set_title(f"{each.scenario.name}: K = {each.scenario.nodes_needed:,}")
        axis.set_xlabel("deadline (minutes)")
    axes[0].set_ylabel("response time (µs)")
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
    times = [timed(number) for number in NUMBERS]
    losses = [relative_losses(number) for number in NUMBERS]
    PAGE.write_text(page(times, losses), encoding="utf-8")
    plot(times, losses)
    print(f"written: {PAGE.relative_to(ROOT)} and its pictures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
