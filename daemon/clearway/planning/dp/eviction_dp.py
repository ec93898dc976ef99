"""The eviction problem, solved exactly: whole nodes by the CoSim paper's dynamic program, all else by one program.

Model: single jobs, of each of which at most one way is taken. A way frees the job's nodes, takes s steps on the shared
file system (checkpoints are written one after another) and loses work. See ``node_time_tables`` for the recurrence, the
answer to every deadline, and ties. Where jobs share nodes, parts of nodes are asked for, or checkpoints share the file
system, it is the program of ``joint.program`` that decides.

Cost: that of ``node_time_tables``. Where it is much, ``bounds.core`` first proves which jobs are not in doubt, and the
tables hold the few that are. Tables over all jobs take one pass for each window, but windows in which only the number
of missing nodes differs, because other jobs end by themselves, share one. One deadline alone takes a small part of the
time of a curve.

Source: the CoSim paper, Algorithm 1, with exact ties and ends added.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from math import gcd
from operator import attrgetter
from typing import NamedTuple

from clearway.model.plan import Curve, CurvePoint
from clearway.model.problem import EvictionProblem
from clearway.planning.base import PlainPlanner, Seconds, unlimited
from clearway.planning.bounds.core import Solved, solve_by_core
from clearway.planning.dp.node_time_tables import NodeTimeTables, TooMuchError, items_of
from clearway.planning.formulation.shared_bandwidth import after_others, as_asked, plan_rank, shares
from clearway.planning.formulation.windows import NOTHING, Contest, Taken, Window
from clearway.planning.joint.one import OneRequest
from clearway.planning.rules import LOSS_PER_NODE_PRUNE

CORE_CELLS = 1_000_000  # for so many cells of the tables over all jobs the bounds take no longer than the tables
_WINDOWS = 8  # in which jobs end by themselves that a plan is looked for, at most, once nothing less can be lost


class EvictionDP(PlainPlanner):
    """Exact for every deadline, unless ``Curve.exact`` says otherwise; then ``Curve.gap`` bounds what is missing."""

    name = "eviction-dp"

    def solve(self, problem: EvictionProblem) -> Curve:
        if is_program(problem):
            return _no_worse(OneRequest(problem).curve(self.name), problem)
        return super().solve(problem)

    def solve_plain(self, problem: EvictionProblem) -> Curve:
        contest = Contest(problem)
        windows = list(contest.windows())
        solved = _solved(contest, windows)
        points = contest.points(windows, lambda _: solved.answers.get)
        return Curve(self.name, points, solved.proven, solved.gap)

    def decide(self, problem: EvictionProblem, seconds_left: Seconds = unlimited, waiting_nodes: int = 0) -> Curve:
        if not is_program(problem):
            serial = after_others(problem, problem.busy_s)
            try:
                point, solved = _LastDeadline(serial, waiting_nodes).chosen()
            except TooMuchError:
                pass
            else:
                point = as_asked(point, problem, problem.max_delay_s - serial.max_delay_s)
                return Curve(self.name, (point,), solved.proven, solved.gap, complete=False)
        found = OneRequest(problem).decided(self.name, seconds_left, waiting_nodes)
        return _no_worse(found, problem.within(problem.max_delay_s))

    def soonest_s(self, problem: EvictionProblem) -> int | None:
        return OneRequest(problem).soonest_s() if is_program(problem) else super().soonest_s(problem)


class _Chosen(NamedTuple):
    """A plan, by whom it was found, and when its nodes are free (in steps), in which window."""

    by: "_LastDeadline"
    taken: Taken
    done: int
    window: Window

    def waits(self, waiting_nodes: int) -> int:
        """Node-seconds of its returns and of the wait."""
        losses, step_s = self.by.contest.losses, self.by.contest.problem.step_s
        weighed_s = self.by.waiting_nodes * self.taken.steps * step_s
        return self.taken.lost % losses.base * losses.coarse - weighed_s + waiting_nodes * self.done * step_s

    @property
    def lost(self) -> int:
        return self.taken.lost // self.by.contest.losses.base

    @property
    def point(self) -> CurvePoint:
        return self.by.contest.point(self.window, self.done, self.taken)


class _LastDeadline:
    """The longest deadline of a serial problem on whole nodes, and what is carried out within it.

    So that one solution tells which of the plans that lose the least is carried out, its checkpoints are weighed.
    """

    def __init__(self, problem: EvictionProblem, waiting_nodes: int) -> None:
        self.problem, self.waiting_nodes = problem, waiting_nodes
        self.contest = Contest(problem, waiting_nodes)
        self.windows = list(self.contest.windows())

    def chosen(self) -> tuple[CurvePoint, Solved]:
        """The point, and how far it is proven."""
        last = self.windows[-1]
        if not last.missing:  # jobs that end by themselves suffice
            first = next(window for window in self.windows if not window.missing)
            return _Chosen(self, NOTHING, first.first_step, first).point, Solved()
        found, solved = self._within(last)
        if found is None:
            return CurvePoint(self.contest.problem.max_delay_s, feasible=False), solved
        if self.waiting_nodes and found.done > found.taken.steps:
            found = self._sooner(found)
        return found.point, solved

    def _within(self, window: Window) -> tuple[_Chosen | None, Solved]:
        """The best plan of the window's last deadline."""
        solved = _solved(self.contest, [replace(window, first_step=window.last_step)])
        taken = solved.answers.get(window.last_step)
        if taken is None:
            return None, solved
        soonest = max([taken.steps, *(way.ready_step for way in taken.ways)])
        able = (each for each in self.windows if each.last_step >= soonest and each.missing <= taken.nodes)
        first = next(able)
        return _Chosen(self, taken, max(soonest, first.first_step), first), solved

    def _losing_at_most(self, lost: int, place: int, last_step: int) -> _Chosen | None:
        """The best plan of a deadline in this window if it loses no more: then none of its jobs alone loses more."""
        window, base = self.windows[place], self.contest.losses.base
        ways = {rank: tuple([way for way in some if way.lost // base <= lost]) for rank, some in window.ways.items()}
        found, _ = self._within(replace(window, last_step=last_step, ways=ways))
        return found if found is not None and found.lost == lost else None

    def _sooner(self, best: _Chosen) -> _Chosen:
        """Of plans that lose no more, the one whose returns and wait are the least; it counts on fewer jobs to end.

        The first window in which no more is lost is found by bisection, as no later one loses more. Up to the beginning
        of a window checkpoints keep nobody waiting.
        """
        plain, lost = _LastDeadline(self.problem, 0), best.lost

        @cache
        def within(place: int) -> _Chosen | None:
            return self._losing_at_most(lost, place, self.windows[place].last_step)

        last = self.windows.index(best.window)
        first_place = bisect_left(range(last), x=True, key=lambda place: within(place) is not None)
        for place in range(first_place, min(last + 1, first_place + _WINDOWS)):
            first, found = self.windows[place].first_step, within(place)
            if found is None or self.waiting_nodes * first * self.problem.step_s >= best.waits(self.waiting_nodes):
                break
            at_first = plain._losing_at_most(lost, place, first) if found.taken.steps < first else None
            best = min(best, found, at_first or found, key=lambda each: each.waits(self.waiting_nodes))
        return best


def is_program(problem: EvictionProblem) -> bool:
    """Whether jobs share nodes, parts of nodes are asked for, or checkpoints share the file system."""
    names = [name for candidate in problem.candidates for name in candidate.node_names]
    return problem.needs is not None or len(set(names)) < len(names) or shares(problem)


def _no_worse(curve: Curve, problem: EvictionProblem) -> Curve:
    """A curve that is not proven, with the strongest simple rule's plans where they are better.

    Where it had none, nothing is known of how much of what the rule's plan loses is needless: all of it may be.
    """
    if curve.exact:
        return curve
    rule = LOSS_PER_NODE_PRUNE.solve(problem)
    points = tuple(min(pair, key=plan_rank) for pair in zip(rule.points, curve.points, strict=True))
    found = any(point.feasible and not own.feasible for point, own in zip(points, curve.points, strict=True))
    return replace(curve, points=points, gap=1.0 if found else curve.gap)


def _solved(contest: Contest, windows: Sequence[Window]) -> Solved:
    """The best for each deadline (in steps) where enough nodes can be freed, and how far it is proven.

    By bounds, unless tables over all jobs are quicker; one pass for windows that differ in the missing nodes alone.
    """
    missing = [window for window in windows if window.missing]
    sizes = {nodes for window in missing for nodes in window.demands.values()}
    if not sizes:
        return Solved()
    passes = [list(same) for _, same in groupby(missing, key=attrgetter("ways", "demands"))]
    most = max(window.missing for window in missing) // gcd(*sizes) + 1
    cells = len(passes) * len(contest.candidates) * (missing[-1].last_step + 1) * most
    solved = None if cells < CORE_CELLS else solve_by_core(missing)
    return solved or Solved({step: plan for some in passes for step, plan in _by_tables(some).items()})


def _by_tables(windows: Sequence[Window]) -> dict[int, Taken]:
    """By deadline, of windows that differ in the number of missing nodes alone: the first misses the most."""
    items = items_of(replace(windows[0], last_step=windows[-1].last_step))
    reach = sum([item.nodes for item in items])
    solvable = [window for window in windows if window.missing <= reach]
    return NodeTimeTables(items, solvable).answers() if solvable else {}
