"""For when and on which nodes Slurm's backfill plans a waiting job, beside the jobs that it has planned before. Pure.

Slurm does not look for the earliest second. It lets the running jobs end in the order of their time limits, all those
of a window at once, and looks after each window whether the job would fit; each window is twice as long as the one
before. The job is planned for the end of the last of them, on nodes that may have been free long before. Nodes on
which another job is planned within its time are left out. If it would start only after a time at which a plan begins
or ends, or meet a plan then, Slurm tries again from that time on.

Times are Unix times.
"""

from bisect import bisect_left
from math import ceil, floor, inf

import numpy as np

from clearway.simulation.site_nodes import Mask, NodeTable, Places, Times

FIRST_WINDOW_S = 30.0
RESOLUTION_S = 60.0  # plans begin and end with a minute, as by Slurm's bf_resolution


class Plans:
    """``first``: for each node, when the first plan there begins."""

    def __init__(self, now: float, nodes: NodeTable) -> None:
        self._now, self._nodes = now, nodes
        self.first: Times = np.full(len(nodes.names), inf)
        self._begins: list[float] = []
        self._ends: list[float] = []
        self._masks: list[Mask] = []

    def add(self, begins: float, ends: float, where: Mask) -> None:
        self.first[where] = np.minimum(self.first[where], begins)
        self._begins.append(begins)
        self._ends.append(ends)
        self._masks.append(where)

    def place(self, able: Mask, free_from: Times, count: int, limit_s: float) -> None:
        """Plan a job on so many of the nodes in ``able``; ``free_from``: when each node is free, by the limits."""
        if np.count_nonzero(able) < count:
            return
        times = sorted({each for each in (*self._begins, *self._ends) if each > self._now})
        # No try can succeed whose time is over before so many nodes are free, whatever is planned on them.
        soonest = float(np.partition(free_from[able], count - 1)[count - 1])
        first = bisect_left(times, soonest)
        begins = times[first - 1] if first else self._now
        while begins < inf:
            until = next((each for each in times[first:] if each > begins), inf)
            left = np.flatnonzero(able & ~self._taken(begins, begins + limit_s))
            opens = opening(free_from[left], count, self._now) if len(left) >= count else None
            at = inf if opens is None else max(opens, begins)
            if opens is None or at > until:
                begins = until
                continue
            where = np.zeros(len(able), dtype=bool)
            where[chosen(self._nodes, left, free_from[left], count, opens)] = True
            if (self._taken(at, at + limit_s) & where).any():
                begins = at if at > begins else until
                continue
            self.add(*_rounded(at, at + limit_s), where)
            return

    def _taken(self, begins: float, ends: float) -> Mask:
        taken: Mask = np.zeros(len(self.first), dtype=bool)
        for plan_begins, plan_ends, where in zip(self._begins, self._ends, self._masks, strict=True):
            if plan_begins < ends and plan_ends > begins:
                taken |= where
        return taken


def chosen(nodes: NodeTable, able: Places, free_from: Times, count: int, at: float) -> Places:
    """So many of those nodes that are free then."""
    return nodes.choose(able[free_from <= at], count)


def opening(free_from: Times, count: int, now: float) -> float | None:
    """When Slurm would find so many nodes free, by when each of them is."""
    times = np.sort(free_from)
    at = int(np.searchsorted(times, now, side="right"))
    if at >= count:
        return now
    window_s = FIRST_WINDOW_S
    while at < len(times):
        end = int(np.searchsorted(times, times[at] + window_s, side="right"))
        if end >= count:
            return float(times[end - 1])
        at, window_s = end, 2 * window_s
    return None


def _rounded(begins: float, ends: float) -> tuple[float, float]:
    return floor(begins / RESOLUTION_S) * RESOLUTION_S, ceil(ends / RESOLUTION_S) * RESOLUTION_S
