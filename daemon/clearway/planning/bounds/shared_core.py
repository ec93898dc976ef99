"""The nodes about which an optimal plan is in doubt where jobs share nodes, found and proven by bounds.

Model: ``shared_bounds`` bounds every plan, and says how much more a plan costs that frees a certain class of
nodes. Where a plan is known whose cost is below that, no optimal plan frees the class: it goes, and with it links
between other classes fall away, so that what is left is small groups (``node_groups``), which the tables over
nodes and time solve exactly, ties included (``node_time_tables``). Only strictly worse classes and
labels go, so that ties are decided among all plans that are equally good.

Method, for the deadlines in a row that share their best price:
1. A trial over the classes of least surplus gives plans; so does the plan for an earlier deadline.
2. Their cost decides which classes may matter. The tables over these are the answer.
3. Where a group has too many choices even so, those that promise most are kept. The plans found that way are
   valid and mostly better, which makes step 2 narrower; it is repeated while that helps. What stays unproven
   is returned with its gap to the bound. So is what would take more than ``MOST_LABELS_IN_ALL`` labels.

Cost: some dozens of bounds, then sweeps and tables over some dozens of classes, be there a thousand or more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from clearway.planning.bounds.shared_bounds import MARGIN, SharedBound, SharedRelaxation, guide_of
from clearway.planning.bounds.stages import Solved
from clearway.planning.dp.node_time_tables import Answer, NodeTimeTables, Task
from clearway.planning.formulation.group_sweep import Guide, Threshold, thresholds
from clearway.planning.formulation.node_groups import grouped_items
from clearway.planning.formulation.partial_nodes import changed
from clearway.planning.formulation.windows import Window

TRIAL_CLASSES = 24  # beside as many as nodes are missing
TRIAL_LABELS = 100
MOST_LABELS = 2_000
MOST_LABELS_IN_ALL = 1_000_000  # for all deadlines of a problem; some five seconds of work
_LABELS_A_JOB = 3  # made of one that was kept: the job stays, or leaves in a way or two
_ATTEMPTS = 4
_WORTH_ANOTHER = 0.9  # of the room between plan and bound

_Part = TypeVar("_Part")
_Ints = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


def in_shares(
    parts: Sequence[_Part], labels: int, solve: Callable[[_Part, int], tuple[Solved, int]]
) -> tuple[Solved, int]:
    """The answers of all parts of a problem, and how many of so many ``labels`` were not needed.

    Each part may make an equal share of those that are left, so that no part takes those of the parts after it.
    """
    answers: dict[int, Answer] = {}
    proven, gap = True, 0.0
    for before, part in enumerate(parts):
        share = labels // (len(parts) - before)
        found, unused = solve(part, share)
        answers |= found.answers
        proven, gap, labels = proven and found.proven, max(gap, found.gap), labels - share + unused
    return Solved(answers, proven, gap), labels


def solve_shared(window: Window, labels: int) -> tuple[Solved, int]:
    """Plans for the deadlines of a window that misses nodes, and how many of so many ``labels`` were not needed."""
    window = _in_time(window)
    classes = thresholds(window)
    if sum(of_class.nodes for of_class in classes) < window.missing:
        return Solved({}), labels
    relaxation = SharedRelaxation(classes, window.ways, window.missing, window.last_step)
    deadlines = np.array(window.deadlines)
    bounds = relaxation.bounds(deadlines)
    best = np.array([bound.at(deadlines) for bound in bounds]).argmax(axis=0)
    answers: dict[int, Answer] = {}
    proven, gap = True, 0.0
    known: Answer | None = None  # the best plan so far: it serves every later deadline
    for index in dict.fromkeys(best.tolist()):
        part = deadlines[best == index]
        part = part[bounds[index].at(part) <= relaxation.most * (1 + MARGIN)]  # the others are not feasible
        search = _Search(window, relaxation, bounds[index], labels)
        for some in search.halves(part, known):
            every = search.prove(some)
            proven = proven and every
            for step in some.tolist():
                known = search.plans.get(step, known)
                if known is not None:
                    answers[step] = known
                    gap = max(gap, 0.0 if every else search.gap(step, known))
        labels = search.left
    return Solved(answers, proven, gap), labels


def _in_time(window: Window) -> Window:
    """The window without what takes longer than its last deadline allows."""
    in_time = {
        rank: tuple([way for way in ways if way.steps <= window.last_step]) for rank, ways in window.ways.items()
    }
    able = {rank: ways for rank, ways in in_time.items() if ways}
    classes, partial, _ = changed(window.classes, window.partial, (), able.keys())
    return replace(window, ways=able, classes=classes, partial=partial)


class _Search:
    """The classes in doubt for some deadlines, at the prices of one bound; ``plans`` are the best by deadline."""

    def __init__(self, window: Window, relaxation: SharedRelaxation, bound: SharedBound, labels: int) -> None:
        self.plans: dict[int, Answer] = {}
        self.left = labels  # to be made
        self._window, self._relaxation, self._bound = window, relaxation, bound

    def halves(self, deadlines: _Ints, known: Answer | None) -> list[_Ints]:
        """The deadlines for which trials find no plan, and the others; none of them empty."""
        if known is not None:
            self.plans = dict.fromkeys(deadlines.tolist(), known)
        if not len(deadlines):
            return []
        rel = self._relaxation
        order = np.argsort(self._bound.surplus, kind="stable")
        enough = int(np.searchsorted(np.cumsum(rel.nodes[order]), rel.missing)) + 1
        size = max(enough, rel.missing) + TRIAL_CLASSES
        while self.left:
            trial: _Flags = np.zeros(len(order), dtype=bool)
            trial[order[:size]] = True
            room = self._room(deadlines)
            trial &= self._bound.surplus <= room
            self._solve(trial, deadlines, TRIAL_LABELS, room)
            alive = int((self._bound.surplus <= self._room(deadlines)).sum())
            if alive <= 2 * size or size >= len(order):
                break
            size *= 2
        planned = np.array([step in self.plans for step in deadlines.tolist()], dtype=bool)
        return [some for some in (deadlines[~planned], deadlines[planned]) if len(some)]

    def prove(self, deadlines: _Ints) -> bool:
        """Whether the plans of these deadlines are the best; they are made as good as the labels find them."""
        before = inf
        for _ in range(_ATTEMPTS):
            room = self._room(deadlines)
            if room > _WORTH_ANOTHER * before:
                return False
            alive = self._bound.surplus <= room
            limit = min(MOST_LABELS, self.left // (_LABELS_A_JOB * self._jobs(alive)))
            if limit < TRIAL_LABELS:
                return False
            if self._solve(alive, deadlines, limit, room):
                return True
            before = room
        return False

    def _jobs(self, chosen: _Flags) -> int:
        classes = [self._relaxation.classes[index] for index in np.flatnonzero(chosen).tolist()]
        return max(1, len({rank for of_class in classes for rank in of_class.held}))

    def gap(self, step: int, plan: Answer) -> float:
        """How much of a plan's lost work may be more than needed."""
        least = float(self._bound.at(step)) * (1 - MARGIN) // self._relaxation.per_lost
        return (plan.lost - max(0.0, least)) / plan.lost if plan.lost else 0.0

    def _room(self, deadlines: _Ints) -> float:
        """By how much the cost of a plan may exceed the bound, and be no worse than the known one."""
        costs = np.array([self._cost(self.plans.get(step)) for step in deadlines.tolist()])
        return float((costs * (1 + MARGIN) - self._bound.at(deadlines)).max())

    def _cost(self, plan: Answer | None) -> float:
        return inf if plan is None else self._relaxation.cost(plan.lost, plan.steps, len(plan.ways))

    def _solve(self, chosen: _Flags, deadlines: _Ints, limit: int, room: float) -> bool:
        """Plans from some classes; whether no label was left out that these classes offer within this room."""
        window = replace(self._window, first_step=int(deadlines[0]), last_step=int(deadlines[-1]))
        classes = [self._relaxation.classes[index] for index in np.flatnonzero(chosen).tolist()]
        items, complete, made = grouped_items(classes, window, limit, self._guide(room))
        self.left = max(0, self.left - made)
        if sum([max([pick.nodes for pick in item.picks]) for item in items]) < window.missing:
            return complete
        task = Task(window.first_step, window.last_step, window.missing)
        tables = NodeTimeTables(items, [task], len(window.ways))
        for step, answer in tables.answers().items():
            cost, known = self._cost(answer), self._cost(self.plans.get(step))
            if step in deadlines and (cost < known or (complete and cost == known)):
                self.plans[step] = answer
        return complete

    def _guide(self, room: float) -> Callable[[Sequence[Threshold]], Guide]:
        return lambda group: guide_of(self._bound, self._relaxation, group, room)
