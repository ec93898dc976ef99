"""Planners to compare with: the CoSim paper's greedy and backtracking ones, and the WCJS paper's weighted cost.

The CoSim paper's greedy planner: fast and valid, but not optimal; a baseline to compare with.

Method (section IV-C of the paper), once for each deadline: go through the jobs in descending order of what killing them
would lose and checkpoint each in the fastest way that it has, until enough nodes are free or the checkpoints take
longer than the deadline. Then go through the others from the least loss upwards and kill them until enough nodes are
free.

Where the paper is silent: ties go by job_id; a job without a checkpoint is passed over in the first part; a job that
must not be killed leaves in the second part by its first other option that still fits; a job that shares all its nodes
with jobs that stay is spared in the end. Jobs that end by themselves count as freed as ``windows`` says.

Cost: O(T N log N) time for T deadlines, O(N) memory.

The CoSim paper's backtracking planner: exhaustive search with early abandoning; exact, exponential.

Method (section IV-C of the paper), once for each deadline: job by job, in the order of job_id, try each of its actions
in ``ACTION_ORDER`` and then leaving it alone. A branch is abandoned when its lost work, checkpoint time and preemptees
are no better than the best plan's, when its checkpoints exceed the deadline, or when all jobs left cannot free enough
nodes. Branches are tried in the order in which ties prefer them: the first of equally good plans is the right one.

Cost: O(T 4^N) time for T deadlines, O(N) memory. Meant for comparison; more than ``MOST_JOBS`` jobs are refused.

The WCJS paper's weighted cost: the set of jobs with the least score leaves, if all of them are eligible.

Method (section 6.3 of the paper, Algorithm 2). Not eligible are

1. urgent jobs (policy never makes one a candidate),
2. jobs on more nodes than the urgent job asks for,
3. jobs whose estimated slowdown exceeds the threshold of their category: narrow or wide, short or long.

A job's score is its nodes x slowdown x checkpoint factor x time-remaining factor: jobs that waited long, that saved
themselves long ago, or that are almost done are spared. The place with the least sum of scores is taken; where there is
none, the urgent job waits. The slowdown of a running job is the paper's equations 57 and 58: 1 + wait / time limit.

The paper does not publish the weights of the factors, nor the thresholds. Chosen here: each factor is 1 + weight x
measure with weight 1. So the first is the slowdown itself, the second 1 + the hours since the last checkpoint; the
third goes from 1 for a job that has just started to 2 for one at its time limit. The categories are the paper's own:
wide is more than 4,096 nodes, long is more than 120 minutes.

A place on the paper's machine is a partition of its torus; here it is any set of nodes. The set with the least sum is
found exactly, by the dynamic program with scores in the place of lost work. How a job leaves is not the score's matter:
of what fits into the deadline, the jobs that would lose most get their cheapest option first.

Cost: that of ``eviction_dp``, and O(T N log N).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import add, sub
from types import MappingProxyType

from clearway.model.plan import Curve, CurvePoint
from clearway.model.problem import ACTION_ORDER, Action, Candidate, EvictionProblem
from clearway.planning.base import PlainPlanner
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.planning.formulation.windows import Contest, Taken, Way, Window
from clearway.planning.rules import NodeCount, by_cost, offered_ways

_KILL = ACTION_ORDER[Action.KILL]


class Greedy(PlainPlanner):
    """Checkpoints the most expensive jobs and kills the cheapest."""

    name = "greedy"

    def solve_plain(self, problem: EvictionProblem) -> Curve:
        contest = Contest(problem)
        points = contest.points(contest.windows(), lambda window: partial(_take, window, NodeCount(window)))
        return Curve(self.name, points, exact=False)


def _take(window: Window, count: NodeCount, deadline: int) -> Taken | None:
    """None where it finds no plan."""
    choice = _Choice(count, deadline)
    by_loss = sorted(count.jobs, key=lambda rank: (-max(way.lost for way in window.ways[rank]), rank))
    for rank in by_loss:
        checkpoints = [way for way in window.ways[rank] if way.order != _KILL]
        fastest = min(checkpoints, key=lambda way: (way.steps, way.order), default=None)
        if fastest is not None and not choice.take(rank, fastest):
            break
    for rank in reversed(by_loss):
        choice.take(rank, next((way for way in window.ways[rank] if way.steps <= choice.left), None))
    if not count.enough:
        return None
    return Taken.of([way for rank, way in choice.taken.items() if count.frees(rank)], count.freed)


class _Choice:
    """The jobs that leave so far."""

    def __init__(self, count: NodeCount, deadline: int) -> None:
        self._count = count
        self.left = deadline  # steps in which checkpoints can still be written
        self.taken: dict[int, Way] = {}
        count.begin()

    def take(self, rank: int, way: Way | None) -> bool:
        """False, and nothing taken, where enough nodes are free, the job leaves already, or no way is in time."""
        if self._count.enough or rank in self.taken or way is None or way.steps > self.left:
            return False
        self.taken[rank] = way
        self.left -= way.steps
        self._count.leave(rank)
        return True


MOST_JOBS = 200


class Backtracking(PlainPlanner):
    """Tries everything that can still become better than the best plan so far."""

    name = "backtracking"

    def solve_plain(self, problem: EvictionProblem) -> Curve:
        if len(problem.candidates) > MOST_JOBS:
            raise ValueError(f"the backtracking planner takes at most {MOST_JOBS} candidates")
        contest = Contest(problem)
        return Curve(self.name, contest.points(contest.windows(), lambda window: partial(_best, window)))


class _Reach(NodeCount):
    """With the nodes that are still ``reachable``: free if all jobs left that were not told to stay."""

    def __init__(self, window: Window) -> None:
        super().__init__(window)
        self.reachable = sum(window.demands.values())
        self._lacking = [
            tuple(short - sum(each) for short, *each in zip(missing, *[held for _, held in by_job], strict=True))
            for by_job, missing in self.demands
        ]

    def stay(self, rank: int) -> None:
        self.reachable += self.moved(self._lacking, rank, add)

    def stay_not(self, rank: int) -> None:
        """Undoes ``stay``."""
        self.reachable += self.moved(self._lacking, rank, sub)


def _best(window: Window, deadline: int) -> Taken | None:
    """The best plan for one deadline; None where there is none."""
    count = _Reach(window)
    taken: list[Way] = []
    best: tuple[tuple[int, int, int], list[Way], int] | None = None

    def explore(depth: int, lost: int, steps: int) -> None:
        """All ways to go on from the decisions about the first ``depth`` jobs."""
        nonlocal best
        cost = (lost, steps, len(taken))
        if best is not None and cost >= best[0]:
            return
        if count.enough:
            best = cost, taken.copy(), count.freed
            return
        if count.reachable < window.missing:
            return
        rank = count.jobs[depth]
        count.leave(rank)
        for way in window.ways[rank]:
            if steps + way.steps <= deadline:
                taken.append(way)
                explore(depth + 1, lost + way.lost, steps + way.steps)
                taken.pop()
        count.leave_not(rank)
        count.stay(rank)
        explore(depth + 1, lost, steps)
        count.stay_not(rank)

    explore(0, 0, 0)
    return None if best is None else Taken.of(best[1], best[2])


WIDE_NODES = 4_096
LONG_S = 120 * 60
_HOUR_S = 3_600
# Keys: (wide, long). Short jobs reach a high slowdown after a short wait; wide ones find a place again last.
SLOWDOWN_THRESHOLDS: Mapping[tuple[bool, bool], float] = MappingProxyType(
    {(False, False): 10.0, (False, True): 4.0, (True, False): 6.0, (True, True): 3.0}
)


@dataclass(frozen=True, slots=True)
class WeightedCost(PlainPlanner):
    """Scores jobs by their slowdown, the age of their checkpoint and how nearly they are done."""

    slowdown_weight: float = 1.0
    checkpoint_weight: float = 1.0
    done_weight: float = 1.0
    thresholds: Mapping[tuple[bool, bool], float] = field(default_factory=lambda: SLOWDOWN_THRESHOLDS)
    name: str = "weighted-cost"

    def solve_plain(self, problem: EvictionProblem) -> Curve:
        contest = Contest(problem)
        scored = tuple(self._scored(candidate, problem) for candidate in problem.candidates)
        chosen = EvictionDP().solve(replace(problem, candidates=scored)).points

        def plans(window: Window) -> Callable[[int], Taken | None]:
            offered = offered_ways(contest, window)
            return lambda step: _taken(contest, window, offered, step, chosen[step])

        return Curve(self.name, contest.points(contest.windows(), plans), exact=False)

    def eligible(self, candidate: Candidate, problem: EvictionProblem) -> bool:
        nodes = candidate.job_nodes or candidate.nodes
        category = (nodes > WIDE_NODES, _time_limit_s(candidate) > LONG_S)
        bigger = nodes > (problem.preemptor_nodes or problem.nodes_needed)
        return not bigger and estimated_slowdown(candidate) <= self.thresholds[category]

    def score(self, candidate: Candidate) -> float:
        nodes = candidate.job_nodes or candidate.nodes
        killed = [option.lost_work_node_s for option in candidate.options if option.action is Action.KILL]
        checkpoint_age_s = min(killed, default=0.0) / nodes if nodes else 0.0
        limit_s = _time_limit_s(candidate)
        done = candidate.ran_s / limit_s if limit_s else 1.0
        return (
            nodes
            * (1 + self.slowdown_weight * (estimated_slowdown(candidate) - 1))
            * (1 + self.checkpoint_weight * checkpoint_age_s / _HOUR_S)
            * (1 + self.done_weight * done)
        )

    def _scored(self, candidate: Candidate, problem: EvictionProblem) -> Candidate:
        """The same job with its score as lost work; one that is not eligible can only end by itself."""
        eligible, score = self.eligible(candidate, problem), round(self.score(candidate), 3)
        options = [
            option if option.action is Action.END else replace(option, lost_work_node_s=score)
            for option in candidate.options
            if eligible or option.action is Action.END
        ]
        return replace(candidate, options=tuple(options))


def estimated_slowdown(candidate: Candidate) -> float:
    """What the job's slowdown will be when it runs up to its time limit; 1 without a limit."""
    limit_s = _time_limit_s(candidate)
    return 1 + candidate.waited_s / limit_s if limit_s else 1.0


