"""The history of checkpoints, restarts and run times: its records are made, written to the store and read again.

The store is asked at most once for each change. What another daemon on the same database adds is seen when this one
takes over: only the one that acts writes.

A checkpoint's record is made when its preemption leaves the state ``checkpointing``, whatever comes next: that is
when its outcome is known. The executor stores it before it stores the new state, so a daemon that is killed in between
makes the same record again, under the same key.

A restart's record is made of what a running job says of its own start, which comes after its preemption has ended.

A run is a job id and its start. One that was seen to run and then is seen no more has ended, at the snapshot that
misses it first: up to one cycle late. A job that is still known to Slurm then was requeued or suspended, and one that
is a preemptee was ended by Clearway: neither says how long the program takes. How a run left the queue does not tell (a
cancelled or failed one counts as it lasted), except that its time limit cut it: it lasted that long at least.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from clearway.config.configuration import Config, CostsConfig
from clearway.estimates.costs import checkpoint_time_s, lost_work_node_s, model_size_mib
from clearway.estimates.learning import History, Requeued, application, key_of
from clearway.estimates.unanswered import found_out, outcome_unanswered, taken_for_saved
from clearway.model.claims import CLOCK_SKEW, CheckpointHow, Claims, SaveReport, read_claims, save_report, unanswered_s
from clearway.model.cluster import ClusterSnapshot, Job, JobState
from clearway.model.durations import format_duration
from clearway.model.events import Emit, ignore
from clearway.model.operations import Operation, Preemption, PreemptionState
from clearway.model.records import CheckpointOutcome, CheckpointRecord, Involvement, RestartRecord
from clearway.walltime.remaining import Advice, RunTimes, advice

RUNS_A_KEY = 200  # as many as the store reads
_MOST_KEYS = 2_000  # whose runs are kept at hand
ENOUGH = 10  # jobs, to advise on


class RunKey(NamedTuple):
    """What run times are kept by; ``app`` as ``learning.application`` names it."""

    user: str
    app: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run that has ended. (job_id, started_at) is unique."""

    job_id: str
    started_at: datetime
    ended_at: datetime
    user: str
    app: str
    nodes: int
    limit_s: float | None  # None: unlimited
    cut: bool  # by its time limit

    @property
    def key(self) -> RunKey:
        return RunKey(self.user, self.app)

    @property
    def run_s(self) -> float:
        return (self.ended_at - self.started_at).total_seconds()


@dataclass(frozen=True, slots=True)
class ObservedRun:
    """A run as it was last seen on its nodes; ``leaving_at``: since when it has been COMPLETING."""

    job: Job
    leaving_at: datetime | None = None


Runs = Mapping[tuple[str, datetime], ObservedRun]


