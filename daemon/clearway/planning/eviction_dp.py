"""The eviction problem solved exactly for every deadline in one pass: the CoSim paper's dynamic program.

Model: items (single jobs, or groups linked through shared nodes) of each of which at most one pick is taken;
see ``node_groups``. A pick frees n nodes, takes s steps on the shared file system (checkpoints are written one
after another) and has the value lost work x (jobs + 1) + preemptees, so that one number holds both keys.

Recurrence: ``f_i[t][k]``, the least value of items i .. N-1 that frees at least k nodes within t steps; see
``suffix_tables``. The last column of f_0 holds the answer for every deadline: of the rows up to the deadline
the first whose lost work is the least that the deadline allows has the least checkpoint time as well.

Ties: a walk from the first item to the last takes, item by item, the first pick (in the order of ties) with
which the remaining tables still reach the optimal value; items stand in the order of job_id, so the first
difference decides, as ``planning.base`` demands. Where the job_ids of groups interleave, the walk keeps those
optimal states that are equally good in everything decided for good; see ``tie_walk``.

Nodes and steps are divided by their common divisors first: 4,352 nodes in jobs of multiples of 128 are 34.

Cost: O(N T K) per pick in time; memory as ``suffix_tables`` says. One pass serves all deadlines, unless a
``ready_s`` makes the choices of candidates differ between deadlines; then one pass for each such ``windows``.
Where only the number of missing nodes differs, because other jobs end by themselves, one pass is enough.

Jobs that end by themselves within a deadline count as freed for it and are listed, needed or not; only when
no nodes are needed at all is nothing listed. See ``windows``.

Source: the CoSim paper (the CoSim paper), Algorithm 1, with exact ties, groups and ends added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from clearway.model import Curve, CurvePoint, EvictionProblem
from clearway.planning.core import solve_by_core
from clearway.planning.node_groups import items_of
from clearway.planning.node_time_tables import Answer, NodeTimeTables, Task
from clearway.planning.superfluous import without_superfluous
from clearway.planning.windows import Contest, Window

FEWEST_CORE_ITEMS = 64  # below it the tables over all jobs are as fast


class EvictionDP:
    """Exact for every deadline, unless groups of shared nodes are too large (``Curve.exact`` says so)."""

    name = "eviction-dp"

    def solve(self, problem: EvictionProblem) -> Curve:
        contest = Contest(problem)
        points: list[CurvePoint] = []
        exact, gap = True, 0.0
        for windows in _passes(contest.windows()):
            answers, proven, left = _solve(windows)
            exact, gap = exact and proven, max(gap, left)
            for window in windows:
                for step in window.deadlines:
                    answer = answers.get(step)
                    points.append(
                        contest.infeasible(step)
                        if answer is None
                        else contest.point(window, step, answer.lost, answer.steps, answer.nodes, answer.ways)
                    )
        return Curve(planner=self.name, points=tuple(points), exact=exact, gap=gap)


def _passes(windows: Iterable[Window]) -> Iterator[list[Window]]:
    """Windows in a row that one pass answers."""
    together: list[Window] = []
    for window in windows:
        if together and not together[0].differs_by_ends_alone(window):
            yield together
            together = []
        together.append(window)
    yield together


def _solve(windows: Sequence[Window]) -> tuple[dict[int, Answer], bool, float]:
    """The best for each deadline (in steps) where enough nodes can be freed, whether proven, and the gap if not."""
    whole = replace(windows[0], last_step=windows[-1].last_step)  # of all, the first misses the most nodes
    items, exact = items_of(whole)
    reach = sum([max([pick.nodes for pick in item.picks]) for item in items])
    answers = {step: Answer(0, 0, 0, []) for window in windows if not window.missing for step in window.deadlines}
    tasks = [
        Task(window.first_step, window.last_step, window.missing) for window in windows if 0 < window.missing <= reach
    ]
    if not tasks:
        return answers, exact, 0.0
    jobs = len(whole.ways)
    gap = 0.0
    if len(items) >= FEWEST_CORE_ITEMS and all(item.single for item in items):
        solved = [solve_by_core(items, task, jobs) for task in tasks]
        if all(found is not None for found in solved):
            for found in solved:
                if found is not None:
                    answers |= found.answers
                    gap = max(gap, found.gap)
                    exact = exact and found.proven
            return answers, exact, gap
    items = without_superfluous(items, min(whole.missing, reach))
    return answers | NodeTimeTables(items, tasks, jobs).answers(), exact, gap
