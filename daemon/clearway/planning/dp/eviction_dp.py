"""The eviction problem solved exactly for every deadline in one pass: the CoSim paper's dynamic program.

Model: items (single jobs, or groups linked through shared nodes) of each of which at most one pick is taken. A pick
frees n nodes, takes s steps on the shared file system (checkpoints are written one after another), loses work and
preempts jobs. See ``node_groups`` for the items, ``suffix_tables`` for the recurrence, ``node_time_tables`` for the
answer to every deadline and ``tie_walk`` for ties.

Cost: O(N T K) per pick in time; memory as ``suffix_tables`` says. Where that is much, bounds first prove which jobs are
not in doubt, and N and K become those of the few that are; see ``stages``, and ``shared_core`` where nodes are shared.
Tables over all jobs take one pass for each window, but windows in which only the number of missing nodes differs,
because other jobs end by themselves, share one.

Source: the CoSim paper, Algorithm 1, with exact ties, groups and ends added.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from math import gcd, inf
from operator import attrgetter

from clearway.model.plan import Curve
from clearway.model.problem import EvictionProblem
from clearway.planning.base import PlainPlanner
from clearway.planning.bounds.programs import SETTLED, programs_fit, with_programs
from clearway.planning.bounds.search import Solved
from clearway.planning.bounds.shared_core import MOST_LABELS_IN_ALL, in_shares, solve_shared
from clearway.planning.bounds.stages import solve_by_core
from clearway.planning.dp.node_time_tables import NodeTimeTables
from clearway.planning.formulation.lost_units import fitting_losses
from clearway.planning.formulation.node_groups import Item, items_of, shares_nodes
from clearway.planning.formulation.shared_bandwidth import plan_rank
from clearway.planning.formulation.superfluous import without_superfluous, without_superfluous_jobs
from clearway.planning.formulation.windows import Contest, Window
from clearway.planning.rules import LOSS_PER_NODE_PRUNE

CORE_CELLS = 10_000_000  # for so many cells of the tables over all jobs the bounds take no longer than the tables
FEW_CLASSES = 48  # of nodes of which parts count: so many are swept without asking for bounds


class EvictionDP(PlainPlanner):
    """Exact for every deadline, unless ``Curve.exact`` says otherwise; then ``Curve.gap`` bounds what is missing."""

    name = "eviction-dp"

    def solve_plain(self, problem: EvictionProblem) -> Curve:
        losses = fitting_losses([candidate.options for candidate in problem.candidates])
        contest = Contest(without_superfluous_jobs(problem, losses), losses)
        windows = list(contest.windows())
        same = groupby(windows, key=attrgetter("ways", "classes", "partial"))  # however many nodes are missing
        passes = [list(each) for _, each in same]
        solved = _by_core(contest, windows, len(passes))
        if solved is None:
            most_gap = SETTLED if shares_nodes(windows[0]) and programs_fit(windows) else inf
            solve = partial(_by_tables, most_gap=most_gap)
            solved, _ = in_shares(passes, MOST_LABELS_IN_ALL, solve, most_gap=most_gap)
            if solved.gap > most_gap:
                solved = with_programs(windows, solved)
        points = contest.points(windows, lambda _: solved.answers.get)
        curve = Curve(self.name, points, solved.proven, solved.gap)
        return curve if curve.exact else _no_worse(curve, LOSS_PER_NODE_PRUNE.solve_plain(problem))


def _no_worse(curve: Curve, rule: Curve) -> Curve:
    """A curve that is not proven, with the rule's plans where they are better.

    Where it had none, nothing is known of how much of what the rule's plan loses is needless: all of it may be.
    """
    points = tuple(min(pair, key=plan_rank) for pair in zip(curve.points, rule.points, strict=True))
    found = any(point.feasible and not own.feasible for point, own in zip(points, curve.points, strict=True))
    return replace(curve, points=points, gap=1.0 if found else curve.gap)


def _by_core(contest: Contest, windows: Sequence[Window], passes: int) -> Solved | None:
    """The answers by bounds; None where tables over all jobs are quicker, or nodes are shared."""
    problem = contest.problem
    if passes * len(contest.candidates) * (problem.last_step + 1) * (problem.nodes_needed + 1) < CORE_CELLS:
        return None
    every = contest.every_window()
    if not every.ways or shares_nodes(every):
        return None
    items = items_of(every)
    stages = [window for window in windows if window.missing]
    if not items or not stages or passes * _cells(items, stages) < CORE_CELLS:
        return None
    most = max(stage.missing for stage in stages)
    return solve_by_core(without_superfluous(items, most, contest.sometimes), stages)


def _by_tables(windows: Sequence[Window], labels: int, *, most_gap: float) -> tuple[Solved, int]:
    """The best for each deadline (in steps) where enough nodes can be freed, and how far it is proven."""
    missing = [window for window in windows if window.missing]
    whole = windows[0]  # of all, it misses the most nodes
    if len(windows) > 1:  # ways that take longer than the last that misses any has time are left out
        whole = replace(whole, last_step=(missing or windows)[-1].last_step)
    # Where whole nodes are shared, groups are mostly small: sweeping them takes two thirds of the time of the bounds.
    items = None if whole.partial and len(whole.classes) + len(whole.partial) > FEW_CLASSES else items_of(whole)
    if items is None:
        return in_shares(missing, labels, solve_shared, most_gap=most_gap)
    reach = sum([item.nodes for item in items])
    solvable = [window for window in missing if window.missing <= reach]
    if not solvable:
        return Solved(), labels
    needed = without_superfluous(items, min(whole.missing, reach))
    return Solved(NodeTimeTables(needed, solvable).answers()), labels


def _cells(items: Sequence[Item], windows: Sequence[Window]) -> int:
    """The size of the tables over all items, about."""
    node_unit = gcd(*{pick.nodes for item in items for pick in item.picks})
    return len(items) * (windows[-1].last_step + 1) * (max(window.missing for window in windows) // node_unit + 1)
