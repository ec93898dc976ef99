"""The table of steps for one preemptee: from its state and what is seen to what is done next. Pure. No command is
remembered as done: only the next snapshot proves that. So a daemon that was killed at any point finds its way by the
same table. Every command can be given twice. ``progress.PREEMPTIONS`` has all steps.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from clearway.model.claims import CheckpointHow, SaveReport, answers, has_had_its_time, save_report, unanswered_s
from clearway.model.cluster import Job, JobState, first_nice
from clearway.model.operations import Answer, Preemption, PreemptionState
from clearway.model.problem import Action

S = PreemptionState

AWAY = (S.VACATED, S.QUEUED, S.HELD)  # has left, and does not run again yet

# Slurm 22.05 fails a job for good ("credential revoked") that starts again in the second in which it was requeued.
_REST = timedelta(seconds=1.5)
_SECOND = timedelta(seconds=1)


class Command(StrEnum):
    """What the executor gives to Slurm; also the ``kind`` of the stored step. Of jobs named as in ``JobChange``."""

    ASK_CHECKPOINT = "ask_checkpoint"
    REQUEUE = "requeue"
    RUN_AGAIN = "run_again"
    CANCEL = "cancel_job"
    SUSPEND = "suspend"
    RESUME = "resume"
    START_NOW = "start_now"
    FIRST_IN_QUEUE = "first_in_queue"
    USUAL_PRIORITY = "usual_priority"
    CREATE_PLACEMENT = "create_placement"
    MOVE_PLACEMENT = "move_placement"
    EXTEND_PLACEMENT = "extend_placement"
    ATTACH = "attach"
    DETACH = "detach"
    DELETE_PLACEMENT = "delete_placement"
    DRAIN = "drain"
    UNDRAIN = "undrain"


# Slurm's words for the end of a job whose script has ended.
ENDS_BY_SIGNAL = ("COMPLETED", "FAILED")
# They take a job off its nodes.
LEAVING = frozenset({Command.REQUEUE, Command.CANCEL, Command.SUSPEND})
# By them, or once it had left, it comes back: what Slurm answers tells by whose doing.
REQUEUING = LEAVING | {Command.RUN_AGAIN}
# They end or disturb the run of a job: the guards that protect jobs are asked again before each of them.
HARMFUL = LEAVING | {Command.ASK_CHECKPOINT}


@dataclass(frozen=True, slots=True)
class Step:
    """One row of the table. ``stuck``: the job will not leave in time, so the eviction needs another plan. ``void``: it
    has not left, or not by Clearway's doing, so what was intended does not count.
    """

    state: PreemptionState
    command: Command | None = None
    note: str = ""
    stuck: bool = False
    void: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """What a preemption may do at this moment; worked out by lifecycle and executor from plan and configuration."""

    latest: datetime  # when nodes must begin to empty for the preemptor to start by its deadline
    may_ask: bool = True  # a checkpoint may be asked for now (others are not using the file system)
    may_kill: bool = True  # everything that could still make this kill unnecessary is settled
    wanted: bool = True  # the preemptor still waits for the nodes
    may_resume: bool = False  # no other job has this suspended job's processors, or can get them first
    first: bool = False  # it goes to the head of the queue until it runs again
    unwatched: bool = False  # its return is not watched any more: what it was given is taken back
    placement: str = ""  # of a job that is moved: where it is to start again
    attach: bool = False  # ... in that placement, not just anywhere
    placed: bool = False  # ... which covers its own target now and nothing else
    kill_when_late: bool = False
    retry_after: timedelta = timedelta(seconds=5)
    give_up_after: int = 5


@dataclass(frozen=True, slots=True)
class _Case:
    """One preemptee and its job as it is seen now, which has not ended."""

    p: Preemption
    job: Job
    now: datetime
    context: StepContext
    report: SaveReport

    @property
    def left(self) -> bool:
        return self.job.state in (JobState.COMPLETING, JobState.PENDING) or self.job.run != self.p.job.run

    @property
    def in_placement(self) -> bool:
        return bool(self.context.placement) and self.job.reservation == self.context.placement

    @property
    def requeues_itself(self) -> bool:
        return self.report.claims is not None and self.report.claims.requeues

    @property
    def has_requeued_itself(self) -> bool:
        # One that gives no answer may just end.
        again = self.unanswered and self.job.restart_count > self.p.job.restart_count
        return again or (self.left and self.requeues_itself)

    @property
    def unanswered(self) -> bool:
        """Not where its launcher answers by now."""
        return unanswered(self.p) and not answers(self.job)

    @property
    def has_had_its_time(self) -> bool:
        asked = self.p.attempted_at if self.p.state is S.CHECKPOINTING else self.p.asked_at
        return has_had_its_time(self.p.job, asked, self.now)

    @property
    def may_try_again(self) -> bool:
        return not self.just_tried(self.context.retry_after)

    def just_tried(self, pause: timedelta = _SECOND) -> bool:
        """Whether the command of this state was given so lately that its effect may not be seen yet."""
        return self.p.attempted_at is not None and abs(self.now - self.p.attempted_at) < pause

    @property
    def slurm_lets_it_wait(self) -> bool:
        """Since its requeue, and as it did then: a start that its owner has asked for is left alone."""
        eligible = self.job.eligible_time
        return eligible is not None and eligible == self.p.waits_until and eligible > self.now + _SECOND

    @property
    def goes_first(self) -> bool:
        """Once: without it the job waits for its turn. Again where the daemon died between intent and act."""
        asked = 1 if self.context.placement else 0  # to get into its placement
        ungiven = self.p.nice_given is None or (self.p.attempts <= asked and self.job.nice == self.p.nice_before)
        return self.context.first and ungiven and self.job.priority > 0 and first_nice(self.job) < self.job.nice

    def put_back(self) -> Step | None:
        """Its Nice, which is never given up. Not while it is held: with priority/basic Slurm would release it."""
        ready = self.job.priority > 0 and self.may_try_again
        return Step(self.p.state, Command.USUAL_PRIORITY) if ready else None

    def leave(self, note: str = "") -> Step:
        """A job that was made requeueable meanwhile is not cancelled."""
        command = Command.REQUEUE if self.job.can_be_requeued else Command.CANCEL
        return Step(S.VACATING, Command.SUSPEND if self.p.action is Action.SUSPEND else command, note=note)


def next_step(p: Preemption, seen: Job | None, now: datetime, context: StepContext) -> Step | None:
    """The next row; None: wait. ``seen``: in a snapshot taken after the last command; None: Slurm has forgotten it."""
    if p.state.terminal:
        return None
    if seen is None or seen.state is JobState.ENDED:
        return _run_again(p, seen, now, context) or _ended(p, seen, now)
    case = _Case(p, seen, now, context, save_report(seen, now, p.asked_at))
    if p.state is S.CHECKPOINTING and case.has_requeued_itself:
        return Step(S.VACATING, note="it put itself back in the queue")
    if seen.state is JobState.COMPLETING:  # on its way out, though Slurm may count it as the next run already
        return None
    if context.unwatched and still_first(p, seen):
        return case.put_back()
    if case.left and p.state not in AWAY:
        return _left(case)
    return _ROWS[p.state](case)


def _left(it: _Case) -> Step:
    after = S.VACATED if it.job.state is JobState.PENDING else S.RETURNED
    refused = it.p.state is S.VACATING and it.p.answer is Answer.REFUSED
    ours = it.p.state is S.VACATING and not refused
    return Step(after, note="" if ours else "it was requeued outside Clearway", void=refused)


def _planned(it: _Case) -> Step | None:
    late = it.now > it.context.latest
    if it.job.state is not JobState.RUNNING:
        return Step(S.PLANNED, stuck=True, note=f"it is {it.job.raw_state}")
    if it.p.action is Action.END:
        return Step(S.PLANNED, stuck=True, note="it did not end in time") if late else None
    if it.p.action in (Action.KILL, Action.SUSPEND):
        return it.leave() if it.context.may_kill else None
    if it.report.how is CheckpointHow.NONE:
        return Step(S.PLANNED, stuck=True, note="it does not say any more that it can save itself")
    if it.report.how is CheckpointHow.INTERVAL:
        return Step(S.CHECKPOINTING)
    asks = it.context.may_ask and it.report.may_be_signalled
    return Step(S.CHECKPOINTING, Command.ASK_CHECKPOINT) if asks else None


def _checkpointing(it: _Case) -> Step | None:
    late = it.now > it.context.latest
    if it.job.state is not JobState.RUNNING:
        return Step(S.CHECKPOINTING, stuck=True, note=f"it is {it.job.raw_state}")
    if it.report.saved and not it.requeues_itself:
        return it.leave()
    if it.unanswered and it.has_had_its_time:
        return it.leave("it has had its time to save itself")
    if it.report.failed or late:
        why = "its checkpoint failed" if it.report.failed else "its checkpoint is late"
        if it.context.kill_when_late and (late or it.context.may_kill):
            return it.leave(f"{why}; requeued without it, as the configuration allows")
        return Step(S.CHECKPOINTING, stuck=True, note=why)
    unasked = it.p.attempted_at is None and not it.report.begun
    if unasked and it.report.how is CheckpointHow.SIGNAL:
        return Step(S.CHECKPOINTING, Command.ASK_CHECKPOINT)  # the daemon died between intent and act
    return None


def _suspended(it: _Case) -> Step | None:
    """Never given up: Slurm alone does not resume it."""
    if it.job.state is not JobState.SUSPENDED:
        return Step(S.RETURNED, note="" if it.p.attempts else "it was resumed outside Clearway")
    return Step(S.SUSPENDED, Command.RESUME) if it.context.may_resume and it.may_try_again else None


def _vacating(it: _Case) -> Step | None:
    suspends = it.p.action is Action.SUSPEND
    if suspends and it.job.state is JobState.SUSPENDED:
        return Step(S.SUSPENDED)
    if not it.may_try_again:
        return None
    if it.unanswered:
        if not it.p.attempts and not it.has_had_its_time:  # it need not leave any more, but may end
            return None
    elif not it.context.wanted:  # it was cut off before its turn, or Slurm did not do it
        return Step(S.SPARED, note="no longer needed", void=True)
    if it.job.state is not JobState.RUNNING:
        return Step(S.VACATING, stuck=True, note=f"it is {it.job.raw_state}")
    if it.p.attempts >= it.context.give_up_after:
        what = "suspend" if suspends else "requeue"
        why = f"still running after {it.p.attempts} attempts to {what} it"
        return Step(S.FAILED, stuck=True, note=why, void=True)
    return it.leave()


def _vacated(it: _Case) -> Step | None:
    p, context = it.p, it.context
    if it.job.state is not JobState.PENDING:
        return _returned(it)
    misplaced = bool(context.placement) and context.attach is not it.in_placement
    if misplaced and p.attempts < context.give_up_after:
        # Whether it has come to be is seen next time: it must not become eligible anywhere else before.
        if it.just_tried():
            return None
        if context.attach:
            return Step(S.VACATED, Command.ATTACH) if context.placed else None
        return Step(S.VACATED, Command.DETACH)
    if it.goes_first:
        return Step(S.VACATED, Command.FIRST_IN_QUEUE)
    if p.state_since is not None and it.now - p.state_since < _REST:
        return None
    if it.job.priority == 0:
        return _held(it.job)
    return Step(S.QUEUED, Command.START_NOW if it.slurm_lets_it_wait else None)


def _held(job: Job) -> Step:
    """By a user, or by Slurm, as where the prolog of its next run has failed: that could fail again."""
    why = "" if job.reason in ("", "None") else f" ({job.reason})"
    return Step(S.HELD, note=f"it is held in the queue{why}, and goes on once it is released")


def _waits_held(it: _Case) -> Step | None:
    if it.job.state is not JobState.PENDING:
        return _returned(it)
    if it.in_placement and not it.context.attach:
        return None if it.just_tried() else Step(S.HELD, Command.DETACH)
    return Step(S.VACATED) if it.job.priority > 0 else None


def _returned(it: _Case) -> Step | None:
    if it.in_placement:  # Slurm does not delete a reservation that a job runs in
        return None if it.just_tried() else Step(it.p.state, Command.DETACH)
    return it.put_back() if still_first(it.p, it.job) else Step(S.RETURNED)


def _queued(it: _Case) -> Step | None:
    job = it.job
    if job.state is not JobState.PENDING:
        return _returned(it)
    if it.in_placement and not it.context.attach:
        return None if it.just_tried() else Step(S.QUEUED, Command.DETACH)
    if job.priority == 0 and not it.in_placement:
        return _held(job)
    # Ever later, for as long as Slurm lets it wait: what stands in the way (its user is unknown there, say) may pass.
    again = not it.just_tried(it.context.retry_after * max(1, it.p.attempts))
    return Step(S.QUEUED, Command.START_NOW) if it.slurm_lets_it_wait and again else None


_ROWS = {
    S.PLANNED: _planned,
    S.CHECKPOINTING: _checkpointing,
    S.VACATING: _vacating,
    S.VACATED: _vacated,
    S.QUEUED: _queued,
    S.HELD: _waits_held,
    S.SUSPENDED: _suspended,
}


def still_first(p: Preemption, seen: Job) -> bool:
    """Whether a job that left still has the Nice that gives it the first place in the queue."""
    given = p.nice_given is not None and seen.nice == p.nice_given
    return given and p.state in AWAY and seen.state is not JobState.ENDED


def unanswered(p: Preemption) -> bool:
    """Whether it was asked and will give no answer: from then on it may end at any moment, and is to run again."""
    return (
        p.asked_at is not None
        and p.state in (S.PLANNED, S.CHECKPOINTING, S.VACATING)
        and unanswered_s(p.job) is not None
    )


def _run_again(p: Preemption, seen: Job | None, now: datetime, context: StepContext) -> Step | None:
    """A job that was asked and does not answer has ended by that: how, Slurm takes for success or failure of its own.

    One that was cancelled, or has failed with its node, is left alone.
    """
    if seen is None or seen.run != p.job.run or seen.raw_state not in ENDS_BY_SIGNAL:
        return None
    if not unanswered(p) or answers(seen) or not seen.can_be_requeued:
        return None
    if p.state is S.VACATING and p.attempted_at is not None:
        if p.attempts >= context.give_up_after:
            return None
        if abs(now - p.attempted_at) < context.retry_after:
            return Step(S.VACATING)
    return Step(S.VACATING, Command.RUN_AGAIN)


def _ended(p: Preemption, seen: Job | None, now: datetime) -> Step:
    """``seen`` None: Slurm has forgotten it."""
    if p.state in AWAY:
        return Step(S.ENDED, note=_ended_in_queue(p, seen, now))
    if seen is not None and unanswered(p) and not seen.can_be_requeued and seen.raw_state in ENDS_BY_SIGNAL:
        why = "ended once it was asked to save itself, and may not be requeued any more"
        return Step(S.ENDED, note=why, void=p.state is S.VACATING)
    if p.state is S.VACATING:
        return _ended_while_leaving(p, seen, now)
    as_planned = p.action is Action.END and seen is not None and seen.raw_state in (*ENDS_BY_SIGNAL, "TIMEOUT")
    return Step(S.ENDED, note=how_it_ended(seen) + (", as planned" if as_planned else ""))


def _ended_while_leaving(p: Preemption, seen: Job | None, now: datetime) -> Step:
    """Of a job that Slurm has forgotten only its answers tell whether Clearway had a part in its end."""
    if seen is None and p.answer is Answer.OPEN:
        return Step(S.ENDED, note="it is gone, and whether Clearway made it leave is not known", void=True)
    raw = "" if seen is None else seen.raw_state
    if p.answer is not Answer.REFUSED:
        if seen is not None and seen.restart_count > p.job.restart_count:
            return Step(S.ENDED, note=_ended_in_queue(p, seen, now))
        if p.action is not Action.SUSPEND and not p.job.can_be_requeued and raw[:9] in ("", "CANCELLED"):
            return Step(S.ENDED, note="cancelled, as planned")
        if seen is None:
            return Step(S.ENDED, note="ended while it was leaving")
    return Step(S.ENDED, note=f"{how_it_ended(seen)} before it had left" + (raw and f" ({raw})"), void=True)


_ENDS = {
    "TIMEOUT": "was ended by its time limit",
    "NODE_FAIL": "ended because a node failed",
    "BOOT_FAIL": "ended because a node did not boot",
    "CANCELLED": "was cancelled",
    "DEADLINE": "was ended by its deadline",
    "OUT_OF_MEMORY": "was ended for want of memory",
    "PREEMPTED": "was ended by Slurm's own preemption",
    "REVOKED": "was revoked by Slurm",
}


def how_it_ended(seen: Job | None) -> str:
    """By itself only where Slurm says so; ``seen`` None: it has forgotten the job."""
    if seen is None:
        return "is over, and Slurm does not say how it ended"
    if seen.raw_state in ENDS_BY_SIGNAL:
        return "ended by itself"
    how = _ENDS.get(seen.raw_state.partition(" ")[0].partition("+")[0])
    return how or f"is over; Slurm says {seen.raw_state or 'nothing'} of it"


def _ended_in_queue(p: Preemption, seen: Job | None, now: datetime) -> str:
    deadline, limit = p.job.deadline, timedelta(seconds=p.job.time_limit_s or 0)
    if p.requeued_at is not None and deadline is not None and now + limit > deadline:
        return "Slurm removed it after its requeue: it could not end by its deadline any more"
    if seen is not None and seen.raw_state in ENDS_BY_SIGNAL:
        return "ran again, and ended by itself"
    how = how_it_ended(seen)
    return f"requeued, and it {how}" if p.state is S.VACATING else how
