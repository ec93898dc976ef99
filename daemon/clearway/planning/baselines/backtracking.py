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


def _best(window: Window, step: int) -> Taken | None:
    search = _Search(window, step)
    search.explore(0, 0, 0)
    return None if search.best is None else (search.found, search.freed)


class _Search:
    """One deadline's search; ``found`` is the best plan so far and ``best`` what it costs."""

    def __init__(self, window: Window, deadline: int) -> None:
        self.best: tuple[int, int, int] | None = None
        self.found: list[Way] = []
        self.freed = 0
        self._window = window
        self._deadline = deadline
        self._count = NodeCount(window)
        self._taken: list[Way] = []

    def explore(self, depth: int, lost: int, steps: int) -> None:
        """All ways to go on from the decisions about the first ``depth`` jobs."""
        cost = (lost, steps, len(self._taken))
        if self.best is not None and cost >= self.best:
            return
        if self._count.freed >= self._window.missing:
            self.best, self.found, self.freed = cost, list(self._taken), self._count.freed
            return
        if self._count.reachable < self._window.missing:
            return
        rank = self._count.jobs[depth]
        self._count.leave(rank)
        for way in self._window.ways[rank]:
            if steps + way.steps <= self._deadline:
                self._taken.append(way)
                self.explore(depth + 1, lost + way.lost, steps + way.steps)
                self._taken.pop()
        self._count.leave_not(rank)
        self._count.stay(rank)
        self.explore(depth + 1, lost, steps)
        self._count.stay_not(rank)
