"""The table of steps: from where a preemption or an eviction stands, and what is seen, to what is done next. Pure.

Nothing here remembers a command as done: only the next snapshot proves that. So a daemon that was killed at any
point finds its way by the same table. Every command can be given twice.

Preemption:  planned -> checkpointing -> vacating -> vacated -> queued -> returned
             planned ---- (kill) ------> vacating           (any state) -> ended, spared, failed
             planned ---- (end) -----------------------------------------> ended
             planned ---- (suspend) ---> vacating -> suspended -> returned
             checkpointing -> vacating (without a command: the job requeues itself) -> vacated ...
Eviction:    placing -> preempting -> starting -> started -> returning -> completed
             (before started) -> cancelling -> cancelled | failed
             returning, cancelling: the placement stays over the nodes of suspended jobs until they run again
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from clearway.claims import CheckpointHow, Claims, SaveState
from clearway.detection import read_claims
from clearway.execution.records import Eviction, EvictionState, Preemption, PreemptionState
from clearway.model import FIRST, Action, Job, JobState, Reservation

S = PreemptionState
E = EvictionState


# Slurm 22.05 fails a job for good ("credential revoked") that starts again in the second in which it was requeued.
_REST = timedelta(seconds=1.5)


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


@dataclass(frozen=True, slots=True)
class Step:
    """One row of the table. ``stuck``: the job will not leave in time, so the eviction needs another plan."""

    state: PreemptionState
    command: Command | None = None
    note: str = ""
    stuck: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a preemption may do at this moment; worked out by the executor from plan and configuration."""

    latest: datetime  # when nodes must begin to empty for the preemptor to start by its deadline
    may_ask: bool = True  # a checkpoint may be asked for now (others are not using the file system)
    may_kill: bool = True  # everything that could still make this kill unnecessary is settled
    wanted: bool = True  # the preemptor still waits for the nodes
    may_resume: bool = False  # nobody else has the processors of this suspended job, and nobody can get them first
    first: bool = False  # it goes to the head of the queue until it runs again
    placement: str = ""  # of a job that is moved: where it is to start again
    land: bool = False  # ... in that placement, not just anywhere
    placed: bool = False  # ... which covers its own target now and nothing else
    kill_when_late: bool = False
    retry_after: timedelta = timedelta(seconds=5)
    give_up_after: int = 5


def next_step(p: Preemption, seen: Job | None, now: datetime, rules: Rules) -> Step | None:
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
    if p.state is S.VACATED:
        return _vacated(p, seen, now, rules)
    if p.state is S.QUEUED:
        return _queued(p, seen, now, rules)
    if seen.state is JobState.PENDING:
        return Step(S.VACATED, note="" if p.state is S.VACATING else "it was requeued by somebody else")
    if seen.run != p.job.run:
        return Step(S.RETURNED, note="" if p.state is S.VACATING else "it was requeued by somebody else")
    if p.state is S.SUSPENDED or (p.state is S.VACATING and p.action is Action.SUSPEND):
        return _suspending(p, seen, now, rules) if p.state is S.VACATING else _suspended(p, seen, now, rules)
    if p.state is S.VACATING:
        return _vacating(p, seen, now, rules)
    if seen.state is not JobState.RUNNING:
        return Step(p.state, stuck=True, note=f"it is {seen.raw_state}")
    return _planned(p, seen, now, rules) if p.state is S.PLANNED else _checkpointing(p, seen, now, rules)


def _planned(p: Preemption, seen: Job, now: datetime, rules: Rules) -> Step | None:
    match p.action:
        case Action.END:
            return Step(S.PLANNED, stuck=True, note="it did not end in time") if now > rules.latest else None
        case Action.KILL:
            return _leave(p) if rules.may_kill else None
        case Action.SUSPEND:
            return Step(S.VACATING, Command.SUSPEND) if rules.may_kill else None
        case Action.APP_CHECKPOINT | Action.SYS_CHECKPOINT if claims := saves(seen):
            if claims.checkpoint is CheckpointHow.INTERVAL:
                return Step(S.CHECKPOINTING)
            return Step(S.CHECKPOINTING, Command.ASK_CHECKPOINT) if rules.may_ask else None
        case _:
            return Step(S.PLANNED, stuck=True, note="it does not say any more that it can save itself")


