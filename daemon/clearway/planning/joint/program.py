"""Several urgent jobs as one mixed-integer program, solved by HiGHS.

Model: see ``several``. A binary variable for each way of each job and each request in time for which it may leave; a
whole number for each class of nodes (see ``joint.nodes``) and each request. Where a node needs not all of its jobs to
leave, a binary variable u says whether any of the class is given to the request, and for each resource that is short

    sum of what the jobs give back that have left by then  >=  what is missing x u.

Where nodes must lie together, a binary variable for each place (row, leaf switch) of which one is chosen. Lost work
comes first, then what coming back costs, checkpoint time and preemptees, each held while the next is minimised.

Cost: exponential at worst, so time is limited: what was found by then counts as not proven. Of equally good plans HiGHS
may return any, but the same one for the same program.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from clearway.model.problem import ACTION_ORDER, Action, Option
from clearway.planning.formulation.lost_units import fitting_units
from clearway.planning.joint.allocated import Given, allocated, ends_of
from clearway.planning.joint.nodes import JointNodes
from clearway.planning.joint.requests import Allocation, Request

if TYPE_CHECKING:
    from scipy.optimize import LinearConstraint

_Row = npt.NDArray[np.float64]
_Cells = Mapping[int, float]  # column to coefficient
_Limited = tuple[_Cells, float, float]  # coefficients, and the least and most of their sum
_Given = Sequence[tuple[int, int]]  # column, and the request that nodes of a class are given to
_Ways = Sequence[tuple[int, Option, int]]  # column, way, and the request (by its phase) that the job leaves for

_SURE_UNITS = 10**12  # sums up to here are told apart by HiGHS's double arithmetic
_ROUNDING = 1e-6  # less than any whole number, more than what sums of parts are rounded by
_SOLVE_ERROR = 4  # HiGHS comes upon a few programs, one of several hundred, that its presolving spoils


class Best(NamedTuple):
    """The cheapest plan found that serves all requests; ``least_node_s``: no plan loses less than this.

    ``proven``: HiGHS says that it is the best. ``sure``: that was checked in whole numbers as well, as HiGHS computes
    with tolerances: every key has the sum that HiGHS named, and all of them are small enough to be told apart.
    """

    allocations: tuple[Allocation, ...]
    proven: bool
    least_node_s: float
    sure: bool = False
    later: frozenset[str] = frozenset()  # requests that there was no time for


class _Found(NamedTuple):
    """A solution in whole numbers; ``proven`` to be the best, or that there is none; a bound on all; what it costs."""

    values: _Row | None
    proven: bool
    least: float
    cost: float = 0.0


class JointProgram:
    """The program of some requests; phases are the requests in the order of their delays."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._requests = sorted(requests, key=lambda request: (request.problem.max_delay_s, request.job_id))
        self._limits = [int(request.problem.max_delay_s) for request in self._requests]
        self._ways = [{each.job_id: each.options for each in request.problem.candidates} for request in self._requests]
        self._ends = ends_of(self._requests)
        self._nodes = JointNodes(self._requests)
        self._classes = self._nodes.classes
        self._leave: list[tuple[str, Option, int]] = [
            (job_id, option, phase)
            for phase, (ways, limit_s) in enumerate(zip(self._ways, self._limits, strict=True))
            for job_id, options in sorted(ways.items())
            if not self._has_ended(job_id, phase)
            for option in sorted(options, key=lambda option: ACTION_ORDER[option.action])
            if option.action is not Action.END and max(ceil(option.checkpoint_s), option.ready_s) <= limit_s
        ]
        numbers = itertools.count(len(self._leave))  # of the columns after those of the jobs
        self._give = {
            (number, phase): next(numbers) for number, each in enumerate(self._classes) for phase in sorted(each.asks)
        }
        self._uses = {
            (number, phase): next(numbers)
            for number, phase in self._give
            if len(self._classes[number].names) > 1 and not self._classes[number].takes_all_jobs[phase]
        }
        self._places: dict[int, dict[int, frozenset[int]]] = {  # by phase, where nodes must lie together: by column
            phase: {next(numbers): place for place in places}
            for phase in range(len(self._requests))
            if (places := self._nodes.places(phase)) is not None
        }
        self._width = next(numbers)
        self._units = fitting_units([option.lost_work_node_s for _, option, _ in self._leave])
        worth = [
            (self._units.units(option.lost_work_node_s), option.return_node_s, ceil(option.checkpoint_s), 1)
            for _, option, _ in self._leave
        ]
        self._keys = np.zeros((4, self._width))
        self._keys[:, : len(worth)] = np.array(worth, dtype=float).T

    def _ends_s(self, job_id: str) -> float:
        return self._ends[job_id].ready_s if job_id in self._ends else np.inf

    def _has_ended(self, job_id: str, phase: int) -> bool:
        return self._ends_s(job_id) <= self._limits[phase]

    def shorten(self, delay_s: int) -> None:
        """Gives the only request a delay that is no longer than its own."""
        self._limits = [delay_s]

    def feasible(self, seconds_left: Callable[[], float]) -> bool | None:
        """Whether all requests can be served; None when there was no time to find out."""
        found = self._minimum(np.zeros(self._width), self._constraints(), seconds_left())
        return True if found.values is not None else (False if found.proven else None)

    def best(self, seconds_left: Callable[[], float]) -> Best | None:
        """The cheapest plan that serves all requests; None when there is none, or none was found in time."""
        from scipy.optimize import LinearConstraint  # noqa: PLC0415 - see _minimum

        held = self._constraints()
        best: _Row | None = None
        exact, sure, least = True, True, None
        for key in self._keys:
            found = self._minimum(key, held, seconds_left())
            least = found.least if least is None else least
            if found.values is None:
                exact = sure = False
                break
            best, exact = found.values, exact and found.proven
            sure = sure and key @ best == round(found.cost) < _SURE_UNITS and self._keeps_to(held, best)
            held.append(LinearConstraint(key[np.newaxis], ub=float(key @ best) + 0.5))  # keys are whole numbers
        allocations = None if best is None else self._allocations(best)
        if allocations is None:
            return None
        least_node_s = self._units.node_s(ceil(max(0.0, least or 0.0) - 1e-6))
        return Best(allocations, exact, least_node_s, exact and sure)

    @staticmethod
    def _keeps_to(held: Sequence[LinearConstraint], values: _Row) -> bool:
        """Whether rounded values satisfy the constraints; what parts of nodes add up to is for ``_allocations``."""
        sums = [(each, each.A @ values) for each in held]
        return all(
            np.all(found >= each.lb - _ROUNDING) and np.all(found <= each.ub + _ROUNDING) for each, found in sums
        )

    def _minimum(self, key: _Row, held: Sequence[LinearConstraint], limit_s: float) -> _Found:
        # Several urgent jobs at once are rare: a daemon that never sees them does without scipy's time and memory.
        from scipy.optimize import Bounds, milp  # noqa: PLC0415

        if not self._width:
            return _Found(None, True, 0.0)  # there is no node to give away
        if limit_s <= 0:
            return _Found(None, False, 0.0)
        upper = np.ones(self._width)
        upper[list(self._give.values())] = [len(self._classes[number].names) for number, _ in self._give]
        for presolve in (True, False):
            result = milp(
                key,
                integrality=np.ones(self._width),
                bounds=Bounds(0, upper),
                constraints=held,
                options={"mip_rel_gap": 0, "time_limit": limit_s, "presolve": presolve},
            )
            if result.status != _SOLVE_ERROR:
                break
        values = None if result.x is None else np.round(result.x)
        least = result.mip_dual_bound
        least = least if least is not None and np.isfinite(least) else 0.0
        return _Found(values, result.status in (0, 2), least, result.fun or 0.0)

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

    def _rows(self) -> Iterable[_Limited]:
        """Every constraint."""
        of_job: dict[str, list[tuple[int, Option, int]]] = defaultdict(list)
        for column, (job_id, option, phase) in enumerate(self._leave):
            of_job[job_id].append((column, option, phase))
        for ways in of_job.values():
            yield {column: 1.0 for column, _, _ in ways}, 0.0, 1.0
        given: dict[int, list[tuple[int, int]]] = defaultdict(list)
        wanted: dict[int, dict[int, float]] = defaultdict(dict)
        for (number, phase), column in self._give.items():
            given[number].append((column, phase))
            wanted[phase][column] = 1.0
        for phase, request in enumerate(self._requests):
            yield wanted[phase], float(request.nodes), float(request.nodes)
            if self._nodes.lacks_required(phase):
                yield {}, 1.0, 1.0
            written = {
                column: float(ceil(option.checkpoint_s))
                for column, (_, option, before) in enumerate(self._leave)
                if before <= phase and option.checkpoint_s
            }
            yield written, 0.0, float(self._limits[phase])
        for number, each in enumerate(self._classes):
            count = len(each.names)
            yield {column: 1.0 for column, _ in given[number]}, 0.0, float(count)
            for job_id in sorted(each.jobs):
                whole = [
                    (column, phase)
                    for column, phase in given[number]
                    if each.takes_all_jobs[phase] and any(job_id == other for other, _ in each.asks[phase].held)
                ]
                yield from self._left_rows(job_id, count, whole, of_job[job_id])
                yield from self._kept_rows(count, given[number], of_job[job_id])
            for column, phase in given[number]:
                if phase in each.required_by:
                    yield {column: 1.0}, float(count), float(count)
                if not each.takes_all_jobs[phase]:
                    yield from self._partial_rows(number, phase, column, of_job)
        yield from self._place_rows()

    def _left_rows(self, job_id: str, count: int, given: _Given, ways: _Ways) -> Iterable[_Limited]:
        """No node is given away before this job has left it."""
        for phase in range(len(self._requests)):
            taken = {column: 1.0 for column, of in given if of <= phase}
            if taken and not self._has_ended(job_id, phase):
                yield taken | {column: -float(count) for column, _, of in ways if of <= phase}, -np.inf, 0.0

    def _kept_rows(self, count: int, given: _Given, ways: _Ways) -> Iterable[_Limited]:
        """A suspended job's nodes serve only the request that it was suspended for."""
        for column, of in given:
            others = {way: float(count) for way, option, to in ways if option.action is Action.SUSPEND and to != of}
            if others:
                yield others | {column: 1.0}, 0.0, float(count)

    def _partial_rows(self, number: int, phase: int, column: int, of_job: Mapping[str, _Ways]) -> Iterable[_Limited]:
        """Where any of these nodes is given to the request, the jobs that have left give back enough."""
        each = self._classes[number]
        use = self._uses.get((number, phase), column)
        if use != column:
            yield {column: 1.0, use: -float(len(each.names))}, -np.inf, 0.0
        demand = each.asks[phase]
        for place, short in enumerate(demand.missing):
            row = {use: -1.0}  # all of it in parts of what is missing: HiGHS rounds
            ended = 0.0
            for job_id, amounts in demand.held:
                if self._has_ended(job_id, phase):
                    ended += amounts[place] / short
                else:
                    row |= {way: amounts[place] / short for way, _, of in of_job.get(job_id, ()) if of <= phase}
            yield row, -ended, np.inf

    def _place_rows(self) -> Iterable[_Limited]:
        """Requests whose nodes must lie together have them in one place."""
        for phase, places in self._places.items():
            yield dict.fromkeys(places, 1.0), 1.0, 1.0
            for number, column in [(number, column) for (number, of), column in self._give.items() if of == phase]:
                nodes = float(len(self._classes[number].names))
                yield {column: 1.0} | {at: -nodes for at, place in places.items() if number in place}, -np.inf, 0.0

    def _allocations(self, found: _Row) -> tuple[Allocation, ...] | None:
        """None where rounding left a node with less than it needs."""
        ways = {self._leave[column][0]: self._leave[column][1:] for column in np.flatnonzero(found[: len(self._leave)])}
        left = [list(each.names) for each in self._classes]
        given = []
        for (number, phase), column in self._give.items():
            count = int(found[column])
            if count:
                given.append(Given(phase, left[number][:count], self._classes[number].asks[phase]))
                del left[number][:count]
        return allocated(self._requests, self._limits, given, ways)
