"""Tests of whether a running job saves itself, asked exactly as an eviction would; nothing is requeued. The launcher
holds the program for a while after its checkpoint, and answers an eviction that asks meanwhile as well.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pydantic import BaseModel, ConfigDict, Field

from clearway.eligibility.authorization import user_of
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.options import options_for, why_not_saved
from clearway.eligibility.under_way import under_way_by
from clearway.execution.commands import ask_to_save
from clearway.execution.cycle_context import CycleContext, PlanningBasis
from clearway.execution.restraints import Gate
from clearway.model.claims import CheckpointHow, Claims, may_be_signalled, read_claims, save_report, saves
from clearway.model.cluster import Job, JobState
from clearway.model.durations import format_duration
from clearway.model.errors import HaltedError, RequestError
from clearway.model.records import SaveTest, SaveTestEnd
from clearway.model.requests import Answer, OperatorRequest
from clearway.slurm.base import SlurmBackend
from clearway.store.repository import Store

AGAIN_AFTER = timedelta(minutes=10)  # from the last test of a job to its next one
MOST_AT_ONCE = 4  # of all users: each writes to the file system; of one user there is one
STALE = timedelta(minutes=5)  # a request this old is not what its asker waits for any more
_ALLOWANCE = timedelta(seconds=60)
_LONGEST = timedelta(hours=1)


class SaveTestRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    job_id: str = Field(max_length=20, pattern=r"^[0-9]+$")
    operator: bool = False  # whether the actor's role allows it for jobs of others


def why_not_again(job_id: str, user: str, recent: Collection[SaveTest], now: datetime) -> str:
    """Why no further test may begin, by those that are under way or were lately; empty where one may."""
    under_way = [test for test in recent if test.end is None]
    of_it = [test for test in recent if (test.job.job_id, test.job.user) == (job_id, user)]
    if any(test.end is None for test in of_it):
        return "the job is being tested already"
    if any(test.job.user == user for test in under_way):
        return f"another job of {user} is being tested; one at a time"
    if len(under_way) >= MOST_AT_ONCE:
        return f"{MOST_AT_ONCE} jobs are being tested already; ask again in some minutes"
    counted = (test.asked_at for test in of_it if not _refused_at_once(test))
    last = max(counted, default=None)
    if last is not None and now - last < AGAIN_AFTER:
        wait = format_duration((last + AGAIN_AFTER - now).total_seconds())
        return f"the job was tested less than {format_duration(AGAIN_AFTER.total_seconds())} ago; ask again in {wait}"
    return ""


def _refused_at_once(test: SaveTest) -> bool:
    """Whether the job certainly got no signal."""
    return test.end is SaveTestEnd.NOT_ASKED and test.ended_at == test.asked_at


def why_not(job: Job, wish: SaveTestRequest, actor: str, context: PlanningContext) -> str:
    """Why this job must not be tested now, or not for this actor; empty where it may be."""
    if user_of(actor) != job.user and not wish.operator:
        return f"job {job.display_id} is not a job of {user_of(actor)}"
    if job.state is not JobState.RUNNING:
        return f"job {job.display_id} is {job.raw_state}; only a running job can be tested"
    if job.job_id in context.under_way.jobs:
        return f"job {job.display_id} is part of an operation that is under way"
    claims, error = read_claims(job)
    if error:
        return f"its Comment cannot be read: {error}"
    if claims is None or claims.checkpoint is None:
        return "the job does not say that it can be saved: there is nothing to test"
    if claims.unanswered_s is not None:
        return "the job does not say when it has saved itself, and may end by the signal"
    if claims.requeues:
        return "the job requeues itself once it has saved itself, so a test would take it off its nodes"
    if not options_for(job, context, kill=False):
        return why_not_saved(job, context)
    if claims.checkpoint is CheckpointHow.SIGNAL and not may_be_signalled(claims, job, context.now):
        return "the job has just started, and may not wait for the signal yet; ask again in a minute"
    return ""


def begun(job: Job, request_id: int, actor: str, context: PlanningContext) -> SaveTest:
    """The test as it is stored before the job is asked. It waits for twice what an eviction would expect, and more."""
    expected_s = min(option.takes_s for option in options_for(job, context, kill=False))
    waits = min(_LONGEST, timedelta(seconds=2 * expected_s) + _ALLOWANCE)
    return SaveTest(
        request_id=request_id,
        job=job,
        actor=actor,
        asked_at=context.now,
        latest=context.now + waits,
        expected_s=round(expected_s, 3),
    )


def looked_at(test: SaveTest, seen: Job | None, now: datetime) -> SaveTest:
    """The test by what the job says now; ``seen`` None: Slurm knows it no more."""
    gone = (JobState.PENDING, JobState.COMPLETING, JobState.ENDED)
    said = None if seen is None or seen.run != test.job.run else save_report(seen, now, test.asked_at, of=test.job)
    if said is not None and said.claims is not None and said.saved:
        return _saved(test, said.claims, now)
    if seen is None or said is None or seen.state in gone:
        what = "has ended" if seen is None or seen.state is JobState.ENDED else f"is {seen.raw_state}"
        asked = "before it said that it has saved itself" if test.asked else "before it was asked"
        return ended(test, SaveTestEnd.LEFT, f"job {test.job.display_id} {what} {asked}", now)
    if said.failed:
        why = f"job {test.job.display_id} says that its checkpoint failed; the job's output says why"
        return ended(test, SaveTestEnd.FAILED, why, now)
    if now <= test.latest:
        return test
    within = format_duration((test.latest - test.asked_at).total_seconds())
    if not test.asked:
        why = f"it is not known whether job {test.job.display_id} was asked; nothing came within {within}"
        return ended(test, SaveTestEnd.NOT_ASKED, why, now)
    why = f"not saved itself within {within}; an eviction would expect {format_duration(test.expected_s)}"
    return ended(test, SaveTestEnd.LATE, f"job {test.job.display_id} has {why}", now)


def _saved(test: SaveTest, claims: Claims, now: datetime) -> SaveTest:
    assert claims.last is not None  # noqa: S101 - it is what tells that the job has saved itself
    took_s = claims.took_s
    if took_s is None or claims.checkpoint is not CheckpointHow.SIGNAL:
        took_s = max(0.0, (claims.last - test.asked_at).total_seconds())
    restartable, restart = _restart(claims)
    size = "" if claims.size_mib is None else f", {claims.size_mib:,} MiB"
    number = "" if claims.generation is None else f", generation {claims.generation}"
    sentence = f"job {test.job.display_id} saved itself in {format_duration(took_s)}{size}{number}; {restart}"
    saved = replace(
        test, took_s=took_s, size_mib=claims.size_mib, generation=claims.generation, restartable=restartable
    )
    return ended(saved, SaveTestEnd.SAVED, sentence, now)


def _restart(claims: Claims) -> tuple[bool | None, str]:
    """Whether a restart would find the checkpoint: only the launcher, whose word ``run`` is, looks at what is there."""
    if claims.run is None or claims.generation is None:
        return None, "this is the job's own word, so whether a restart finds it only the program knows"
    if claims.checkpointer == "application":
        return None, "the launcher saw the new checkpoint; whether the program starts from it only the program knows"
    return True, f"the launcher has verified it with {claims.checkpointer}, and a restart would begin with it"


def ended(test: SaveTest, end: SaveTestEnd, sentence: str, now: datetime) -> SaveTest:
    return replace(test, end=end, sentence=sentence, ended_at=now)


@dataclass(frozen=True, slots=True)
class SaveTestController:
    """A request stays open until its test has ended. After a crash the job is not asked again."""

    backend: SlurmBackend
    store: Store
    basis: PlanningBasis
    gate: Gate

    def carry_on(self, request: OperatorRequest, wish: SaveTestRequest, context: CycleContext) -> Answer | None:
        """What has come of it; None while the job has not answered. Raises ``RequestError``: it was not asked."""
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
        asked = self._ask(test, context)
        self.store.keep_save_test(asked)
        return asked

    def _ask(self, test: SaveTest, context: CycleContext) -> SaveTest:
        claims = saves(test.job)
        needs_signal = claims is not None and claims.checkpoint is CheckpointHow.SIGNAL
        error = ask_to_save(self.backend, (test.job,)).get(test.job.job_id) if needs_signal else None
        if error is None:
            return replace(test, asked=True)
        if error.retryable and not isinstance(error, HaltedError):
            return test  # whether Slurm acted is not known
        return ended(test, SaveTestEnd.NOT_ASKED, f"job {test.job.display_id} was not asked: {error}", context.now)

    def _look(self, test: SaveTest, context: CycleContext) -> SaveTest:
        snapshot, job_id = context.snapshot, test.job.job_id
        seen = snapshot.job_by_id.get(job_id)
        if job_id in snapshot.unread_jobs or (seen is None and snapshot.hides(job_id)):
            return test
        after = looked_at(test, seen, context.now)
        if after != test:
            self.store.keep_save_test(after)
        return after
