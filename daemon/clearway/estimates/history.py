"""The history of checkpoints, restarts and run times: its records are made, written to the store and read again.

The store is asked at most once for each change. What another daemon on the same database adds is seen when this one
takes over: only the one that acts writes.

A checkpoint's record is made when its preemption leaves the state ``checkpointing``, whatever comes next: that is
when its outcome is known. The executor stores it before it stores the new state, so a daemon that is killed in between
makes the same record again, under the same key.

A restart's record is made of what a running job says of its own start, which comes after its preemption has ended.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Protocol

from clearway.config.configuration import Config, CostsConfig
from clearway.estimates.costs import checkpoint_time_s, model_size_mib
from clearway.estimates.learning import History, Requeued, key_of
from clearway.estimates.run_times import RunKey, RunRecord, Runs, run_key, times_of, update_runs
from clearway.model.claims import CLOCK_SKEW, CheckpointHow, Claims, SaveReport, read_claims, save_report
from clearway.model.cluster import ClusterSnapshot, Job, JobState
from clearway.model.events import Emit, ignore
from clearway.model.operations import Operation, Preemption, PreemptionState
from clearway.model.records import CheckpointOutcome, CheckpointRecord, RestartRecord
from clearway.walltime.remaining import EndChance, RunTimes

RUNS_A_KEY = 200  # as many as the store reads
_MOST_KEYS = 2_000  # whose runs are kept at hand


class HistoryStore(Protocol):
    """Where the records are kept; see ``store.repository.Store``."""

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
        """Write down what jobs say of how their run began; once for each run, and again when they say more."""
        found: dict[tuple[str, datetime], RestartRecord] = {}
        for job in snapshot.jobs:
            if job.restart_count == 0 or job.start_time is None or "restart=" not in job.comment:
                continue  # most jobs: not worth parsing
            run = (job.job_id, job.start_time)
            known = self._restarts.get(run)
            record = restart_record(job, now, self.history(config))
            if record is None:
                continue
            found[run] = record
            if known is None or (known.restart, known.restart_s) != (record.restart, record.restart_s):
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
        self._running, ended = update_runs(self._running, snapshot, preempted)
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
            kept = records, times_of(records)
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


def checkpoint_record(
    eviction: Operation,
    before: Preemption,
    after: Preemption,
    seen: Job | None,
    now: datetime,
    *,
    latest: datetime,
    costs: CostsConfig,
) -> CheckpointRecord | None:
    """What became of the checkpoint that ``before`` was waiting for; None while it waits on, or was called off in time.

    ``seen`` is the job in the newest snapshot, None when there is none or Slurm has forgotten the job; ``latest`` is
    when its nodes had to begin to empty.
    """
    asked, waits_on = before.asked_at, after.state is PreemptionState.CHECKPOINTING and after.asked_at is not None
    if before.state is not PreemptionState.CHECKPOINTING or asked is None or waits_on:
        return None
    chosen = save_report(before.job, now, asked)  # as the prediction was made from
    report = save_report(seen, now, asked, before.job) if seen is not None else chosen
    report = report if report.claims is not None else chosen
    outcome = _outcome(report, after.state, late=now > latest)
    told = report.claims
    if told is None or outcome is None:
        return None
    saved = outcome is CheckpointOutcome.SAVED
    actual_s = max(0.0, (told.last - asked).total_seconds()) if saved and told.last is not None else None
    waited_s = (now - asked).total_seconds()
    return CheckpointRecord(
        eviction_id=eviction.eviction_id,
        job_id=before.job_id,
        run=before.job.restart_count,
        **key_of(before.job, told)._asdict(),
        action=before.action,
        nodes=max(1, before.job.num_nodes),
        asked_at=asked,
        ended_at=now,
        outcome=outcome,
        predicted_s=_predicted_s(eviction, before),
        actual_s=actual_s,
        write_s=_write_s(told, outcome, actual_s, waited_s),
        predicted_size_mib=(chosen.claims and model_size_mib(before.job, chosen.claims, costs)) or None,
        size_mib=told.size_mib if saved else None,
    )


def restart_record(job: Job, now: datetime, history: History) -> RestartRecord | None:
    """How this run of a job went on from a checkpoint; None while it does not say, or cannot be believed.

    Words without a run may be an earlier run's. Of a start that took longer than this run is old they certainly are.
    A run that has ended counts too: one that ends at once after its restart was never seen to run.
    """
    claims, _ = read_claims(job)
    if claims is None or claims.restart is None or job.state not in _TELLING or job.start_time is None:
        return None
    took_s = claims.restart_s
    if job.restart_count == 0 or (took_s or 0.0) > (now - job.start_time + CLOCK_SKEW).total_seconds():
        return None
    key = key_of(job, claims)
    nodes = max(1, job.num_nodes)
    predicted_s = history.restart_s(*key, nodes)
    if predicted_s is None and claims.size_mib is not None:  # reading is taken to be as quick as writing
        predicted_s = checkpoint_time_s(nodes, claims.size_mib / nodes, history.costs)
    return RestartRecord(
        job_id=job.job_id,
        run=job.restart_count,
        **key._asdict(),
        nodes=nodes,
        started_at=job.start_time,
        restart=claims.restart,
        predicted_s=predicted_s,
        restart_s=took_s,
    )


_TELLING = (JobState.RUNNING, JobState.COMPLETING, JobState.ENDED)


def _write_s(told: Claims, outcome: CheckpointOutcome, actual_s: float | None, waited_s: float) -> float | None:
    """How long the writing took; of a late one, so long at least."""
    if told.checkpoint is CheckpointHow.INTERVAL:
        return told.took_s if outcome is CheckpointOutcome.SAVED else None
    return waited_s if outcome is CheckpointOutcome.LATE else actual_s


def _outcome(report: SaveReport, after: PreemptionState, *, late: bool) -> CheckpointOutcome | None:
    if report.saved:
        return CheckpointOutcome.SAVED
    if report.failed:
        return CheckpointOutcome.FAILED
    if after in (PreemptionState.SPARED, PreemptionState.PLANNED):  # PLANNED: chosen anew, with another action
        return CheckpointOutcome.LATE if late else None
    if after is PreemptionState.VACATING:
        return CheckpointOutcome.LATE  # requeued without it
    return CheckpointOutcome.ENDED


def _predicted_s(eviction: Operation, p: Preemption) -> float:
    """As it was estimated; the plan itself has it rounded up to whole steps."""
    for candidate in eviction.plan.problem.candidates:
        if candidate.job_id == p.job_id:
            return next((each.checkpoint_s for each in candidate.options if each.action is p.action), 0.0)
    return p.predicted_checkpoint_s
