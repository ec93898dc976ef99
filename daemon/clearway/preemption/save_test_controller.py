"""Carries requests for tests out: a request stays open, and is looked at in each cycle, until its test has ended.

The intent is stored before the signal. A daemon that died in between does not ask again: it waits for the job's word.
"""

from dataclasses import dataclass, replace

from clearway.eligibility.under_way import under_way_by
from clearway.execution.commands import ask_to_save
from clearway.execution.cycle_context import CycleContext, PlanningBasis
from clearway.execution.gate import Gate
from clearway.model.errors import HaltedError, RequestError
from clearway.model.records import SaveTest, SaveTestEnd
from clearway.model.requests import Answer, OperatorRequest
from clearway.preemption.save_tests import (
    AGAIN_AFTER,
    STALE,
    SaveTestRequest,
    begun,
    ended,
    looked_at,
    needs_signal,
    why_not,
    why_not_again,
)
from clearway.slurm.base import SlurmBackend
from clearway.store.base import Store


@dataclass(frozen=True, slots=True)
class SaveTestController:
    backend: SlurmBackend
    store: Store
    basis: PlanningBasis
    gate: Gate

    def carry_on(self, request: OperatorRequest, wish: SaveTestRequest, context: CycleContext) -> Answer | None:
        """What has come of it; None while the job has not answered.

        Raises:
            RequestError: it is refused; the job was not asked.
        """
        test = self.store.save_test(request.request_id)
        if test is None:
            test = self._begin(request, wish, context)
        elif test.end is None:
            test = self._look(test, context)
        return None if test.end is None else Answer(sentence=test.sentence)

    def _begin(self, request: OperatorRequest, wish: SaveTestRequest, context: CycleContext) -> SaveTest:
        now, snapshot = context.now, context.snapshot
        if why := context.nothing_begun:
            raise RequestError(why)
        if context.paused:
            raise RequestError("the daemon is paused")
        if closed := context.halted or self.gate.closed():
            raise RequestError(f"no command is given to Slurm: {closed}")
        if now - request.created_at > STALE:
            raise RequestError("the daemon came to it too late; ask again")
        job = snapshot.job_by_id.get(wish.job_id)
        if job is None or job.job_id in snapshot.unread_jobs:
            raise RequestError(f"job {wish.job_id} is not in the queue, or cannot be read")
        planning = self.basis.context(context, under_way_by(self.basis.operations.all()), counts=False)
        recent = self.store.save_tests_since(now - AGAIN_AFTER)
        why = why_not(job, wish, request.actor, planning) or why_not_again(job.job_id, job.user, recent, now)
        if why:
            raise RequestError(why)
        test = begun(job, request.request_id, request.actor, planning)
        self.store.create_save_test(test)
        test = self._ask(test, context)
        self.store.keep_save_test(test)
        return test

    def _ask(self, test: SaveTest, context: CycleContext) -> SaveTest:
        if not needs_signal(test.job):
            return replace(test, asked=True)
        error = ask_to_save(self.backend, (test.job,)).get(test.job.job_id)
        if error is None:
            return replace(test, asked=True)
        if error.retryable and not isinstance(error, HaltedError):
            return test  # whether Slurm acted is not known
        why = f"job {test.job.display_id} was not asked: {error}"
        return ended(test, SaveTestEnd.NOT_ASKED, why, context.now)

    def _look(self, test: SaveTest, context: CycleContext) -> SaveTest:
        snapshot, job_id = context.snapshot, test.job.job_id
        seen = snapshot.job_by_id.get(job_id)
        if job_id in snapshot.unread_jobs or (seen is None and snapshot.hides(job_id)):
            return test
        after = looked_at(test, seen, context.now)
        if after != test:
            self.store.keep_save_test(after)
        return after
