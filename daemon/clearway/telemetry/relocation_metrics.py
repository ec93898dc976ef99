"""What compaction and promotion have done, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from clearway.model.operations import EvictionState, Operation, PreemptionState, Relocation
from clearway.model.orders import MoveKind


class MoveMetrics:
    """Counted when an eviction that moves jobs is over."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._jobs = Counter(
            "clearway_moved_jobs",
            "Jobs that compaction and promotion have moved, and that run again.",
            ["kind"],
            registry=registry,
        )
        self._gain = Counter(
            "clearway_move_gain_node_seconds",
            "What moves that were carried out to the end were expected to gain.",
            ["kind"],
            registry=registry,
        )
        self._nodes = Counter(
            "clearway_compacted_nodes", "Nodes that compaction has moved all jobs off.", registry=registry
        )
        for kind in MoveKind:
            self._jobs.labels(kind.value)
            self._gain.labels(kind.value)

    def finished(self, eviction: Operation) -> None:
        if not isinstance(eviction, Relocation):
            return
        order = eviction.order
        kind = order.kind.value
        self._jobs.labels(kind).inc(sum(p.state is PreemptionState.RETURNED for p in eviction.preemptions))
        if eviction.state is EvictionState.COMPLETED:
            self._gain.labels(kind).inc(order.gain_node_s)
            self._nodes.inc(len(order.nodes))
