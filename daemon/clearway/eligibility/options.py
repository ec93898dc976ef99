"""In which ways a job can leave its nodes, the same for all operations; and what its owner is told of that. Pure."""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from clearway.eligibility.context import PlanningContext
from clearway.eligibility.exemption import Purpose, exemption
from clearway.eligibility.returning import past_deadline
from clearway.eligibility.urgent import is_eternal
from clearway.estimates.checkpoint_load import shared_bandwidth
from clearway.estimates.costs import CostBasis, end_ready_s, lost_work_node_s, preemption_options, why_no_checkpoint
from clearway.estimates.history import run_key
from clearway.estimates.learning import application, key_of
from clearway.model.claims import CheckpointHow, Claims, Restart, last_checkpoint, read_claims, unanswered_s
from clearway.model.cluster import Job, JobState
from clearway.model.durations import format_duration
from clearway.model.plan import node_hours
from clearway.model.problem import Action, Option


def options_for(
    job: Job, context: PlanningContext, *, kill: bool, shared: bool = False, later_s: float = 0.0
) -> tuple[Option, ...]:
    """How the job can be made to leave before its own end; empty where it cannot.

    ``kill``: it may be requeued, or cancelled, without a checkpoint. ``shared``: checkpoints are written beside each
    other where the configuration says so; else one after another. ``later_s``: time that may pass before the plan
    begins. No checkpoint is asked for twice in vain.
    """
    memories_mib = [node.memory_mib for name in job.nodes if (node := context.snapshot.node_by_name.get(name))]
    by = CostBasis(
        now=context.now,
        costs=context.config.costs,
        history=context.history,
        actions=context.actions,
        shared_mib_s=shared_bandwidth(context.config) if shared else None,
        later_s=later_s,
        kill_later_s=later_s + context.begins_in_s,
    )
    requeueable = job.can_be_requeued and job.job_id not in context.under_way.avoid and not past_deadline(job, context)
    requeueable = requeueable and not end_is_awaited(job, context)
    memory_mib = max(memories_mib, default=0)
    found = preemption_options(job, read_claims(job)[0], by, memory_mib, kill=kill, requeueable=requeueable)
    unsaved = job.job_id in context.under_way.unsaved
    return tuple(each for each in found if each.action is Action.KILL) if unsaved else found


def end_is_awaited(job: Job, context: PlanningContext) -> bool:
    """Whether its user's other jobs would begin where a signal, to which it gives no answer, made it end."""
    awaited = context.snapshot.awaited
    named = (job.user, job.job_id) in awaited or (job.user, job.array_job_id) in awaited
    return named and unanswered_s(job) is not None


def may_kill(job: Job, context: PlanningContext, max_loss_s: float | None = None, later_s: float = 0.0) -> bool:
    """Whether it may be requeued without a checkpoint: by what is allowed, and where it loses no more than this.

    ``later_s``: see ``options_for``.
    """
    if not context.config.candidates.allow_kill or is_eternal(job, context.config.eternal):
        return False
    if not max_loss_s:
        return max_loss_s is None
    lost_node_s = lost_work_node_s(job, read_claims(job)[0], context.now, later_s + context.begins_in_s)
    return lost_node_s <= max_loss_s * max(1, job.num_nodes)


def expected_end_s(job: Job, context: PlanningContext) -> float | None:
    """Seconds until it ends by its time limit, or sooner by what its earlier runs took; None where neither is known."""
    ends_s = [end_ready_s(job, context.now, 0.0)]
    confidence = context.config.planning.end_confidence
    if confidence is not None and job.start_time is not None:
        ends_s.append(context.history.run_times(*run_key(job)).likely_end_s(job.ran_s(context.now), confidence))
    return min((each for each in ends_s if each is not None), default=None)


def why_not_saved(job: Job, context: PlanningContext) -> str:
    """Why a job without an option cannot be saved, as a sentence without its end."""
    if not job.can_be_requeued:
        return "it cannot be requeued"
    if job.job_id in context.under_way.avoid:
        return "it did not save itself when it was asked to"
    if why := past_deadline(job, context):
        return why
    if end_is_awaited(job, context):
        return "it may end by the signal, and other jobs of its user wait for its end"
    claims, _ = read_claims(job)
    why = why_no_checkpoint(claims, context.actions)
    if why or claims is None or context.history.trusted(*key_of(job, claims), context.now):
        return why or "it cannot save itself"
    return f"its last {context.history.failures_in_a_row(*key_of(job, claims))} checkpoints failed"


class SavingWay(StrEnum):
    """What a job says of how it is saved."""

    NOTHING = "nothing"  # no claim, or none that counts
    SIGNAL = "signal"  # saves itself when it is signalled
    INTERVAL = "interval"  # saves itself at its own pace
    NONE = "none"  # says that it cannot be saved


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """Whether a job can be saved, and by what it says."""

    way: SavingWay
    possible: bool  # Clearway would ask it to save itself, or wait for it
    why_not: str  # a sentence without its end; empty where it is possible
    checkpointer: str  # empty where the job says nothing
    app: str
    last_at: datetime | None  # the newest checkpoint of this run that can be believed
    expected_s: float | None  # time until it is saved; None where it is not possible, or does not run
    advice: str  # what the owner can do, in one sentence
    began: str  # how this run went on from an earlier one, in one sentence; empty for the first, or if nothing says


@dataclass(frozen=True, slots=True, kw_only=True)
class IfUrgent:
    """What would become of a running job if an urgent job needed its nodes now."""

    may_leave: bool
    code: str  # of the guard that protects it; empty where it may leave
    why: str  # that guard's sentence, without its end
    ways: tuple[Option, ...]  # in which it can leave, its own end left out; empty where it may not
    lost_work_node_s: float  # that a requeue without a checkpoint would lose now
    sentence: str


