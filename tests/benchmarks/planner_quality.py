"""What every planner loses on problems drawn from recorded workloads, as a ratio to the optimum.

Run from the repository's root as ``python -m tests.benchmarks.planner_quality`` (with the dependency group
``bench``): it writes docs/explanation/planner-quality.md and its picture. See ``trace_problems`` for the problems.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from clearway.model.plan import Curve
from clearway.planning.base import Planner
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.planning.rules import LOSS_PER_NODE_PRUNE, SLURM_DEFAULT, UJFB, YOUNGEST_FIRST, YOUNGEST_PRUNE
from clearway_lab.baselines import Greedy, WeightedCost
from tests.benchmarks.trace_problems import MACHINES, Drawn, draw, read
from tests.oracle.milp import AsProgram
from tests.traces import FOLDER

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/explanation/planner-quality.md"
PICTURE = ROOT / "docs/images/planner-quality.svg"
PROBLEMS_PER_TRACE = 72
DELAYS_S = (0, 300, 900)
SOLVED_BY_HIGHS_EVERY = 24
PLANNERS: tuple[Planner, ...] = (
    EvictionDP(),
    LOSS_PER_NODE_PRUNE,
    Greedy(),
    WeightedCost(),
    YOUNGEST_PRUNE,
    UJFB,
    YOUNGEST_FIRST,
    SLURM_DEFAULT,
)
KNOWN, UNKNOWN = "ages known", "ages unknown"


@dataclass(slots=True)
class Sum:
    """Of the problems for which a planner found a plan."""

    problems: int = 0
    lost_node_s: float = 0.0
    optimum_node_s: float = 0.0  # of the same problems

    @property
    def ratio(self) -> float:
        """1 where neither loses anything."""
        if not self.optimum_node_s:
            return 1.0 if not self.lost_node_s else float("inf")
        return self.lost_node_s / self.optimum_node_s

    @property
    def mean_node_h(self) -> float:
        return self.lost_node_s / self.problems / 3_600 if self.problems else float("nan")


@dataclass(slots=True)
class Quality:
    """Sums by (planner, what is known, delay, trace); the trace "" holds all of them together."""

    sums: dict[tuple[str, str, int, str], Sum] = field(default_factory=lambda: defaultdict(Sum))
    problems: Counter[str] = field(default_factory=Counter)  # by trace
    feasible: Counter[tuple[int, str]] = field(default_factory=Counter)
    jobs: list[int] = field(default_factory=list)
    checked_by_highs: int = 0

    def measure(self, drawn: Drawn) -> None:
        optimum = lost_by_delay(drawn, EvictionDP().solve(drawn.known))
        self.problems[drawn.trace] += 1
        self.jobs.append(len(drawn.known.candidates))
        for delay_s, best in optimum.items():
            for trace in ("", drawn.trace) if best is not None else ():
                self.feasible[delay_s, trace] += 1
        for planner in PLANNERS:
            for known, problem in ((KNOWN, drawn.known), (UNKNOWN, drawn.ages_unknown)):
                for delay_s, lost in lost_by_delay(drawn, planner.solve(problem)).items():
                    best = optimum[delay_s]
                    if lost is None:
                        continue
                    assert best is not None, f"{planner.name} frees what cannot be freed"
                    assert lost >= best - 1e-6, f"{planner.name} beats the optimum"
                    for trace in ("", drawn.trace):
                        entry = self.sums[planner.name, known, delay_s, trace]
                        entry.problems += 1
                        entry.lost_node_s += lost
                        entry.optimum_node_s += best

    def check_by_highs(self, drawn: Drawn) -> None:
        found, expected = AsProgram().solve(drawn.known), EvictionDP().solve(drawn.known)
        assert found.exact
        assert lost_by_delay(drawn, found) == lost_by_delay(drawn, expected)
        self.checked_by_highs += 1


def lost_by_delay(drawn: Drawn, curve: Curve) -> Mapping[int, float | None]:
    """What the plans really lose, whatever the planner believed; None where it found none."""
    points = {point.max_delay_s: point for point in curve.points}
    return {
        delay_s: sum(drawn.true_lost_node_s(planned.job_id, planned.action) for planned in points[delay_s].actions)
        if points[delay_s].feasible
        else None
        for delay_s in DELAYS_S
    }


def measured(problems_per_trace: int, say: Callable[[str], object] = lambda _: None) -> Quality:
    quality = Quality()
    for machine in MACHINES:
        begin = time.monotonic()
        trace = read(machine)
        for number in range(problems_per_trace):
            drawn = draw(trace, number)
            quality.measure(drawn)
            if number % SOLVED_BY_HIGHS_EVERY == 0:
                quality.check_by_highs(drawn)
        say(f"{machine.name}: {problems_per_trace} problems in {time.monotonic() - begin:.0f} s")
    return quality


# -- the page --------------------------------------------------------------------------------------------------------


def page(quality: Quality) -> str:
    count, jobs = sum(quality.problems.values()), sorted(quality.jobs)
    return f"""# How good the planners' plans are

