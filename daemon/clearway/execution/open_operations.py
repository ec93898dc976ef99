"""The operations that are open: read from the store once a cycle, and kept in step with it by every write.

Only the daemon that holds the lease writes operations, and it does so here. What another process has written is
seen at the next ``refresh``.
"""

from __future__ import annotations

from clearway.model.operations import Eviction
from clearway.store.base import Store


class OpenOperations:
    """A copy of the store's open operations. The store is written first: a write that fails leaves the copy alone."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: dict[int, Eviction] = {}

    def refresh(self) -> None:
        """Read all of them again; the first thing that a cycle does.

        Raises:
            StoreError: when the database cannot be read; the copy is as before.
        """
        self._open = {operation.eviction_id: operation for operation in self._store.open_evictions()}

    def all(self) -> tuple[Eviction, ...]:
        """Those that are not in a terminal state, by id."""
        return tuple(self._open.values())

    def others(self, operation: Eviction) -> tuple[Eviction, ...]:
        """All but this one, by id."""
        return tuple(each for each in self._open.values() if each.eviction_id != operation.eviction_id)

    def by_preemptor(self) -> dict[str, Eviction]:
        """The operation for each waiting job, by the job's id."""
        return {operation.preemptor.job_id: operation for operation in self._open.values()}

    def of_request(self, request_id: int) -> Eviction | None:
        """The one that this request for a drain or for moves has led to."""
        for operation in self._open.values():
            if operation.drain is not None and operation.drain.request_id == request_id:
                return operation
        return None

    def get(self, operation_id: int) -> Eviction:
        """An open one from the copy, an ended one from the store; raises ``UnknownEvictionError``."""
        known = self._open.get(operation_id)
        return self._store.eviction(operation_id) if known is None else known

    def create(self, operation: Eviction) -> Eviction:
        """Store a new one; returns it with its id, which is greater than all before."""
        created = self._store.create_eviction(operation)
        self._keep(created)
        return created

    def save(self, operation: Eviction) -> None:
        """Store where it stands now."""
        self._store.save_eviction(operation)
        self._keep(operation)

    def _keep(self, operation: Eviction) -> None:
        if operation.state.terminal:
            self._open.pop(operation.eviction_id, None)
        else:
            self._open[operation.eviction_id] = operation