def _time_limit_s(candidate: Candidate) -> float:
    return float("inf") if candidate.remaining_s is None else candidate.ran_s + candidate.remaining_s


def _taken(
    contest: Contest, window: Window, offered: Mapping[int, Sequence[Way]], step: int, chosen: CurvePoint
) -> Taken | None:
    """The chosen jobs, each by the cheapest option for which the deadline has time."""
    if not chosen.feasible:
        return None
    action_of = {planned.job_id: ACTION_ORDER[planned.action] for planned in chosen.actions}
    fastest = {
        rank: min((way for way in ways if way.order == action_of[contest.candidates[rank].job_id]), key=_by_time)
        for rank, ways in offered.items()
        if contest.candidates[rank].job_id in action_of
    }
    left = step - sum(way.steps for way in fastest.values())
    taken = []
    for way in sorted(fastest.values(), key=lambda way: (-way.lost, way.rank)):
        in_time = [other for other in offered[way.rank] if other.steps <= way.steps + left]
        cheapest = min(in_time, key=by_cost)
        left -= cheapest.steps - way.steps
        taken.append(cheapest)
    count = NodeCount(window)
    for way in taken:
        count.leave(way.rank)
    return Taken.of(taken, count.freed)


def _by_time(way: Way) -> tuple[int, ...]:
    return (way.steps, *by_cost(way))
