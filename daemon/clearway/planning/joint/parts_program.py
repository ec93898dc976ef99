"""Many urgent jobs that take parts of nodes: a bound on every plan for them, and a plan, one phase after another.

Model: a class of n nodes gives y of them to the requests of one kind within one delay. Where a node needs not all of
its jobs to leave, w is how much of a job leaves for that kind; u is how much of the class is used, y / n in parts of
nodes, and 1 as soon as a whole one is given:

    for each kind:                             sum of y  >=  nodes that are asked
    for each class, kind and short resource:   sum of what each job gives back x w  >=  what is missing x u
    for each class, kind and job:              w <= u; where the job has to leave, it is u
    for each class and job:                    sum of w over the kinds  <=  how much of the job has left
    for all:                                   seconds of checkpoints  <=  the delay

That w is at most u makes the program in parts strong: without it a node is half used where its cheapest half is. A sum
of whole numbers may be divided and rounded up on both sides (Chvatal-Gomory), which is done with each amount there is.

Bound: the program in parts of nodes, with all requests within the longest delay. It is computed here from the prices
of the rows, whatever they are (weak duality), not taken from the solver.

Plan: over the nodes that the program in parts uses, and for each phase ``SPARE`` more of each kind that cost little at
its prices. Phases are solved in whole numbers (``reduced_cost``), the most pressing first; all but the last pay for a
second of checkpoints what it is worth in the bound's program, so that none takes the time that later ones need more.
Where not even parts make room for all, those are left out that it has least room for, later ones rather than earlier
ones. Where time is up before there are prices, the plan goes without, over as many more nodes as are asked.

Cost: time in the number of (kind, job, node) triples; HiGHS takes 0.1 to 0.5 s for a thousand shared nodes in parts,
and about 0.1 s for each phase. Source of the rounding: V. Chvatal, Edmonds polytopes and a hierarchy of combinatorial
problems, Discrete Mathematics 4 (1973).
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import Any, NamedTuple, Self

import numpy as np

from clearway.model.problem import Action, Candidate, Option
from clearway.planning.joint.nodes import Demand, JointNodes, NodeClass
from clearway.planning.joint.reduced_cost import Cell, Rows, over_used, relaxed
from clearway.planning.joint.requests import Request, ends_of

GAP = 0.02  # of a phase: what the phases do to each other costs more
ENOUGH = 0.1  # likewise, over the columns that parts use, or where time is up: more had better wait for the next cycle
USED = 1e-6  # of a node: less is nothing
_LESS = 1e-4  # node-seconds that a second of checkpoints, or coming back, counts as
_TIME_IS_UP = 1  # scipy's status
_SHORTEST_S = 1e-3  # that HiGHS is given
_MARGIN = 1e-11  # of all that is added up to a bound, which may nearly cancel out: for floating point


@dataclass(frozen=True, slots=True)
class World:
    """What all programs are made from."""

    classes: Sequence[NodeClass]
    jobs: Mapping[str, Candidate]
    ends_s: Mapping[str, float]

    @classmethod
    def of(cls, kinds: Sequence[Request]) -> Self:
        jobs: dict[str, Candidate] = {}  # with the ways that they have for any of the kinds
        for candidates in {id(kind.problem.candidates): kind.problem.candidates for kind in kinds}.values():
            for job in candidates:
                known = jobs.setdefault(job.job_id, job)
                ways = {option.action: option for option in (*job.options, *known.options)}
                jobs[job.job_id] = replace(known, options=tuple(ways.values()))
        ends_s = {job_id: end.ready_s for job_id, end in ends_of(kinds).items()}
        return cls(JointNodes(kinds).classes, jobs, dict.fromkeys(jobs, inf) | ends_s)

    def ways(self, job_id: str, limit_s: float) -> list[Option]:
        """Those in time, but for its end."""
        return [
            option
            for option in self.jobs[job_id].options
            if option.action is not Action.END and max(ceil(option.checkpoint_s), option.ready_s) <= limit_s
        ]


class Priced(NamedTuple):
    """The program in parts: no plan loses less than ``least_node_s``."""

    least_node_s: float
    second_node_s: float  # what a second of checkpoints is worth
    used: frozenset[str]  # nodes


@dataclass(slots=True)
class Served:
    """What the phases so far have given."""

    gone: dict[str, tuple[Option, int]] = field(default_factory=dict)  # jobs: the way, and the first group of the phase
    nodes: set[str] = field(default_factory=set)
    written_s: int = 0
    # by class and kind: the prices of its jobs when it was looked at, and its own
    prices: dict[tuple[int, int], tuple[list[float], float]] = field(default_factory=dict)

    def leave(self, ways: Mapping[str, Option], group: int) -> None:
        """The jobs that leave for a phase that begins with this group."""
        self.gone |= {job_id: (option, group) for job_id, option in ways.items()}
        self.written_s += sum(ceil(option.checkpoint_s) for option in ways.values())


class PhaseProgram:
    """The program of the nodes that some kinds ask for within one delay."""

    def __init__(
        self,
        world: World,
        asked: Mapping[int, int],
        limit_s: float,
        *,
        state: Served | None = None,
        kept: Collection[str] | None = None,
        second_node_s: float = 0.0,
    ) -> None:
        """``kept``: nodes that may be given, in whole numbers; None: all, in parts."""
        self._asked, self._whole = asked, kept is not None
        self.cut_short = False  # by a limit, in ``solve``
        state = state or Served()
        self._classes = _usable(world, asked, state, kept)
        holders = {job_id for each, _ in self._classes for job_id in each.jobs}
        self._gone = {each for each in holders if each in state.gone or world.ends_s[each] <= limit_s}
        self._ways: list[tuple[str, Option]] = [
            (job_id, option) for job_id in sorted(holders - self._gone) for option in world.ways(job_id, limit_s)
        ]
        self._of_job: dict[str, list[int]] = defaultdict(list)
        for column, (job_id, _) in enumerate(self._ways):
            self._of_job[job_id].append(column)
        self._upper = [1.0] * len(self._ways)
        self._whole_numbers = [True] * len(self._ways)
        self._give: list[tuple[int, int, int]] = []  # column, class and kind
        self._rows = Rows()
        self._seconds = np.array([ceil(option.checkpoint_s) for _, option in self._ways], dtype=float)
        self._add_rows(limit_s - state.written_s)
        less = [_LESS * (1 + option.return_node_s) for _, option in self._ways]
        self._lost, self._cost = np.zeros((2, len(self._upper)))
        self._lost[: len(less)] = [option.lost_work_node_s for _, option in self._ways]
        self._cost[: len(less)] = self._lost[: len(less)] + less + (_LESS + second_node_s) * self._seconds

    def _add_rows(self, seconds: float) -> None:
        taking = [(int(at), self._seconds[at]) for at in np.flatnonzero(self._seconds)]
        self._rows.at_most(taking, seconds)  # the first row
        for columns in self._of_job.values():
            self._rows.at_most([(column, 1.0) for column in columns], 1.0)
        for number in range(len(self._classes)):
            self._of_class(number)
        for kind, nodes in self._asked.items():
            self._rows.at_most([(column, -1.0) for column, _, of in self._give if of == kind], -float(nodes))

    def _column(self, upper: float, *, whole: bool = True) -> int:
        self._upper.append(upper)
        self._whole_numbers.append(whole)
        return len(self._upper) - 1

    def _of_class(self, number: int) -> None:
        """The columns and rows of one class."""
        each, names = self._classes[number]
        count = float(len(names))
        leaves: dict[str, list[Cell]] = defaultdict(list)  # of each job: how much of it leaves for the kinds
        own = []
        for kind in sorted(self._asked.keys() & each.asks.keys()):
            given = self._column(count)
            self._give.append((given, number, kind))
            own.append((given, 1.0))
            demand = each.asks[kind]
            used = (given, 1.0 / count)
            several = self._whole and count > 1 and not each.takes_all_jobs[kind]
            if several:  # kinds that share the class have it both
                used = (self._column(1.0), 1.0)
                self._rows.at_most([(given, 1.0), (used[0], -count)], 0.0)
            parts = self._leave_for(demand, used)
            for job_id, part in parts.items():
                if several:
                    self._has_left(job_id, [part])
                else:
                    leaves[job_id].append(part)
            self._enough(demand, used, parts)
        for job_id, cells in leaves.items():
            self._has_left(job_id, cells)
        if len(own) > 1:
            self._rows.at_most(own, count)

    def _has_left(self, job_id: str, cells: Sequence[Cell]) -> None:
        self._rows.at_most([*cells, *[(column, -1.0) for column in self._of_job[job_id]]], 0.0)

    def _leave_for(self, demand: Demand, used: Cell) -> dict[str, Cell]:
        """How much of each job that holds something has to leave: all that is used, or a number of its own."""
        parts = {}
        for job_id, amounts in demand.held:
            if job_id in self._gone:
                continue
            needed = any(
                sum(given[place] for other, given in demand.held if other != job_id) < short
                for place, short in enumerate(demand.missing)
                if amounts[place]
            )
            if needed:
                parts[job_id] = used
            elif job_id in self._of_job:
                column = self._column(1.0, whole=False)
                parts[job_id] = (column, 1.0)
                self._rows.at_most([(column, 1.0), (used[0], -used[1])], 0.0)
        return parts

    def _enough(self, demand: Demand, used: Cell, parts: Mapping[str, Cell]) -> None:
        """Of every resource enough is given back; also of sums that are divided and rounded up."""
        for place, short in enumerate(demand.missing):
            missing = short - sum(amounts[place] for job_id, amounts in demand.held if job_id in self._gone)
            if missing <= 0:
                continue
            held = [(parts[job_id], min(missing, amounts[place])) for job_id, amounts in demand.held if job_id in parts]
            for divisor in sorted({1, *[amount for _, amount in held if amount]}):
                wanted = -(-missing // divisor)
                row: dict[int, float] = defaultdict(float)
                row[used[0]] += used[1]
                for (column, much), amount in held:
                    row[column] -= much * -(-amount // divisor) / wanted
                self._rows.at_most(row.items(), 0.0)

    def priced(self, seconds_left: Callable[[], float]) -> Priced | None:
        """None without any time, or where not even parts make room; where time is up meanwhile, nothing is worth."""
        if seconds_left() <= 0 or not self._upper:
            return None
        matrix, limits, upper = self._rows.matrix(len(self._upper)), np.array(self._rows.most), np.array(self._upper)
        found = _in_parts(self._cost, matrix, limits, upper, seconds_left())
        if found.status == _TIME_IS_UP:
            return Priced(0.0, 0.0, frozenset())
        if found.status:
            return None
        prices = np.maximum(0.0, -found.ineqlin.marginals)
        least = float(np.minimum(0.0, self._lost + matrix.T @ prices) @ upper - prices @ limits)
        added = float((np.abs(self._lost) + abs(matrix).T @ prices) @ upper + prices @ np.abs(limits))
        used: set[str] = set()
        for column, number, _ in self._give:
            if found.x[column] > USED:
                used.update(self._classes[number][1][: ceil(found.x[column]) + 1])
        return Priced(max(0.0, least - _MARGIN * added), float(prices[0]), frozenset(used))

    def missing(self, requests: Sequence[tuple[int, int]], seconds_left: Callable[[], float]) -> list[float]:
        """Of each request (its kind and nodes): nodes for which not even parts of jobs make room; 0 without time.

        A node that an earlier one lacks weighs more.
        """
        from scipy.sparse import csr_array, hstack  # noqa: PLC0415 - see ``reduced_cost``

        if seconds_left() <= 0:
            return [0.0] * len(requests)
        width, limits, count = len(self._upper), self._rows.most, len(requests)
        row_of = {kind: len(limits) - len(self._asked) + number for number, kind in enumerate(self._asked)}
        rows = [row_of[kind] for kind, _ in requests]
        lacking = csr_array((-np.ones(count), (rows, np.arange(count))), shape=(len(limits), count))
        matrix = hstack([self._rows.matrix(width), lacking], format="csc")
        upper = np.array([*self._upper, *[float(nodes) for _, nodes in requests]])
        cost = np.array([*[0.0] * width, *range(count, 0, -1)], dtype=float)
        found = _in_parts(cost, matrix, limits, upper, seconds_left())
        return [0.0] * len(requests) if found.status else found.x[width:].tolist()

    def solve(
        self, seconds_left: Callable[[], float], most_gap: float = inf
    ) -> tuple[dict[str, Option], list[tuple[int, NodeClass, list[str]]]] | None:
        """The jobs that leave, and the kind, class and names of nodes that are given; None where nothing was found.

        Nor where a limit was reached when this much of the cost might still have been needless.
        """
        self.cut_short = seconds_left() <= 0
        if self.cut_short or not self._upper:
            return None
        program = self._rows.program(self._cost, np.array(self._upper), np.array(self._whole_numbers))
        found = over_used(program, GAP, ENOUGH, seconds_left)
        found = found or relaxed(program, seconds_left()).solved(seconds_left, GAP)
        self.cut_short, values = found.cut_short, found.values
        if values is None or (self.cut_short and self._cost @ values - found.least > most_gap * (self._cost @ values)):
            return None
        left = [list(names) for _, names in self._classes]
        given = []
        for column, number, kind in self._give:
            count = int(values[column])
            if count:
                given.append((kind, self._classes[number][0], left[number][:count]))
                del left[number][:count]
        return {self._ways[at][0]: self._ways[at][1] for at in np.flatnonzero(values[: len(self._ways)])}, given


def _usable(
    world: World, asked: Mapping[int, int], state: Served, kept: Collection[str] | None
) -> list[tuple[NodeClass, list[str]]]:
    """The classes of which some nodes may still be given for what is asked, and these nodes."""
    able = [
        (each, [name for name in each.names if name not in state.nodes and (kept is None or name in kept)])
        for each in world.classes
        if not asked.keys().isdisjoint(each.asks)
    ]
    return [(each, names) for each, names in able if names]


def _in_parts(cost: Any, matrix: Any, limits: Any, upper: Any, limit_s: float) -> Any:
    from scipy.optimize import linprog  # noqa: PLC0415 - see ``reduced_cost``

    bounds = np.array([np.zeros(len(upper)), upper]).T
    limited = {"time_limit": max(_SHORTEST_S, limit_s)}
    return linprog(cost, matrix, limits, bounds=bounds, method="highs", options=limited)
