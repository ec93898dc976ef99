"""Changes of jobs, many in one call: one look at all of them just before, then what is left to do.

When one of a list fails, Slurm's commands do the others, and a line on standard error names it (measured on 22.05,
24.11 and 26.05). Where a line names none, or Slurm does not answer, each job of the list gets that error, and the next
snapshot tells. The look leaves out jobs that have completed, which Slurm would run a second time, and for signals those
that do not run: one of them holds the whole call for 95 s.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from clearway.model.cluster import Job, JobState
from clearway.model.errors import (
    AlreadyGoneError,
    HaltedError,
    JobNotRunningError,
    NotAskedError,
    SlurmError,
    SlurmRefusedError,
    SlurmTimeoutError,
    SlurmUnavailableError,
)
from clearway.slurm.base import Failures, JobChange
from clearway.slurm.process import Commands, checked, error_from

T = TypeVar("T")
Seen = tuple[Job, str]  # a job as it is now, and how Slurm's commands name it

REQUEUES = (JobChange.REQUEUE, JobChange.RUN_AGAIN)
_ON_NODES = (JobState.RUNNING, JobState.SUSPENDED, JobState.CONFIGURING)

_WAITS = re.compile(r"Job is pending execution")  # a refusal of ``scontrol requeue``: it is requeued already
# States in which a job may be changed so; in which it is as it is to be; and in which its run is over anyway.
_MAY_BE: Mapping[JobChange, tuple[JobState, ...]] = {
    JobChange.REQUEUE: _ON_NODES,
    JobChange.RUN_AGAIN: (JobState.ENDED,),
    JobChange.CANCEL: (JobState.PENDING, *_ON_NODES),
    JobChange.SUSPEND: (JobState.RUNNING, JobState.SUSPENDED),
    JobChange.RESUME: (JobState.RUNNING, JobState.SUSPENDED),
    JobChange.SIGNAL_BATCH: (JobState.RUNNING,),
    JobChange.SIGNAL_STEPS: (JobState.RUNNING,),
}
_IS_DONE_IN = {JobChange.SUSPEND: JobState.SUSPENDED, JobChange.RESUME: JobState.RUNNING}
_GONE_IN: Mapping[JobChange, tuple[JobState, ...]] = {
    JobChange.REQUEUE: (JobState.PENDING, JobState.COMPLETING),
    JobChange.RUN_AGAIN: (JobState.PENDING, JobState.COMPLETING),
    JobChange.CANCEL: (JobState.COMPLETING,),
}


DELAY_S = 1.1  # credentials and revocations are told apart by whole seconds


class RequeueDelay:
    """The second that a requeued job must wait before it may start again, even when an administrator says "now".
    Started within it on the same node, a job is lost: the node holds that second's credentials for revoked (state
    FAILED, never to run again). Measured on 22.05.8: 2 of 3 jobs when set at once, none of 64 after this delay. Time
    counts from when the job is first seen waiting: slurmctld's clock may differ from ours.
    """

    def __init__(self, *, now: Callable[[], datetime], sleep: Callable[[float], None] = time.sleep) -> None:
        self._now = now
        self._sleep = sleep
        self._since: dict[tuple[str, int], datetime] = {}  # by job id and restart count

    def saw_all(self, jobs: Iterable[Job]) -> None:
        """All jobs of a snapshot; those that are not among them are forgotten."""
        now = self._now()
        keys = (_requeue_of(job) for job in jobs if job.restart_count)
        self._since = {key: self._since.get(key, now) for key in keys if key}

    def saw(self, job: Job) -> None:
        if key := _requeue_of(job):
            self._since.setdefault(key, self._now())

    def before_start(self, job: Job) -> None:
        self.saw(job)
        if key := _requeue_of(job):
            left_s = DELAY_S - (self._now() - self._since[key]).total_seconds()
            if left_s > 0:
                self._sleep(min(left_s, DELAY_S))


def _requeue_of(job: Job) -> tuple[str, int] | None:
    """Which requeue a waiting job comes from; None for a job that has not run or does not wait."""
    return (job.job_id, job.restart_count) if job.state is JobState.PENDING and job.restart_count else None


class JobChanges(ABC):
    """The changes of jobs of ``SlurmBackend``. A backend says how to look and how to act."""

    _commands: Commands
    _requeue_delay: RequeueDelay

    @abstractmethod
    def _look_all(self, job_ids: Sequence[str]) -> tuple[dict[str, Seen], Failures]:
        """Jobs as they are now, by id, and those that could not be looked at; those unknown to Slurm are absent."""

    @abstractmethod
    def _act_all(self, change: JobChange, targets: Sequence[str], signal: str = "") -> Failures:
        """What failed, by target. Jobs to be requeued are named as scontrol names them."""

    @abstractmethod
    def _give_nice(self, nice: int, targets: Sequence[str]) -> Failures: ...

    @abstractmethod
    def _set_reservation(self, target: str, reservation: str) -> None:
        """An empty name takes the job out of its reservation."""

    @abstractmethod
    def _has_ended(self, error: SlurmRefusedError) -> bool: ...

    def _look(self, job_id: str) -> Seen | None:
        seen, failures = self._look_all((job_id,))
        for error in failures.values():
            raise error
        return seen.get(job_id)

    def look_at(self, job_ids: Sequence[str], *, whole: bool = False) -> tuple[Mapping[str, Job], Failures]:  # noqa: ARG002
        seen, failures = self._look_all(job_ids)
        return {job_id: job for job_id, (job, _) in seen.items()}, failures

    def change_jobs(self, change: JobChange, jobs: Sequence[Job], signal: str = "") -> Failures:
        """``jobs``: as they were when this was decided."""
        if change in (JobChange.SIGNAL_BATCH, JobChange.SIGNAL_STEPS) and not _SIGNAL.fullmatch(signal):
            return dict.fromkeys((job.job_id for job in jobs), SlurmRefusedError(f"{signal!r} is not a signal"))
        todo, failures = self._needed(change, jobs)
        targets = {job_id: target for job_id, (_, target) in todo.items()}
        if change in REQUEUES:
            # Requeued while suspended a job would wait held (JobHeldAdmin), and its TERM handler could not run.
            suspended = {job_id: target for job_id, (job, target) in todo.items() if job.state is JobState.SUSPENDED}
            failed = self._carry_out(JobChange.RESUME, suspended)
            failures |= failed
            targets = {job_id: _for_scontrol(job) for job_id, (job, _) in todo.items() if job_id not in failed}
        elif change is JobChange.START_NOW:
            for job, _ in todo.values():
                self._requeue_delay.before_start(job)
        told = self._carry_out(change, targets, signal)
        return failures | {job_id: found for job_id, error in told.items() if (found := self._meant(change, error))}

    def _needed(self, change: JobChange, jobs: Sequence[Job]) -> tuple[dict[str, Seen], dict[str, SlurmError]]:
        seen, unseen = self._look_all([job.job_id for job in jobs])
        failures = not_asked(unseen)
        todo: dict[str, Seen] = {}
        for decided in jobs:
            if decided.job_id in failures:
                continue
            try:
                found = _needed(change, decided, seen.get(decided.job_id))
            except SlurmRefusedError as error:
                failures[decided.job_id] = error
            else:
                if found is not None:
                    todo[decided.job_id] = found
        return todo, failures

    def _carry_out(self, change: JobChange, targets: Mapping[str, str], signal: str = "") -> Failures:
        if not targets:
            return {}
        failed = self._act_all(change, tuple(targets.values()), signal)
        return {job_id: failed[target] for job_id, target in targets.items() if target in failed}

    def _meant(self, change: JobChange, error: SlurmError) -> SlurmError | None:
        """What Slurm's answer means; None: it need not be done any more."""
        if change in REQUEUES and isinstance(error, SlurmRefusedError) and _WAITS.search(str(error)):
            return AlreadyGoneError(str(error))
        return None if change is JobChange.CANCEL and self._is_over(error) else error

    def _is_over(self, error: SlurmError) -> bool:
        return isinstance(error, SlurmRefusedError) and self._has_ended(error)

    def set_nice(self, wanted: Mapping[str, tuple[int, int]]) -> Failures:
        seen, unseen = self._look_all(list(wanted))
        failures = not_asked(unseen)
        alike: dict[int, dict[str, str]] = {}  # by Nice, what jobs are called by their ids
        for job_id, (job, target) in seen.items():
            nice, instead_of = wanted[job_id]
            if job.state is JobState.ENDED or job.nice != instead_of:
                continue
            if job.priority == 0:
                failures[job_id] = SlurmRefusedError(f"job {job_id} is held")
            else:
                alike.setdefault(nice, {})[job_id] = target
        for nice, targets in alike.items():
            told = self._give_nice(nice, tuple(targets.values()))
            refused = {job_id: told[target] for job_id, target in targets.items() if target in told}
            failures |= {job_id: error for job_id, error in refused.items() if not self._is_over(error)}
        return failures

    def attach(self, job_id: str, reservation: str) -> None:
        current, target = _known(job_id, self._look(job_id))
        if current.reservation not in (None, reservation):
            raise SlurmRefusedError(f"job {job_id} asks for reservation {current.reservation} by now")
        if current.reservation is None:
            self._set_reservation(target, checked(reservation))

    def detach(self, job_id: str, reservation: str) -> None:
        found = self._look(job_id)
        if found is not None and found[0].reservation == reservation and found[0].state is not JobState.ENDED:
            try:
                self._set_reservation(found[1], "")
            except SlurmRefusedError as error:
                if not self._has_ended(error):
                    raise

    def set_partitions(self, job_id: str, partitions: tuple[str, ...], instead_of: tuple[str, ...]) -> None:
        found = self._look(job_id)
        if found is None or found[0].state is not JobState.PENDING or found[0].partitions != instead_of:
            return
        try:
            self._set_partitions(found[0], partitions)
        except SlurmRefusedError:
            # Slurm says no where a group or a node to submit from is not allowed, and makes the change all the same.
            after = self._look(job_id)
            if after is not None and after[0].state is JobState.PENDING and after[0].partitions == partitions:
                self._set_partitions(after[0], instead_of)
            raise

    def _set_partitions(self, job: Job, partitions: tuple[str, ...]) -> None:
        """By Slurm's command whatever the backend: pyslurm and slurmrestd cannot name the waiting tasks of an array."""
        named = ",".join(map(checked, partitions))
        argv = ["scontrol", "--oneliner", "update", f"JobId={self._waiting_name(job)}", f"Partition={named}"]
        for pause_s in (*_NOT_YET_S, None):
            try:
                self._commands.change(argv)
            except SlurmUnavailableError as error:
                if pause_s is None or "Resource temporarily" not in str(error):
                    raise
                time.sleep(pause_s)
            else:
                return

    def _waiting_name(self, job: Job) -> str:
        """How scontrol names this waiting job, the component of its heterogeneous job, or the tasks that wait."""
        if job.het_job_id is not None:
            return f"{job.het_job_id}+{job.het_job_offset}"
        if job.array_job_id is None or job.pending_tasks <= 1:
            return _for_scontrol(job)
        asked = ["squeue", "--all", "--local", "--noheader", "--states=PENDING", "--format=%K", f"--jobs={job.job_id}"]
        waiting = [line.partition("%")[0] for line in self._commands.run(asked).split()]
        return f"{job.array_job_id}_[{','.join(filter(None, waiting))}]"


