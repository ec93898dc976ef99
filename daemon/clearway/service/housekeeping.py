"""What the daemon does now and then: its sign of life, reservations that are left over, old history."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from clearway.drain.controller import DrainController
from clearway.execution.open_operations import OpenOperations
from clearway.execution.placement import is_placement
from clearway.model.cluster import ClusterSnapshot
from clearway.preemption.suppression import Suppression
from clearway.slurm.base import SlurmBackend
from clearway.store.base import Store

HEARTBEAT = "heartbeat"
_HEARTBEAT_EVERY_S = 10.0
_STRAYS_EVERY_S = 600.0
_PRUNE_EVERY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Housekeeping:
    """Work that is due from time to time. The times are not stored: after a restart or a reload all is due at once."""

    backend: SlurmBackend
    store: Store
    operations: OpenOperations
    suppression: Suppression
    _due: dict[str, datetime] = field(default_factory=dict)

    def run(self, snapshot: ClusterSnapshot, drains: DrainController, keep_history_s: float, now: datetime) -> None:
        """Do what is due by now."""
        if self._is_due("heartbeat", _HEARTBEAT_EVERY_S, now):
            self.store.set_value(HEARTBEAT, {"at": now.isoformat(), "backend": self.backend.name})
        if self._is_due("strays", _STRAYS_EVERY_S, now):
            drains.remove_strays(snapshot)
            self._remove_strays(snapshot)
        if self._is_due("prune", _PRUNE_EVERY_S, now):
            self.store.prune(now - timedelta(seconds=keep_history_s))
            self.suppression.forget_ended(snapshot)

    def _remove_strays(self, snapshot: ClusterSnapshot) -> None:
        """Placements of evictions that this database calls finished: a restored backup, or a lost write."""
        reserved = any(node.reservation is not None for node in snapshot.nodes)
        if not reserved and not any(job.reservation for job in snapshot.jobs):
            return  # the snapshot shows no reservation at all: no need to ask for them
        for reservation in self.backend.reservations():
            if not is_placement(reservation):
                continue
            eviction = self.operations.find(int(reservation.name.rpartition("_")[2]))
            if eviction is None or not eviction.state.terminal:
                continue  # another Clearway's, or its database is not this one: it ends by itself
            for job in snapshot.jobs:
                if job.reservation == reservation.name:
                    self.backend.detach(job.job_id)
            self.backend.delete_reservation(reservation.name)

    def _is_due(self, what: str, every_s: float, now: datetime) -> bool:
        if what in self._due and now < self._due[what]:
            return False
        self._due[what] = now + timedelta(seconds=every_s)
        return True
