"""Which checkpoint is next on the file system, over all operations under way, and what became of earlier ones. Pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from clearway.config.configuration import Config
from clearway.estimates.checkpoint_load import (
    CheckpointLoad,
    CheckpointWrite,
    checkpoint_load_of,
    checkpoint_write_of,
    latest_of,
    may_begin,
)
from clearway.estimates.history import checkpoint_record
from clearway.execution.cycle_context import CycleContext
from clearway.model.cluster import ClusterSnapshot
from clearway.model.operations import Operation, Preemption
from clearway.model.records import CheckpointRecord


class CheckpointTurns:
    """``others`` are the other operations under way; an answer holds while none of them has changed."""

    def __init__(self, config: Config) -> None:
        self._execution, self._costs = config.execution, config.costs
        # Each step makes another operation.
        self._known: tuple[Operation, Sequence[Operation], CheckpointLoad] | None = None

    def may_ask(self, e: Operation, p: Preemption, cycle: CycleContext) -> bool:
        """Whether this checkpoint is the next over all operations, and the file system has room for it."""
        write = self._write(e, p, cycle.snapshot)
        if write is None or write.own_pace:
            return True  # its claim is gone, or it saves itself at its own pace
        if self._known is None or self._known[0] is not e or self._known[1] is not cycle.others:
            load = checkpoint_load_of(
                (e, *cycle.others),
                lambda each, own: self._write(each, own, cycle.snapshot),
                lambda each, own: each.its_turn(own),
                lambda each: each is e,
                cycle.now,
            )
            self._known = (e, cycle.others, load)
        bandwidth = self._execution.checkpoint_bandwidth_mib_s or self._costs.file_system_mib_s
        return may_begin(write, self._known[2], self._execution.concurrent_checkpoints, bandwidth)

    def _write(self, e: Operation, p: Preemption, snapshot: ClusterSnapshot) -> CheckpointWrite | None:
        return checkpoint_write_of(e, p, snapshot, self._costs, self._execution)

    def records(
        self, before: Operation, after: Operation, snapshot: ClusterSnapshot | None, now: datetime
    ) -> Iterator[CheckpointRecord]:
        """What became of the checkpoints that ``before`` waited for."""
        now_by_id, latest = {p.job_id: p for p in after.preemptions}, latest_of(before, self._execution)
        for p in before.preemptions:
            seen, then = snapshot.job_by_id.get(p.job_id) if snapshot else None, now_by_id.get(p.job_id, p)
            record = checkpoint_record(before, p, then, seen, now, latest=latest, costs=self._costs)
            if record is not None:
                yield record
