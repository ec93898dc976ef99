"""The CoSim paper's greedy planner: fast and valid, but not optimal; a baseline to compare with.

Method (section IV-C of the paper), once for each deadline: go through the jobs in descending order of what killing them
would lose and checkpoint each in the fastest way that it has, until enough nodes are free or the checkpoints take
longer than the deadline. Then go through the others from the least loss upwards and kill them until enough nodes are
free.

Where the paper is silent: ties go by job_id; a job without a checkpoint is passed over in the first part; a job that
must not be killed leaves in the second part by its first other option that still fits; a job that shares all its nodes
with jobs that stay is spared in the end. Jobs that end by themselves count as freed as ``windows`` says.

Cost: O(T N log N) time for T deadlines, O(N) memory.
"""

from functools import partial

from clearway.model.plan import Curve
from clearway.model.problem import ACTION_ORDER, Action, EvictionProblem
from clearway.planning.base import PlainPlanner
from clearway.planning.formulation.node_count import NodeCount
from clearway.planning.formulation.windows import Contest, Taken, Way, Window

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
    count.begin()
    by_loss = sorted(count.jobs, key=lambda rank: (-max(way.lost for way in window.ways[rank]), rank))
    taken: dict[int, Way] = {}
    left = deadline
    for rank in by_loss:
        if count.freed >= window.missing:
            break
        checkpoints = [way for way in window.ways[rank] if way.order != _KILL]
        if not checkpoints:
            continue
        fastest = min(checkpoints, key=lambda way: (way.steps, way.order))
        if fastest.steps > left:
            break
        taken[rank] = fastest
        left -= fastest.steps
        count.leave(rank)
    for rank in reversed(by_loss):
        if count.freed >= window.missing:
            break
        way = next((way for way in window.ways[rank] if way.steps <= left), None)
        if rank not in taken and way is not None:
            taken[rank] = way
            left -= way.steps
            count.leave(rank)
    if count.freed < window.missing:
        return None
    return Taken.of([way for rank, way in taken.items() if count.frees(rank)], count.freed)
