"""Gives commands to Slurm: the intent is stored, then Slurm is asked, then the result is stored."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from clearway.execution.job_batch import TakenStep
from clearway.execution.job_lifecycle import HARMFUL, Command
from clearway.execution.lifecycle import Target, placement, placement_until
from clearway.model.claims import CheckpointHow, saves
from clearway.model.cluster import Job, JobState
from clearway.model.errors import (
    CycleEndedError,
    HaltedError,
    JobNotRunningError,
    NotAskedError,
    OvertakenError,
    SlurmError,
    SlurmRefusedError,
    SlurmTimeoutError,
    SlurmUnavailableError,
)
from clearway.model.events import CommandGiven, Emit
from clearway.model.operations import Eviction, Operation, Preemption
from clearway.slurm.base import Failures, JobChange, SlurmBackend
from clearway.slurm.job_changes import not_asked, one_by_one
from clearway.slurm.parse.hostlist import compress
from clearway.store.repository import Store

# The result of a command that was not given: halted, Slurm did not answer just before, or a look showed a change.
HELD = "held"


@dataclass(frozen=True, slots=True)
class LookAgain:
    """What is asked just before jobs are made to leave: at which others to look, and why they should not, by job_id."""

    also: Sequence[str]
    why_not: Callable[[Mapping[str, Job]], Mapping[str, str]]


class Commander:
    """Carries commands out; ``grace`` is how long a placement outlasts what it is for."""

    def __init__(self, backend: SlurmBackend, store: Store, emit: Emit, grace: timedelta) -> None:
        self._backend = backend
        self._store = store
        self._emit = emit
        self._grace = grace
        self.brought_back: dict[str, datetime] = {}  # nodes, and when; only to go easy on jobs: may be forgotten

    def give(self, e: Operation, command: Command, now: datetime, about: Target) -> SlurmError | None:
        """Store the intent for the operation as a whole, act, store the result. What Slurm said if it was not done."""
        nodes = compress(about.nodes) if command in (Command.DRAIN, Command.UNDRAIN) else ""
        step_id = self._store.begin_step(e.eviction_id, None, command.value, now, nodes)
        error: SlurmError | None = None
        try:
            self._act(e, command, now, about)
        except SlurmError as failure:
            error = failure
        except CycleEndedError as ended:
            with suppress(CycleEndedError):  # another daemon leads: what is told of the step is its business
                self._store.finish_step(step_id, now, "error", f"cut short: {ended}")
            raise
        result = result_of(error)
        self._store.finish_step(step_id, now, result, nodes if error is None else str(error))
        self._emit(CommandGiven(command.value, result))
        return error

    def give_jobs(self, e: Operation, steps: Sequence[TakenStep], again: LookAgain) -> dict[str, SlurmError | None]:
        """Give each job its command (the intent is stored), those of a kind in one call; by job_id, why not."""
        failures, seen = self._look_again([each for each in steps if each.step.command in HARMFUL], again)
        silent = ""
        for command, some in _by_command(steps, failures.keys()):
            if silent:  # each call could take as long as that one has, and the cycle with it
                failures |= dict.fromkeys((p.job_id for p in some), NotAskedError(silent))
                continue
            told = self._act_on_jobs(e, command, some, seen)
            failures |= told
            lost = [error for error in told.values() if isinstance(error, SlurmUnavailableError)]
            late = [error for error in lost if isinstance(error, SlurmTimeoutError)]
            if found := late or (lost if len(lost) == len(some) else []):
                silent = f"not given, as before it: {found[0]}"
        return {each.after.job_id: failures.get(each.after.job_id) for each in steps}

    def _look_again(
        self, steps: Sequence[TakenStep], again: LookAgain
    ) -> tuple[dict[str, SlurmError], Mapping[str, Job]]:
        """The snapshot that jobs were to leave by may be seconds old: why not, of those that should not after all."""
        if not steps:
            return {}, {}
        job_ids = [each.after.job_id for each in steps]
        seen, unseen = self._backend.look_at([*job_ids, *(each for each in again.also if each not in job_ids)])
        failures = not_asked(unseen)
        if unasked := next((error for job_id, error in failures.items() if job_id in again.also), None):
            return dict.fromkeys(job_ids, unasked), seen
        whys = again.why_not(seen)
        failures = {job_id: error for job_id, error in failures.items() if job_id in job_ids}
        return failures | {job_id: OvertakenError(why) for job_id, why in whys.items() if job_id in job_ids}, seen

    def _act(self, e: Operation, command: Command, now: datetime, target: Target) -> None:
        backend = self._backend
        match command:
            case Command.CREATE_PLACEMENT:
                backend.create_reservation(placement(e, now, self._grace))
            case Command.MOVE_PLACEMENT:
                backend.update_reservation(e.placement, e.held_nodes)
            case Command.EXTEND_PLACEMENT:
                backend.extend_reservation(e.placement, placement_until(e, now, self._grace))
            case Command.ATTACH | Command.DETACH:
                self._let(command, target.job_ids, e)
            case Command.DELETE_PLACEMENT:
                for job_id in target.guests:  # once it is gone a job in it could never start
                    job = backend.job(job_id)
                    if job is not None and job.reservation == e.placement:
                        backend.detach(job_id, e.placement)
                self._pin(e, pinned=False)
                backend.delete_reservation(e.placement)
            case Command.DRAIN:
                for name in target.nodes:
                    backend.drain(name, target.reason)
            case Command.UNDRAIN:
                self._undrain(target, now)
            case _:
                raise AssertionError(f"{command} is for a job")

    def _undrain(self, target: Target, now: datetime) -> None:
        for name in target.nodes:
            self._backend.undrain(name, target.reason)
            self.brought_back[name] = now
            try:
                if target.power_down:
                    self._backend.power_down(name)
            except SlurmRefusedError as error:
                why = f"node {name} takes jobs again, but Slurm does not power it down (compaction.power_down): {error}"
                raise SlurmRefusedError(why) from None

    def _let(self, command: Command, job_ids: tuple[str, ...], e: Operation) -> None:
        """A preemptor that is in its placement may start in one partition alone, before and no longer than that."""
        if command is Command.ATTACH:
            self._pin(e, pinned=True)
            for job_id in job_ids:
                self._backend.attach(job_id, e.placement)
        else:
            for job_id in job_ids:
                self._backend.detach(job_id, e.placement)
            self._pin(e, pinned=False)

    def _pin(self, e: Operation, *, pinned: bool) -> None:
        if isinstance(e, Eviction) and e.plan.pin:
            job_id, free, one = e.preemptor.job_id, e.preemptor.partitions, (e.plan.pin,)
            if pinned:
                self._backend.set_partitions(job_id, one, instead_of=free)
            job = self._backend.job(job_id)
            if pinned:  # its owner may have changed them since it was planned for: it would start elsewhere, unjudged
                if job is not None and job.state is JobState.PENDING and job.partitions != one:
                    raise SlurmRefusedError(f"job {job_id} waits in {','.join(job.partitions)} by now")
            elif job is None or job.reservation in (None, e.placement):  # else it is another eviction's by now
                self._backend.set_partitions(job_id, free, instead_of=one)

    def look_at(self, job_ids: Sequence[str]) -> tuple[Mapping[str, Job], Failures]:
        return self._backend.look_at(job_ids)

    def _act_on_jobs(
        self, e: Operation, command: Command, some: Sequence[Preemption], seen: Mapping[str, Job]
    ) -> Failures:
        jobs = [p.job for p in some]
        match command:
            case Command.FIRST_IN_QUEUE | Command.USUAL_PRIORITY:
                nices = {p.job_id: (p.nice_given or 0, p.nice_before or 0) for p in some}
                if command is Command.USUAL_PRIORITY:
                    nices = {job_id: (before, given) for job_id, (given, before) in nices.items()}
                return self._backend.set_nice(nices)
            case Command.ASK_CHECKPOINT:
                return _ask_those(self._backend, jobs, seen)
            case Command.ATTACH | Command.DETACH:
                return one_by_one(lambda job_id: self._let(command, (job_id,), e), [job.job_id for job in jobs])
            case _:
                return self._backend.change_jobs(JobChange[command.name], jobs)


def _by_command(steps: Sequence[TakenStep], left_out: Collection[str]) -> list[tuple[Command, list[Preemption]]]:
    jobs: dict[Command, list[Preemption]] = {}
    for each in steps:
        if each.step.command is not None and each.after.job_id not in left_out:
            jobs.setdefault(each.step.command, []).append(each.after)
    return list(jobs.items())


def result_of(error: SlurmError | None) -> str:
    if error is None:
        return "ok"
    if isinstance(error, HaltedError | NotAskedError | OvertakenError):
        return HELD
    return "error" if error.retryable else "refused"


def ask_to_save(backend: SlurmBackend, jobs: Sequence[Job]) -> Failures:
    """As each job says now how: a signal that it does not wait for (any more) would end it. Why not, by job_id."""
    seen, unseen = backend.look_at([job.job_id for job in jobs])
    failures = not_asked(unseen)
    return {**failures, **_ask_those(backend, [job for job in jobs if job.job_id not in failures], seen)}


def _ask_those(backend: SlurmBackend, jobs: Sequence[Job], seen: Mapping[str, Job]) -> Failures:
    failures: dict[str, SlurmError] = {}
    alike: dict[tuple[JobChange, str], list[Job]] = {}
    for job in jobs:
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
