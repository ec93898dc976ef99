"""Parts of nodes, and several urgent jobs at once: one program in whole numbers, solved by HiGHS.

Model: see ``several``. A binary variable for each way of each job and each delay for which it may leave; a whole number
for each class of nodes (see ``nodes``) and each request. Where a node needs not all of its jobs to leave, a binary
variable u says whether any of the class is given to the request, and for each resource that is short

    sum of what the jobs give back that have left by then  >=  what is missing x u.

Where nodes must lie together, a binary variable for each place (row, leaf switch) of which one is chosen; likewise for
each leaf switch where they may be under several, and for each feature that all may have.

Jobs that end by themselves are ways that cost nothing. Of one request alone a variable says when its nodes are free:
after all checkpoints that are written, however they share the file system (``formulation.shared_bandwidth``), and after
each end that it counts on.

Lost work comes first, then what coming back costs (with what the request's own nodes wait, where it is alone),
checkpoint time and preemptees, each held while the next is minimised.

Cost: exponential at worst, so time is limited: what was found by then comes with a gap. Of equally good plans HiGHS may
return any, but the same one for the same program.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil, inf
from typing import NamedTuple

import numpy as np

from clearway.model.problem import ACTION_ORDER, Action, Option
from clearway.planning.base import Seconds, unlimited
from clearway.planning.formulation.lost_units import fitting_units
from clearway.planning.joint.nodes import JointNodes, allocated, given_of, required_of
from clearway.planning.joint.reduced_cost import Cell, Flags, Found, Numbers, Program, ProgramBuilder, relaxed, within
from clearway.planning.joint.requests import Allocation, Best, Request

_TIES_S = 0.5  # that each of the keys after lost work may take, at most
_LITTLE = 1e-6


class Leaving(NamedTuple):
    """A column: a way of a job, and the first request (by number) that it may leave for."""

    job_id: str
    option: Option
    first: int
    only: int | None = None  # of a job that is suspended: the only request that its nodes serve


class JointProgram:
    """The program of some requests, which are numbered in the order of their delays."""

    def __init__(self, requests: Sequence[Request], step_s: int = 1) -> None:
        """Durations are rounded up to whole steps of ``step_s`` seconds."""
        self._step_s = step_s
        self._requests = sorted(requests, key=lambda request: (request.problem.max_delay_s, request.job_id))
        self._limits = [int(request.problem.max_delay_s) for request in self._requests]
        self._one = len(requests) == 1
        self._busy_s = self._steps_s(self._requests[0].problem.busy_s) if self._one else 0
        self._nodes = JointNodes(self._requests)
        self._classes = self._nodes.classes
        self._leave = list(self._all_ways())
        self._of_job: dict[str, list[int]] = defaultdict(list)
        self._builder = builder = ProgramBuilder()
        for way in self._leave:
            self._of_job[way.job_id].append(builder.column())
        self._give = {
            (number, request): builder.column(upper=len(each.names))
            for number, each in enumerate(self._classes)
            for request in sorted(each.asks)
        }
        self._waits: list[int] = []  # the column of the time until the only request's nodes are free
        self._add_rows()
        self._program = builder.program()
        self._units = fitting_units([way.option.lost_work_node_s for way in self._leave])
        self._keys = self._all_keys()
        self.infeasible = False  # whether ``best`` has found out that there is no plan

    def _steps_s(self, seconds: float) -> int:
        return ceil(seconds / self._step_s) * self._step_s

    def _all_ways(self) -> Iterator[Leaving]:
        """A job leaves for the first request within each delay, where this takes time; otherwise for the first of all.

        Where it is suspended, it leaves for one request alone.
        """
        known: set[tuple[str, Option, int]] = set()
        for number, request in enumerate(self._requests):
            limit_s = self._limits[number]
            for job in sorted(request.problem.candidates, key=lambda job: job.job_id):
                for option in sorted(job.options, key=lambda option: ACTION_ORDER[option.action]):
                    suspends = option.action is Action.SUSPEND
                    sort = number if suspends else limit_s if option.checkpoint_s else -1
                    in_time = self._steps_s(max(option.checkpoint_s, option.ready_s)) <= limit_s
                    if in_time and (way := (job.job_id, option, sort)) not in known:
                        known.add(way)
                        yield Leaving(job.job_id, option, number, number if suspends else None)

    def _all_keys(self) -> Numbers:
        """Lost work in units, what coming back costs, checkpoint time and preemptees, by column."""
        keys = np.zeros((4, len(self._program.cost)))
        for column, way in enumerate(self._leave):
            if way.option.action is not Action.END:
                lost = self._units.units(way.option.lost_work_node_s)
                keys[:, column] = lost, way.option.return_node_s, self.written_s(way.option), 1
        return keys

    def written_s(self, option: Option) -> int:
        """What its data takes with the whole file system."""
        return self._steps_s(option.checkpoint_s if option.file_system_s is None else option.file_system_s)

    def _beside_s(self, option: Option) -> int:
        """What it takes beside that: at its own rate, or after the checkpoints of others."""
        return self._steps_s(option.checkpoint_s) - self.written_s(option) + self._busy_s if option.checkpoint_s else 0

    def done_s(self, best: Best) -> int:
        """When the nodes of the only request are free."""
        ways = [option for each in best.allocations for _, option in (*each.leaving, *each.ending)]
        written_s = sum(map(self.written_s, ways)) + max(map(self._beside_s, ways), default=0)
        return max([written_s, *[self._steps_s(way.ready_s) for way in ways]])

    def _add_rows(self) -> None:
        rows = self._builder
        for columns in self._of_job.values():
            rows.at_most([(column, 1.0) for column in columns], 1.0)
        given: dict[int, list[tuple[int, int]]] = defaultdict(list)
        wanted: dict[int, list[Cell]] = defaultdict(list)
        required: dict[int, list[Cell]] = defaultdict(list)
        for (number, request), column in self._give.items():
            given[number].append((column, request))
            wanted[request].append((column, 1.0))
            if self._classes[number].names[0] in required_of(self._requests[request]):
                required[request].append((column, 1.0))
        written = [(column, float(self.written_s(way.option))) for column, way in enumerate(self._leave)]
        written = [(column, seconds) for column, seconds in written if seconds]
        for request, each in enumerate(self._requests):
            rows.at_most(wanted[request], each.nodes)
            rows.at_least(wanted[request], each.nodes)
            rows.at_least(required[request], len(set(required_of(each))))  # also where one can never serve it
            self._add_places(request)
            if not self._one:  # checkpoints are written one after another, the most pressing first
                in_time = [cell for cell in written if self._leave[cell[0]].first <= request]
                rows.at_most(in_time, self._limits[request])
        if self._one:
            self._add_time_of_one(written)
        for number, own in given.items():
            self._add_class(number, own)

    def _add_time_of_one(self, written: Sequence[Cell]) -> None:
        limit_s = max(0, self._limits[0])
        waits = self._builder.column(upper=limit_s, whole=False)
        self._waits.append(waits)
        rest = self._builder.column(upper=limit_s, whole=False)  # what checkpoints take beside the file system's time
        self._builder.at_most([*written, (rest, 1.0), (waits, -1.0)], 0.0)
        for column, way in enumerate(self._leave):
            for seconds, free in ((self._beside_s(way.option), rest), (self._steps_s(way.option.ready_s), waits)):
                if seconds:
                    self._builder.at_most([(column, float(seconds)), (free, -1.0)], 0.0)

    def _add_class(self, number: int, given: Sequence[tuple[int, int]]) -> None:
        each, rows = self._classes[number], self._builder
        count = float(len(each.names))
        if len(given) > 1:
            rows.at_most([(column, 1.0) for column, _ in given], count)
        for job_id in sorted(each.jobs):
            whole = [
                (column, request)
                for column, request in given
                if each.takes_all_jobs(request) and any(job_id == other for other, _ in each.asks[request].held)
            ]
            self._add_left(job_id, count, whole)
            for column, request in given:  # a suspended job's nodes serve only the request that it was suspended for
                ways = self._of_job.get(job_id, ())
                others = [(way, count) for way in ways if self._leave[way].only not in (None, request)]
                if others:
                    rows.at_most([*others, (column, 1.0)], count)
        for column, request in given:
            if not each.takes_all_jobs(request):
                self._add_part(number, request, column)

    def _add_left(self, job_id: str, count: float, given: Sequence[tuple[int, int]]) -> None:
        """No node is given away before this job has left it."""
        ways = [(column, self._leave[column].first) for column in self._of_job.get(job_id, ())]
        cuts = [-1, *sorted({first for _, first in ways}), len(self._requests)]
        for cut, end in pairwise(cuts):
            if any(cut <= request < end for _, request in given):
                taken = [(column, 1.0) for column, request in given if request < end]
                self._builder.at_most([*taken, *((column, -count) for column, first in ways if first <= cut)], 0.0)

    def _add_part(self, number: int, request: int, column: int) -> None:
        """Where any of these nodes is given to the request, the jobs that have left give back enough."""
        each = self._classes[number]
        use = column
        if len(each.names) > 1:
            use = self._builder.column()
            self._builder.at_most([(column, 1.0), (use, -float(len(each.names)))], 0.0)
        demand = each.asks[request]
        for place, short in enumerate(demand.missing):
            cells = [(use, -1.0)]  # all of it in parts of what is missing: HiGHS rounds
            for job_id, amounts in demand.held:
                ways = self._of_job.get(job_id, ())
                cells += [(way, amounts[place] / short) for way in ways if self._leave[way].first <= request]
            self._builder.at_least(cells, 0.0)

    def _add_places(self, request: int) -> None:
        """A request whose nodes must lie together has them in one place, or under so many leaf switches."""
        for choice in self._nodes.choices(request):
            chosen = [(self._builder.column(), among) for among in choice.among]
            self._builder.at_most([(column, 1.0) for column, _ in chosen], choice.most)
            for number, column in [(number, column) for (number, of), column in self._give.items() if of == request]:
                count = float(len(self._classes[number].names))
                beside = [(at, -count) for at, among in chosen if number in among]
                self._builder.at_most([(column, 1.0), *beside], 0.0)

    def feasible(self, seconds_left: Seconds) -> bool | None:
        """Whether all requests can be served; None when there was no time to find out."""
        found = self._solve(self._program, seconds_left)
        return True if found.values is not None else (False if found.least == inf else None)

    def soonest_s(self) -> int | None:
        """When the nodes of the only request can be free at the earliest; None when they cannot."""
        values = self._solve(self._soonest(), unlimited).values
        return None if values is None else self._steps_s(float(values[self._waits].sum()) - _LITTLE)

    def _soonest(self) -> Program:
        cost = np.zeros(len(self._program.cost))
        cost[self._waits] = 1.0
        return replace(self._program, cost=cost)

    def without_preemption(self, seconds_left: Seconds) -> Best | None:
        """The soonest plan of the only request in which no job is preempted, as jobs end by themselves; None: none."""
        preempts = [c for c, way in enumerate(self._leave) if way.option.action is not Action.END]
        if len(preempts) == len(self._leave):
            return None
        upper = self._program.upper.copy()
        upper[preempts] = 0.0
        found = self._solve(replace(self._soonest(), upper=upper), seconds_left)
        allocations = None if found.values is None else self._allocations(found.values)
        return None if allocations is None else Best(allocations, proven=True, least_node_s=0.0)

    @staticmethod
    def _solve(program: Program, seconds_left: Seconds) -> Found:
        if seconds_left() <= 0:
            return Found(-inf, None, cut_short=True)
        return relaxed(program, seconds_left()).solved(seconds_left)

    def best(self, seconds_left: Seconds, waiting_nodes: int = 0) -> Best | None:
        """The cheapest plan that serves all requests; None when there is none, or none was found in time.

        ``waiting_nodes``: so many wait until the nodes of the only request are free, which counts as what coming back
        costs.
        """
        if seconds_left() <= 0:
            return None
        first = relaxed(replace(self._program, cost=self._keys[0]), seconds_left())
        found = first.solved(seconds_left)
        if found.values is None:
            self.infeasible = found.least == inf
            return None
        keys = self._keys.copy()
        keys[1, self._waits] = waiting_nodes
        lost, least = round(float(keys[0] @ found.values)), max(0.0, found.least)
        proven = (least > lost - 0.5 and not found.cut_short) or lost == 0
        allocations = self._allocations(self._with_ties(keys, found.values, first.differing(lost), seconds_left))
        if allocations is None:
            return None
        least_node_s = self._units.node_s(lost if proven else min(lost, ceil(least - _LITTLE)))
        return Best(allocations, proven, least_node_s)

    def _with_ties(self, keys: Numbers, values: Numbers, in_doubt: Flags, seconds_left: Seconds) -> Numbers:
        """The best by each later key that is as good by all before it, as far as only what is in doubt differs.

        HiGHS cannot begin with what is known: where it finds nothing in its time, the keys after that are left alone.
        Rows are in parts of their largest number, as its tolerances are absolute.
        """
        from scipy.sparse import csc_array, vstack  # noqa: PLC0415

        rows = np.where(in_doubt, keys, 0.0)
        sizes = np.maximum(1.0, rows.max(axis=1))
        for place in range(1, len(keys)):
            if not rows[place].any():
                continue
            before = csc_array(rows[:place] / sizes[:place, None])
            most = (rows[:place] @ values + 0.5) / sizes[:place]  # keys are whole numbers
            program = replace(
                self._program,
                cost=rows[place],
                matrix=vstack([self._program.matrix, before], format="csc"),
                most=np.append(self._program.most, most),
            )
            found = within(program, values, in_doubt, lambda: min(_TIES_S, seconds_left())).values
            if found is None:
                break
            if keys[place] @ found <= keys[place] @ values:
                values = found
        return values

    def _allocations(self, found: Numbers) -> tuple[Allocation, ...] | None:
        """None where rounding left a node with less than it needs."""
        left_by = [self._leave[column] for column in np.flatnonzero(found[: len(self._leave)] > 0.5).tolist()]
        ways = {each.job_id: (each.option, each.first) for each in left_by if each.option.action is not Action.END}
        ends = {each.job_id: each.option for each in left_by if each.option.action is Action.END}
        named = [(each, each.names) for each in self._classes]
        given = given_of(named, ((*of, found[column]) for of, column in self._give.items()))
        return allocated(self._requests, self._limits, given, ways, ends)