What each [planner](planners.md) loses on {count} problems drawn from {len(quality.problems)} recorded workloads,
as a ratio to the optimum. This page and its picture are written by `tests/benchmarks/planner_quality.py`; do not edit
them.

Each problem is a moment at which at least 75 % of a machine was in use: {jobs[0]} to {jobs[-1]} running jobs
(median {jobs[len(jobs) // 2]}), and an urgent job of 12.5, 25 or 50 % of the nodes. Jobs save themselves every hour;
memory, checkpoints and file system are those of the [CoSim paper](papers.md) (section IV-B), the latter scaled to
each machine. The moments and jobs are recorded; the checkpoints are drawn. No job can be suspended, which is what the
[UJFB paper](papers.md) relies on, so `ujfb` shows its choice of jobs only. `slurm-default` and `youngest-first` kill
whatever the deadline, so their losses hardly change while the optimum falls.

- *Ages known*: the planner knows when each job last wrote a checkpoint, and can ask for another one.
- *Ages unknown*: jobs say nothing, so that each counts as never saved. The losses of such plans are counted with the
  real ages, and the optimum is the one with everything known.

*Ratio* is the mean loss of a planner divided by the mean of the optimum on the same problems, those for which it found
a plan; *plans* says for how many of the solvable problems that was.
{quality.checked_by_highs} of the problems, spread over all workloads, were solved by HiGHS as well,
with equal losses. It is as good as `eviction-dp` and left out, as is `backtracking`, which would not end.

![Ratio to the optimum by planner and delay](../images/planner-quality.svg)

{"".join(_table(quality, delay_s) for delay_s in DELAYS_S)}## By workload

Ratio to the optimum with ages known, when the urgent job must start at once. The totals above are node-hours, so the
largest machine counts most in them; here each workload stands for itself.

{_by_trace(quality)}
The workloads are those of the Parallel Workloads Archive for KTH SP2, LANL CM-5 and SDSC DataStar (the last is
copyright of the Regents of the University of California), and logs of DWD, Mira and SX-ACE.
"""


def _table(quality: Quality, delay_s: int) -> str:
    optimum = quality.sums["eviction-dp", KNOWN, delay_s, ""]
    lines = [
        f"## Within {delay_s // 60} minutes\n" if delay_s else "## At once\n",
        f"The optimum loses {optimum.mean_node_h:,.1f} node-hours a problem, of {optimum.problems} that have a plan.\n",
        "| planner | ratio, ages known | plans | ratio, ages unknown | plans |",
        "|---|---:|---:|---:|---:|",
    ]
    for planner in PLANNERS:
        cells = []
        for known in (KNOWN, UNKNOWN):
            entry = quality.sums[planner.name, known, delay_s, ""]
            cells += [f"{entry.ratio:.2f}", f"{entry.problems / quality.feasible[delay_s, '']:.0%}"]
        lines.append(f"| `{planner.name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n\n"


def _by_trace(quality: Quality) -> str:
    names = list(quality.problems)
    lines = [f"| planner | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    for planner in PLANNERS:
        entries = [quality.sums[planner.name, KNOWN, DELAYS_S[0], name] for name in names]
        cells = [f"{entry.ratio:.2f}" if entry.problems else "no plan" for entry in entries]
        lines.append(f"| `{planner.name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def plot(quality: Quality, to: Path) -> None:
    from tests.benchmarks.pictures import save, subplots

    picture, axes = subplots(1, len(DELAYS_S), figsize=(11, 4), sharey=True)
    names = [planner.name for planner in PLANNERS]
    for axis, delay_s in zip(axes, DELAYS_S, strict=True):
        # Dots: on a logarithmic axis the length of a bar means nothing.
        for offset, marker, known in ((-0.12, "o", KNOWN), (0.12, "D", UNKNOWN)):
            ratios = [quality.sums[name, known, delay_s, ""].ratio for name in names]
            axis.plot(ratios, [place + offset for place in range(len(names))], marker, label=known, markersize=5)
        axis.set_xscale("log")
        axis.set_xticks((1, 2, 5, 10, 20), ("1", "2", "5", "10", "20"))
        axis.set_xlim(0.8, 40)
        axis.minorticks_off()
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set_title(f"within {delay_s // 60} minutes" if delay_s else "at once")
        axis.set_xlabel("lost node-hours / optimum")
    axes[0].set_yticks(range(len(names)), names)
    axes[0].invert_yaxis()
    axes[-1].legend()
    save(picture, to)


def main(arguments: Iterable[str]) -> int:
    if absent := [machine.path for machine in MACHINES if not machine.path.exists()]:
        print(f"planner_quality: no trace {absent[0]}; put the traces into {FOLDER} or set CLEARWAY_TRACES")
        return 1
    quality = measured(int(next(iter(arguments), PROBLEMS_PER_TRACE)), say=lambda text: print(text, flush=True))
    PAGE.write_text(page(quality), encoding="utf-8")
    plot(quality, PICTURE)
    print(f"written: {PAGE.relative_to(ROOT)}, {PICTURE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
