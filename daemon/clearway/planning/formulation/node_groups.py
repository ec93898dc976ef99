"""Items for the dynamic program: single jobs, with the ways of each that may be taken.

Ties: of two plans with equally many preemptees that comes first whose sorted list of (job_id, action) holds the
smallest element in which the lists differ. Items and picks stand in that order, so that ``tie_walk`` takes the first.
"""

from operator import attrgetter
from typing import NamedTuple

from clearway.planning.formulation.windows import Way, Window

_BY_RANK = attrgetter("rank")


class Pick(NamedTuple):
    """A way of a job: what it frees and what it costs."""

    nodes: int
    steps: int
    lost: int
    way: Way


class Item(NamedTuple):
    """At most one of its picks is taken; they stand in the order in which ties prefer them."""

    rank: int
    nodes: int
    picks: tuple[Pick, ...]


def items_of(window: Window) -> list[Item]:
    """The jobs of a window in which no nodes are shared, in the order of their job_id.

    They hold for any smaller number of missing nodes and any earlier deadline as well.
    """
    last_step = window.last_step
    new = tuple.__new__  # a named tuple's own constructor takes more than twice as long
    items = []
    for (rank,), nodes in window.classes.items():
        ways = [way for way in window.ways[rank] if way[0] <= last_step]  # in the order of preference
        if ways:
            items.append(new(Item, (rank, nodes, tuple([new(Pick, (nodes, way[0], way[1], way)) for way in ways]))))
    return sorted(items, key=_BY_RANK)
