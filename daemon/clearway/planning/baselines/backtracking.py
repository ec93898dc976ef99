"""The CoSim paper's backtracking planner: exhaustive search with early abandoning; exact, exponential.

Method (section IV-C of the paper), once for each deadline: job by job, in the order of job_id, try each of its actions
in ``ACTION_ORDER`` and then leaving it alone. A branch is abandoned when its lost work, checkpoint time and preemptees
are no better than the best plan's, when its checkpoints exceed the deadline, or when all jobs left cannot free enough
nodes. Branches are tried in the order in which ties prefer them: the first of equally good plans is the right one.

Cost: O(T 4^N) time for T deadlines, O(N) memory. Meant for comparison; more than ``MOST_JOBS`` jobs are refused.
"""

from functools import partial

from clearway.model.plan import Curve
from clearway.model.problem import EvictionProblem
from clearway.planning.base import PlainPlanner
from clearway.planning.formulation.node_count import NodeCount
from clearway.planning.formulation.windows import Contest, Taken, Way, Window

MOST_JOBS = 200


class Backtracking(PlainPlanner):
    """Tries everything that can still become better than the best plan so far."""

    name = "backtracking"

    def solve_plain(self, problem: EvictionProblem) -> Curve:
        if len(problem.candidates) > MOST_JOBS:
            raise ValueError(f"the backtracking planner takes at most {MOST_JOBS} candidates")
        contest = Contest(problem)
        return Curve(self.name, contest.points(contest.windows(), lambda window: partial(_best, window)))


def _best(window: Window, deadline: int) -> Taken | None:
    """The best plan for one deadline; None where there is none."""
    count = NodeCount(window)
    taken: list[Way] = []
    best: tuple[tuple[int, int, int], list[Way], int] | None = None

    def explore(depth: int, lost: int, steps: int) -> None:
        """All ways to go on from the decisions about the first ``depth`` jobs."""
        nonlocal best
        cost = (lost, steps, len(taken))
        if best is not None and cost >= best[0]:
            return
        if count.freed >= window.missing:
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
