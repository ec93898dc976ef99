"""The nodes of a replayed site as arrays, and which of them Slurm gives to a job."""

from collections import Counter
from collections.abc import Iterable, Mapping

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
