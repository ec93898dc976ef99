"""For when and on which nodes Slurm's backfill plans a waiting job, beside the jobs that it has planned before. Pure.

Slurm does not look for the earliest second. It lets the running jobs end in the order of their time limits, all those
of a window at once, and looks after each window whether the job would fit; each window is twice as long as the one
before. The job is planned for the end of the last of them, on nodes that may have been free long before. Nodes on
which another job is planned within its time are left out. If it would start only after a time at which a plan begins
or ends, or meet a plan then, Slurm tries again from that time on.

Times are Unix times.
The nodes of the site are kept as arrays (``NodeTable``).
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from math import ceil, floor, inf

import numpy as np
from numpy.typing import NDArray

from clearway.model.cluster import Node, wanted_features
from clearway.simulation.jobs import SimulatedJob

Shape = tuple[object, ...]
Mask = NDArray[np.bool_]
Times = NDArray[np.float64]
Places = NDArray[np.int_]


class NodeTable:
    """The nodes as arrays, the lightest first: in this order jobs get them."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self.names = sorted(nodes, key=lambda name: nodes[name].weight)
        self.at = {name: number for number, name in enumerate(self.names)}
        self._weights = np.array([nodes[name].weight for name in self.names])
        self.cpus = np.array([nodes[name].cpus for name in self.names])
        self.memory_mib = np.array([nodes[name].memory_mib for name in self.names])
        self.available: Mask = np.zeros(len(self.names), dtype=bool)
        self._nodes = nodes
        self._seen: list[Node] = []
        self._able: dict[Shape, Mask] = {}

    def look(self, nodes: Mapping[str, Node]) -> None:
        now = [nodes[name] for name in self.names]
        if now != self._seen:
            self._seen = now
            self.available = np.array([node.available for node in now])

    def mask(self, names: Iterable[str]) -> Mask:
        found: Mask = np.zeros(len(self.names), dtype=bool)
        found[[self.at[name] for name in names if name in self.at]] = True
        return found

    def choose(self, found: Places, count: int) -> Places:
        """So many of these, as Slurm does without a topology.

        Of the lightest: the smallest run of neighbours that is large enough, else the largest, and so on for the rest.
        """
        chosen: list[Places] = []
        for weight in np.unique(self._weights[found]):
            alike = found[self._weights[found] == weight]
            starts = np.append(0, np.flatnonzero(np.diff(alike) > 1) + 1)
            lengths = np.diff(np.append(starts, len(alike)))
            while count > 0 and lengths.any():
                enough = np.flatnonzero(lengths >= count)
                best = enough[np.argmin(lengths[enough])] if len(enough) else np.argmax(lengths)
                chosen.append(alike[starts[best] :][: min(count, lengths[best])])
                count -= len(chosen[-1])
                lengths[best] = 0
        return np.concatenate(chosen)

    def able(self, entry: SimulatedJob) -> Mask:
        """Those that the job may have once they are empty."""
        shape = shape_of(entry)
        known = self._able.get(shape)
        if known is None:
            known = self._able[shape] = np.array([_could(entry, self._nodes[name]) for name in self.names])
        return known


def _could(entry: SimulatedJob, node: Node) -> bool:
    """Whether the job may have this node once it is empty."""
    job = entry.job
    if not set(job.partitions) & set(node.partitions) or node.name in job.excluded_nodes:
        return False
    if job.required_nodes and node.name not in job.required_nodes:
        return False
    if not (job.exclusive or node.cpus >= entry.cpus_per_node) or job.memory_mib > node.memory_mib > 0:
        return False
    have = Counter(dict(node.gpus))
    enough = all((have.total() if kind == "" else have[kind]) >= count for kind, count in job.gpus or ())
    return enough and wanted_features(job) <= set(node.features)


def shape_of(entry: SimulatedJob) -> Shape:
    job = entry.job
    return (
        job.partitions, job.exclusive, entry.cpus_per_node, job.memory_mib, job.gpus, job.features, job.reservation,
        job.required_nodes, job.excluded_nodes,
    )  # fmt: skip


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
