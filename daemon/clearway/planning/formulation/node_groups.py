"""Items for the dynamic program: single jobs, and groups of jobs linked through shared nodes.

Model: a node is free only when every job on it has left. Jobs linked through shared nodes form a group (a connected
component of the node classes). Groups do not influence each other, so each is one item of which at most one pick is
taken. A pick is a set of jobs with one way each, found by a sweep over the group's jobs (``group_sweep``).

A pick P is dropped when another pick Q of its item frees at least as many nodes, takes no more steps, loses no more
work and comes first in the order of ``planning.base``: Q could replace P in every plan. This holds for ties as well: of
two plans with equally many preemptees that comes first whose sorted list of (job_id, action) holds the smallest element
in which the lists differ, and exchanging P for Q changes nothing else. So the rule is arithmetic: each (job_id, action)
is one bit, the first the highest, and the plan with the larger sum of bits (its preference) comes first.

Cost: see ``group_sweep``. A group that needs more than ``LABELS_LIMIT`` labels at a time is not enumerated; then
``shared_core`` solves the problem.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from clearway.model.problem import ACTION_ORDER
from clearway.planning.formulation.group_sweep import Guide, Pick, Threshold, sweep, thresholds, undominated
from clearway.planning.formulation.windows import Window

LABELS_LIMIT = 2_000
_BITS = len(ACTION_ORDER)
_BY_FIRST = attrgetter("first_rank")


class Item(NamedTuple):
    """At most one of its picks is taken; they stand in the order in which ties prefer them."""

    first_rank: int
    last_rank: int
    bits: int  # of a preference, that belong to its first job and all jobs after that
    picks: tuple[Pick, ...]

    @property
    def single(self) -> bool:
        """Whether it is one job, which frees the same nodes in each of its ways."""
        return self.first_rank == self.last_rank

    @property
    def nodes(self) -> int:
        """The most that it can free."""
        picks = self.picks
        return picks[0][0] if self.first_rank == self.last_rank else max([pick.nodes for pick in picks])


class Grouped(NamedTuple):
    """Items, whether they hold every pick that matters, and how many labels it took to find them."""

    items: list[Item]
    complete: bool
    labels: int


def shares_nodes(window: Window) -> bool:
    return bool(window.partial) or any(len(jobs) > 1 for jobs in window.classes)


def items_of(window: Window) -> list[Item] | None:
    """The items in the order of their first job_id; None when a group has too many choices.

    They hold for any smaller number of missing nodes and any earlier deadline as well.
    """
    if shares_nodes(window):
        found = grouped_items(thresholds(window), window, LABELS_LIMIT)
        return found.items if found.complete else None
    items = [_single(rank, nodes, window, 0) for (rank,), nodes in window.classes.items()]
    return sorted([item for item in items if item.picks], key=_BY_FIRST)


def grouped_items(
    classes: Sequence[Threshold],
    window: Window,
    limit: int,
    judge: Callable[[Sequence[Threshold]], Guide] | None = None,
) -> Grouped:
    """The items that these classes of a window make.

    ``judge`` gives the guide of a group; without any nothing is found when one group has too many choices.
    """
    jobs = sorted({rank for each in classes for rank in each.held}, reverse=True)
    bits = {rank: _BITS * place for place, rank in enumerate(jobs, 1)}  # of a preference, from those of the job on
    items: list[Item] = []
    complete, labels = True, 0
    for group in sorted(_groups(classes), key=len, reverse=True):  # those that may be too large come first
        ranks = sorted({rank for of_class in group for rank in of_class.held})
        if len(ranks) == 1:
            item = _single(ranks[0], sum(each.nodes for each in group), window, bits[ranks[0]])
        else:
            ways = {rank: [(way, 1 << (bits[rank] - 1 - way.order)) for way in window.ways[rank]] for rank in ranks}
            guide = judge(group) if judge else None
            swept = sweep(group, ways, window, limit, guide)
            if judge is None and not swept.complete:
                return Grouped([], complete=False, labels=swept.labels)
            complete, labels = complete and swept.complete, labels + swept.labels
            picks = undominated(swept.picks, window.last_step, window.missing)
            picks.sort(key=lambda pick: -pick.preference)
            item = Item(ranks[0], ranks[-1], bits[ranks[0]], tuple(picks))
        if item.picks:
            items.append(item)
    return Grouped(sorted(items, key=_BY_FIRST), complete, labels)


def _single(rank: int, nodes: int, window: Window, bits: int) -> Item:
    """Of single jobs alone no preferences are compared (``bits`` is 0): each would be as long as there are jobs."""
    last_step = window.last_step
    new = tuple.__new__  # a named tuple's own constructor takes more than twice as long
    picks = [
        new(Pick, (nodes, way[0], way[1], 1 << (bits - 1 - way[2]) if bits else 0, (way,)))
        for way in window.ways[rank]  # in the order of preference
        if way[0] <= last_step
    ]
    return new(Item, (rank, rank, bits, tuple(picks)))


def _groups(classes: Sequence[Threshold]) -> Iterable[list[Threshold]]:
    """Connected components of the classes."""
    parent: dict[int, int] = {}

    def root(rank: int) -> int:
        while (above := parent.setdefault(rank, rank)) != rank:
            parent[rank] = parent[above]  # halves the path
            rank = parent[rank]
        return rank

    for of_class in classes:
        first, *others = of_class.held
        for rank in others:
            parent[root(rank)] = root(first)
    groups: dict[int, list[Threshold]] = defaultdict(list)
    for of_class in classes:
        groups[root(next(iter(of_class.held)))].append(of_class)
    return groups.values()
