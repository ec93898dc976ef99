"""What the daemon's planner loses over the public set of problems, beside the best known, and its time.

Run with ``pytest tests/benchmarks/bench_problem_set.py -s``. See ``problem_set`` for the problems, ``best_known`` for
what is compared with, ``planner_under_test`` for who is. A problem counts as solved wrongly where the planner says that
its plan is exact and there is a better one.
"""

from __future__ import annotations

import gc
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory

import pytest
from rich.console import Console
from rich.table import Table

from tests.benchmarks.best_known import Best, best, by_table, read_stored
from tests.benchmarks.crowds import Crowd, family_f, whole_crowd
from tests.benchmarks.daemon_problems import LARGE, MAX_DELAY_S, SMALL, happened
from tests.benchmarks.planner_under_test import BESIDE, Planned, crowd_planned, planned
from tests.benchmarks.problem_set import Posed, family_a, family_b, family_c, family_e
from tests.benchmarks.shared_gpus import gpu_problem
from tests.benchmarks.yardstick import Pace
from tests.oracle.cp_sat_shared import cp_sat_shared

SUM, WORST = 1.001, 1.01  # times the best: of a family's sum, and of any problem whose best is proven
GUARD_SECONDS = 15.0  # no single best value may take longer in the short form; what is stored takes none
NOTHING = 1e-6
CP_SAT_S = 30.0
# What was planned for crowds when this set was made: how many are served in a cycle of a second, and what that loses.
CROWDS_BEFORE: Mapping[str, tuple[int, float]] = {
    "20 on 1000 shared nodes #0": (15, 8_495),
    "20 on 1000 shared nodes #1": (20, 13_110),
    "20 on 1000 shared nodes #2": (20, 7_985),
    "100 on 1000 shared nodes #0": (100, 182_655),
    "100 on 1000 shared nodes #1": (100, 212_130),
    "100 on 1000 shared nodes #2": (79, 111_831),
    "20 on 10000 whole nodes #0": (20, 190_435),
    "20 on 10000 whole nodes #1": (20, 241_830),
    "20 on 10000 whole nodes #2": (20, 140_536),
    "100 on 10000 whole nodes #0": (100, 140_064),
    "100 on 10000 whole nodes #1": (100, 144_745),
    "100 on 10000 whole nodes #2": (100, 203_004),
}
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
    gc.freeze()  # what is held here is not to be looked through while a plan is made
    for posed in problems:
        known = stored.get(posed.key) or best(posed.problem, GUARD_SECONDS)
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


def crowds_told(crowds: Iterable[Crowd]) -> list[str]:
    """Prints what is planned for crowds; what is worse than it was."""
    stored, found = read_stored(), []
    table = Table(title="Crowds: lost node-s, of the urgent jobs that are served in one cycle", title_justify="left")
    for heading in ("", "served", "lost", "gap said", "least of all", "best known", "before", "s"):
        table.add_column(heading, justify="left" if not heading else "right")
    for crowd in crowds:
        planned_ = crowd_planned(crowd)
        known, (served, lost_node_s) = stored[crowd.key], CROWDS_BEFORE[crowd.name]
        table.add_row(
            crowd.name,
            str(planned_.served),
            f"{planned_.lost_node_s:,.0f}",
            f"{planned_.gap:.3f}",
            f"{known.least_node_s:,.0f}",
            f"{known.lost_node_s:,.0f}",
            f"{served}: {lost_node_s:,.0f}",
            f"{planned_.seconds:.2f}",
        )
        if planned_.served < len(crowd.asks):
            worse = planned_.served < served
        else:
            worse = planned_.lost_node_s > max(lost_node_s, known.lost_node_s) and served == len(crowd.asks)
        if worse:
            found.append(f"{crowd.name}: {planned_}, and before {served} at {lost_node_s}")
    Console(width=180).print(table)
    return found


