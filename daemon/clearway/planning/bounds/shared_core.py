"""The nodes about which an optimal plan is in doubt where jobs share nodes, found and proven by bounds.

Model: ``shared_bounds`` bounds every plan, and says how much more a plan costs that frees a certain class of nodes.
Where a known plan costs less than that, no optimal plan frees the class: it goes, and with it links between other
classes. Small groups are left (``node_groups``), which tables over nodes and time solve exactly, ties included.

Method: that of ``search``, for the deadlines in a row that share their best price. The tables over the classes that may
matter are the answer. Where a group has too many choices even so, those that promise most are kept; the plans found
that way are valid and mostly better, which leaves fewer classes. It is repeated while that helps. What would take more
than ``MOST_LABELS_IN_ALL`` labels stays unproven. So does a part whose jobs tie its classes together at random: its
first sweep makes more labels a class than it may keep (four times as many as on other machines), and none would end.

Cost: some dozens of bounds, then sweeps and tables over some dozens of classes, be there a thousand or more.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import TypeVar

import numpy as np

from clearway.planning.bounds.relaxation import Flags, Ints
from clearway.planning.bounds.search import Doubt, Solved
from clearway.planning.bounds.shared_bounds import MARGIN, SharedBound, SharedRelaxation, guide_of
from clearway.planning.dp.node_time_tables import NodeTimeTables
from clearway.planning.formulation.group_sweep import Threshold, thresholds
from clearway.planning.formulation.node_groups import grouped_items
from clearway.planning.formulation.partial_nodes import changed
from clearway.planning.formulation.windows import Taken, Window

TRIAL_CLASSES = 24  # beside as many as nodes are missing
TRIAL_LABELS = 100
MOST_LABELS = 2_000
MOST_LABELS_IN_ALL = 1_000_000  # for all deadlines of a problem; some five seconds of work
_LABELS_A_JOB = 3  # made of one that was kept: the job stays, or leaves in a way or two
_ATTEMPTS = 4
_WORTH_ANOTHER = 0.9  # of the room between plan and bound

_Part = TypeVar("_Part")


def in_shares(
    parts: Sequence[_Part], labels: int, solve: Callable[[_Part, int], tuple[Solved, int]], *, most_gap: float = inf
) -> tuple[Solved, int]:
    """The answers of all parts of a problem, and how many of so many ``labels`` were not needed.

    Each part may make an equal share of those that are left, so that no part takes those of the parts after it. Where
    more than ``most_gap`` is too much, a part that leaves more or that had too few labels is the last: nothing is known
    of those after it.
    """
    solved = Solved()
    for before, part in enumerate(parts, 1):
        share = labels // (len(parts) - before + 1)
        found, unused = solve(part, share)
        solved.answers |= found.answers
        solved.proven, solved.gap = solved.proven and found.proven, max(solved.gap, found.gap)
        labels += unused - share
        if before < len(parts) and (solved.gap > most_gap or (most_gap < inf and not unused)):
            solved.gap = 1.0
            break
    return solved, labels


def solve_shared(window: Window, labels: int) -> tuple[Solved, int]:
    """Plans for the deadlines of a window that misses nodes, and how many of so many ``labels`` were not needed."""
    window = _in_time(window)
    classes = thresholds(window)
    if sum(of_class.nodes for of_class in classes) < window.missing:
        return Solved(), labels
    relaxation = SharedRelaxation(classes, window.ways, window.missing, window.last_step)
    deadlines = np.array(window.deadlines)
    bounds = relaxation.bounds(deadlines)
    best = np.array([bound.at(deadlines) for bound in bounds]).argmax(axis=0)
    solved = Solved()
    for index in dict.fromkeys(best.tolist()):
        part = deadlines[best == index]
        part = part[bounds[index].at(part) <= relaxation.most * (1 + MARGIN)]  # the others are not feasible
        if len(part):
            doubt = _ClassDoubt(window, relaxation, bounds[index], part, labels, solved.known)
            solved.search(doubt)
            labels = doubt.left
    return solved, labels


def _in_time(window: Window) -> Window:
    """The window without what takes longer than its last deadline allows."""
    in_time = {
        rank: tuple([way for way in ways if way.steps <= window.last_step]) for rank, ways in window.ways.items()
    }
    able = {rank: ways for rank, ways in in_time.items() if ways}
    classes, partial, _ = changed(window.classes, window.partial, (), able.keys())
    return replace(window, ways=able, classes=classes, partial=partial)


class _ClassDoubt(Doubt):
    """The classes in doubt for some deadlines, at the prices of one bound."""

    def __init__(
        self,
        window: Window,
        relaxation: SharedRelaxation,
        bound: SharedBound,
        deadlines: Ints,
        labels: int,
        known: Taken | None,
    ) -> None:
        self.deadlines = deadlines
        self.left = labels  # to be made
        self._plans: dict[int, Taken] = dict.fromkeys(deadlines.tolist(), known) if known else {}  # the best
        self._window, self._relaxation, self._bound = window, relaxation, bound
        self._order = np.argsort(bound.surplus, kind="stable")
        enough = int(np.searchsorted(np.cumsum(relaxation.nodes[self._order]), relaxation.missing)) + 1
        self.first_size = max(enough, relaxation.missing) + TRIAL_CLASSES

    def trial(self, size: int) -> bool:
        if not self.left:
            return False
        trial: Flags = np.zeros(len(self._order), dtype=bool)
        trial[self._order[:size]] = True
        room = self._room(self.deadlines)
        trial &= self._bound.surplus <= room
        before = self.left
        complete = self._solve(trial, self.deadlines, TRIAL_LABELS, room)
        if not complete and before - self.left > TRIAL_LABELS * int(trial.sum()):
            self.left = 0
            return False
        alive = int((self._bound.surplus <= self._room(self.deadlines)).sum())
        return alive > 2 * size and size < len(self._order)

    def prove(self) -> Iterator[tuple[Ints, Mapping[int, Taken], bool]]:
        """The deadlines for which trials found no plan, and the others."""
        planned = np.array([step in self._plans for step in self.deadlines.tolist()], dtype=bool)
        for some in (self.deadlines[~planned], self.deadlines[planned]):
            if len(some):
                proven = self._prove(some)
                yield some, self._plans, proven

    def _prove(self, deadlines: Ints) -> bool:
        """Whether the plans of these deadlines are the best; they are made as good as the labels find them."""
        before = inf
        for _ in range(_ATTEMPTS):
            room = self._room(deadlines)
            if room > _WORTH_ANOTHER * before:
                return False
            alive = self._bound.surplus <= room
            jobs = {rank for of_class in self._classes(alive) for rank in of_class.held}
            limit = min(MOST_LABELS, self.left // (_LABELS_A_JOB * max(1, len(jobs))))
            if limit < TRIAL_LABELS:
                return False
            if self._solve(alive, deadlines, limit, room):
                return True
            before = room
        return False

    def _classes(self, chosen: Flags) -> list[Threshold]:
        return [self._relaxation.classes[index] for index in np.flatnonzero(chosen).tolist()]

    def cost(self, plan: Taken) -> float:
        return self._relaxation.cost(plan.lost, plan.steps, len(plan.ways))

    def least_lost(self, deadline: int) -> float:
        return float(self._bound.at(deadline)) * (1 - MARGIN) // self._relaxation.per_lost

    def _room(self, deadlines: Ints) -> float:
        """By how much the cost of a plan may exceed the bound, and be no worse than the known one."""
        costs = np.array([self._cost(self._plans.get(step)) for step in deadlines.tolist()])
        return float((costs * (1 + MARGIN) - self._bound.at(deadlines)).max())

    def _cost(self, plan: Taken | None) -> float:
        return inf if plan is None else self.cost(plan)

    def _solve(self, chosen: Flags, deadlines: Ints, limit: int, room: float) -> bool:
        """Plans from some classes; whether no label was left out that these classes offer within this room."""
        window = replace(self._window, first_step=int(deadlines[0]), last_step=int(deadlines[-1]))
        relaxation, bound = self._relaxation, self._bound
        items, complete, made = grouped_items(
            self._classes(chosen), window, limit, lambda group: guide_of(bound, relaxation, group, room)
        )
        self.left = max(0, self.left - made)
        if sum([max([pick.nodes for pick in item.picks]) for item in items]) < window.missing:
            return complete
        tables = NodeTimeTables(items, [window])
        for step, answer in tables.answers().items():
            cost, known = self._cost(answer), self._cost(self._plans.get(step))
            if step in deadlines and (cost < known or (complete and cost == known)):
                self._plans[step] = answer
        return complete
