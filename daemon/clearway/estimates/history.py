"""The history of checkpoints, restarts and run times: it is written to the store, and read from there again.

The store is asked at most once for each change. What another daemon on the same database adds is seen when this one
takes over: only the one that acts writes.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Protocol

from clearway.config.configuration import Config
from clearway.estimates import run_times
from clearway.estimates.learning import History, Requeued
from clearway.estimates.outcomes import restart_record
from clearway.estimates.run_times import RunKey, RunRecord, Runs, run_key
from clearway.model.cluster import ClusterSnapshot, Job
from clearway.model.events import Emit, ignore
from clearway.model.operations import Operation
from clearway.model.records import CheckpointRecord, RestartRecord
from clearway.walltime.remaining import EndChance, RunTimes

RUNS_A_KEY = 200  # as many as the store reads
_MOST_KEYS = 2_000  # whose runs are kept at hand


class HistoryStore(Protocol):
    """Where the records are kept; see ``store.base.Store``."""

    def record_checkpoint(self, record: CheckpointRecord) -> bool: ...

    def record_restart(self, record: RestartRecord) -> bool: ...

    def record_runs(self, records: Sequence[RunRecord]) -> None: ...

    def checkpoint_history(self) -> tuple[CheckpointRecord, ...]: ...

    def restart_history(self) -> tuple[RestartRecord, ...]: ...

    def requeued(self) -> tuple[Requeued, ...]: ...

    def runs_of(self, key: RunKey) -> tuple[RunRecord, ...]: ...


class HistoryKeeper:
    """History for planning, and for what REST shows; any thread may read it, only the loop's adds to it."""

    def __init__(self, store: HistoryStore, emit: Emit = ignore) -> None:
        self._store = store
        self._emit = emit
        self._revision = 0  # grows with every record
        self._read: tuple[int, Config, History] | None = None
        self._restarts: dict[tuple[str, datetime], RestartRecord] = {}  # of runs in the last snapshot
        self._away: frozenset[tuple[int, str]] = frozenset()  # preemptions that are not over
        self._requeued: tuple[Requeued, ...] | None = None
        self._running: Runs = {}
        # Whole tuples are put in place of others: readers on other threads see one or the other.
        self._ended: dict[RunKey, tuple[RunRecord, ...]] = {}
        self._run_times: dict[RunKey, tuple[tuple[RunRecord, ...], RunTimes]] = {}

    def history(self, config: Config) -> History:
        """Everything that planning goes by, as this configuration reads it."""
        known, revision = self._read, self._revision
        if known is not None and known[:2] == (revision, config):
            return known[2]
        if known is not None and known[0] == revision:
            checkpoints, restarts = known[2].checkpoints, known[2].restarts
        else:
            checkpoints, restarts = self._store.checkpoint_history(), self._store.restart_history()
        if self._requeued is None:
            self._requeued = self._store.requeued()
        history = History(
            checkpoints,
            restarts,
            config.learning,
            config.costs,
            self._requeued,
            run_times=lambda user, app: self.run_times(RunKey(user, app)),
        )
        self._read = (revision, config, history)
        return history

    def add_checkpoint(self, record: CheckpointRecord) -> None:
        self._store.record_checkpoint(record)
        self._revision += 1
        self._emit(record)

    def record_restarts(self, snapshot: ClusterSnapshot, config: Config, now: datetime) -> None:
        """Write down what running jobs say of how they began; once for each run, and again when they say more."""
        found: dict[tuple[str, datetime], RestartRecord] = {}
        for job in snapshot.jobs:
            if job.restart_count == 0 or job.start_time is None or "restart=" not in job.comment:
                continue  # most jobs: not worth parsing
            run = (job.job_id, job.start_time)
            known = self._restarts.get(run)
            record = restart_record(job, now, self.history(config))
            if record is None:
                continue
            if known is not None and (known.restart, known.restart_s) == (record.restart, record.restart_s):
                found[run] = known
                continue
            found[run] = record
            if self._store.record_restart(record):
                self._emit(record)
            self._revision += 1
        self._restarts = found

    def notice_returns(self, open_ones: Iterable[Operation]) -> None:
        """Read anew how long preemptees were away when one of them is not followed any more."""
        away = frozenset((e.eviction_id, p.job_id) for e in open_ones for p in e.preemptions if not p.state.terminal)
        if self._away - away:
            self._requeued = None
            self._revision += 1
        self._away = away

    def record_ends(self, snapshot: ClusterSnapshot, preempted: Collection[str]) -> None:
        """Write down how long runs lasted that have ended by themselves since the last snapshot."""
        self._running, ended = run_times.update_runs(self._running, snapshot, preempted)
        if not ended:
            return
        self._store.record_runs(ended)
        for record in ended:
            known = self._ended.get(record.key)
            if known is not None and record not in known:  # a reader may just have read it from the store
                self._ended[record.key] = (record, *known)[:RUNS_A_KEY]

    def runs(self, key: RunKey) -> tuple[RunRecord, ...]:
        """The newest runs of a user's application that have ended, newest first."""
        known = self._ended.get(key)
        if known is None:
            if len(self._ended) >= _MOST_KEYS:
                self._ended, self._run_times = {}, {}
            known = self._ended[key] = self._store.runs_of(key)
        return known

    def run_times(self, key: RunKey) -> RunTimes:
        """The same as times."""
        records = self.runs(key)
        kept = self._run_times.get(key)
        if kept is None or kept[0] is not records:
            kept = records, run_times.times_of(records)
            self._run_times[key] = kept
        return kept[1]

    def chance_of_end(self, job: Job, now: datetime, deadline: datetime) -> EndChance:
        """The chance that a running job ends by itself before the deadline, by the runs of its user and name."""
        ran_s = 0.0 if job.start_time is None else max(0.0, (now - job.start_time).total_seconds())
        return self.run_times(run_key(job)).chance_of_end(ran_s, (deadline - now).total_seconds())

    def forget(self) -> None:
        """Read everything again: another daemon may have added to it."""
        self._read = None
        self._restarts = {}
        self._away, self._requeued = frozenset(), None
        self._running, self._ended, self._run_times = {}, {}, {}


def read_history(store: HistoryStore, config: Config) -> History:
    """What a daemon with this database and configuration would plan by."""
    return HistoryKeeper(store).history(config)
