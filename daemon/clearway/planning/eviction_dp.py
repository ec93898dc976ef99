"""The eviction problem solved exactly for every deadline in one pass: the CoSim paper's dynamic program.

Model: items (single jobs, or groups linked through shared nodes) of each of which at most one pick is taken;
see ``node_groups``. A pick frees n nodes, takes s steps on the shared file system (checkpoints are written one
after another), loses work and preempts jobs.

Recurrence: ``f_i[t][k]``, the least value of items i .. N-1 that frees at least k nodes within t steps; see
``suffix_tables``. The last column of f_0 holds the answer for every deadline; see ``node_time_tables``.

Ties: a walk from the first item to the last takes, item by item, the first pick (in the order of ties) with
which the remaining tables still reach the optimal value; items stand in the order of job_id, so the first
difference decides, as ``planning.base`` demands. Where the job_ids of groups interleave, the walk keeps those
optimal states that are equally good in everything decided for good; see ``tie_walk``.

Cost: O(N T K) per pick in time; memory as ``suffix_tables`` says. Where that is much and no nodes are shared,
bounds first prove which jobs are not in doubt, and N and K become those of the few that are; see ``core``. One
pass serves all deadlines, unless a ``ready_s`` makes the choices of candidates differ between deadlines; then
one pass for each such ``windows``. Where only the number of missing nodes differs, because other jobs end by
themselves, one pass is enough.

Jobs that end by themselves within a deadline count as freed for it and are listed, needed or not; only when
no nodes are needed at all is nothing listed. See ``windows``.

Source: the CoSim paper, Algorithm 1, with exact ties, groups and ends added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import gcd

from clearway.model import Curve, CurvePoint, EvictionProblem
from clearway.planning.core import solve_by_core
from clearway.planning.node_groups import Item, items_of
from clearway.planning.node_time_tables import Answer, NodeTimeTables, Task
from clearway.planning.superfluous import without_superfluous
from clearway.planning.windows import Contest, Window

CORE_CELLS = 10_000_000  # for so many cells of the tables over all jobs the bounds take no longer than the tables


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
    missing = [window for window in windows if window.missing]
    # Of all, the first misses the most nodes. Ways that take longer than the last of them has time are left out.
    whole = replace(windows[0], last_step=(missing or windows)[-1].last_step)
    items, exact = items_of(whole)
    reach = sum([max([pick.nodes for pick in item.picks]) for item in items])
    answers = {step: Answer(0, 0, 0, []) for window in windows if not window.missing for step in window.deadlines}
    tasks = [
        Task(window.first_step, window.last_step, window.missing) for window in windows if 0 < window.missing <= reach
    ]
    if not tasks:
        return answers, exact, 0.0
    jobs = len(whole.ways)
    if _cells(items, tasks) >= CORE_CELLS * len(tasks) and all(item.single for item in items):
        solved = [solve_by_core(items, task, jobs) for task in tasks]
        usable = [found for found in solved if found is not None]
        if len(usable) == len(tasks):
            for found in usable:
                answers |= found.answers
            return answers, exact and all(found.proven for found in usable), max(found.gap for found in usable)
    items = without_superfluous(items, min(whole.missing, reach))
    return answers | NodeTimeTables(items, tasks, jobs).answers(), exact, 0.0


def _cells(items: Sequence[Item], tasks: Sequence[Task]) -> int:
    """The size of the tables over all items, about."""
    node_unit = gcd(*{pick.nodes for item in items for pick in item.picks})
    return len(items) * (tasks[-1].last_step + 1) * (max(task.missing for task in tasks) // node_unit + 1)
