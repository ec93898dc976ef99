"""Gives commands to Slurm: the intent is stored, then Slurm is asked, then the result is stored."""

from contextlib import suppress
from datetime import datetime, timedelta

from clearway.execution.checkpoint_request import ask_to_save
from clearway.execution.job_lifecycle import Command
from clearway.execution.lifecycle import Target
from clearway.execution.placement import placement, placement_until
from clearway.model.errors import CycleEndedError, HaltedError, SlurmError, SlurmRefusedError
from clearway.model.events import CommandGiven, Emit
from clearway.model.operations import Operation, Preemption
from clearway.slurm.base import SlurmBackend
from clearway.slurm.parse.hostlist import compress
from clearway.store.base import Store


class Commander:
    """Carries single commands out; ``grace`` is how long a placement outlasts what it is for."""

    def __init__(self, backend: SlurmBackend, store: Store, emit: Emit, grace: timedelta) -> None:
        self._backend = backend
        self._store = store
        self._emit = emit
        self._grace = grace
        self.brought_back: dict[str, datetime] = {}  # nodes, and when; only to go easy on jobs: may be forgotten

    def give(
        self, e: Operation, p: Preemption | None, command: Command, now: datetime, target: Target | None = None
    ) -> SlurmError | None:
        """Store the intent, act, store the result. What Slurm said when it did not do it.

        With ``HaltedError`` the stop switch has held the command back.
        ``target`` is what a command for the operation as a whole is about; one for a job needs none.
        """
        about = target or Target(job_ids=(p.job_id,) if p else ())
        nodes = compress(about.nodes) if command in (Command.DRAIN, Command.UNDRAIN) else ""
        step_id = self._store.begin_step(e.eviction_id, p.job_id if p else None, command.value, now, nodes)
        error: SlurmError | None = None
        result, detail = "ok", nodes
        try:
            self._act(e, p, command, now, about)
        except HaltedError as failure:
            error, result, detail = failure, "held", str(failure)
        except SlurmError as failure:
            error, result, detail = failure, "error" if failure.retryable else "refused", str(failure)
        except CycleEndedError as ended:
            with suppress(CycleEndedError):  # another daemon leads: what is told of the step is its business
                self._store.finish_step(step_id, now, "error", f"cut short: {ended}")
            raise
        self._store.finish_step(step_id, now, result, detail)
        self._emit(CommandGiven(command.value, result))
        return error

    def _act(self, e: Operation, p: Preemption | None, command: Command, now: datetime, target: Target) -> None:
        backend = self._backend
        match command:
            case Command.CREATE_PLACEMENT:
                backend.create_reservation(placement(e, now, self._grace))
            case Command.MOVE_PLACEMENT:
                backend.update_reservation(e.placement, e.held_nodes)
            case Command.EXTEND_PLACEMENT:
                backend.extend_reservation(e.placement, placement_until(e, now, self._grace))
            case Command.ATTACH | Command.DETACH:
                self._let(command, target.job_ids, e.placement)
            case Command.DELETE_PLACEMENT:
                self._let_out(target.guests, e.placement)
                backend.delete_reservation(e.placement)
            case Command.DRAIN:
                for name in target.nodes:
                    backend.drain(name, target.reason)
            case Command.UNDRAIN:
                for name in target.nodes:
                    backend.undrain(name, target.reason)
                    self.brought_back[name] = now
                    if target.power_down:
                        self._power_down(name)
            case _:
                assert p is not None, command  # noqa: S101 - the remaining commands are a preemption's own
                self._act_on_job(p, command)

    def _power_down(self, name: str) -> None:
        try:
            self._backend.power_down(name)
        except SlurmRefusedError as error:
            why = f"node {name} takes jobs again, but Slurm does not power it down (compaction.power_down): {error}"
            raise SlurmRefusedError(why) from None

    def _let(self, command: Command, job_ids: tuple[str, ...], name: str) -> None:
        for job_id in job_ids:
            if command is Command.ATTACH:
                self._backend.attach(job_id, name)
            else:
                self._backend.detach(job_id)

    def _let_out(self, job_ids: tuple[str, ...], name: str) -> None:
        """Detach these jobs where they are in the placement: once that is gone a job in it could never start."""
        for job_id in job_ids:
            job = self._backend.job(job_id)
            if job is not None and job.reservation == name:
                self._backend.detach(job_id)

    def _act_on_job(self, p: Preemption, command: Command) -> None:
        match command:
            case Command.REQUEUE:
                self._backend.requeue(p.job)
            case Command.CANCEL_JOB:
                self._backend.cancel(p.job)
            case Command.SUSPEND:
                self._backend.suspend(p.job)
            case Command.RESUME:
                self._backend.resume(p.job)
            case Command.START_NOW:
                self._backend.start_now(p.job_id)
            case Command.FIRST_IN_QUEUE:
                self._backend.first_in_queue(p.job_id)
            case Command.USUAL_PRIORITY:
                self._backend.usual_priority(p.job_id)
            case Command.ASK_CHECKPOINT:
                ask_to_save(self._backend, p.job)
