"""What each solver, bound and reduction of the planners is worth: the problem set with each of them taken out in turn.

Run from the repository's root as ``python -m tests.benchmarks.bench_ablation [whole] [large] [shared] [crowds]``; it
prints a table of each kind of problem. ``--second``: in steps of one second, whatever the daemon's default is.
``--patient``: crowds have ten seconds instead of what a cycle has. ``--markdown``: as the documentation has it. Seconds
are of processor time, in sum over the problems of a column. What takes longer than ``LONGEST_S`` for one problem is
stopped, and counts as failed, as does what refuses a problem. A crowd fails when not all of it are served in one cycle;
what it loses is then left out.

A part is taken out by putting something in the place of one name of a module. The tables of these names below are all
that has to change with the planners; a name that is gone is told of as gone.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from itertools import chain
from types import FrameType
from typing import Any, NamedTuple

import pytest
from rich.console import Console
from rich.table import Table

from tests.benchmarks import planner_under_test
from tests.benchmarks.bench_problem_set import ratio
from tests.benchmarks.best_known import Best, read_stored
from tests.benchmarks.crowds import Crowd, family_f
from tests.benchmarks.problem_set import Posed, family_a, family_b, family_c, family_e, family_g

LONGEST_S = 15.0
PATIENT_S = 10.0
CROWD_LIMIT_S: float | None = None  # for a crowd; None: what a cycle has
_PLANNING = "clearway.planning"


class Switch(NamedTuple):
    """A part that is taken out, and what stands in its place, by module and name."""

    part: str
    instead: Mapping[str, Any]


def _same(first: Any, *_: Any, **__: Any) -> Any:
    return first


def _none(*_: Any, **__: Any) -> None:
    return None


def _every_column(relaxed: Any, _cost: float) -> Any:
    import numpy as np

    return np.ones(len(relaxed.program.upper), dtype=bool)


def _each_alone(requests: Any, *_: Any) -> Any:
    return [[each] for each in sorted(requests, key=lambda each: (each.problem.max_delay_s, each.job_id))]


def _all_ways(ways: Any) -> Any:
    return tuple(sorted(ways, key=lambda way: (way.order, way.lost, way.steps)))


def _by_program(requests: Any, seconds_left: Any) -> Any:
    """As ``plan_together``, by the program over all candidates and nodes."""
    from clearway.planning.joint.several import by_program

    return by_program(requests, seconds_left)


_DP = f"{_PLANNING}.dp.eviction_dp"
_BOUNDS = f"{_PLANNING}.bounds"
_JOINT = f"{_PLANNING}.joint"
_SEVERAL = f"{_JOINT}.several"
_ALL = 1e18  # as a share of the bound: every column is in doubt
NOTHING = Switch("(all there is)", {})

WHOLE = (
    NOTHING,
    Switch("bounds as a whole (core, relaxation)", {f"{_DP}.solve_by_core": _none}),
    Switch("bounds/relaxation: prices of a node and of a step", {f"{_BOUNDS}.relaxation.Relaxation.pair": _none}),
    Switch("bounds/core: deadlines in parts", {f"{_BOUNDS}.core._PARTS": 1}),
    Switch("bounds/core: larger trials", {f"{_BOUNDS}.core.FEW_CELLS": 10**18}),
    Switch("the choice between tables and bounds", {f"{_DP}.CORE_CELLS": 0}),
    Switch("formulation/windows: dominated ways", {f"{_PLANNING}.formulation.windows._undominated": _all_ways}),
)

SHARED = (
    NOTHING,
    Switch("joint/reduced_cost, of lost work", {f"{_JOINT}.reduced_cost.DOUBT": _ALL}),
    Switch("joint/reduced_cost, of the other keys", {f"{_JOINT}.reduced_cost.Relaxed.differing": _every_column}),
    Switch(
        "joint/reduced_cost",
        {f"{_JOINT}.reduced_cost.DOUBT": _ALL, f"{_JOINT}.reduced_cost.Relaxed.differing": _every_column},
    ),
    Switch("partial_nodes: resources that decide", {f"{_PLANNING}.formulation.partial_nodes._deciding": list}),
    Switch("loss-per-node-prune beside", {f"{_DP}._no_worse": _same}),
)

CROWDS = (
    NOTHING,
    Switch("joint/phases", {f"{_SEVERAL}.by_phases": _none}),
    Switch("joint/parts", {f"{_SEVERAL}.by_parts": _none}),
    Switch("joint/reduced_cost: columns that are used", {f"{_JOINT}.parts.over_used": _none}),
    Switch("joint/reduced_cost: columns in doubt", {f"{_JOINT}.reduced_cost.DOUBT": _ALL}),
    Switch("joint/requests: those that are alike as one, in several", {f"{_SEVERAL}.groups_of": _each_alone}),
    Switch("joint/program beside parts", {f"{_SEVERAL}.by_program": _none}),
    Switch("all of it: one program instead", {"tests.benchmarks.planner_under_test.plan_together": _by_program}),
)


@contextmanager
def taken_out(switch: Switch) -> Iterator[None]:
    """Raises AttributeError or ImportError where a name is gone."""
    with pytest.MonkeyPatch.context() as patched:
        for name, instead in switch.instead.items():
            path = name.split(".")
            place = len(path) - 1
            while True:
                try:
                    owner: Any = import_module(".".join(path[:place]))
                    break
                except ModuleNotFoundError:
                    place -= 1
                    if place < 2:
                        raise
            for part in path[place:-1]:
                owner = getattr(owner, part)
            patched.setattr(owner, path[-1], instead)
        yield


class TooLongError(Exception):
    pass


@contextmanager
def stopped_after(seconds: float) -> Iterator[None]:
    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@dataclass(slots=True)
class Line:
    """Of one switch. ``seconds`` by column."""

    problems: int = 0
    failed: int = 0
    lost_node_s: float = 0.0
    best_node_s: float = 0.0
    exact: int = 0
    wrong: int = 0
    served: int = 0
    largest_gap: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, column: str, found: Any, known: Best) -> None:
        self.seconds[column] = self.seconds.get(column, 0.0) + found.seconds
        self.lost_node_s += found.lost_node_s
        self.best_node_s += known.lost_node_s
        self.largest_gap = max(self.largest_gap, found.gap)

    def add_plan(self, posed: Posed, known: Best) -> None:
        found = planner_under_test.planned(posed.problem)
        self.add(column_of(posed), found, known)
        self.exact += found.exact
        self.wrong += found.exact and found.lost_node_s > known.lost_node_s * (1 + 1e-6)

    def add_crowd(self, crowd: Crowd, known: Best) -> None:
        found = planner_under_test.crowd_planned(crowd, CROWD_LIMIT_S)
        self.served += found.served
        if found.served == len(crowd.asks):
            self.add(crowd.row, found, known)
        else:
            self.failed += 1


def column_of(posed: Posed) -> str:
    return posed.row if posed.family in {"b", "c", "g"} else posed.family


def measured(switch: Switch, problems: Iterable[Posed | Crowd], stored: Mapping[str, Best]) -> Line | None:
    """None where what the switch takes out is gone."""
    line = Line()
    try:
        with taken_out(switch):
            for each in problems:
                line.problems += 1
                known = stored[each.key]
                try:
                    with stopped_after(LONGEST_S):
                        if isinstance(each, Crowd):
                            line.add_crowd(each, known)
                        else:
                            line.add_plan(each, known)
                except TooLongError:
                    line.failed += 1
                    line.seconds["stopped"] = line.seconds.get("stopped", 0.0) + LONGEST_S
                except ValueError:  # more than the planner takes
                    line.failed += 1
    except (AttributeError, ImportError) as gone:
        print(f"{switch.part}: {gone}")
        return None
    return line


Lines = Sequence[tuple[str, Line | None]]


def lines_of(switches: Sequence[Switch], problems: Sequence[Posed | Crowd]) -> Lines:
    stored = read_stored()
    absent = [each.name for each in problems if each.key not in stored]
    assert not absent, f"run python -m tests.benchmarks.best_known first: {absent}"
    lines = []
    for switch in switches:
        lines.append((switch.part, measured(switch, problems, stored)))
        print(*lines[-1], file=sys.stderr, flush=True)
    return lines


def markdown_of(lines: Lines) -> str:
    """A table for the documentation; ``lost / best`` and seconds leave out what failed."""
    crowds = any(line is not None and line.served for _, line in lines)
    told = [
        "without",
        "problems",
        "failed",
        *(["served"] if crowds else []),
        "lost / best",
        "exact",
        "wrong",
        "seconds",
    ]
    rows = [told, ["---", *["--:"] * (len(told) - 1)]]
    for part, line in lines:
        if line is None:
            rows.append([part, "gone", *[""] * (len(told) - 2)])
            continue
        lost = f"{ratio(line.lost_node_s, line.best_node_s):.4f}" if line.failed < line.problems else ""
        cells = [line.problems, line.failed, *([line.served] if crowds else []), lost, line.exact, line.wrong]
        rows.append([part, *map(str, cells), f"{sum(line.seconds.values()):.1f}"])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def table_of(title: str, lines: Lines) -> Table:
    columns = list(dict.fromkeys(name for _, line in lines if line for name in line.seconds))
    table = Table(title=title, title_justify="left")
    headings = ["without", "problems", "failed", "lost", "lost / best", "exact", "wrong", "served", "gap"]
    for heading in (*headings, *(f"s: {name}" for name in columns)):
        table.add_column(heading, justify="left" if heading == "without" else "right")
    for part, line in lines:
        if line is None:
            table.add_row(part, "gone")
            continue
        told = [
            line.problems,
            line.failed,
            f"{line.lost_node_s:,.0f}",
            f"{ratio(line.lost_node_s, line.best_node_s):.4f}",
            line.exact,
            line.wrong,
        ]
        told += [line.served, f"{line.largest_gap:.3f}"]
        seconds = [f"{line.seconds[name]:.2f}" if name in line.seconds else "" for name in columns]
        table.add_row(part, *map(str, told), *seconds)
    return table


def whole_problems() -> list[Posed]:
    largest = (each for each in family_b(2) if len(each.problem.candidates) >= 1_000)
    others = (each for each in family_b(6) if len(each.problem.candidates) < 1_000)
    return list(chain(family_a(2), others, largest, family_e(9)))


def shared_problems() -> list[Posed]:
    """The larger ones take their time: one row of them is enough."""
    return [each for each in family_c(1) if len(each.problem.nodes) <= 250 or each.problem.nodes_needed == 64]


KINDS: Mapping[str, tuple[Sequence[Switch], Callable[[], Sequence[Posed | Crowd]]]] = {
    "whole": (WHOLE, whole_problems),
    "large": (WHOLE, lambda: list(family_g())),
    "crowds": (CROWDS, lambda: list(family_f(2))),
    "shared": (SHARED, shared_problems),
}


def test_each_part_can_be_taken_out() -> None:
    """On problems that take no time; the tables themselves are for people."""
    few = [each for each in family_b(1) if len(each.problem.candidates) <= 50]
    stored = read_stored()
    for switch in WHOLE:
        line = measured(switch, few, stored)
        assert line is not None, f"{switch.part} is gone: the table of switches says what there is"
        assert not line.failed
        assert line.lost_node_s >= line.best_node_s


def main(words: Sequence[str]) -> None:
    if "--second" in words:
        setattr(planner_under_test, "as_the_daemon_asks", _same)  # noqa: B010 - a name that is looked up there
    if "--patient" in words:
        globals()["CROWD_LIMIT_S"] = PATIENT_S
    for kind in [word for word in words if word in KINDS] or KINDS:
        switches, problems = KINDS[kind]
        steps = "in steps of a second" if "--second" in words else "in the daemon's steps"
        lines = lines_of(switches, problems())
        if "--markdown" in words:
            print(f"{kind}, {steps}\n\n{markdown_of(lines)}\n", flush=True)
        else:
            Console(width=220).print(table_of(f"{kind}, {steps}", lines))


if __name__ == "__main__":
    main(sys.argv[1:])