# For some tenths of a second after a change of a job 24.11 and 26.05 may refuse to change its partitions.
_NOT_YET_S = (0.05, 0.1, 0.2, 0.4, 0.8)
_SIGNAL = re.compile(r"[A-Z][A-Z0-9]*", re.ASCII)


def one_by_one(act: Callable[[str], None], keys: Iterable[str]) -> Failures:
    """Call it with each; what failed, by key. Where Slurm does not answer, or may not be asked, the rest is not."""
    failures: dict[str, SlurmError] = {}
    stopped: SlurmError | None = None
    for key in keys:
        if stopped is None:
            try:
                act(key)
                continue
            except HaltedError as error:
                failures[key] = stopped = error
            except SlurmUnavailableError as error:
                failures[key], stopped = error, NotAskedError(f"not given, as before it: {error}")
            except SlurmError as error:
                failures[key] = error
        else:
            failures[key] = stopped
    return failures


def look_one_by_one(look: Callable[[str], T | None], job_ids: Iterable[str]) -> tuple[dict[str, T], Failures]:
    seen: dict[str, T] = {}

    def look_at(job_id: str) -> None:
        if (found := look(job_id)) is not None:
            seen[job_id] = found

    failures = one_by_one(look_at, job_ids)
    return seen, failures


def not_asked(unseen: Failures) -> dict[str, SlurmError]:
    """What is said of jobs that were to be changed and could not be looked at: they were not."""
    return {
        job_id: NotAskedError(str(error)) if isinstance(error, SlurmUnavailableError) else error
        for job_id, error in unseen.items()
    }


