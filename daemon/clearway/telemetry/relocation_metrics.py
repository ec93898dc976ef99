"""What compaction and promotion have done, for Prometheus."""

from clearway.model.events import Event, OperationFinished
from clearway.model.operations import EvictionState, PreemptionState, Relocation
from clearway.model.orders import MoveKind
from clearway.telemetry.families import Families


class RelocationMetrics:
    """Counted when an operation that moves jobs is over."""

    def __init__(self, families: Families) -> None:
        kinds = [kind.value for kind in MoveKind]
        self._jobs = families.counter(
            "clearway_moved_jobs", "Jobs that compaction and promotion have moved, and that run again.", kind=kinds
        )
        self._gain = families.counter(
            "clearway_move_gain_node_seconds",
            "Node-seconds that moves were expected to gain; only of those carried out to the end.",
            kind=kinds,
        )
        self._nodes = families.counter("clearway_compacted_nodes", "Nodes that compaction has moved all jobs off.")

    def record(self, event: Event) -> None:
        """Count one event; only the end of a relocation changes anything here."""
        if not isinstance(event, OperationFinished) or not isinstance(event.operation, Relocation):
            return
        eviction, order = event.operation, event.operation.order
        kind = order.kind.value
        self._jobs.labels(kind).inc(sum(p.state is PreemptionState.RETURNED for p in eviction.preemptions))
        if eviction.state is EvictionState.COMPLETED:
            self._gain.labels(kind).inc(order.gain_node_s)
            self._nodes.inc(len(order.nodes))
