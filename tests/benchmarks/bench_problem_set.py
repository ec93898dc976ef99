"""What the daemon's planner loses over the public set of problems, beside the best known, and its time.

Run with ``pytest tests/benchmarks/bench_problem_set.py -s``. See ``problem_set`` for the problems, ``best_known`` for
what is compared with, ``planner_under_test`` for who is. A problem counts as solved wrongly where the planner says that
its plan is exact and there is a better one.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from statistics import quantiles

import pytest
from rich.console import Console
from rich.table import Table

from tests.benchmarks.best_known import Best, best, read_stored
from tests.benchmarks.planner_under_test import BESIDE, Planned, planned
from tests.benchmarks.problem_set import Posed, family_a, family_b, family_c, family_e, key_of
from tests.benchmarks.yardstick import Pace

SUM, WORST = 1.001, 1.01  # times the best: of a family's sum, and of any problem whose best is proven
GUARD_SECONDS = 15.0  # no single best value may take longer in the short form; what is stored takes none
NOTHING = 1e-6
# Seconds at p50 and p99 on a quiet machine to the plan that is carried out, by the begin of a row's name.
LIMITS_S = {
    "scenario": (0.05, 0.05),
    "24 jobs": (0.05, 0.05),
    "50 jobs": (0.05, 0.05),
    "100 jobs": (0.05, 0.05),
    "200 jobs": (0.05, 0.05),
    "1000 jobs": (0.5, 0.5),
    "3000 jobs": (1.0, 2.0),
    "1000 GPU nodes, 128": (5.0, 5.0),
    "": (1.0, 2.0),
}


@dataclass(slots=True)
class Row:
    """Of some problems together."""

    problems: int = 0
    proven: int = 0
    lost_node_s: float = 0.0
    best_node_s: float = 0.0  # of the same problems
    worst: float = 1.0  # ratio, of those whose best is proven
    wrong: list[str] = field(default_factory=list)  # "exact" where there is a better plan
    unsolved: list[str] = field(default_factory=list)  # without a plan where there is one
    exact: int = 0
    seconds: list[float] = field(default_factory=list)
    beside: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    paces: list[float] = field(default_factory=list)

    def add(self, posed: Posed, found: Planned, known: Best) -> None:
        self.problems += 1
        self.proven += known.proven
        self.exact += found.exact
        self.seconds.append(found.seconds)
        assert found.lost_node_s >= known.least_node_s - NOTHING * max(1.0, known.least_node_s), (
            posed.name,
            found,
            known,
        )
        if found.exact and found.lost_node_s > known.lost_node_s + NOTHING * known.lost_node_s:
            self.wrong.append(posed.name)
        if found.lost_node_s == inf:
            if known.possible:
                self.unsolved.append(posed.name)
            return
        self.lost_node_s += found.lost_node_s
        self.best_node_s += min(known.lost_node_s, found.lost_node_s)
        if known.proven:
            self.worst = max(self.worst, ratio(found.lost_node_s, known.lost_node_s))

    @property
    def sum_ratio(self) -> float:
        return ratio(self.lost_node_s, self.best_node_s)

    def percentile(self, part: int) -> float:
        return (
            quantiles(self.seconds, n=100, method="inclusive")[part - 1] if len(self.seconds) > 1 else self.seconds[0]
        )


def ratio(lost: float, best_: float) -> float:
    """Where nothing need be lost, a node-second counts as one."""
    return 1.0 if lost <= best_ + NOTHING else lost / max(best_, 1.0)


def measured(problems: Iterable[Posed], *, beside: bool = True) -> dict[str, Row]:
    """By row, and by family under its letter."""
    stored = read_stored()
    rows: dict[str, Row] = defaultdict(Row)
    pace = Pace(time.process_time, arrays=True)
    pace.take()
    for posed in problems:
        known = stored.get(key_of(posed.problem)) or best(posed.problem, GUARD_SECONDS)
        found = planned(posed.problem)
        for row in (rows[posed.family], rows[posed.row]):
            row.add(posed, found, known)
        for rule in BESIDE if beside else ():
            lost = planned(posed.problem, rule).lost_node_s
            for row in (rows[posed.family], rows[posed.row]):
                row.beside[rule.name] += lost if lost < inf else 0.0
                row.beside[f"{rule.name}, of"] += known.lost_node_s if lost < inf else 0.0
    pace.take()
    for row in rows.values():
        row.paces.append(pace.slower)
    return dict(rows)


def tell(rows: dict[str, Row]) -> None:
    names = [rule.name for rule in BESIDE]
    table = Table(title="Lost work beside the best known; seconds to the plan", title_justify="left")
    headings = ("", "problems", "proven", "sum", "worst", "exact", "wrong", "no plan", "p50 s", "p99 s", *names)
    for heading in headings:
        table.add_column(heading, justify="left" if not heading else "right")
    for name, row in rows.items():
        others = [
            f"{ratio(row.beside[each], row.beside[f'{each}, of']):.3g}" if each in row.beside else "" for each in names
        ]
        table.add_row(
            f"[bold]{name}[/bold]" if len(name) == 1 else name,
            str(row.problems),
            str(row.proven),
            f"{row.sum_ratio:.4f}",
            f"{row.worst:.4g}",
            str(row.exact),
            str(len(row.wrong)),
            str(len(row.unsolved)),
            f"{row.percentile(50):.3f}",
            f"{row.percentile(99):.3f}",
            *others,
        )
    Console(width=180).print(table, f"the machine x{max(pace for row in rows.values() for pace in row.paces):.1f}")


def missed(rows: dict[str, Row], *, times: float = 1.0) -> list[str]:
    """``times``: so many times longer than on a quiet machine may a plan take, beside what the yardstick says."""
    found = []
    for name, row in rows.items():
        if len(name) == 1 and row.sum_ratio > SUM:
            found.append(f"{name}: {row.sum_ratio:.4f} times the best in the sum")
        if row.worst > WORST:
            found.append(f"{name}: {row.worst:.3f} times the best in one")
        found += [f"{each} is not exact" for each in row.wrong]
        found += [f"{each} has a plan" for each in row.unsolved]
        if len(name) > 1:
            half, most = next(limits for begin, limits in LIMITS_S.items() if name.startswith(begin))
            slower = times * max(row.paces)
            if row.percentile(50) > half * slower or row.percentile(99) > most * slower:
                found.append(f"{name}: {row.percentile(50):.3f} s, {row.percentile(99):.3f} s at p99")
    return found


def every_problem() -> Iterator[Posed]:
    return chain(family_a(), family_b(), family_c(), family_e())


def some_problems() -> Iterator[Posed]:
    few = (each for each in family_b(2) if len(each.problem.candidates) <= 1_000)
    shared = (each for each in family_c(1) if len(each.problem.nodes) <= 250)
    return chain(family_a(2), few, shared, family_e(4))


@pytest.mark.guard
@pytest.mark.timeout(900)
def test_plans_are_the_best_to_the_second() -> None:
    rows = measured(some_problems(), beside=False)
    tell(rows)
    assert not missed(rows, times=4)


@pytest.mark.timeout(7_200)
def test_plans_of_the_whole_set_are_the_best_to_the_second() -> None:
    rows = measured(every_problem())
    tell(rows)
    assert not missed(rows)


def main(families: Sequence[str]) -> None:
    """``python -m tests.benchmarks.bench_problem_set a b``: the table of some families."""
    named = {"a": family_a, "b": family_b, "c": family_c, "e": family_e}
    tell(measured(chain.from_iterable(named[each]() for each in families or named)))


if __name__ == "__main__":
    main(sys.argv[1:])
