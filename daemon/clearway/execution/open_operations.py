"""The operations that are open: read from the store once a cycle, and kept in step with it by every write.

Only the daemon that holds the lease writes operations, and it does so here. What another process has written is
seen at the next ``refresh``.
"""

from __future__ import annotations

from typing import TypeVar

from clearway.model.operations import Drain, Eviction, Operation, Relocation
from clearway.model.transitions import O
from clearway.store.base import Store

Ordered = TypeVar("Ordered", Drain, Relocation)


class OpenOperations:
    """A copy of the store's open operations. The store is written first: a write that fails leaves the copy alone."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: dict[int, Operation] = {}

    def refresh(self) -> None:
        """Read all of them again; the first thing that a cycle does.

        Raises:
            StoreError: when the database cannot be read; the copy is as before.
        """
        self._open = {operation.eviction_id: operation for operation in self._store.open_evictions()}

    def all(self) -> tuple[Operation, ...]:
        """Those that are not in a terminal state, by id."""
        return tuple(self._open.values())

    def others(self, operation: Operation) -> tuple[Operation, ...]:
        """All but this one, by id."""
        return tuple(each for each in self._open.values() if each.eviction_id != operation.eviction_id)

    def by_preemptor(self) -> dict[str, Eviction]:
        """The eviction for each waiting job, by the job's id."""
        return {each.preemptor.job_id: each for each in self._open.values() if isinstance(each, Eviction)}

    def of_request(self, kind: type[Ordered], request_id: int) -> Ordered | None:
        """The one of this type that the request has led to."""
        for operation in self._open.values():
            if isinstance(operation, kind) and operation.order.request_id == request_id:
                return operation
        return None

    def get(self, operation_id: int) -> Operation:
        """An open one from the copy, an ended one from the store; raises ``UnknownEvictionError``."""
        known = self._open.get(operation_id)
        return self._store.eviction(operation_id) if known is None else known

    def create(self, operation: O) -> O:
        """Store a new one; returns it with its id, which is greater than all before."""
        created = self._store.create_eviction(operation)
        self._keep(created)
        return created

    def save(self, operation: Operation) -> None:
        """Store where it stands now."""
        self._store.save_eviction(operation)
        self._keep(operation)

    def _keep(self, operation: Operation) -> None:
        if operation.state.terminal:
            self._open.pop(operation.eviction_id, None)
        else:
            self._open[operation.eviction_id] = operation