def _needed(change: JobChange, decided: Job, found: Seen | None) -> Seen | None:
    """What is to be acted on; None where nothing is to be done. Raises SlurmRefusedError where it must not be done."""
    if change is JobChange.RUN_AGAIN and found is not None and found[0].state is JobState.ENDED:
        require_ended_by_itself(found[0], decided)
        return found
    found = _known(decided.job_id, found)
    current, _ = found
    if change is JobChange.START_NOW and current.state is not JobState.PENDING:
        # Set while COMPLETING it would be lost without a word.
        raise SlurmRefusedError(f"job {decided.job_id} is {current.raw_state}; only a waiting job can start now")
    if change is JobChange.START_NOW:
        return found
    waits_again = current.state is JobState.PENDING and decided.state is not JobState.PENDING  # that run is over
    if current.state in _GONE_IN.get(change, ()) or (change is JobChange.CANCEL and waits_again):
        raise AlreadyGoneError(f"job {decided.job_id} is {current.raw_state} already")
    _require_run(current, decided, _MAY_BE[change])
    if change is JobChange.CANCEL:
        require_unchanged(current, decided)
    return None if current.state is _IS_DONE_IN.get(change) else found


def _known(job_id: str, found: Seen | None) -> Seen:
    if found is None or found[0].state is JobState.ENDED:
        raise JobNotRunningError(f"job {job_id} has ended")
    return found


