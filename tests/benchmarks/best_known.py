"""The least that any plan for a problem loses, to the second: by formulations that share nothing with the planners'.

Model: a binary variable for each option of each job, one at most of each job. A job leaves in time when its option is
ready by the deadline; checkpoints are written one after another, so that all that are taken add up to no more than the
deadline (of those that share the file system, their share of it, and the longest rest beside). Whole nodes: the nodes
of those that leave add up to what is needed. Nodes that jobs share: a binary variable for each node that is given to
the urgent job; what is free on it and what the jobs give back that leave it is no less than what is asked of it. HiGHS
solves it, and is stopped after a minute; what it has proven by then is the bound. Whole nodes that it has not proven
are solved by a table over all times and all numbers of nodes, which takes half a minute for 3,000 jobs.

Several urgent jobs: see ``best_of_crowd``.

What was found is kept in best_known.json, by ``problem_set.key_of``, so that a benchmark need not spend hours. Run
``python -m tests.benchmarks.best_known [FAMILY ...]`` from the repository's root for what is not there yet.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import ceil, gcd, inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csr_array, vstack

from clearway.model.problem import Amounts, Candidate, EvictionProblem, Needs, Option

STORED = Path(__file__).with_suffix(".json")
LIMIT_S = 60.0
MOST_CELLS = 30_000_000_000  # of the table of whole nodes: jobs x seconds x nodes
_EXACT = 1e-6
_LITTLE_DEARER = 0.02  # of the bound
_INFEASIBLE = 2

Cells = Mapping[int, float]


class Best(NamedTuple):
    """What the best plan that is known loses (infinity: none is), and what no plan loses less than."""

    lost_node_s: float
    least_node_s: float

    @property
    def proven(self) -> bool:
        return self.least_node_s >= self.lost_node_s

    @property
    def possible(self) -> bool:
        return self.lost_node_s < inf


class Program:
    """Rows and columns of a program in whole numbers."""

    def __init__(self) -> None:
        self.cost: list[float] = []
        self.upper: list[float] = []
        self.whole: list[int] = []
        self.rows: list[tuple[Cells, float, float]] = []

    def column(self, cost: float = 0.0, upper: float = 1.0, *, whole: bool = True) -> int:
        self.cost.append(cost)
        self.upper.append(upper)
        self.whole.append(int(whole))
        return len(self.cost) - 1

    def row(self, cells: Cells, least: float = -inf, most: float = inf) -> None:
        self.rows.append((cells, least, most))

    def solved(self, limit_s: float) -> tuple[npt.NDArray[np.float64] | None, float]:
        """Whole numbers, and a bound; the bound is infinite where there is no solution."""
        return self._within(np.array(self.upper), limit_s)

    def solved_in_stages(self, limit_s: float) -> tuple[npt.NDArray[np.float64] | None, float]:
        """As ``solved``, for large programs.

        First in parts, which is a bound, and says by how much at least a column makes a solution dearer. Then without
        columns that make it dearer at all; and once more with all that a better solution may hold.
        """
        matrix, least, most = self._matrix()
        up, low = np.isfinite(most), np.isfinite(least)
        parts = linprog(
            self.cost,
            A_ub=vstack([matrix[up], -matrix[low]]),
            b_ub=np.concatenate([most[up], -least[low]]),
            bounds=np.array([np.zeros(len(self.cost)), self.upper]).T,
            method="highs-ipm",
        )
        if parts.status == _INFEASIBLE:
            return None, inf
        dearer, bound = parts.lower.marginals, max(0.0, parts.fun)
        values, _ = self._within(np.where(dearer <= _LITTLE_DEARER * bound, self.upper, 0), limit_s)
        if values is None:
            return self.solved(limit_s)
        lost = float(np.array(self.cost) @ values)
        better, proven = self._within(np.where(dearer <= lost - bound + 1, self.upper, 0), limit_s)
        better_lost = inf if better is None else float(np.array(self.cost) @ better)
        bound = max(bound, min(proven, lost))
        return (better, bound) if better_lost < lost else (values, bound)

    def _matrix(self) -> tuple[Any, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        at = [
            (number, column, value) for number, (cells, _, _) in enumerate(self.rows) for column, value in cells.items()
        ]
        rows, columns, values = zip(*at, strict=True)
        matrix = csr_array((values, (rows, columns)), shape=(len(self.rows), len(self.cost)))
        return matrix, *(np.array([row[side] for row in self.rows]) for side in (1, 2))

    def _within(self, upper: npt.NDArray[np.float64], limit_s: float) -> tuple[npt.NDArray[np.float64] | None, float]:
        matrix, least, most = self._matrix()
        found = milp(
            np.array(self.cost),
            integrality=np.array(self.whole),
            bounds=Bounds(0, upper),
            constraints=LinearConstraint(matrix, least, most),
            options={"mip_rel_gap": 0, "time_limit": limit_s},
        )
        if found.status == _INFEASIBLE:
            return None, inf
        bound = 0.0 if found.mip_dual_bound is None else max(0.0, found.mip_dual_bound)
        if found.x is None:
            return None, bound
        whole = np.where(self.whole, np.round(found.x), found.x)
        sums = matrix @ whole
        assert (sums >= least - _EXACT).all(), "rounded values break a row"
        assert (sums <= most + _EXACT).all(), "rounded values break a row"
        lost = float(np.array(self.cost) @ whole)
        return whole, (lost if found.status == 0 else min(bound, lost))


def best(problem: EvictionProblem, limit_s: float = LIMIT_S) -> Best:
    """The best plan for the longest delay."""
    program, limit = Program(), problem.max_delay_s
    leaves: dict[str, list[int]] = {}
    for each in problem.candidates:
        leaves[each.job_id] = [program.column(option.lost_work_node_s) for option in in_time(each, limit)]
        program.row(dict.fromkeys(leaves[each.job_id], 1.0), most=1.0)
    ways = [option for each in problem.candidates for option in in_time(each, limit)]
    _in_sequence(program, ways, problem)
    if problem.needs is None and not any(each.node_names for each in problem.candidates):
        program.row(
            {column: float(each.nodes) for each in problem.candidates for column in leaves[each.job_id]},
            least=float(problem.nodes_needed),
        )
    else:
        nodes = [
            column
            for node in asked_of(problem)
            if (column := _given(program, node, {job_id: leaves[job_id] for job_id in node.held})) is not None
        ]
        program.row(dict.fromkeys(nodes, 1.0), least=float(problem.nodes_needed))
    values, least = program.solved(limit_s)
    lost = inf if values is None else round(float(np.array(program.cost) @ values), 3)
    found = Best(lost, lost if least >= lost - _EXACT * max(1.0, lost) else round(least, 3))
    if found.proven or not _is_tabular(problem):
        return found
    lost = by_table(problem)
    assert found.least_node_s - 1 <= lost <= found.lost_node_s, (found, lost)
    return Best(lost, lost)


def in_time(job: Candidate, limit_s: float) -> list[Option]:
    """The options that are better than every other one in one of two ways at least: loss and time."""
    kept: list[Option] = []
    able = [each for each in job.options if max(ceil(each.ready_s), ceil(each.checkpoint_s)) <= limit_s]
    for option in sorted(able, key=lambda each: (each.lost_work_node_s, each.checkpoint_s)):
        shares = option.file_system_s is not None or any(each.file_system_s is not None for each in kept)
        if shares or not kept or option.checkpoint_s < kept[-1].checkpoint_s:
            kept.append(option)
    return kept


def _in_sequence(program: Program, ways: Sequence[Option], problem: EvictionProblem) -> None:
    """``ways`` are the program's first columns."""
    timed = {column: float(ceil(way.checkpoint_s)) for column, way in enumerate(ways) if way.checkpoint_s}
    if not timed:
        return
    if not problem.busy_s and all(way.file_system_s is None for way in ways):
        program.row(timed, most=float(problem.max_delay_s))
        return
    rest = program.column(upper=float(problem.max_delay_s), whole=False)
    share = {
        column: float(ceil(timed[column] if ways[column].file_system_s is None else ways[column].file_system_s or 0))
        for column in timed
    }
    for column, alone in timed.items():
        own = alone - share[column] + problem.busy_s
        if own:
            program.row({rest: 1.0, column: -own}, least=0.0)
    program.row({**share, rest: 1.0}, most=float(problem.max_delay_s))