def _checkpointing(p: Preemption, seen: Job, now: datetime, rules: Rules) -> Step | None:
    claims, _ = read_claims(seen)
    asked = p.asked_at or now
    if checkpointed_since(claims, asked) and not _requeues_itself(seen):
        return _leave(p)
    failed = failed_since(claims, asked)
    if failed or now > rules.latest:
        why = "its checkpoint failed" if failed else "its checkpoint is late"
        if rules.kill_when_late and (now > rules.latest or rules.may_kill):
            return _leave(p, f"{why}; requeued without it, as the configuration allows")
        return Step(S.CHECKPOINTING, stuck=True, note=why)
    if p.attempted_at is None and claims is not None and claims.checkpoint is CheckpointHow.SIGNAL:
        return Step(S.CHECKPOINTING, Command.ASK_CHECKPOINT)  # the daemon died between intent and act
    return None


def _suspending(p: Preemption, seen: Job, now: datetime, rules: Rules) -> Step | None:
    if seen.state is JobState.SUSPENDED:
        return Step(S.SUSPENDED)
    if p.attempted_at is not None and now - p.attempted_at < rules.retry_after:
        return None
    if not rules.wanted:
        return Step(S.SPARED, note="no longer needed")
    if seen.state is not JobState.RUNNING:
        return Step(S.VACATING, stuck=True, note=f"it is {seen.raw_state}")
    if p.attempts >= rules.give_up_after:
        return Step(S.FAILED, stuck=True, note=f"still running after {p.attempts} attempts to suspend it")
    return Step(S.VACATING, Command.SUSPEND)


def _suspended(p: Preemption, seen: Job, now: datetime, rules: Rules) -> Step | None:
    """Never given up: nobody else would resume it."""
    if seen.state is not JobState.SUSPENDED:
        return Step(S.RETURNED, note="" if p.attempts else "it was resumed by somebody else")
    due = p.attempted_at is None or now - p.attempted_at >= rules.retry_after
    return Step(S.SUSPENDED, Command.RESUME) if rules.may_resume and due else None


def _vacating(p: Preemption, seen: Job, now: datetime, rules: Rules) -> Step | None:
    if p.attempted_at is not None and now - p.attempted_at < rules.retry_after:
        return None
    if seen.state is not JobState.RUNNING:
        return Step(S.VACATING, stuck=True, note=f"it is {seen.raw_state}")
    if p.attempts >= rules.give_up_after:
        return Step(S.FAILED, stuck=True, note=f"still running after {p.attempts} attempts to requeue it")
    return _leave(p)


def _vacated(p: Preemption, seen: Job, now: datetime, rules: Rules) -> Step | None:
    if seen.state is JobState.PENDING:
        if rules.placement and rules.land is not _in_placement(seen, rules) and p.attempts < rules.give_up_after:
            # Whether it has come to be is seen next time: it must not become eligible anywhere else before.
            if p.attempted_at is not None and now - p.attempted_at < timedelta(seconds=1):
                return None
            if rules.land:
                return Step(S.VACATED, Command.ATTACH) if rules.placed else None
            return Step(S.VACATED, Command.DETACH)
        asked = 1 if rules.placement else 0  # to get into its placement
        if rules.first and p.attempts <= asked and 0 < seen.priority < FIRST:
            return Step(S.VACATED, Command.FIRST_IN_QUEUE)  # once: without it the job waits for its turn
        if p.state_since is not None and now - p.state_since < _REST:
            return None
        if seen.priority == 0:
            return Step(S.FAILED, note="it is held in the queue; release it by hand")
        return Step(S.QUEUED, Command.START_NOW)
    return _returned(p, seen, now, rules)


def _in_placement(seen: Job, rules: Rules) -> bool:
    return bool(rules.placement) and seen.reservation == rules.placement


