"""Gives commands to Slurm: the intent is stored, then Slurm is asked, then the result is stored."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from clearway.execution.job_lifecycle import Command
from clearway.execution.node_hold import hold_reason
from clearway.execution.placement import placement, placement_until
from clearway.model.claims import read_claims
from clearway.model.errors import SlurmError, SlurmRefusedError
from clearway.model.events import CommandGiven, Emit
from clearway.model.operations import Eviction, Preemption
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
        self, e: Eviction, p: Preemption | None, command: Command, now: datetime, *, nodes: Sequence[str] = ()
    ) -> SlurmError | None:
        """Store the intent, act, store the result. What Slurm said when it did not do it.

        ``nodes`` are those that ``drain`` and ``undrain`` are about.
        """
        step_id = self._store.begin_step(e.eviction_id, p.job_id if p else None, command.value, now, compress(nodes))
        try:
            self._act(e, p, command, now, nodes)
        except SlurmError as error:
            result = "error" if error.retryable else "refused"
            self._store.finish_step(step_id, now, result, str(error))
            self._emit(CommandGiven(command.value, result))
            return error
        self._store.finish_step(step_id, now, "ok", compress(nodes))
        self._emit(CommandGiven(command.value, "ok"))
        return None

    def _act(self, e: Eviction, p: Preemption | None, command: Command, now: datetime, nodes: Sequence[str]) -> None:
        backend, preemptor_id = self._backend, e.preemptor.job_id
        match command:
            case Command.CREATE_PLACEMENT:
                backend.create_reservation(placement(e, now, self._grace))
            case Command.MOVE_PLACEMENT:
                backend.update_reservation(e.placement, e.held_nodes)
            case Command.EXTEND_PLACEMENT:
                backend.extend_reservation(e.placement, placement_until(e, now, self._grace))
            case Command.ATTACH:
                backend.attach(p.job_id if p else preemptor_id, e.placement)
            case Command.DETACH:
                backend.detach(p.job_id if p else preemptor_id)
            case Command.DELETE_PLACEMENT:
                self._release_moved(e)
                backend.delete_reservation(e.placement)
            case Command.DRAIN | Command.UNDRAIN:
                change = backend.drain if command is Command.DRAIN else backend.undrain
                for name in nodes:
                    change(name, _hold(e))
                    if command is Command.UNDRAIN:
                        self.brought_back[name] = now
                    if command is Command.UNDRAIN and _powers_down(e):
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

    def _release_moved(self, e: Eviction) -> None:
        """Let moved jobs out of their placement: once that is gone a job in it could never start."""
        for p in e.preemptions if e.move is not None else ():
            job = self._backend.job(p.job_id)
            if job is not None and job.reservation == e.placement:
                self._backend.detach(p.job_id)

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
                claims, _ = read_claims(p.job)
                to_batch = claims is None or claims.to == "batch"
                self._backend.signal(p.job, claims.signal if claims else "USR1", batch_only=to_batch)


def _hold(e: Eviction) -> str:
    assert e.drain is not None, e.eviction_id  # noqa: S101 - only a drain's table has these commands
    return hold_reason(e.eviction_id, e.drain)


def _powers_down(e: Eviction) -> bool:
    """Whether its nodes are switched off when they take jobs again: only those that it has emptied.

    A daemon that dies between the two leaves the node on, as it was before.
    """
    return e.move is not None and e.move.power_down and e.started_at is not None
