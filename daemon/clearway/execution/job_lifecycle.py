"""The table of steps for one preemptee: from its state and what is seen to what is done next. Pure.

Nothing here remembers a command as done: only the next snapshot proves that. So a daemon that was killed at any
point finds its way by the same table. Every command can be given twice.

planned -> checkpointing -> vacating -> vacated -> queued -> returned
planned ---- (kill) ------> vacating           (any state) -> ended, spared, failed
planned ---- (end) -----------------------------------------> ended
planned ---- (suspend) ---> vacating -> suspended -> returned
checkpointing -> vacating (without a command: the job requeues itself) -> vacated ...
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from clearway.model.claims import (
    CheckpointHow,
    begun_since,
    checkpointed_since,
    failed_since,
    may_be_signalled,
    read_claims,
    saves,
)
from clearway.model.cluster import FIRST, Job, JobState
from clearway.model.operations import Preemption, PreemptionState
from clearway.model.problem import Action

S = PreemptionState

# Slurm 22.05 fails a job for good ("credential revoked") that starts again in the second in which it was requeued.
_REST = timedelta(seconds=1.5)
_SECOND = timedelta(seconds=1)


class Command(StrEnum):
    """What the executor gives to Slurm; also the ``kind`` of the stored step."""

    ASK_CHECKPOINT = "ask_checkpoint"
    REQUEUE = "requeue"
    CANCEL_JOB = "cancel_job"
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
HARMFUL = frozenset({Command.ASK_CHECKPOINT, Command.REQUEUE, Command.CANCEL_JOB, Command.SUSPEND})


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


def next_step(p: Preemption, seen: Job | None, now: datetime, context: StepContext) -> Step | None:
    """The next row for one preemptee; None: wait for another snapshot.

    ``seen`` is the job in a snapshot taken after the last command; None when Slurm has forgotten it.
    """
    if p.state.terminal:
        return None
    if seen is None or seen.state is JobState.ENDED:
        return Step(S.ENDED, note=_ended_note(p))
    left = seen.state in (JobState.COMPLETING, JobState.PENDING) or seen.run != p.job.run
    if p.state is S.CHECKPOINTING and left and _requeues_itself(seen):
        return Step(S.VACATING, note="it put itself back in the queue")
    if seen.state is JobState.COMPLETING:  # on its way out, though Slurm may count it as the next run already
        return None
    if context.unwatched and still_first(p, seen):
        return None if _just_tried(p, now, context.retry_after) else Step(p.state, Command.USUAL_PRIORITY)
    if p.state is S.VACATED:
        return _vacated(p, seen, now, context)
    if p.state is S.QUEUED:
        return _queued(p, seen, now, context)
    if left:
        after = S.VACATED if seen.state is JobState.PENDING else S.RETURNED
        return Step(after, note="" if p.state is S.VACATING else "it was requeued outside Clearway")
    if p.state is S.SUSPENDED:
        return _suspended(p, seen, now, context)
    if p.state is S.VACATING:
        return _vacating(p, seen, now, context)
    if seen.state is not JobState.RUNNING:
        return Step(p.state, stuck=True, note=f"it is {seen.raw_state}")
    return _planned(p, seen, now, context) if p.state is S.PLANNED else _checkpointing(p, seen, now, context)


def _planned(p: Preemption, seen: Job, now: datetime, context: StepContext) -> Step | None:
    match p.action:
        case Action.END:
            return Step(S.PLANNED, stuck=True, note="it did not end in time") if now > context.latest else None
        case Action.KILL | Action.SUSPEND:
            return _leave(p, seen) if context.may_kill else None
        case Action.APP_CHECKPOINT | Action.SYS_CHECKPOINT if claims := saves(seen):
            if claims.checkpoint is CheckpointHow.INTERVAL:
                return Step(S.CHECKPOINTING)
            asks = context.may_ask and may_be_signalled(claims, seen, now)
            return Step(S.CHECKPOINTING, Command.ASK_CHECKPOINT) if asks else None
        case _:
            return Step(S.PLANNED, stuck=True, note="it does not say any more that it can save itself")


def _checkpointing(p: Preemption, seen: Job, now: datetime, context: StepContext) -> Step | None:
    claims, _ = read_claims(seen)
    asked = p.asked_at or now
    if checkpointed_since(claims, asked) and not _requeues_itself(seen):
        return _leave(p, seen)
    failed = failed_since(claims, asked)
    if failed or now > context.latest:
        why = "its checkpoint failed" if failed else "its checkpoint is late"
        if context.kill_when_late and (now > context.latest or context.may_kill):
            return _leave(p, seen, f"{why}; requeued without it, as the configuration allows")
        return Step(S.CHECKPOINTING, stuck=True, note=why)
    unasked = p.attempted_at is None and not begun_since(claims, asked)
    if unasked and claims is not None and claims.checkpoint is CheckpointHow.SIGNAL:
        return Step(S.CHECKPOINTING, Command.ASK_CHECKPOINT)  # the daemon died between intent and act
    return None


def _suspended(p: Preemption, seen: Job, now: datetime, context: StepContext) -> Step | None:
    """Never given up: Slurm alone does not resume it."""
    if seen.state is not JobState.SUSPENDED:
        return Step(S.RETURNED, note="" if p.attempts else "it was resumed outside Clearway")
    resumes = context.may_resume and not _just_tried(p, now, context.retry_after)
    return Step(S.SUSPENDED, Command.RESUME) if resumes else None


def _vacating(p: Preemption, seen: Job, now: datetime, context: StepContext) -> Step | None:
    suspends = p.action is Action.SUSPEND
    if suspends and seen.state is JobState.SUSPENDED:
        return Step(S.SUSPENDED)
    if _just_tried(p, now, context.retry_after):
        return None
    if not context.wanted and (suspends or not p.attempts):  # it was in a batch that was cut off before its turn
        return Step(S.SPARED, note="no longer needed")
    if seen.state is not JobState.RUNNING:
        return Step(S.VACATING, stuck=True, note=f"it is {seen.raw_state}")
    if p.attempts >= context.give_up_after:
        what = "suspend" if suspends else "requeue"
        return Step(S.FAILED, stuck=True, note=f"still running after {p.attempts} attempts to {what} it")
    return _leave(p, seen)


def _vacated(p: Preemption, seen: Job, now: datetime, context: StepContext) -> Step | None:
    if seen.state is not JobState.PENDING:
        return _returned(p, seen, now, context)
    misplaced = bool(context.placement) and context.attach is not _in_placement(seen, context)
    if misplaced and p.attempts < context.give_up_after:
        # Whether it has come to be is seen next time: it must not become eligible anywhere else before.
        if _just_tried(p, now):
            return None
        if context.attach:
            return Step(S.VACATED, Command.ATTACH) if context.placed else None
        return Step(S.VACATED, Command.DETACH)
    asked = 1 if context.placement else 0  # to get into its placement
    if context.first and p.attempts <= asked and 0 < seen.priority < FIRST:
        return Step(S.VACATED, Command.FIRST_IN_QUEUE)  # once: without it the job waits for its turn
    if p.state_since is not None and now - p.state_since < _REST:
        return None
    return _held(seen) if seen.priority == 0 else Step(S.QUEUED, Command.START_NOW)


def _held(seen: Job) -> Step:
    """By a user, or by Slurm, as where the prolog of its next run has failed: that could fail again."""
    why = "" if seen.reason in ("", "None") else f" ({seen.reason})"
    return Step(S.FAILED, note=f"it is held in the queue{why}; release it by hand")


def _in_placement(seen: Job, context: StepContext) -> bool:
    return bool(context.placement) and seen.reservation == context.placement


def _returned(p: Preemption, seen: Job, now: datetime, context: StepContext) -> Step | None:
    if _in_placement(seen, context):  # Slurm does not delete a reservation that a job runs in
        command = Command.DETACH
    elif seen.priority == FIRST and context.first and p.attempts < context.give_up_after:
        command = Command.USUAL_PRIORITY
    else:
        return Step(S.RETURNED)
    return None if _just_tried(p, now) else Step(p.state, command)


def _queued(p: Preemption, seen: Job, now: datetime, context: StepContext) -> Step | None:
    if seen.state is not JobState.PENDING:
        return _returned(p, seen, now, context)
    if _in_placement(seen, context) and not context.attach:
        return None if _just_tried(p, now) else Step(S.QUEUED, Command.DETACH)
    if seen.priority == 0 and not _in_placement(seen, context):
        return _held(seen)
    waits = seen.eligible_time is not None and seen.eligible_time > now + _SECOND
    again = p.attempts < context.give_up_after and not _just_tried(p, now, context.retry_after)
    return Step(S.QUEUED, Command.START_NOW) if waits and again else None


def still_first(p: Preemption, seen: Job) -> bool:
    """Whether a job that left still has the priority that gives it the first place in the queue."""
    return p.state in (S.VACATED, S.QUEUED) and seen.state is not JobState.ENDED and seen.priority == FIRST


def _just_tried(p: Preemption, now: datetime, pause: timedelta = _SECOND) -> bool:
    """Whether the command of this state was given so lately that its effect may not be seen yet."""
    return p.attempted_at is not None and abs(now - p.attempted_at) < pause


def _requeues_itself(seen: Job) -> bool:
    claims, _ = read_claims(seen)
    return claims is not None and claims.requeues


def _leave(p: Preemption, seen: Job, note: str = "") -> Step:
    """A job that was made requeueable meanwhile is not cancelled."""
    command = Command.REQUEUE if seen.can_be_requeued else Command.CANCEL_JOB
    return Step(S.VACATING, Command.SUSPEND if p.action is Action.SUSPEND else command, note=note)


def _ended_note(p: Preemption) -> str:
    if p.action is Action.END:
        return "ended by itself, as planned"
    if p.state is S.VACATING and p.action is not Action.SUSPEND:
        return "ended while it was being requeued" if p.job.can_be_requeued else "cancelled, as planned"
    return "ended by itself"