class HistoryStore(Protocol):
    """Where the records are kept; see ``store.repository.Store``."""

    def record_checkpoint(self, record: CheckpointRecord) -> bool: ...
    def record_restart(self, record: RestartRecord) -> bool: ...
    def record_runs(self, records: Sequence[RunRecord]) -> None: ...
    def checkpoint_history(self) -> tuple[CheckpointRecord, ...]: ...
    def restart_history(self) -> tuple[RestartRecord, ...]: ...
    def requeued(self) -> tuple[Requeued, ...]: ...
    def runs_of(self, key: RunKey) -> tuple[RunRecord, ...]: ...
    def involvements(self, job: str, *, seen: Job | None = None, limit: int = 10) -> tuple[Involvement, ...]: ...


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
        self._ended: dict[RunKey, tuple[tuple[RunRecord, ...], RunTimes]] = {}

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

    def record_restarts(
        self, snapshot: ClusterSnapshot, config: Config, now: datetime
    ) -> list[tuple[Job, RestartRecord]]:
        """Write down what jobs say of how their run began; once for each run, and again when they say more.

        Returns what is new, or was told before the daemon started.
        """
        new: list[tuple[Job, RestartRecord]] = []
        found: dict[tuple[str, datetime], RestartRecord] = {}
        for job in snapshot.jobs:
            if job.start_time is None or "restart=" not in job.comment:
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
                new.append((job, record))
        self._restarts = found
        return new

    def notice_returns(self, open_ones: Iterable[Operation]) -> None:
        """Read anew how long preemptees were away when one of them is not followed any more."""
        away = frozenset((e.eviction_id, p.job_id) for e in open_ones for p in e.preemptions if not p.state.terminal)
        if self._away - away:
            self._requeued = None
            self._revision += 1
        self._away = away

    def record_ends(self, snapshot: ClusterSnapshot, preempted: Collection[str]) -> None:
        """Write down how long runs lasted that have ended by themselves since the last snapshot."""
        before = self._running
        self._running, ended = update_runs(before, snapshot, preempted)
        if not ended:
            return
        for record in ended:
            self._judge(before[record.job_id, record.started_at].job, record)
        self._store.record_runs(ended)
        for record in ended:
            known = self._ended.get(record.key)
            if known is not None and record not in known[0]:  # a reader may just have read it from the store
                self._ended[record.key] = _with_times((record, *known[0])[:RUNS_A_KEY])

    def _judge(self, job: Job, run: RunRecord) -> None:
        """Whether a job that gives no answer had saved itself before this run, which has ended: did it take less?"""
        if job.restart_count == 0 or run.cut or unanswered_s(job) is None:
            return
        others_s = [each.run_s for each in self.runs(run.key) if each.job_id != run.job_id and not each.cut]
        left = [each.preemption for each in self._store.involvements(job.job_id, seen=job, limit=1)]
        if wrong := taken_for_saved(job, left, self._store.checkpoint_history(), run.run_s, others_s):
            self.add_checkpoint(replace(wrong, outcome=CheckpointOutcome.FAILED))

    def runs(self, key: RunKey) -> tuple[RunRecord, ...]:
        """The newest runs of a user's application that have ended, newest first."""
        return self._known(key)[0]

    def run_times(self, key: RunKey) -> RunTimes:
        """The same as times."""
        return self._known(key)[1]

    def _known(self, key: RunKey) -> tuple[tuple[RunRecord, ...], RunTimes]:
        known = self._ended.get(key)
        if known is None:
            if len(self._ended) >= _MOST_KEYS:
                self._ended = {}
            known = self._ended[key] = _with_times(self._store.runs_of(key))
        return known

    def forget(self) -> None:
        """Read everything again: another daemon may have added to it."""
        self._read = None
        self._restarts = {}
        self._away, self._requeued = frozenset(), None
        self._running, self._ended = {}, {}


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
    waited = before.state is PreemptionState.CHECKPOINTING or found_out(before, after)
    if not waited or asked is None or waits_on:
        return None
    chosen = save_report(before.job, now, asked)  # as the prediction was made from
    report = save_report(seen, now, asked, before.job) if seen is not None else chosen
    report = report if report.claims is not None else chosen
    told, outcome, actual_s = report.claims, *_how_it_went(report, asked, after, late=now > latest)
    if told is None or outcome is None:
        return None
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
        size_mib=told.size_mib if outcome is CheckpointOutcome.SAVED else None,
    )


def saved_node_s(preemption: Preemption) -> float:
    """Work (node-seconds) that a kill would have lost when the job was asked to save itself, less what was lost."""
    if preemption.asked_at is None or preemption.actual_lost_node_s is None:
        return 0.0
    job = preemption.job  # as seen when it was chosen: its claims are those of before the asking
    would_lose = lost_work_node_s(job, read_claims(job)[0], preemption.asked_at)
    return max(0.0, would_lose - preemption.actual_lost_node_s)


def restart_record(job: Job, now: datetime, history: History) -> RestartRecord | None:
    """How this run of a job went on from a checkpoint; None while it does not say, or cannot be believed.

    Words without a run may be an earlier run's. Of a start that took longer than this run is old they certainly are.
    In the job's first run the launcher has begun anew, because the program was ended by its checkpoint.
    A run that has ended counts too: one that ends at once after its restart was never seen to run.
    """
    claims, _ = read_claims(job)
    if claims is None or claims.restart is None or job.state not in _TELLING or job.start_time is None:
        return None
    took_s = claims.restart_s
    if (job.restart_count == 0 and claims.run is None) or (took_s or 0.0) > (
        now - job.start_time + CLOCK_SKEW
    ).total_seconds():
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


