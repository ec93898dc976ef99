"""What else could have been decided, and what that would have cost: why this job, and not that one? Pure.

Four questions about a plan, each answered by whole solutions of its own problem, never by an estimate:

chosen  the best plan without this job: the problem without the candidate, solved again.
spared  the best plan in which this job leaves. Once it does, the nodes that it holds alone are free, its checkpoint has
        taken its time on the file system, and what is left is a smaller problem without it; its best way is the best
        of these. Many candidates free equally many nodes and share that smaller problem *with* all candidates: where
        its best plan does not hold the job, it is the best one without it too, and one solution serves them all.
later   what twice the delay would allow. Jobs that would end by themselves by then are counted in where they are
        candidates; with those that are not it could cost less still.
rules   what simple rules would have done (Slurm's own, OpenPBS's and the best greedy one); each is given the cheapest
        point of its own curve.

A cost is the least for any deadline: at a later one than the plan's, coming back may cost less than in the plan (see
``model.choose``).

The plan's own planner answers the first three, so they are as exact as it is. Cost: a solution for each chosen job, for
each number of nodes among the spared ones (and each checkpoint time, where jobs end by themselves), and for each spared
one that shares nodes or that the shared answer held. ``explain`` therefore works in slices and stops when it is told
to; what it did not come to is marked as not known.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from math import ceil
from operator import attrgetter

from clearway.estimates.costs import TIME_LIMIT_SLACK_S
from clearway.model.plan import (
    Alternative,
    Choice,
    Cost,
    Curve,
    CurvePoint,
    Explanation,
    Later,
    OperationPlan,
    RuleOutcome,
)
from clearway.model.problem import Action, Candidate, EvictionProblem, Option
from clearway.planning.base import Planner
from clearway.planning.formulation.shared_bandwidth import overlaps
from clearway.planning.rules import LOSS_PER_NODE_PRUNE, SLURM_DEFAULT, YOUNGEST_FIRST, YOUNGEST_PRUNE

RULES: tuple[Planner, ...] = (SLURM_DEFAULT, YOUNGEST_FIRST, YOUNGEST_PRUNE, LOSS_PER_NODE_PRUNE)


def explain(plan: OperationPlan, planner: Planner, go_on: Callable[[], bool] = lambda: True) -> Explanation:
    """The explanation, with as much in it as ``go_on`` gives time for; asked before each solution."""
    work = Explaining(plan, planner)
    while go_on() and work.step():
        pass
    return work.result()


def curve_without(problem: EvictionProblem, job_id: str, planner: Planner) -> Curve:
    """The planner's answer to the problem in which this job is spared."""
    # It stays on its nodes, which others may share with it: without any option it does, left out it would not.
    spared = [replace(each, options=()) if each.job_id == job_id else each for each in problem.candidates]
    return planner.solve(replace(problem, candidates=tuple(spared)))


def _least(curve: Curve) -> Cost | None:
    point = curve.choose()
    return None if point is None else point.cost


class Explaining:
    """An explanation that is being worked out: one solution a ``step``."""

    def __init__(self, plan: OperationPlan, planner: Planner) -> None:
        self.plan, self.planner, self._problem = plan, planner, plan.problem
        self._chosen = {planned.job_id: planned.action for planned in plan.chosen.actions}
        self._found: dict[str, Cost | None] = {}
        self._later: tuple[Later, ...] = ()
        self._rules: list[RuleOutcome] = []
        self._work, self._complete = self._steps(), False

    def step(self) -> bool:
        """Do a little more; False when there is nothing left to do."""
        if not self._complete and next(self._work, self) is self:
            self._complete = True
        return not self._complete

    def result(self) -> Explanation:
        alternatives = [
            Alternative(
                candidate.job_id,
                Choice.CHOSEN if candidate.job_id in self._chosen else Choice.SPARED,
                candidate.job_id in self._found,
                self._found.get(candidate.job_id),
            )
            for candidate in self._problem.candidates
            if self._chosen.get(candidate.job_id) is not Action.END  # it leaves by itself
        ]
        return Explanation(
            cost=self.plan.chosen.cost,
            alternatives=tuple(sorted(alternatives, key=lambda each: each.job_id)),
            later=self._later,
            rules=tuple(self._rules),
            complete=self._complete,
        )

    def _steps(self) -> Iterator[None]:
        """The most asked first: simple rules, chosen jobs, later deadlines, spared jobs."""
        for rule in RULES:
            self._rules.append(RuleOutcome(rule.name, _least(rule.solve(self._problem))))
            yield
        for job_id, action in sorted(self._chosen.items()):
            if action is not Action.END:
                self._found[job_id] = _least(curve_without(self._problem, job_id, self.planner))
                yield
        self._later = self._find_later()
        yield
        if overlaps(self._problem):
            return  # that a job leaves changes what time others have by more than a sum
        leaving = _Leaving(self._problem, self.plan.curve, self.planner)
        spared = [candidate for candidate in self._problem.candidates if candidate.job_id not in self._chosen]
        for candidate in sorted(spared, key=_cheapest_first):
            yield from leaving.find(candidate, self._found)

    def _find_later(self) -> tuple[Later, ...]:
        problem = self._problem
        best = min([self.plan.chosen.cost, *(point.cost for point in self.plan.curve.points if point.feasible)])
        longer = replace(
            problem,
            max_delay_s=2 * problem.max_delay_s,
            candidates=tuple(_ending(each, 2 * problem.max_delay_s) for each in problem.candidates),
        )
        found = []
        for point in self.planner.solve(longer).points:
            if point.feasible and point.max_delay_s > problem.max_delay_s and point.cost < best:
                best = point.cost
                found.append(Later(point.max_delay_s, best))
        return tuple(found)


