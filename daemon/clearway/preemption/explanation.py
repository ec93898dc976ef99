"""What else could have been decided, and what that would have cost: why this job, and not that one? Pure.

Questions about a plan, each answered by whole solutions of its own problem, never by an estimate:

chosen  the best plan without this job: the problem without the candidate, solved again.
spared  the best plan in which this job leaves: then the nodes that it holds alone are free, and its checkpoint has
        taken its time on the file system. What is left is a smaller problem without it. Candidates that free equally
        many nodes in the same time share that problem *with* all of them: if its best plan does not hold the job, it
        is the best one without it too.
later   what twice the delay would allow. Jobs that would end by themselves by then are counted in where they are
        candidates; with those that are not it could cost less still.
rules   what simple rules would have done; each is given the cheapest of its plans for the deadlines of the curve.
curve   the best plan of some further deadlines, up to the plan's own.

A cost is the least within the plan's own deadline: coming back may cost less than in the plan, for which the urgent job
does not wait as long (see ``model.choose``). The plan's own planner answers all but the rules. As each takes many
solutions, ``explain`` works in slices; what it did not come to is marked as not known.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from math import ceil

from clearway.estimates.costs import TIME_LIMIT_SLACK_S
from clearway.model.explanation import Alternative, Explanation, Later, RuleOutcome
from clearway.model.plan import Choice, Cost, CurvePoint, OperationPlan
from clearway.model.problem import Action, Candidate, EvictionProblem, Option
from clearway.planning.base import Planner, further_deadlines, with_point
from clearway.planning.formulation.shared_bandwidth import shares, with_options
from clearway.planning.rules import LOSS_PER_NODE_PRUNE, SLURM_DEFAULT, YOUNGEST_FIRST, YOUNGEST_PRUNE

_LONGER = 4  # longer deadlines that are looked at
RULES: tuple[Planner, ...] = (SLURM_DEFAULT, YOUNGEST_FIRST, YOUNGEST_PRUNE, LOSS_PER_NODE_PRUNE)


def explain(plan: OperationPlan, planner: Planner, go_on: Callable[[], bool] = lambda: True) -> Explanation:
    """The explanation, with as much in it as ``go_on`` gives time for; asked before each solution."""
    work = Explaining(plan, planner)
    while go_on() and work.step():
        pass
    return work.result()


def without(problem: EvictionProblem, job_id: str) -> EvictionProblem:
    """The problem in which this job is spared."""
    # It stays on its nodes, which others may share with it: without any option it does, left out it would not.
    spared = [replace(each, options=()) if each.job_id == job_id else each for each in problem.candidates]
    return replace(problem, candidates=tuple(spared))


def _least(planner: Planner, problem: EvictionProblem) -> Cost | None:
    point = planner.decide(problem).choose()
    return None if point is None else point.cost


class Explaining:
    """An explanation that is being worked out: one solution a ``step``."""

    def __init__(self, plan: OperationPlan, planner: Planner) -> None:
        self.plan, self.planner, self._problem = plan, planner, plan.problem
        self._chosen = {planned.job_id: planned.action for planned in plan.chosen.actions}
        self._found: dict[str, Cost | None] = {}
        self._later: tuple[Later, ...] = ()
        self._rules: list[RuleOutcome] = []
        self._curve = replace(plan.curve, complete=False)
        self._shared: dict[tuple[int, int], CurvePoint | None] = {}  # the best rest, by nodes freed and steps gone
        self._work, self._complete = self._steps(), False

    def step(self) -> bool:
        """Do a little more; False when there is nothing left to do."""
        if not self._complete and next(self._work, self) is self:
            self._complete = True
        return not self._complete

    def result(self) -> Explanation:
        alternatives = [
            Alternative(
                job_id := candidate.job_id,
                Choice.CHOSEN if job_id in self._chosen else Choice.SPARED,
                job_id in self._found,
                self._found.get(job_id),
            )
            for candidate in sorted(self._problem.candidates, key=lambda each: each.job_id)
            if self._chosen.get(candidate.job_id) is not Action.END  # it leaves by itself
        ]
        return Explanation(
            cost=self.plan.chosen.cost,
            alternatives=tuple(alternatives),
            later=self._later,
            rules=tuple(self._rules),
            complete=self._complete,
            curve=self._curve if self._curve.complete else None,
        )

    def _steps(self) -> Iterator[None]:
        """The most asked first: the curve, simple rules, chosen jobs, longer deadlines, spared jobs."""
        problem, planner = self._problem, self.planner
        if not self.plan.curve.complete:
            for deadline_s in further_deadlines(problem):
                found = planner.decide(problem.within(deadline_s))
                self._curve = with_point(self._curve, found, deadline_s)
                yield
        self._curve = replace(self._curve, complete=True)
        for rule in RULES:
            # More time may cost a rule more.
            points = [rule.decide(problem.within(each)).choose() for each in further_deadlines(problem)]
            best = min([each for each in points if each is not None], key=lambda each: each.cost, default=None)
            self._rules.append(RuleOutcome(rule.name, None if best is None else best.cost, self._unsaved_nodes(best)))
            yield
        for job_id, action in sorted(self._chosen.items()):
            if action is not Action.END:
                self._found[job_id] = _least(planner, without(problem, job_id))
                yield
        yield from self._find_later()
        yield from self._find_spared()

    def _unsaved_nodes(self, point: CurvePoint | None) -> int:
        killed = {each.job_id for each in (point.actions if point else ()) if each.action is Action.KILL}
        return sum(max(1, each.job_nodes or each.nodes) for each in self._problem.candidates if each.job_id in killed)

    def _find_spared(self) -> Iterator[None]:
        problem = self._problem
        if problem.busy_s or shares(problem):
            return  # that a job leaves changes what time others have by more than a sum
        for planned in self.plan.chosen.actions:
            if planned.action is Action.END:
                self._found.setdefault(planned.job_id, self.plan.chosen.cost)
        spared = [candidate for candidate in problem.candidates if candidate.job_id not in self._chosen]
        for candidate in sorted(spared, key=_cheapest_first):
            yield from self._find_leaving(candidate)

    def _find_later(self) -> Iterator[None]:
        """What longer delays would allow, up to twice the plan's."""
        problem, twice_s = self._problem, 2 * self._problem.max_delay_s
        ending = tuple(_ending(each, twice_s) for each in problem.candidates)
        longer = replace(problem, max_delay_s=twice_s, candidates=ending)
        cheapest, best = _least(self.planner, problem), self.plan.chosen.cost
        best = best if cheapest is None else min(best, cheapest)
        yield
        for part in range(1, _LONGER + 1):
            delay_s = (problem.max_delay_s * (_LONGER + part) // _LONGER) // problem.step_s * problem.step_s
            cost = _least(self.planner, longer.within(delay_s)) if delay_s > problem.max_delay_s else None
            yield
            if cost is not None and cost < best:
                best = cost
                self._later = (*self._later, Later(delay_s, best))

    @cached_property
    def _holders(self) -> Counter[str]:
        """How many candidates are on each node."""
        return Counter(name for candidate in self._problem.candidates for name in candidate.node_names)

    def _find_leaving(self, candidate: Candidate) -> Iterator[None]:
        """The best plans in which this job leaves; yields after every solution that this took."""
        problem = self._problem
        costs: list[Cost | None] = []
        for option in problem.in_time(candidate.options):
            if option.action is Action.END:
                costs.append(_least(self.planner, problem))  # it leaves by itself
                yield
                continue
            steps = ceil(option.checkpoint_s / problem.step_s)
            key = (self._freed(candidate), steps)
            point = None
            own = problem.needs is not None or any(self._holders[name] > 1 for name in candidate.node_names)
            if not own:
                if key not in self._shared:
                    self._shared[key] = self._rest(*key)
                    yield
                point = self._shared[key]
                own = point is not None and any(planned.job_id == candidate.job_id for planned in point.actions)
            if own:
                point = self._rest(*key, without=candidate.job_id)
                yield
            if point is not None:
                steps_s = steps * problem.step_s
                costs.append(point.cost + Cost(option.lost_work_node_s, option.return_node_s, steps_s, 1))
        self._found[candidate.job_id] = min([each for each in costs if each is not None], default=None)

    def _freed(self, candidate: Candidate) -> int:
        """Nodes that are free as soon as this job alone has left; more than are needed count as enough."""
        if self._problem.needs is not None:
            return 0  # the nodes tell: without the job, what it holds of them is free
        alone = sum(1 for name in candidate.node_names if self._holders[name] == 1)
        return min(alone if candidate.node_names else candidate.nodes, self._problem.nodes_needed)

    def _rest(self, freed: int, gone_steps: int, without: str | None = None) -> CurvePoint | None:
        """What remains to be done; the file system's first steps are gone, during which others end by themselves."""
        problem, gone_s = self._problem, gone_steps * self._problem.step_s
        left = replace(problem, candidates=tuple(each for each in problem.candidates if each.job_id != without))
        if gone_s:
            left = with_options(left, lambda option: replace(option, ready_s=max(0.0, option.ready_s - gone_s)))
        needed = problem.nodes_needed - freed
        rest = replace(left, nodes_needed=needed, max_delay_s=problem.max_delay_s - gone_s)
        return self.planner.decide(rest).choose()


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
    own_end = (Option(Action.END, ready_s=ready_s),) if ready_s <= within_s else ()
    return replace(candidate, options=(*candidate.options, *own_end))
