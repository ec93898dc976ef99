"""Which checkpoint is next on the file system, how a job is asked for it, and what became of earlier ones."""

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
from clearway.model.claims import CheckpointHow, saves
from clearway.model.cluster import ClusterSnapshot, Job
from clearway.model.errors import JobNotRunningError
from clearway.model.operations import Operation, Preemption
from clearway.model.records import CheckpointRecord
from clearway.slurm.base import Failures, JobChange, SlurmBackend
from clearway.slurm.job_changes import not_asked


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


def ask_to_save(backend: SlurmBackend, jobs: Sequence[Job]) -> Failures:
    """As each job says now how it is asked: a signal that it does not wait for (any more) would end it.

    Returns:
        By job_id, why it was not asked: Slurm refuses, does not answer, or the job is not in this run or does not
        wait for a signal.
    """
    seen, unseen = backend.look_at([job.job_id for job in jobs])
    failures = not_asked(unseen)
    alike: dict[tuple[JobChange, str], list[Job]] = {}
    for job in jobs:
        if job.job_id in failures:
            continue
        now = seen.get(job.job_id)
        claims = saves(now) if now is not None and now.run == job.run else None
        if claims is None or claims.checkpoint is not CheckpointHow.SIGNAL:
            why = f"job {job.job_id} does not say any more that a signal has it save itself"
            failures[job.job_id] = JobNotRunningError(why)
        else:
            change = JobChange.SIGNAL_BATCH if claims.to == "batch" else JobChange.SIGNAL_STEPS
            alike.setdefault((change, claims.signal), []).append(job)
    for (change, signal), some in alike.items():
        failures.update(backend.change_jobs(change, some, signal))
    return failures