class AskedNode(NamedTuple):
    """What is asked of a node, what is free on it, and what each job holds there: one number for each resource."""

    name: str
    asked: tuple[int, ...]
    free: tuple[int, ...]
    held: Mapping[str, tuple[int, ...]]


def asked_of(problem: EvictionProblem) -> list[AskedNode]:
    """The nodes that could serve; whole nodes are one resource of which every job holds a part."""
    found = []
    held: dict[str, dict[str, Amounts | None]] = defaultdict(dict)
    for each in problem.candidates:
        for place, name in enumerate(each.node_names):
            held[name][each.job_id] = each.holds[place] if each.holds else None
    if problem.needs is None:
        for name, jobs in held.items():
            found.append(AskedNode(name, (len(jobs),), (0,), dict.fromkeys(jobs, (1,))))
        return found
    needs = problem.needs
    assert needs == Needs(per_node=needs.per_node), "of needs only what is asked of each node is known here"

    def amounts(some: Amounts) -> tuple[int, ...]:
        return (some.cores, some.memory_mib, *(some.gpus_of(kind) for kind, _ in needs.per_node.gpus))

    asked = amounts(needs.per_node)
    for node in problem.nodes:
        has, stays = amounts(node.has), amounts(node.held)
        jobs_hold = {job_id: amounts(own or node.has) for job_id, own in held[node.name].items()}
        used = [sum(column) for column in zip(stays, *jobs_hold.values(), strict=True)]
        free = tuple(all_ - own for all_, own in zip(has, used, strict=True))
        if all(all_ - own >= most for all_, own, most in zip(has, stays, asked, strict=True)):
            found.append(AskedNode(node.name, asked, free, jobs_hold))
    return found