def _require_run(current: Job, decided: Job, states: Sequence[JobState]) -> None:
    if current.state not in states:
        raise JobNotRunningError(f"job {current.job_id} is {current.raw_state}")
    if current.run != decided.run:
        run = f"restart {current.restart_count}, started {current.start_time}"
        raise JobNotRunningError(f"job {current.job_id} is in another run: {run}")


def require_ended_by_itself(current: Job, decided: Job) -> None:
    """Raise where another hand has ended it, or it is not the run, or the job, that was decided on."""
    _require_run(current, decided, (JobState.ENDED,))
    if current.raw_state not in ("COMPLETED", "FAILED") or not current.can_be_requeued or current.user != decided.user:
        raise JobNotRunningError(f"job {current.job_id} is {current.raw_state}")


def require_unchanged(current: Job, decided: Job) -> None:
    """Raise where a job was to be cancelled because it could not be requeued, and now it can."""
    if current.can_be_requeued and not decided.can_be_requeued:
        raise SlurmRefusedError(f"job {current.job_id} can be requeued now, so it is not cancelled")


def _for_scontrol(job: Job) -> str:
    """How scontrol names exactly this job: an array's last task has the id of the array, which would mean all tasks."""
    return job.job_id if job.array_job_id is None else f"{job.array_job_id}_{job.array_task_id}"


# scontrol of a job, scontrol of an array's task, scancel; of 22.05 and later releases.
_ABOUT = (
    re.compile(r".+ for job (\d+(?:_\d+)?)"),
    re.compile(r"(\d+_\d+): .+"),
    re.compile(r"Kill job error on job id (\d+(?:_\d+)?): .+"),
)


def change_list(commands: Commands, argv: Sequence[str], targets: Sequence[str]) -> Failures:
    """Give a command that names all of these jobs; what it said of those not done, by target, or else of all."""
    try:
        commands.change(argv)
    except SlurmError as error:
        told = {} if isinstance(error, SlurmTimeoutError) or len(targets) == 1 else _told_apart(argv[0], error, targets)
        return told or dict.fromkeys(targets, error)
    return {}


def _told_apart(command: str, error: SlurmError, targets: Sequence[str]) -> dict[str, SlurmError]:
    """By target; empty where a line is about none of them."""
    known, found = set(targets), dict[str, SlurmError]()
    for line in str(error).removeprefix(f"{command}: ").split("; "):
        about = next((match[1] for pattern in _ABOUT if (match := pattern.fullmatch(line))), None)
        if about not in known:
            return {}
        found[about] = error_from(command, line, 1)
    return found