def _cheapest_first(candidate: Candidate) -> tuple[float, float, str]:
    """Those that came closest to being chosen are asked about the most."""
    options = [option for option in candidate.options if option.action is not Action.END]
    cheapest = min([(option.lost_work_node_s, option.checkpoint_s) for option in options], default=(0.0, 0.0))
    return (*cheapest, candidate.job_id)


def _ending(candidate: Candidate, within_s: int) -> Candidate:
    """With its own end as an option, where that comes in time."""
    if candidate.remaining_s is None or any(option.action is Action.END for option in candidate.options):
        return candidate
    ready_s = candidate.remaining_s + TIME_LIMIT_SLACK_S
    if ready_s > within_s:
        return candidate
    return replace(candidate, options=(*candidate.options, Option(Action.END, ready_s=ready_s)))


class _Leaving:
    """The best plans in which a certain job leaves."""

    def __init__(self, problem: EvictionProblem, curve: Curve, planner: Planner) -> None:
        self._problem, self._curve, self._planner = problem, curve, planner
        self._holders = Counter(name for candidate in problem.candidates for name in candidate.node_names)
        self._waits = any(option.ready_s > 0 for candidate in problem.candidates for option in candidate.options)
        self._shared: dict[tuple[int, int], Curve] = {}

    @cached_property
    def _in_plan(self) -> Mapping[str, Cost]:
        """The least cost of the curve's own points that list a job: how jobs leave that end by themselves."""
        least: dict[str, Cost] = {}
        for point in self._curve.points:
            for planned in point.actions:
                cost = point.cost
                least[planned.job_id] = min(cost, least.get(planned.job_id, cost))
        return least

    def find(self, candidate: Candidate, found: dict[str, Cost | None]) -> Iterator[None]:
        """Adds the job's answer to ``found``; yields after every solution that this took."""
        problem = self._problem
        best = self._in_plan.get(candidate.job_id)
        for option in candidate.options:
            steps, ready = ceil(option.checkpoint_s / problem.step_s), ceil(option.ready_s / problem.step_s)
            if option.action is Action.END or max(steps, ready) > problem.last_step:
                continue
            key = (self._freed(candidate), steps if self._waits else 0)
            own = problem.needs is not None or any(self._holders[name] > 1 for name in candidate.node_names)
            point = None
            if not own:
                if key not in self._shared:
                    self._shared[key] = self._rest(*key)
                    yield
                point = self._best_point(self._shared[key], key[1], steps, ready)
                own = point is not None and any(planned.job_id == candidate.job_id for planned in point.actions)
            if own:
                point = self._best_point(self._rest(*key, without=candidate.job_id), key[1], steps, ready)
                yield
            if point is not None:
                own_cost = Cost(option.lost_work_node_s, option.return_node_s, steps * problem.step_s, 1)
                cost = point.cost + own_cost
                best = cost if best is None else min(best, cost)
        found[candidate.job_id] = best

    def _freed(self, candidate: Candidate) -> int:
        """Nodes that are free as soon as this job alone has left; more than are needed count as enough.

        With needs it is the nodes that tell: without the job, what it holds of them is free.
        """
        if self._problem.needs is not None:
            return 0
        alone = sum(1 for name in candidate.node_names if self._holders[name] == 1)
        return min(alone if candidate.node_names else candidate.nodes, self._problem.nodes_needed)

    def _rest(self, freed: int, gone_steps: int, without: str | None = None) -> Curve:
        """What remains to be done; the file system's first steps are gone, during which others end by themselves."""
        problem, gone_s = self._problem, gone_steps * self._problem.step_s
        candidates = [candidate for candidate in problem.candidates if candidate.job_id != without]
        if gone_s:
            candidates = [_sooner(candidate, gone_s) for candidate in candidates]
        return self._planner.solve(
            replace(
                problem,
                nodes_needed=problem.nodes_needed - freed,
                max_delay_s=problem.max_delay_s - gone_s,
                candidates=tuple(candidates),
            )
        )

    def _best_point(self, curve: Curve, gone_steps: int, steps: int, ready: int) -> CurvePoint | None:
        """The cheapest point from which the job's own checkpoint still fits, no earlier than it is ready."""
        step_s = self._problem.step_s
        first_s, last_s = (ready - gone_steps) * step_s, (self._problem.last_step - steps) * step_s
        points = [point for point in curve.points if point.feasible and first_s <= point.max_delay_s <= last_s]
        return min(points, key=attrgetter("cost"), default=None)


def _sooner(candidate: Candidate, gone_s: int) -> Candidate:
    options = [replace(option, ready_s=max(0.0, option.ready_s - gone_s)) for option in candidate.options]
    return replace(candidate, options=tuple(options))