def _given(program: Program, node: AskedNode, leaves: Mapping[str, Sequence[int]]) -> int | None:
    """A column that is one where the node is given to the urgent job; None where it cannot be."""
    given = program.column()
    for place, asked in enumerate(node.asked):
        short = asked - node.free[place]
        if short <= 0:
            continue
        gives = {job_id: min(short, own[place]) for job_id, own in node.held.items() if own[place] and leaves[job_id]}
        if sum(gives.values()) < short:
            program.upper[given] = 0.0
            return None
        row = {column: amount / short for job_id, amount in gives.items() for column in leaves[job_id]}
        program.row({**row, given: -1.0}, least=0.0)
        for job_id, amount in gives.items():  # without it the others do not suffice
            if sum(gives.values()) - amount < short:
                program.row({**dict.fromkeys(leaves[job_id], 1.0), given: -1.0}, least=0.0)
    return given


def _is_tabular(problem: EvictionProblem) -> bool:
    plain = problem.needs is None and not problem.busy_s and not any(each.node_names for each in problem.candidates)
    shares = any(option.file_system_s is not None for each in problem.candidates for option in each.options)
    cells = len(problem.candidates) * problem.max_delay_s * problem.nodes_needed
    return plain and not shares and cells / gcd(*[each.nodes for each in problem.candidates]) <= MOST_CELLS


def by_table(problem: EvictionProblem) -> float:
    """The least loss: by the number of nodes and the seconds, after each job in turn."""
    unit = gcd(*[each.nodes for each in problem.candidates])
    needed, limit = -(-problem.nodes_needed // unit), problem.max_delay_s
    table = np.full((needed + 1, limit + 1), np.inf)
    table[0] = 0.0
    for each in problem.candidates:
        before, nodes = table.copy(), min(each.nodes // unit, needed)
        for option in in_time(each, limit):
            late = ceil(option.checkpoint_s)
            after = before[:, : limit + 1 - late] + option.lost_work_node_s
            np.minimum(table[nodes:, late:], after[: needed + 1 - nodes], out=table[nodes:, late:])
            np.minimum(
                table[needed, late:], after[needed + 1 - nodes :].min(axis=0, initial=np.inf), out=table[needed, late:]
            )
    return round(float(table[needed, limit]), 3)


def read_stored() -> dict[str, Best]:
    stored: dict[str, list[float | None]] = json.loads(STORED.read_text()) if STORED.exists() else {}
    return {
        key: Best(*[inf if each is None else each for each in (found[0], found[-1])]) for key, found in stored.items()
    }


def store(found: Mapping[str, Best]) -> None:
    """Proven ones have one number; null is infinity."""
    rows = [
        f'"{key}": {json.dumps([None if each == inf else each for each in (set_of(best))])}'
        for key, best in sorted(found.items())
    ]
    STORED.write_text("{\n" + ",\n".join(rows) + "\n}\n")


def set_of(best: Best) -> list[float]:
    return [best.lost_node_s] if best.proven else [best.lost_node_s, best.least_node_s]


def best_of_crowd(crowd: Any) -> Best:
    """Where the planner under test finds a better plan, that is the best that is known; the bound stays."""
    from tests.benchmarks import crowds
    from tests.benchmarks.planner_under_test import crowd_planned

    known = crowds.best_of_crowd(crowd)
    planned = crowd_planned(crowd, LIMIT_S)
    if known.proven or planned.served < len(crowd.asks):
        return known
    return Best(min(known.lost_node_s, planned.lost_node_s), known.least_node_s)


def main(families: Iterable[str]) -> None:
    from tests.benchmarks import problem_set
    from tests.benchmarks.crowds import family_f

    found = read_stored()
    for family in families:
        drawn: Iterable[Any] = family_f() if family == "f" else getattr(problem_set, f"family_{family}")()
        for each in drawn:
            key = each.key
            if key not in found:
                begin = time.monotonic()
                found[key] = best_of_crowd(each) if family == "f" else best(each.problem)
                spent_s = time.monotonic() - begin
                note = "" if found[key].proven else "NOT PROVEN"
                print(family, each.name, found[key], note, f"{spent_s:.1f} s", flush=True)
                if spent_s > 1 or len(found) % 50 == 0:
                    store(found)
        store(found)


if __name__ == "__main__":
    main(sys.argv[1:] or "abcef")
