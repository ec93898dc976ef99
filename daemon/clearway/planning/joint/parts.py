"""Many urgent jobs that take parts of nodes: a bound on every plan for them, and a plan, one phase after another.

Model: a class of n nodes gives y of them to the requests of one kind within one delay. Where a node needs not all of
its jobs to leave, w is how much of a job leaves for that kind; u is how much of the class is used, y / n in parts of
nodes, and 1 as soon as a whole one is given:

    for each kind:                             sum of y  >=  nodes that are asked
    for each class, kind and short resource:   sum of what each job gives back x w  >=  what is missing x u
    for each class, kind and job:              w <= u; where the job has to leave, it is u
    for each class and job:                    sum of w over the kinds  <=  how much of the job has left
    for all:                                   seconds of checkpoints  <=  the delay

Without w <= u a node would be half used where its cheapest half is. A sum of whole numbers may be divided and rounded
up on both sides, which is done with each amount there is (V. Chvatal, Edmonds polytopes and a hierarchy of
combinatorial problems, Discrete Mathematics 4, 1973).

Bound: the program in parts of nodes, with all requests within the longest delay, computed here from the prices of its
rows, whatever they are (weak duality). Where not even parts make room for all, those are left out that it has least
room for, later ones rather than earlier ones.

Plan: over the nodes that the program in parts uses, and for each phase ``SPARE`` more of each kind that cost little.
Phases are solved in whole numbers, the most pressing first; all but the last pay for a second of checkpoints what it is
worth in the bound's program. Where time is up before there are prices, it goes without, over as many more nodes as are
asked.

Cost: time in the number of (kind, job, node) triples; HiGHS takes 0.1 to 0.5 s for a thousand shared nodes in parts,
and about 0.1 s for each phase.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, groupby, islice
from math import ceil, inf
from typing import NamedTuple, Self

import numpy as np

from clearway.model.problem import Action, Candidate, Option
from clearway.planning.base import Seconds
from clearway.planning.joint.nodes import Demand, Given, JointNodes, NodeClass, allocated, given_of
from clearway.planning.joint.reduced_cost import Cell, Program, ProgramBuilder, over_used, relaxed
from clearway.planning.joint.requests import Best, Request, as_one, divisible, ends_of, groups_of, handed_out

GAP = 0.02  # of a phase: what the phases do to each other costs more
ENOUGH = 0.1  # likewise, over the columns that parts use, or where time is up: more had better wait for the next cycle
SPARE = 24  # nodes of each kind and phase, beyond those that the program in parts uses
FIRST_S = 0.5  # that the first phase has at least: to plan for one of its requests alone would take longer
LATER_S = 0.1  # and each later one: most take a tenth of it, once the first has decided
MOST_GROUPS = 16  # of all kinds together
_TRIES = 3  # of leaving out requests for which there is no room
_USED = 1e-6  # of a node: less is nothing
_LESS = 1e-4  # node-seconds that a second of checkpoints, or coming back, counts as
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

    def usable(
        self, asked: Mapping[int, int], taken: Collection[str], kept: Collection[str] | None
    ) -> Iterator[tuple[NodeClass, list[str]]]:
        """The classes of which some nodes may still be given for what is asked, and these nodes."""
        for each in self.classes:
            if not asked.keys().isdisjoint(each.asks):
                names = [name for name in each.names if name not in taken and (kept is None or name in kept)]
                if names:
                    yield each, names

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
    given: list[Given] = field(default_factory=list)
    nodes: set[str] = field(default_factory=set)

    def add(self, leaving: Mapping[str, Option], given: Sequence[Given], first: int) -> None:
        self.gone |= {job_id: (option, first) for job_id, option in leaving.items()}
        self.given += given
        self.nodes.update(*[each.names for each in given])


class PhaseProgram:
    """The program of the nodes that some kinds ask for within one delay."""

    def __init__(
        self,
        world: World,
        asked: Mapping[int, int],
        limit_s: float,
        *,
        state: Served,
        kept: Collection[str] | None = None,
        second_node_s: float = 0.0,
    ) -> None:
        """``kept``: nodes that may be given, in whole numbers; None: all, in parts."""
        self._asked, self._whole = asked, kept is not None
        self.cut_short = False  # by a limit, in ``solve``
        self._classes = list(world.usable(asked, state.nodes, kept))
        holders = {job_id for each, _ in self._classes for job_id in each.jobs}
        self._gone = {each for each in holders if each in state.gone or world.ends_s[each] <= limit_s}
        self._ways: list[tuple[str, Option]] = []
        self._of_job: dict[str, list[int]] = defaultdict(list)
        self._give: list[tuple[int, int, int]] = []  # column, class and kind
        self._builder = ProgramBuilder()
        for job_id in sorted(holders - self._gone):
            for option in world.ways(job_id, limit_s):
                seconds_node_s = (_LESS + second_node_s) * ceil(option.checkpoint_s)
                cost = option.lost_work_node_s + _LESS * (1 + option.return_node_s) + seconds_node_s
                self._of_job[job_id].append(self._builder.column(cost))
                self._ways.append((job_id, option))
        self._add_rows(limit_s - sum(ceil(option.checkpoint_s) for option, _ in state.gone.values()))
        self._program = self._builder.program()

    def _add_rows(self, seconds: float) -> None:
        """That of the seconds is the first, those of the kinds are the last."""
        taking = [(at, float(ceil(option.checkpoint_s))) for at, (_, option) in enumerate(self._ways)]
        self._builder.at_most([cell for cell in taking if cell[1]], seconds)
        for columns in self._of_job.values():
            self._builder.at_most([(column, 1.0) for column in columns], 1.0)
        for number in range(len(self._classes)):
            self._add_class(number)
        for kind, nodes in self._asked.items():
            self._builder.at_least([(column, 1.0) for column, _, of in self._give if of == kind], nodes)

    def _add_class(self, number: int) -> None:
        """The columns and rows of one class."""
        each, names = self._classes[number]
        count = float(len(names))
        leaves: dict[tuple[str, int | None], list[Cell]] = defaultdict(list)  # how much of each job leaves for kinds
        own = []
        for kind in sorted(self._asked.keys() & each.asks.keys()):
            given = self._builder.column(upper=count)
            self._give.append((given, number, kind))
            own.append((given, 1.0))
            demand = each.asks[kind]
            used = (given, 1.0 / count)
            several = self._whole and count > 1 and not each.takes_all_jobs(kind)
            if several:  # kinds that share the class have it both
                used = (self._builder.column(), 1.0)
                self._builder.at_most([(given, 1.0), (used[0], -count)], 0.0)
            parts = self._leave_for(demand, each.must_leave[kind], used)
            for job_id, part in parts.items():
                leaves[job_id, kind if several else None].append(part)
            self._enough(demand, used, parts)
        for (job_id, _), cells in leaves.items():
            self._builder.at_most([*cells, *[(column, -1.0) for column in self._of_job[job_id]]], 0.0)
        if len(own) > 1:
            self._builder.at_most(own, count)

    def _leave_for(self, demand: Demand, must_leave: Collection[str], used: Cell) -> dict[str, Cell]:
        """How much of each job that holds something has to leave: all that is used, or a number of its own."""
        parts = {}
        for job_id, _ in demand.held:
            if job_id not in self._gone and job_id in must_leave:
                parts[job_id] = used
            elif job_id in self._of_job:
                parts[job_id] = (self._builder.column(whole=False), 1.0)
                self._builder.at_most([parts[job_id], (used[0], -used[1])], 0.0)
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
                self._builder.at_most(row.items(), 0.0)

    def priced(self, seconds_left: Seconds) -> Priced | None:
        """None without any time, or where not even parts make room; where time is up meanwhile, nothing is worth."""
        program = self._program
        if seconds_left() <= 0 or not len(program.cost):
            return None
        found = relaxed(program, seconds_left(), presolve=True)
        if found.values is None:
            return Priced(0.0, 0.0, frozenset()) if found.cut_short else None
        lost = np.zeros(len(program.cost))
        lost[: len(self._ways)] = [option.lost_work_node_s for _, option in self._ways]
        matrix, limits, prices = program.matrix, program.most, found.prices
        least = float(np.minimum(0.0, lost + matrix.T @ prices) @ program.upper - prices @ limits)
        added = float((np.abs(lost) + abs(matrix).T @ prices) @ program.upper + prices @ np.abs(limits))
        used: set[str] = set()
        for column, number, _ in self._give:
            if found.values[column] > _USED:
                used.update(self._classes[number][1][: ceil(found.values[column]) + 1])
        return Priced(max(0.0, least - _MARGIN * added), float(prices[0]), frozenset(used))

    def room_for(self, requests: Sequence[tuple[int, int]], seconds_left: Seconds) -> list[bool]:
        """Of each request (its kind and nodes): whether parts of jobs make room; nothing where it is not known which.

        A node that an earlier one lacks weighs more.
        """
        from scipy.sparse import csr_array, hstack  # noqa: PLC0415 - see ``reduced_cost``

        program, count = self._program, len(requests)
        if seconds_left() <= 0:
            return []
        width, height, kinds = len(program.cost), len(program.most), list(self._asked)
        rows = [height - len(kinds) + kinds.index(kind) for kind, _ in requests]
        lacking = csr_array((-np.ones(count), (rows, np.arange(count))), shape=(height, count))
        found = relaxed(
            Program(
                np.append(np.zeros(width), np.arange(count, 0.0, -1.0)),
                hstack([program.matrix, lacking], format="csc"),
                program.most,
                np.append(program.upper, [nodes for _, nodes in requests]),
                np.append(program.whole, [False] * count),
            ),
            seconds_left(),
            presolve=True,
        )
        room = [] if found.values is None else [lacks <= _USED for lacks in found.values[width:].tolist()]
        return [] if all(room) else room

    def solve(self, seconds_left: Seconds, *, first: bool) -> tuple[dict[str, Option], list[Given]] | None:
        """The jobs that leave, and what the kinds are given; None where nothing was found.

        Nor where time was up, but for the first phase, when ``ENOUGH`` of the cost might still have been needless.
        """
        program = self._program
        if not len(program.cost):
            return None

        def seconds() -> float:
            return max(FIRST_S if first else LATER_S, seconds_left())

        found = over_used(program, GAP, ENOUGH, seconds) or relaxed(program, seconds()).solved(seconds, GAP)
        self.cut_short, values = found.cut_short, found.values
        costs = inf if values is None else program.cost @ values
        if values is None or (self.cut_short and not first and costs - found.least > ENOUGH * costs):
            return None
        given = given_of(self._classes, ((number, kind, values[column]) for column, number, kind in self._give))
        return {self._ways[at][0]: self._ways[at][1] for at in np.flatnonzero(values[: len(self._ways)])}, list(given)


def by_parts(requests: Sequence[Request], seconds_left: Seconds) -> Best | None:
    """The plan for all requests, or without those for which no room is; None where this program is none for them.

    The bound is that of all requests of the plan. Where time is up, the most pressing ones have a plan, without a
    bound, and the rest is told of as ``later``.
    """
    alike_ones = groups_of(requests, 1)
    kinds = [as_one(group, group[-1].problem.max_delay_s) for group in alike_ones]
    if not all(map(divisible, kinds)):
        return None
    world = World.of(kinds)
    kind_of = {each.job_id: kind for kind, group in enumerate(alike_ones) for each in group}
    left = list(requests)
    for _ in range(_TRIES):
        wanted = [(kind_of[each.job_id], each.nodes) for each in left]
        asked = Counter([kind for kind, nodes in wanted for _ in range(nodes)])
        program = PhaseProgram(world, asked, max(each.problem.max_delay_s for each in left), state=Served())
        priced = program.priced(lambda: seconds_left() / 2)
        if priced is not None:
            groups = groups_of(left, max(2, MOST_GROUPS // len(kinds)))
            return _phased(world, groups, [kind_of[group[0].job_id] for group in groups], priced, seconds_left)
        left = list(compress(left, program.room_for(wanted, seconds_left)))
        if not left:
            break
    return None


def _phased(
    world: World, groups: Sequence[Sequence[Request]], kinds: Sequence[int], priced: Priced, seconds_left: Seconds
) -> Best | None:
    """What each group is given, one phase after another, as far as there is time; None where one finds nothing."""
    merged = [as_one(group) for group in groups]
    limits = [int(each.problem.max_delay_s) for each in merged]
    reached, state = len(groups), Served()
    for limit_s, numbers in groupby(range(reached), limits.__getitem__):
        number_of = {kinds[number]: number for number in numbers}
        asked = {kind: merged[number].nodes for kind, number in number_of.items()}
        kept = _kept(world, asked, limit_s, priced, state)
        second_node_s = priced.second_node_s if limit_s < limits[-1] else 0.0
        program = PhaseProgram(world, asked, limit_s, state=state, kept=kept, second_node_s=second_node_s)
        found = program.solve(seconds_left, first=not state.given)
        first = min(number_of.values())
        if found is None:
            if not state.given or not program.cut_short:
                return None
            reached = first  # in the next cycle the others may have more
            break
        leaving, given = found
        state.add(leaving, [each._replace(request=number_of[each.request]) for each in given], first)
    plan = allocated(merged[:reached], limits[:reached], state.given, state.gone)
    if plan is None:
        return None
    later = frozenset(each.job_id for group in groups[reached:] for each in group)
    return Best(handed_out(plan, groups[:reached]), False, 0.0 if later else priced.least_node_s, later=later)


def _kept(world: World, asked: Mapping[int, int], limit_s: float, priced: Priced, state: Served) -> set[str]:
    """The nodes that a phase may use."""
    prices = {}  # what each job costs now, by node, at the prices of the program in parts
    for job_id, job in world.jobs.items():
        least = 0.0
        if job_id not in state.gone and world.ends_s[job_id] > limit_s:
            ways = world.ways(job_id, limit_s)
            costs = [each.lost_work_node_s + priced.second_node_s * each.checkpoint_s for each in ways]
            least = min(costs, default=inf)
        prices[job_id] = least / max(1, job.nodes)
    most = SPARE if priced.used else SPARE + sum(asked.values())  # the same nodes may be the cheapest of all kinds
    kept = set(priced.used)
    for kind in asked:
        found = []  # nodes with what the cheapest jobs cost that give back enough
        for each in world.classes:
            if demand := each.asks.get(kind):
                jobs = sorted([job_id for job_id, _ in demand.held], key=lambda job_id: (-prices[job_id], job_id))
                found.append((sum(prices[job_id] for job_id in demand.needs_of(jobs) or ()), each.names))
        names = (name for _, names in sorted(found) for name in names if name not in state.nodes)
        kept.update(islice(names, most))
    return kept
