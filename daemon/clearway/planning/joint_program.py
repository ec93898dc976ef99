"""Several urgent jobs as one mixed-integer program, solved by HiGHS.

Model: see ``several``. A binary variable for each way of each job and each party in time for which it may leave; a
whole number for each class of nodes (same jobs on them, same parties that they can serve) and each party. As for one
party, lost work comes first, then what coming back costs, checkpoint time and preemptees, each held while the next is
minimised.

Cost: exponential at worst, so time is limited: what was found by then counts as not proven. Of equally good plans
HiGHS may return any, but the same one for the same program.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from clearway.model import ACTION_ORDER, Action, Option
from clearway.planning.lost_units import fitting_units
from clearway.planning.parties import Party, Share

if TYPE_CHECKING:
    from scipy.optimize import LinearConstraint

_Row = npt.NDArray[np.float64]
_Cells = Mapping[int, float]  # column to coefficient


class JointProgram:
    """The program of some parties; phases are the parties in the order of their delays."""

    def __init__(self, parties: Sequence[Party]) -> None:
        self._parties = sorted(parties, key=lambda party: (party.problem.max_delay_s, party.job_id))
        self._limits = [int(party.problem.max_delay_s) for party in self._parties]
        self._collect()
        self._leave: list[tuple[str, Option, int]] = [
            (job_id, option, phase)
            for phase, ways in enumerate(self._ways)
            for job_id, options in sorted(ways.items())
            if self._ends_s(job_id) > self._limits[phase]
            for option in sorted(options, key=lambda option: ACTION_ORDER[option.action])
            if option.action is not Action.END and max(ceil(option.checkpoint_s), option.ready_s) <= self._limits[phase]
        ]
        self._give: list[tuple[int, int]] = [
            (number, phase) for number, (_, users, _) in enumerate(self._classes) for phase in sorted(users)
        ]
        self._width = len(self._leave) + len(self._give)
        units = fitting_units([option.lost_work_node_s for _, option, _ in self._leave])
        self._keys = [
            self._key(lambda option: units.units(option.lost_work_node_s)),
            self._key(lambda option: option.return_node_s),
            self._key(lambda option: ceil(option.checkpoint_s)),
            self._key(lambda _: 1),
        ]

    def _collect(self) -> None:
        """Each party's ways of each job, when jobs end by themselves, and the classes of nodes."""
        self._ways: list[dict[str, tuple[Option, ...]]] = []
        self._ends: dict[str, Option] = {}
        holders: dict[str, set[str]] = defaultdict(set)
        users: dict[str, set[int]] = defaultdict(set)
        for phase, party in enumerate(self._parties):
            self._ways.append({each.job_id: each.options for each in party.problem.candidates})
            for name in party.free_nodes:
                users[name].add(phase)
            for each in party.problem.candidates:
                for option in each.options:
                    if option.action is Action.END:
                        self._ends[each.job_id] = option
                for name in each.node_names:
                    holders[name].add(each.job_id)
                    users[name].add(phase)
        names: dict[tuple[frozenset[str], frozenset[int]], list[str]] = defaultdict(list)
        for name in sorted(users):
            names[frozenset(holders[name]), frozenset(users[name])].append(name)
        self._classes = [(jobs, phases, tuple(found)) for (jobs, phases), found in names.items()]

    def _ends_s(self, job_id: str) -> float:
        return self._ends[job_id].ready_s if job_id in self._ends else np.inf

    def _key(self, worth: Callable[[Option], int]) -> _Row:
        row = np.zeros(self._width)
        row[: len(self._leave)] = [worth(option) for _, option, _ in self._leave]
        return row

    def feasible(self, seconds_left: Callable[[], float]) -> bool | None:
        """Whether all parties can be served; None when there was no time to find out."""
        found, proven = self._minimum(np.zeros(self._width), self._constraints(), seconds_left())
        return True if found is not None else (False if proven else None)

    def best(self, seconds_left: Callable[[], float]) -> tuple[tuple[Share, ...], bool] | None:
        """The cheapest plan that serves all parties, and whether it is proven; None when none (was found in time)."""
        from scipy.optimize import LinearConstraint  # noqa: PLC0415 - see _minimum

        held = self._constraints()
        best: _Row | None = None
        exact = True
        for key in self._keys:
            found, proven = self._minimum(key, held, seconds_left())
            if found is None:
                exact = False
                break
            best, exact = found, exact and proven
            held.append(LinearConstraint(key[np.newaxis], ub=float(key @ found) + 0.5))  # keys are whole numbers
        return None if best is None else (self._shares(best), exact)

    def _minimum(self, key: _Row, held: Sequence[LinearConstraint], limit_s: float) -> tuple[_Row | None, bool]:
        """The solution in whole numbers, and whether it is proven (or proven that there is none)."""
        # Several urgent jobs at once are rare: a daemon that never sees them does without scipy's time and memory.
        from scipy.optimize import Bounds, milp  # noqa: PLC0415

        if not self._width:
            return None, True  # there is no node to give away
        if limit_s <= 0:
            return None, False
        upper = [1.0] * len(self._leave) + [float(len(self._classes[number][2])) for number, _ in self._give]
        result = milp(
            key,
            integrality=np.ones(self._width),
            bounds=Bounds(0, np.array(upper)),
            constraints=held,
            options={"mip_rel_gap": 0, "time_limit": limit_s},
        )
        return (None if result.x is None else np.round(result.x)), result.status in (0, 2)

    def _constraints(self) -> list[LinearConstraint]:
        from scipy.optimize import LinearConstraint  # noqa: PLC0415 - see _minimum
        from scipy.sparse import csr_array  # noqa: PLC0415

        rows = list(self._rows())
        cells = [(at, column, value) for at, (row, _, _) in enumerate(rows) for column, value in row.items()]
        if not cells:
            return []
        at_rows, at_columns, values = zip(*cells, strict=True)
        matrix = csr_array((values, (at_rows, at_columns)), shape=(len(rows), self._width))
        lower, upper = (np.array([row[side] for row in rows]) for side in (1, 2))
        return [LinearConstraint(matrix, lb=lower, ub=upper)]

    def _rows(self) -> Iterable[tuple[_Cells, float, float]]:
        """Coefficients, least and most of every constraint."""
        of_job: dict[str, list[tuple[int, Option, int]]] = defaultdict(list)
        for column, (job_id, option, phase) in enumerate(self._leave):
            of_job[job_id].append((column, option, phase))
        for ways in of_job.values():
            yield {column: 1.0 for column, _, _ in ways}, 0.0, 1.0
        given: dict[int, list[tuple[int, int]]] = defaultdict(list)
        wanted: dict[int, dict[int, float]] = defaultdict(dict)
        for column, (number, phase) in enumerate(self._give, len(self._leave)):
            given[number].append((column, phase))
            wanted[phase][column] = 1.0
        for phase, party in enumerate(self._parties):
            yield wanted[phase], float(party.nodes), float(party.nodes)
            written = {
                column: float(ceil(option.checkpoint_s))
                for column, (_, option, before) in enumerate(self._leave)
                if before <= phase and option.checkpoint_s
            }
            yield written, 0.0, float(self._limits[phase])
        for number, (jobs, _, names) in enumerate(self._classes):
            yield {column: 1.0 for column, _ in given[number]}, 0.0, float(len(names))
            for job_id in jobs:
                yield from self._node_rows(len(names), given[number], of_job[job_id], self._ends_s(job_id))

    def _node_rows(
        self, count: int, given: Sequence[tuple[int, int]], ways: Sequence[tuple[int, Option, int]], ends_s: float
    ) -> Iterable[tuple[_Cells, float, float]]:
        """No node is given away before its job has left; a suspended job's only to whom it was suspended for."""
        for phase, limit_s in enumerate(self._limits):
            taken = {column: 1.0 for column, of in given if of <= phase}
            if taken and ends_s > limit_s:
                yield taken | {column: -float(count) for column, _, of in ways if of <= phase}, -np.inf, 0.0
        for column, of in given:
            others = {way: float(count) for way, option, to in ways if option.action is Action.SUSPEND and to != of}
            if others:
                yield others | {column: 1.0}, 0.0, float(count)

    # -- from numbers to shares ----------------------------------------------------------------------------

    def _shares(self, found: _Row) -> tuple[Share, ...]:
        """Each job goes for the first party that is given a node of its; one that nobody needs stays."""
        nodes: list[list[str]] = [[] for _ in self._parties]
        first_user: dict[str, int] = {}
        ending: list[dict[str, Option]] = [{} for _ in self._parties]
        left = [list(names) for _, _, names in self._classes]
        for column, (number, phase) in enumerate(self._give, len(self._leave)):
            count = int(found[column])
            if not count:
                continue
            nodes[phase] += left[number][:count]
            del left[number][:count]
            for job_id in self._classes[number][0]:
                if self._ends_s(job_id) <= self._limits[phase]:
                    ending[phase][job_id] = self._ends[job_id]
                else:
                    first_user[job_id] = min(phase, first_user.get(job_id, phase))
        leaving: list[list[tuple[str, Option]]] = [[] for _ in self._parties]
        for column, (job_id, option, _) in enumerate(self._leave):
            if found[column] and job_id in first_user:
                leaving[first_user[job_id]].append((job_id, option))
        shares, written_s = [], 0
        for phase, party in enumerate(self._parties):
            written_s += sum(ceil(option.checkpoint_s) for _, option in leaving[phase])
            done_s = max([written_s, *(ceil(option.ready_s) for option in ending[phase].values())])
            shares.append(
                Share(
                    job_id=party.job_id,
                    leaving=tuple(sorted(leaving[phase], key=lambda each: each[0])),
                    ending=tuple(sorted(ending[phase].items())),
                    nodes=tuple(sorted(nodes[phase])),
                    done_s=done_s,
                )
            )
        return tuple(shares)