def saving(job: Job, context: PlanningContext) -> Saving:
    """Of a job in any state; what takes time is reckoned only where it runs."""
    claims, error = read_claims(job)
    way = SavingWay.NOTHING
    if claims is not None and claims.checkpoint is not None:
        way = SavingWay(claims.checkpoint.value)
    ways = options_for(job, context, kill=False, shared=True) if job.state is JobState.RUNNING else ()
    expected_s = min((option.takes_s for option in ways), default=None)
    possible, why_not = bool(ways), ""
    if not ways and job.state is not JobState.RUNNING:
        possible = way in (SavingWay.SIGNAL, SavingWay.INTERVAL) and job.can_be_requeued
    if not possible:
        why_not = f"its Comment cannot be read: {error}" if error else why_not_saved(job, context)
    start = job.start_time
    last = None if claims is None or start is None else last_checkpoint(claims, start, context.now)
    return Saving(
        way=way,
        possible=possible,
        why_not=why_not,
        checkpointer=claims.checkpointer if claims is not None and way is not SavingWay.NOTHING else "",
        app=application(job, claims),
        last_at=None if last == start else last,
        expected_s=expected_s,
        advice=_advice(job, claims, way, possible=possible, why_not=why_not, expected_s=expected_s, error=error),
        began=_began(job, claims),
    )


_BEGAN = {
    Restart.OK: "This run was restarted from the newest checkpoint, and has computed since.",
    Restart.FALLBACK: "This run was restarted from an older checkpoint: what was computed after that is lost.",
    Restart.SCRATCH: "No checkpoint could be used: this run began anew, and what was computed before it is lost.",
    None: "The job was started again; whether its program computes is not known yet.",
}


def _began(job: Job, claims: Claims | None) -> str:
    """Only the run itself can say whether it computes: it says so once its launcher has seen it."""
    if claims is None or claims.checkpoint is None or job.state is not JobState.RUNNING:
        return ""
    if claims.restart is None and (job.restart_count == 0 or claims.checkpointer == "application"):
        return ""
    if job.restart_count == 0 and claims.run is None:  # a first run that is said to have been restarted by nobody
        return ""
    return _BEGAN[claims.restart]


def _advice(
    job: Job,
    claims: Claims | None,
    way: SavingWay,
    *,
    possible: bool,
    why_not: str,
    expected_s: float | None,
    error: str,
) -> str:
    if error:
        return f"The job's Comment counts as no claim, because it cannot be read ({error}): correct it."
    if not job.can_be_requeued:
        if not job.batch:
            return "The job is interactive, so Slurm cannot start it again: run long work as a batch job."
        return "The job was submitted with --no-requeue: with --requeue it could be saved and started again."
    match way:
        case SavingWay.NOTHING:
            return (
                "The job says nothing of checkpoints, so it loses all its work since its start: "
                "start its program by clearway-run, which saves it and brings it back."
            )
        case SavingWay.NONE:
            return (
                "The job says that it cannot be saved, so it loses all its work since its start: "
                "a checkpointer for its program (clearway-run --checkpointer) would change that."
            )
        case _ if not possible:
            return f"The job is not asked to save itself now, because {why_not}."
        case SavingWay.INTERVAL:
            return (
                "The job saves itself at its own pace and loses what it does after that where there is no time to "
                "wait: a program that also saves itself on a signal can go on from the moment when it leaves."
            )
        case _ if claims is not None and claims.unanswered_s is not None:
            to = "batch shell" if claims.to == "batch" else "steps"
            return (
                f"The job's {to} get SIG{claims.signal}, as its --signal says, and it is requeued once it has ended, "
                f"after {format_duration(claims.unanswered_s)} at the latest; that it saves itself then is up to it."
            )
        case _:
            within = "" if expected_s is None else f" within {format_duration(expected_s)}"
            return f"The job saves itself{within} when it is asked, to go on from there, where there is time for it."


def if_urgent(job: Job, context: PlanningContext) -> IfUrgent | None:
    """None for a job that does not run. No plan is made: whether an urgent job would need its nodes is not said."""
    if job.state is not JobState.RUNNING:
        return None
    exempt = exemption(job, Purpose.PREEMPTION, context)
    claims, _ = read_claims(job)
    lost_node_s = lost_work_node_s(job, claims, context.now)
    ways = () if exempt else options_for(job, context, kill=may_kill(job, context), shared=True)
    code, why = exempt or ("", "")
    if not exempt and not ways:
        code, why = "no_option", f"{why_not_saved(job, context)}, and it may not be requeued without a checkpoint"
    waits = claims is not None and claims.checkpoint is CheckpointHow.INTERVAL
    return IfUrgent(
        may_leave=bool(ways),
        code=code,
        why=why,
        ways=tuple(replace(each, checkpoint_s=each.takes_s) for each in ways),  # "time until it is saved"
        lost_work_node_s=lost_node_s,
        sentence=f"It would stay: {why}." if why else _what_would_become(job, ways, waits=waits),
    )


def _what_would_become(job: Job, ways: tuple[Option, ...], *, waits: bool) -> str:
    saved = next((option for option in ways if option.action is not Action.KILL), None)
    killed = next((option for option in ways if option.action is Action.KILL), None)
    if saved is None:
        leaves = "be requeued" if job.can_be_requeued else "be cancelled for good"
        return f"It would {leaves} without a checkpoint and lose {node_hours(ways[0].lost_work_node_s)}."
    after = "once it has next saved itself" if waits else "once it has saved itself"
    told = f"It would be requeued {after}, within {format_duration(saved.takes_s)}, to go on from there"
    if killed is None:
        return f"{told}."
    return f"{told}; where there is no time for that, it would lose {node_hours(killed.lost_work_node_s)}."