def _how_it_went(
    report: SaveReport, asked: datetime, after: Preemption, *, late: bool
) -> tuple[CheckpointOutcome | None, float | None]:
    """The outcome, and seconds from asking to the complete checkpoint."""
    told, outcome = report.claims, _outcome(report, after.state, late=late)
    if told is not None and told.unanswered_s is not None:
        return outcome_unanswered(after, late=late), after.actual_checkpoint_s
    if told is None or told.last is None or outcome is not CheckpointOutcome.SAVED:
        return outcome, None
    return outcome, max(0.0, (told.last - asked).total_seconds())


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
            return next((each.takes_s for each in candidate.options if each.action is p.action), 0.0)
    return p.predicted_checkpoint_s


def update_runs(before: Runs, snapshot: ClusterSnapshot, preempted: Collection[str]) -> tuple[Runs, list[RunRecord]]:
    """The runs of this snapshot, to be passed in again with the next one; and those that have ended, by job id."""
    if snapshot.unreadable:
        return before, []  # a job that cannot be read has not ended
    now = _observed(before, snapshot)
    gone = {run: seen for run, seen in before.items() if run not in now and run[0] not in preempted}
    known = {job.job_id for job in snapshot.jobs if job.state is not JobState.ENDED} if gone else set()
    ended = [_record(seen, seen.leaving_at or snapshot.taken_at) for run, seen in gone.items() if run[0] not in known]
    return now, sorted(ended, key=lambda each: each.job_id)


def _observed(before: Runs, snapshot: ClusterSnapshot) -> Runs:
    """The runs of this snapshot; of those that were not seen to run before, none that is on its way out already."""
    now: dict[tuple[str, datetime], ObservedRun] = {}
    for job in snapshot.holders:
        if job.start_time is None:
            continue
        run = (job.job_id, job.start_time)
        if job.state is JobState.RUNNING:
            now[run] = ObservedRun(job)
        elif job.state is JobState.COMPLETING and run in before:
            now[run] = replace(before[run], leaving_at=before[run].leaving_at or snapshot.taken_at)
    return now


def run_key(job: Job) -> RunKey:
    """What this job's run times are kept by."""
    return RunKey(job.user, application(job, read_claims(job)[0] if "clearway:" in job.comment else None))


def _times_of(runs: Collection[RunRecord]) -> RunTimes:
    return RunTimes(tuple(each.run_s for each in runs if not each.cut), tuple(each.run_s for each in runs if each.cut))


def _with_times(runs: tuple[RunRecord, ...]) -> tuple[tuple[RunRecord, ...], RunTimes]:
    return runs, _times_of(runs)


def advice_on(runs: Collection[RunRecord]) -> Advice | None:
    """What these asked for and took; None when there are none."""
    return advice(_times_of(runs), [each.limit_s for each in runs if each.limit_s is not None])


def sentence(of: Advice) -> str:
    """The advice as a sentence for the jobs' owner."""
    takes = f"take {format_duration(of.median_s)} (nine in ten at most {format_duration(of.most_s)})"
    if of.jobs < ENOUGH:
        return f"only {of.jobs} known: too few to advise; so far they {takes}"
    if of.asked_s is None:
        return f"jobs of this name ask for no limit and {takes}"
    said = f"jobs of this name ask for {format_duration(of.asked_s)} and {takes}"
    return f"{said}; {of.cut} of {of.jobs} were cut by their time limit" if of.cut else said


def _record(seen: ObservedRun, ended_at: datetime) -> RunRecord:
    job = seen.job
    assert job.start_time is not None  # noqa: S101 - only runs with a start are kept
    ended_at -= timedelta(seconds=job.stood_s)  # what is learned is how long it ran
    lasted_s = (ended_at - job.start_time).total_seconds()
    return RunRecord(
        job_id=job.job_id,
        started_at=job.start_time,
        ended_at=max(ended_at, job.start_time),
        **run_key(job)._asdict(),
        nodes=max(1, job.num_nodes),
        limit_s=job.time_limit_s,
        cut=job.time_limit_s is not None and lasted_s >= job.time_limit_s,
    )
