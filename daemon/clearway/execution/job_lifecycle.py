"""The table of steps for one preemptee: from its state and what is seen to what is done next. Pure. No command is
remembered as done: only the next snapshot proves that. So a daemon that was killed at any point finds its way by the
same table. Every command can be given twice. ``progress.PREEMPTIONS`` has all steps.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from clearway.model.claims import CheckpointHow, SaveReport, save_report
from clearway.model.cluster import FIRST, Job, JobState
from clearway.model.operations import Preemption, PreemptionState
from clearway.model.problem import Action

S = PreemptionState

# Slurm 22.05 fails a job for good ("credential revoked") that starts again in the second in which it was requeued.
_REST = timedelta(seconds=1.5)
_SECOND = timedelta(seconds=1)


class Command(StrEnum):
    """What the executor gives to Slurm; also the ``kind`` of the stored step. Of jobs named as in ``JobChange``."""

    ASK_CHECKPOINT = "ask_checkpoint"
    REQUEUE = "requeue"
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


# They end or disturb the run of a job: the guards that protect jobs are asked again before each of them.
HARMFUL = frozenset({Command.ASK_CHECKPOINT, Command.REQUEUE, Command.CANCEL, Command.SUSPEND})


@dataclass(frozen=True, slots=True)
class Step:
    """One row of the table. ``stuck``: the job will not leave in time, so the eviction needs another plan."""

    state: PreemptionState
    command: Command | None = None
    note: str = ""
    stuck: bool = False


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
    def may_try_again(self) -> bool:
        return not self.just_tried(self.context.retry_after)

    def just_tried(self, pause: timedelta = _SECOND) -> bool:
        """Whether the command of this state was given so lately that its effect may not be seen yet."""
        return self.p.attempted_at is not None and abs(self.now - self.p.attempted_at) < pause

    def leave(self, note: str = "") -> Step:
        """A job that was made requeueable meanwhile is not cancelled."""
        command = Command.REQUEUE if self.job.can_be_requeued else Command.CANCEL
        return Step(S.VACATING, Command.SUSPEND if self.p.action is Action.SUSPEND else command, note=note)


def next_step(p: Preemption, seen: Job | None, now: datetime, context: StepContext) -> Step | None:
    """The next row; None: wait. ``seen``: in a snapshot taken after the last command; None: Slurm has forgotten it."""
    if p.state.terminal:
        return None
    if seen is None or seen.state is JobState.ENDED:
        return Step(S.ENDED, note=_ended_note(p))
    case = _Case(p, seen, now, context, save_report(seen, now, p.asked_at))
    if p.state is S.CHECKPOINTING and case.left and case.requeues_itself:
        return Step(S.VACATING, note="it put itself back in the queue")
    if seen.state is JobState.COMPLETING:  # on its way out, though Slurm may count it as the next run already
        return None
    if context.unwatched and still_first(p, seen):
        return Step(p.state, Command.USUAL_PRIORITY) if case.may_try_again else None
    if case.left and p.state not in (S.VACATED, S.QUEUED):
        after = S.VACATED if seen.state is JobState.PENDING else S.RETURNED
        return Step(after, note="" if p.state is S.VACATING else "it was requeued outside Clearway")
    return _ROWS[p.state](case)


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
    if not it.context.wanted and (suspends or not it.p.attempts):  # it was in a batch that was cut off before its turn
        return Step(S.SPARED, note="no longer needed")
    if it.job.state is not JobState.RUNNING:
        return Step(S.VACATING, stuck=True, note=f"it is {it.job.raw_state}")
    if it.p.attempts >= it.context.give_up_after:
        what = "suspend" if suspends else "requeue"
        return Step(S.FAILED, stuck=True, note=f"still running after {it.p.attempts} attempts to {what} it")
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
    asked = 1 if context.placement else 0  # to get into its placement
    if context.first and p.attempts <= asked and 0 < it.job.priority < FIRST:
        return Step(S.VACATED, Command.FIRST_IN_QUEUE)  # once: without it the job waits for its turn
    if p.state_since is not None and it.now - p.state_since < _REST:
        return None
    return _held(it.job) if it.job.priority == 0 else Step(S.QUEUED, Command.START_NOW)


def _held(job: Job) -> Step:
    """By a user, or by Slurm, as where the prolog of its next run has failed: that could fail again."""
    why = "" if job.reason in ("", "None") else f" ({job.reason})"
    return Step(S.FAILED, note=f"it is held in the queue{why}; release it by hand")


def _returned(it: _Case) -> Step | None:
    if it.in_placement:  # Slurm does not delete a reservation that a job runs in
        command = Command.DETACH
    elif it.job.priority == FIRST and it.context.first and it.p.attempts < it.context.give_up_after:
        command = Command.USUAL_PRIORITY
    else:
        return Step(S.RETURNED)
    return None if it.just_tried() else Step(it.p.state, command)


def _queued(it: _Case) -> Step | None:
    job = it.job
    if job.state is not JobState.PENDING:
        return _returned(it)
    if it.in_placement and not it.context.attach:
        return None if it.just_tried() else Step(S.QUEUED, Command.DETACH)
    if job.priority == 0 and not it.in_placement:
        return _held(job)
    waits = job.eligible_time is not None and job.eligible_time > it.now + _SECOND
    again = it.p.attempts < it.context.give_up_after and it.may_try_again
    return Step(S.QUEUED, Command.START_NOW) if waits and again else None


_ROWS = {
    S.PLANNED: _planned,
    S.CHECKPOINTING: _checkpointing,
    S.VACATING: _vacating,
    S.VACATED: _vacated,
    S.QUEUED: _queued,
    S.SUSPENDED: _suspended,
}


def still_first(p: Preemption, seen: Job) -> bool:
    """Whether a job that left still has the priority that gives it the first place in the queue."""
    return p.state in (S.VACATED, S.QUEUED) and seen.state is not JobState.ENDED and seen.priority == FIRST


def _ended_note(p: Preemption) -> str:
    if p.action is Action.END:
        return "ended by itself, as planned"
    if p.state is S.VACATING and p.action is not Action.SUSPEND:
        return "ended while it was being requeued" if p.job.can_be_requeued else "cancelled, as planned"
    return "ended by itself"
