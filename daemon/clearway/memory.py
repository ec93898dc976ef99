"""What the daemon remembers of checkpoints and restarts: it writes them down, and reads them again when they changed.

The store is asked at most once for each change. What another daemon on the same database adds is seen when this one
takes over: only the one that acts writes.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from clearway.config import Config
from clearway.execution.lessons import restart_lesson
from clearway.learning import CheckpointRecord, History, RestartRecord
from clearway.model import ClusterSnapshot
from clearway.store.base import Store


class Listener(Protocol):
    """Hears of each record, for metrics."""

    def checkpointed(self, record: CheckpointRecord) -> None: ...

    def restarted(self, record: RestartRecord) -> None: ...


class Memory:
    """History for planning and for whoever asks; any thread may read it, only the loop's adds to it."""

    def __init__(self, store: Store, listener: Listener) -> None:
        self._store = store
        self._listener = listener
        self._revision = 0  # grows with every record
        self._read: tuple[int, Config, History] | None = None
        self._restarts: dict[tuple[str, datetime], RestartRecord] = {}  # of runs in the last snapshot

    def history(self, config: Config) -> History:
        """Everything that planning goes by, as this configuration reads it."""
        known, revision = self._read, self._revision
        if known is not None and known[:2] == (revision, config):
            return known[2]
        if known is not None and known[0] == revision:
            checkpoints, restarts = known[2].checkpoints, known[2].restarts
        else:
            checkpoints, restarts = self._store.checkpoint_history(), self._store.restart_history()
        history = History(checkpoints, restarts, config.learning, config.costs)
        self._read = (revision, config, history)
        return history

    def add_checkpoint(self, record: CheckpointRecord) -> None:
        self._store.record_checkpoint(record)
        self._revision += 1
        self._listener.checkpointed(record)

    def look_for_restarts(self, snapshot: ClusterSnapshot, config: Config, now: datetime) -> None:
        """Write down what running jobs say of how they began; once for each run, and again when they say more."""
        found: dict[tuple[str, datetime], RestartRecord] = {}
        for job in snapshot.jobs:
            if job.restart_count == 0 or job.start_time is None or "restart=" not in job.comment:
                continue  # most jobs: not worth parsing
            run = (job.job_id, job.start_time)
            known = self._restarts.get(run)
            record = restart_lesson(job, now, self.history(config))
            if record is None:
                continue
            if known is not None and (known.restart, known.restart_s) == (record.restart, record.restart_s):
                found[run] = known
                continue
            found[run] = record
            if self._store.record_restart(record):
                self._listener.restarted(record)
            self._revision += 1
        self._restarts = found

    def forget(self) -> None:
        """Read everything again: somebody else may have added to it."""
        self._read = None
        self._restarts = {}