def daemon_told(folder: Path, seeds: int, sizes: Sequence[tuple[int, int, int]]) -> list[str]:
    """Prints what the daemon plans and does; what is missed of it."""
    found = []
    table = Table(title="The daemon: lost node-s, the wait of the urgent job", title_justify="left")
    for heading in ("nodes, widest job, asked", "planned", "best", "happened", "waited s", "planning s"):
        table.add_column(heading, justify="right")
    planned_node_s = best_node_s = 0.0
    for size in sizes:
        for seed in range(seeds):
            each = happened(folder, seed, size)
            planned_node_s += each.planned_node_s
            best_node_s += each.best.lost_node_s
            numbers = (each.planned_node_s, each.best.lost_node_s, each.lost_node_s, each.waited_s)
            table.add_row(str(size), *(f"{number:,.0f}" for number in numbers), f"{each.planning_s:.3f}")
            if ratio(each.planned_node_s, each.best.lost_node_s) > WORST:
                found.append(f"{size} #{seed}: {each.planned_node_s:.0f}, best {each.best.lost_node_s:.0f}")
            if each.exact and each.planned_node_s > each.best.lost_node_s + NOTHING:
                found.append(f"{size} #{seed} is not exact")
            if each.waited_s > MAX_DELAY_S:
                found.append(f"{size} #{seed}: the urgent job waited {each.waited_s:.0f} s")
            if each.evictions > 1:
                found.append(f"{size} #{seed}: {each.evictions} evictions")
    if ratio(planned_node_s, best_node_s) > SUM:
        found.append(f"{ratio(planned_node_s, best_node_s):.4f} times the best in the sum")
    Console(width=120).print(table)
    return found


def test_the_best_that_is_known_is_that_of_every_plan() -> None:
    """Beside two other formulations, on problems of all kinds that are small."""
    small = [each for each in chain(family_a(1), family_b(2)) if len(each.problem.candidates) <= 50]
    for each in small:
        known = best(each.problem)
        assert known.proven
        assert known.lost_node_s == by_table(each.problem), each.name
    for seed in range(4):
        problem = gpu_problem(seed, 12, 3, 4, 60)
        answer = cp_sat_shared(problem, problem.last_step, CP_SAT_S)
        assert answer is not None
        assert answer[2], "CP-SAT had too little time"
        assert best(problem) == (answer[0] / 1_000, answer[0] / 1_000)


@pytest.mark.guard
@pytest.mark.timeout(900)
def test_plans_are_the_best_to_the_second() -> None:
    rows = measured(some_problems(), beside=False)
    tell(rows)
    assert not missed(rows, times=4)


@pytest.mark.guard
def test_a_crowd_on_whole_nodes_is_planned_no_worse() -> None:
    assert not crowds_told([whole_crowd(20, 0), whole_crowd(100, 0)])


@pytest.mark.timeout(7_200)
def test_plans_of_the_whole_set_are_the_best_to_the_second() -> None:
    rows = measured(every_problem())
    tell(rows)
    assert not missed(rows)


@pytest.mark.timeout(1_800)
def test_crowds_are_planned_no_worse() -> None:
    assert not crowds_told(family_f())


@pytest.mark.guard
@pytest.mark.timeout(900)
def test_the_daemons_own_plan_is_the_best_to_the_second(tmp_path: Path) -> None:
    assert not daemon_told(tmp_path, 1, (SMALL,))


@pytest.mark.timeout(3_600)
def test_the_daemons_own_plans_are_the_best_to_the_second(tmp_path: Path) -> None:
    assert not daemon_told(tmp_path, 5, (SMALL, LARGE))


def main(families: Sequence[str]) -> None:
    """``python -m tests.benchmarks.bench_problem_set a b``: the tables of some families."""
    named = {"a": family_a, "b": family_b, "c": family_c, "e": family_e}
    asked = families or [*named, "d", "f"]
    if plain := [each for each in asked if each in named]:
        tell(measured(chain.from_iterable(named[each]() for each in plain)))
    if "f" in asked:
        print("\n".join(crowds_told(family_f())))
    if "d" in asked:
        with TemporaryDirectory() as folder:
            print("\n".join(daemon_told(Path(folder), 5, (SMALL, LARGE))))


if __name__ == "__main__":
    main(sys.argv[1:])
