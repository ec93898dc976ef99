"""What every planner works on: the candidates in whole steps, split where the available options change.

Model: a deadline is a whole number of steps; durations are rounded up. ``ready_s`` makes an option exist only from some
deadline on; deadlines in a row that see the same options form a window.

A job that ends by itself (``end``) within the deadline is no preemptee and costs nothing. All such jobs count as freed
and are listed, needed or not, unless no node is needed at all.

Nodes are told apart by what they ask of the jobs (``partial_nodes``): whole nodes that all of them leave, other nodes
that these give back enough. Jobs that end are taken out, and so is what can no longer be met.

Of a job's options B goes when A loses no more and takes no longer, and is better in one of the two or comes first in
``ACTION_ORDER``: no optimal plan uses B.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, inf
from operator import attrgetter, itemgetter
from typing import NamedTuple, Self

from clearway.model.plan import CurvePoint, PlannedAction
from clearway.model.problem import ACTION_ORDER, Action, Candidate, EvictionProblem, Option
from clearway.planning.formulation.lost_units import in_units
from clearway.planning.formulation.partial_nodes import Demand, Demands, Supply, changed, supply_of
from clearway.planning.formulation.shared_bandwidth import planned_action


class Way(NamedTuple):
    """An option of one job in whole steps and whole units of lost work; sorted, the quickest comes first."""

    steps: int
    lost: int  # with what coming back costs: see ``lost_units``
    order: int  # ACTION_ORDER of its action
    ready_step: int
    rank: int  # of the job, in the order of job_id
    number: int  # of the option in the problem


class Taken(NamedTuple):
    """The jobs that are made to leave, in no particular order; what they cost, and the nodes that this frees."""

    lost: int
    steps: int
    nodes: int
    ways: Sequence[Way]

    @classmethod
    def of(cls, ways: Sequence[Way], nodes: int) -> Self:
        return cls(sum([way.lost for way in ways]), sum([way.steps for way in ways]), nodes, ways)


NOTHING = Taken(0, 0, 0, ())


@dataclass(frozen=True, slots=True)
class Window:
    """Deadlines from ``first_step`` to ``last_step``, which all have the same options."""

    first_step: int
    last_step: int
    missing: int  # nodes still needed after the jobs that end by themselves
    freed: int  # by those
    ended: tuple[Way, ...]
    ways: Mapping[int, tuple[Way, ...]]  # rank -> undominated ways, kill before checkpoints; never empty
    demands: Demands  # only those that can be met

    @property
    def deadlines(self) -> range:
        return range(self.first_step, self.last_step + 1)


_END = ACTION_ORDER[Action.END]
_BY_JOB_ID = attrgetter("job_id")
_BY_RANK = itemgetter(4)
_BY_ORDER = itemgetter(2, 1, 0)  # an order, lost work, steps


class Contest:
    """An eviction problem made ready: jobs ranked by job_id (as text), options in steps, node classes.

    Each second of a checkpoint counts for its job as what coming back costs, ``waiting_nodes`` node-seconds of it.
    """

    def __init__(self, problem: EvictionProblem, waiting_nodes: int = 0) -> None:
        if problem.step_s <= 0 or problem.max_delay_s < 0:
            raise ValueError("an eviction problem needs step_s > 0 and max_delay_s >= 0")
        self.problem = problem
        self.candidates = sorted(problem.candidates, key=_BY_JOB_ID)
        if len({candidate.job_id for candidate in self.candidates}) < len(self.candidates):
            raise ValueError("an eviction problem names each job_id once")
        self._options = [option for candidate in self.candidates for option in candidate.options]
        step_node_s = waiting_nodes * problem.step_s

        def costs(option: Option) -> tuple[float, int]:
            back = option.return_node_s
            if step_node_s and option.checkpoint_s:
                back += step_node_s * ceil(option.checkpoint_s / problem.step_s)
            return option.lost_work_node_s, back

        self.losses, lost = in_units([[costs(option) for option in each.options] for each in self.candidates])
        self._planned: dict[int, PlannedAction] = {}
        self.ways: list[list[Way]] = []  # by rank
        # what does not change from window to window is done once
        self._sometimes: dict[int, list[Way]] = {}  # of jobs with a way that is not there for every deadline
        self._always: dict[int, tuple[Way, ...]] = {}  # of the others, as a window holds them
        self._find_ways(lost)
        self._supply = (
            Supply(problem.nodes_needed, 1, _whole_nodes(self.candidates))
            if problem.needs is None
            else supply_of(problem, problem.needs, self.candidates)
        )

    def windows(self) -> Iterator[Window]:
        first_step, last_step = self.problem.first_step, self.problem.last_step
        starts = {way.ready_step for ways in self.ways for way in ways if way.ready_step <= last_step}
        for first, following in pairwise([*sorted(starts | {0}), last_step + 1]):
            if following > first_step:
                yield self._window(max(first, first_step), following - 1)

    def points(
        self, windows: Iterable[Window], plans: Callable[[Window], Callable[[int], Taken | None]]
    ) -> tuple[CurvePoint, ...]:
        """The curve's points, where ``plans`` gives for a window the plan of each deadline (None: there is none)."""
        found = []
        for window in windows:
            plan = plans(window) if window.missing else lambda _: NOTHING
            found += [self.point(window, step, plan(step)) for step in window.deadlines]
        return tuple(found)

    def point(self, window: Window, step: int, taken: Taken | None) -> CurvePoint:
        """The curve's point for a deadline; its actions are listed by job_id."""
        step_s = self.problem.step_s
        if taken is None:
            return CurvePoint(max_delay_s=step * step_s, feasible=False)
        gone = sorted([*taken.ways, *window.ended], key=_BY_RANK)
        actions = tuple([self._planned.get(way[5]) or self._plan(way) for way in gone])
        returns = self.losses.base > 1 or self.losses.coarse > 1  # of any option, counted or too small to be
        return CurvePoint(
            step * step_s,
            feasible=True,
            lost_work_node_s=self.losses.node_s(taken.lost // self.losses.base),
            checkpoint_s=taken.steps * step_s,
            nodes_freed=self._supply.nodes(taken.nodes + window.freed),
            actions=actions,
            return_node_s=sum([planned.return_node_s for planned in actions]) if returns else 0,
        )

    def _plan(self, way: Way) -> PlannedAction:
        job_id, option = self.candidates[way.rank].job_id, self._options[way.number]
        planned = self._planned[way.number] = planned_action(job_id, option, self.problem.step_s)
        return planned

    def _find_ways(self, lost: Sequence[int]) -> None:
        """Every job's ways; in one loop, as small problems spend a tenth of their time here."""
        step_s, last_step, number = self.problem.step_s, self.problem.last_step, 0
        new = tuple.__new__  # a named tuple's own constructor takes more than twice as long
        for rank, candidate in enumerate(self.candidates):
            ways, waits = [], False
            for option in candidate.options:
                checkpoint_s, ready_s = option.checkpoint_s, option.ready_s
                if not (0 <= checkpoint_s < inf and 0 <= ready_s < inf):
                    raise ValueError(
                        f"job {candidate.job_id}: checkpoint_s and ready_s must be finite numbers of seconds >= 0"
                    )
                steps, ready_step = -int(-checkpoint_s // step_s), -int(-ready_s // step_s)
                order = ACTION_ORDER[option.action]
                waits = waits or ready_step > 0 or order == _END
                ways.append(new(Way, (steps, lost[number], order, ready_step, rank, number)))
                number += 1
            self.ways.append(ways)
            if waits:
                self._sometimes[rank] = ways
            elif left := _undominated([way for way in ways if way[0] <= last_step]):
                self._always[rank] = left

    def _window(self, first: int, last: int) -> Window:
        if self._supply.needed <= 0:
            return Window(first, last, 0, 0, (), {}, {})
        ended: dict[int, Way] = {}
        ways = dict(self._always)
        for rank, every_way in self._sometimes.items():
            ready = [way for way in every_way if way.ready_step <= first]
            end = next((way for way in ready if way.order == _END), None)
            if end is not None:
                ended[rank] = end
            elif left := _undominated([way for way in ready if way.steps <= self.problem.last_step]):
                ways[rank] = left
        demands, freed = self._supply.demands, 0
        if ended or len(ways) < len(self.candidates):
            demands, freed = changed(demands, ended.keys(), ways.keys())
        missing = max(0, self._supply.needed - freed)
        return Window(first, last, missing, freed, tuple(ended.values()), ways, demands)


def _undominated(ways: Sequence[Way]) -> tuple[Way, ...]:
    if len(ways) < 2:
        return tuple(ways)
    kept: list[Way] = []
    for way in sorted(ways):  # the quickest first
        if not kept or way[1] < kept[-1][1]:
            kept.append(way)
    return tuple(sorted(kept, key=_BY_ORDER))


def _whole_nodes(candidates: Sequence[Candidate]) -> Demands:
    holders: dict[str, list[int]] = defaultdict(list)
    found: dict[Demand, int] = defaultdict(int)
    for rank, candidate in enumerate(candidates):
        if candidate.nodes < 0 or (candidate.node_names and len(candidate.node_names) != candidate.nodes):
            raise ValueError(f"job {candidate.job_id}: nodes must be the number of its node names")
        if candidate.nodes and not candidate.node_names:
            found[_left_by([rank])] = candidate.nodes
        for name in candidate.node_names:
            holders[name].append(rank)
    for ranks, nodes in Counter(map(tuple, holders.values())).items():
        found[_left_by(ranks)] += nodes
    return found


def _left_by(ranks: Sequence[int]) -> Demand:
    return Demand(tuple([(rank, (1,)) for rank in ranks]), (len(ranks),))