def _returned(p: Preemption, seen: Job, now: datetime, rules: Rules) -> Step | None:
    if _in_placement(seen, rules):  # Slurm does not delete a reservation that a job runs in
        due = p.attempted_at is None or now - p.attempted_at >= timedelta(seconds=1)
        return Step(p.state, Command.DETACH) if due else None
    if seen.priority == FIRST and rules.first and p.attempts < rules.give_up_after:
        due = p.attempted_at is None or now - p.attempted_at >= timedelta(seconds=1)
        return Step(p.state, Command.USUAL_PRIORITY) if due else None
    return Step(S.RETURNED)


def _queued(p: Preemption, seen: Job, now: datetime, rules: Rules) -> Step | None:
    if seen.state is not JobState.PENDING:
        return _returned(p, seen, now, rules)
    if _in_placement(seen, rules) and not rules.land:
        due = p.attempted_at is None or now - p.attempted_at >= timedelta(seconds=1)
        return Step(S.QUEUED, Command.DETACH) if due else None
    waits = seen.eligible_time is not None and seen.eligible_time > now + timedelta(seconds=1)
    due = p.attempted_at is None or now - p.attempted_at >= rules.retry_after
    return Step(S.QUEUED, Command.START_NOW) if waits and due and p.attempts < rules.give_up_after else None


def saves(job: Job) -> Claims | None:
    """The claims of a job that can be checkpointed; None of any other."""
    claims, _ = read_claims(job)
    return claims if claims is not None and claims.checkpoint not in (None, CheckpointHow.NONE) else None


def _requeues_itself(seen: Job) -> bool:
    claims, _ = read_claims(seen)
    return claims is not None and claims.requeues


def _leave(p: Preemption, note: str = "") -> Step:
    requeueable = p.job.requeueable and p.job.batch
    return Step(S.VACATING, Command.REQUEUE if requeueable else Command.CANCEL_JOB, note=note)


def _ended_note(p: Preemption) -> str:
    if p.action is Action.END:
        return "ended by itself, as planned"
    if p.action is Action.SUSPEND:
        return "ended by itself"
    if p.state is S.VACATING:
        cancelled = not (p.job.requeueable and p.job.batch)
        return "cancelled, as planned" if cancelled else "ended while it was being requeued"
    return "ended by itself"


def _since(claimed: datetime | None, asked: datetime) -> bool:
    """Whether a job's clock (whole seconds) says that something happened after it was asked for."""
    return claimed is not None and claimed >= asked.replace(microsecond=0)


def checkpointed_since(claims: Claims | None, asked: datetime) -> bool:
    """Whether a job claims a complete checkpoint that was begun (signal) or finished (interval) after ``asked``."""
    if claims is None or claims.last is None:
        return False
    if claims.checkpoint is CheckpointHow.SIGNAL:
        return claims.state is SaveState.SAVED and _since(claims.asked, asked) and _since(claims.last, asked)
    return _since(claims.last, asked) and claims.last > asked


def failed_since(claims: Claims | None, asked: datetime) -> bool:
    """Whether a job says that the checkpoint which it was asked for then has failed."""
    return claims is not None and claims.state is SaveState.FAILED and _since(claims.asked, asked)


