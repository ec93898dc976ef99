"""Gives commands to Slurm: the intent is stored, then Slurm is asked, then the result is stored."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

from clearway.detection import read_claims
from clearway.errors import SlurmError
from clearway.execution.lifecycle import Command
from clearway.execution.placement import placement, placement_until
from clearway.execution.records import Eviction, Preemption
from clearway.slurm.base import SlurmBackend
from clearway.store.base import Store


class StepObserver(Protocol):
    """Hears of each command and what came of it."""

    def step(self, kind: str, result: str) -> None: ...


class Commander:
    """Carries single commands out; ``grace`` is how long a placement outlasts what it is for."""

    def __init__(self, backend: SlurmBackend, store: Store, observer: StepObserver, grace: timedelta) -> None:
        self._backend = backend
        self._store = store
        self._observer = observer
        self._grace = grace

    def give(self, e: Eviction, p: Preemption | None, command: Command, now: datetime) -> bool:
        """Store the intent, act, store the result. False when Slurm did not do it."""
        step_id = self._store.begin_step(e.eviction_id, p.job_id if p else None, command.value, now)
        try:
            self._act(e, p, command, now)
        except SlurmError as error:
            result = "error" if error.retryable else "refused"
            self._store.finish_step(step_id, now, result, str(error))
            self._observer.step(command.value, result)
            return False
        self._store.finish_step(step_id, now, "ok")
        self._observer.step(command.value, "ok")
        return True

    def _act(self, e: Eviction, p: Preemption | None, command: Command, now: datetime) -> None:
        backend, preemptor_id = self._backend, e.preemptor.job_id
        match command:
            case Command.CREATE_PLACEMENT:
                backend.create_reservation(placement(e, now, self._grace))
            case Command.MOVE_PLACEMENT:
                backend.update_reservation(e.placement, e.held_nodes)
            case Command.EXTEND_PLACEMENT:
                backend.extend_reservation(e.placement, placement_until(e, now, self._grace))
            case Command.ATTACH:
                backend.attach(preemptor_id, e.placement)
            case Command.DETACH:
                backend.detach(preemptor_id)
            case Command.DELETE_PLACEMENT:
                backend.delete_reservation(e.placement)
            case _:
                assert p is not None, command  # noqa: S101 - the remaining commands are a preemption's own
                self._act_on_job(p, command)

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
            case Command.ASK_CHECKPOINT:
                claims, _ = read_claims(p.job)
                to_batch = claims is None or claims.to == "batch"
                self._backend.signal(p.job, claims.signal if claims else "USR1", batch_only=to_batch)
