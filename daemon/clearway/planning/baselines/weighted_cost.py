"""The WCJS paper's weighted cost: the set of jobs with the least score leaves, if all of them are eligible.

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
from types import MappingProxyType

from clearway.model.plan import Curve, CurvePoint
from clearway.model.problem import ACTION_ORDER, Action, Candidate, EvictionProblem
from clearway.planning.base import PlainPlanner
from clearway.planning.baselines.priority_rule import by_cost, offered_ways
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.planning.formulation.windows import Contest, Taken, Way, Window

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
        chosen = EvictionDP().solve_plain(replace(problem, candidates=scored)).points

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
    return Taken.of(taken, window.freed_by(taken))


def _by_time(way: Way) -> tuple[int, ...]:
    return (way.steps, *by_cost(way))