@dataclass(frozen=True, slots=True)
class Phase:
    """One row of the eviction's table; ``event`` is written down for people."""

    state: EvictionState
    command: Command | None = None
    event: str = ""
    outcome: str = ""
    late: bool = False
    started_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What is seen of an eviction, from a snapshot and a list of reservations taken after its last change."""

    preemptor: Job | None
    placement: Reservation | None
    nodes_free: bool  # no job but the preemptor, and jobs suspended for it, is on the placement's nodes
    placement_ends: datetime
    extend_when_ends: datetime  # a placement that ends before this and is still needed is extended
    paused: bool = False


def next_phase(e: Eviction, sight: Sight, now: datetime, watch_return: timedelta) -> Phase | None:
    """The next row for the eviction as a whole; None: nothing to do before another snapshot."""
    if not e.state.acting:
        return None
    if e.state in (E.PLACING, E.PREEMPTING, E.STARTING):
        return _before_start(e, sight, now)
    cleaning = _keep_placement(e, sight) if e.suspended_nodes else _remove_placement(e, sight)
    if cleaning is not None:
        return cleaning
    return close_phase(e, now, watch_return)


def close_phase(e: Eviction, now: datetime, watch_return: timedelta) -> Phase | None:
    """The rows of an eviction with nothing of its own left on the cluster: its preemptees return."""
    if e.state is E.STARTED:
        return Phase(E.RETURNING)
    open_ones = [p for p in e.preemptions if not p.state.terminal]
    suspended = any(p.state is S.SUSPENDED for p in open_ones)  # only the eviction that did it will resume it
    if open_ones and (suspended or now - e.state_since < watch_return):
        return None
    final = E.COMPLETED
    if e.state is E.CANCELLING:
        final = E.FAILED if e.started_at is None and e.late else E.CANCELLED
    outcome = e.outcome
    if open_ones:
        outcome += f" {len(open_ones)} preempted job(s) had not returned when watching ended."
    return Phase(final, outcome=outcome.strip())


def _before_start(e: Eviction, sight: Sight, now: datetime) -> Phase | None:
    job = sight.preemptor
    pointless = _pointless(e, job)
    if job is None or pointless:
        return Phase(E.CANCELLING, outcome=pointless)
    if job.state is not JobState.PENDING:
        return Phase(E.STARTED, event=_start_event(e, job), started_at=job.start_time or now)
    if now >= sight.placement_ends:
        return Phase(E.CANCELLING, outcome=f"The {e.plan.called} did not start before its placement ended.", late=True)
    if sight.paused and e.state is E.PLACING:
        return None
    if sight.placement is None:
        return Phase(e.state, Command.CREATE_PLACEMENT)
    if set(sight.placement.nodes) != set(e.held_nodes):
        return Phase(e.state, Command.MOVE_PLACEMENT)
    if job.reservation != e.placement:
        return Phase(e.state, Command.ATTACH)
    if e.state is E.PLACING:
        return Phase(E.PREEMPTING)
    if e.state is E.PREEMPTING and sight.nodes_free:
        return Phase(E.STARTING)
    if not e.late and now > e.plan.deadline:
        return Phase(e.state, event=f"The {e.plan.called} did not start by its deadline; it waits on.", late=True)
    return None


def _pointless(e: Eviction, job: Job | None) -> str:
    """Why the preemptor has no use for this eviction any more; empty while it has."""
    if job is None or job.state is JobState.ENDED:
        return f"The {e.plan.called} is gone."
    if job.state is not JobState.PENDING:
        return ""
    if job.priority == 0:
        return f"The {e.plan.called} is held."
    changed = job.num_nodes > e.plan.nodes_needed or job.partitions != e.preemptor.partitions
    return f"The {e.plan.called} was changed." if changed else ""


def _start_event(e: Eviction, job: Job) -> str:
    start = job.start_time
    if start is None:
        return f"The {e.plan.called} started."
    margin_s = (e.plan.deadline - start).total_seconds()
    return f"The {e.plan.called} started {abs(margin_s):.1f} s {'before' if margin_s >= 0 else 'after'} its deadline."


def _keep_placement(e: Eviction, sight: Sight) -> Phase | None:
    """Over the nodes of suspended jobs, and only there, without the preemptor in it: it could start there again."""
    job = sight.preemptor
    if job is not None and job.state is not JobState.ENDED and e.placement and job.reservation == e.placement:
        return Phase(e.state, Command.DETACH)
    if sight.placement is None:
        return Phase(e.state, Command.CREATE_PLACEMENT)
    if set(sight.placement.nodes) != set(e.held_nodes):
        return Phase(e.state, Command.MOVE_PLACEMENT)
    if sight.placement.end_time < sight.extend_when_ends:
        return Phase(e.state, Command.EXTEND_PLACEMENT)
    return None


def _remove_placement(e: Eviction, sight: Sight) -> Phase | None:
    """Detach first: Slurm refuses to delete a reservation in use, and a running job survives the detaching."""
    job = sight.preemptor
    if job is not None and job.state is not JobState.ENDED and e.placement and job.reservation == e.placement:
        return Phase(e.state, Command.DETACH)
    if sight.placement is not None:
        return Phase(e.state, Command.DELETE_PLACEMENT)
    return None
