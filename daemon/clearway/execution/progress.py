"""The state machines as data, and what a step changes in the records: times, costs, spared jobs, lost nodes. Pure.
Every state is entered through here: a step that no table has is refused. The lifecycles decide when. The diagrams of
docs/explanation/architecture.md are made from these tables.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

from clearway.config.configuration import ExecutionConfig, Mode
from clearway.eligibility.node_usage import suits
from clearway.estimates.checkpoint_load import latest_of
from clearway.estimates.costs import TIME_LIMIT_SLACK_S, unsaved_s
from clearway.execution.job_lifecycle import REQUEUING, Command, Step, unanswered
from clearway.execution.lifecycle import Phase, placement_name
from clearway.model.claims import has_had_its_time, last_checkpoint, read_claims
from clearway.model.cluster import ClusterSnapshot, Job, JobState, Node, first_nice
from clearway.model.errors import TransitionError
from clearway.model.operations import CHECKPOINTS, Answer, Eviction, O, Operation, OperationKind, Preemption
from clearway.model.operations import EvictionState as E
from clearway.model.operations import PreemptionState as P
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.model.plan import OperationPlan
from clearway.model.problem import Action

_NEVER = datetime.max.replace(tzinfo=UTC)

S = TypeVar("S", bound=StrEnum)
Table = Mapping[S, Mapping[S, str]]  # from, to, why

# Slurm's own wait after a requeue is two minutes, unless a site has changed that.
_SLURMS_WAIT = timedelta(minutes=10)

_MISFIT = {E.SUPERSEDED: "does not fit the cluster any more", E.CANCELLED: "cancelled"}
_OLD = {E.SUPERSEDED: "does not fit the cluster any more, or too old", E.CANCELLED: "cancelled"}

OPERATIONS: Mapping[OperationKind, Table[E]] = {
    OperationKind.EVICTION: {
        E.PROPOSED: _MISFIT,
        E.AWAITING_APPROVAL: {E.PLACING: "approved, or within the budget again"} | _MISFIT,
        E.PLACING: {
            E.PREEMPTING: "the placement stands, the preemptor is attached",
            E.STARTED: "the preemptor runs",
            E.SUPERSEDED: "does not fit the cluster any more",
            E.CANCELLING: "cancelled, or pointless",
        },
        E.PREEMPTING: {
            E.STARTING: "all nodes are free",
            E.STARTED: "the preemptor runs",
            E.CANCELLING: "cancelled, pointless, misused, or too late",
        },
        E.STARTING: {
            E.PREEMPTING: "planned anew: a node was lost, or the job was changed",
            E.STARTED: "the preemptor runs",
            E.CANCELLING: "cancelled, pointless, or too late",
        },
        E.STARTED: {E.RETURNING: "the placement is gone"},
        E.RETURNING: {E.COMPLETED: "the preemptees run again, or were watched long enough"},
        E.CANCELLING: {E.CANCELLED: "undone", E.FAILED: "undone, and the preemptor did not start in time"},
    },
    OperationKind.DRAIN: {
        E.SCHEDULED: {E.PLACING: "its time has come", E.CANCELLED: "cancelled"},
        E.PLACING: {E.PREEMPTING: "all nodes are drained by us", E.CANCELLING: "cancelled, or a node cannot be taken"},
        E.PREEMPTING: {
            E.STARTED: "the nodes are empty",
            E.CANCELLING: "cancelled, a job cannot leave, or a node was brought back",
        },
        E.STARTED: {E.RETURNING: "nothing is left to do on the nodes"},
        E.RETURNING: {E.COMPLETED: "the preemptees run again, or were watched long enough"},
        E.CANCELLING: {E.CANCELLED: "the nodes take jobs again", E.FAILED: "the same, after the deadline had passed"},
    },
    OperationKind.RELOCATION: {
        E.PROPOSED: _OLD,
        E.AWAITING_APPROVAL: {E.PLACING: "approved"} | _OLD,
        E.PLACING: {E.PREEMPTING: "nodes and targets are held", E.CANCELLING: "cancelled, or called off"},
        E.PREEMPTING: {E.STARTED: "all jobs have arrived", E.CANCELLING: "cancelled, or called off"},
        E.STARTED: {E.RETURNING: "nothing is held any more"},
        E.RETURNING: {E.COMPLETED: "no job is on its way"},
        E.CANCELLING: {E.CANCELLED: "nothing is held any more"},
    },
    OperationKind.PROMISE: {
        E.SCHEDULED: {
            E.PLACING: "its nodes are chosen, some time before",
            E.CANCELLED: "cancelled",
            E.FAILED: "it is over, and no nodes could be had",
        },
        E.PLACING: {E.PREEMPTING: "the placement stands", E.CANCELLING: "cancelled, refused, or over and not kept"},
        E.PREEMPTING: {
            E.STARTED: "its time has come, and its nodes are free",
            E.CANCELLING: "cancelled, or over and not kept",
        },
        E.STARTED: {E.RETURNING: "it is over", E.CANCELLING: "cancelled"},
        E.RETURNING: {E.COMPLETED: "the preemptees run again, or were watched long enough"},
        E.CANCELLING: {E.CANCELLED: "nothing is held any more", E.FAILED: "the same, and it was not kept"},
    },
}

_OF_ITSELF = {
    P.VACATED: "requeued by another hand",
    P.RETURNED: "runs again: requeued by another hand",
    P.ENDED: "over by itself",
    P.SPARED: "not needed any more",
}
PREEMPTIONS: Table[P] = {
    P.PLANNED: {P.CHECKPOINTING: "asked to save itself, or waited for", P.VACATING: "requeued, cancelled or suspended"}
    | _OF_ITSELF,
    P.CHECKPOINTING: {
        P.PLANNED: "planned anew with another action",
        P.VACATING: "saved: requeued, or has requeued itself",
    }
    | _OF_ITSELF,
    P.VACATING: {
        P.SUSPENDED: "seen suspended",
        P.VACATED: "seen in the queue",
        P.RETURNED: "seen running again",
        P.ENDED: "cancelled, or over",
        P.SPARED: "was not suspended, and need not be any more",
        P.FAILED: "does not leave",
    },
    P.SUSPENDED: {P.VACATED: "requeued by another hand", P.RETURNED: "resumed", P.ENDED: "over by itself"},
    P.VACATED: {P.QUEUED: "may start again", P.RETURNED: "runs again", P.ENDED: "over", P.HELD: "held in the queue"},
    P.QUEUED: {P.RETURNED: "runs again", P.ENDED: "over", P.HELD: "held in the queue"},
    P.HELD: {P.VACATED: "released", P.RETURNED: "runs again", P.ENDED: "over"},
    P.SPARED: {P.PLANNED: "planned anew: needed after all"},
}


def _check(what: str, table: Table[S], before: S, after: S) -> None:
    if after is not before and after not in table.get(before, {}):
        raise TransitionError(f"{what} cannot go from {before.value} to {after.value}")


def entered(operation: O, state: E, now: datetime, **changes: Any) -> O:
    """The operation in another state; raises ``TransitionError`` where its table has no such step."""
    _check(f"{operation.kind.value} {operation.eviction_id}", OPERATIONS[operation.kind], operation.state, state)
    return replace(operation, state=state, state_since=now, **changes)


def superseded(operation: O, why: str, now: datetime) -> O:
    """As an operation ends that was never carried out: ``why``, half a sentence."""
    return entered(operation, E.SUPERSEDED, now, finished_at=now).told(Outcome(OutcomeCode.SUPERSEDED, why))


def preemption_entered(before: Preemption, state: P, now: datetime, **changes: Any) -> Preemption:
    """The preemption in another state; raises ``TransitionError`` where the table has no such step."""
    _check(f"job {before.job_id}", PREEMPTIONS, before.state, state)
    return replace(before, state=state, state_since=now, **changes)


# What an operation begins with that no operator asked for.
FIRST_STATE = {Mode.OBSERVE: E.PROPOSED, Mode.APPROVE: E.AWAITING_APPROVAL, Mode.AUTOMATIC: E.PLACING}


def planned_preemptions(plan: OperationPlan, now: datetime) -> tuple[Preemption, ...]:
    """The preemptions of a fresh plan, ends included: they are watched like the others."""
    reasons = {verdict.job_id: verdict.reason for verdict in plan.verdicts}
    jobs, losses = {job.job_id: job for job in plan.leaving}, plan.losses
    return tuple(
        Preemption(
            job=jobs[planned.job_id],
            action=planned.action,
            reason=reasons.get(planned.job_id, ""),
            predicted_lost_node_s=losses[planned.job_id],
            predicted_checkpoint_s=float(planned.takes_s if planned.action in CHECKPOINTS else planned.checkpoint_s),
            order=order,
            eternal=planned.job_id in plan.eternal,
            state_since=now,
        )
        for order, planned in enumerate(plan.chosen.actions)
    )


def fresh_operation(
    kind: type[O],
    plan: OperationPlan,
    mode: str,
    state: E,
    now: datetime,
    *,
    eviction_id: int = 0,
    outcome: Outcome | None = None,
) -> O:
    made = kind(
        eviction_id=eviction_id,
        mode=mode,
        plan=plan,
        preemptions=planned_preemptions(plan, now),
        state=state,
        state_since=now,
        created_at=now,
    )
    return made if outcome is None else made.told(outcome)


def with_phase(e: O, phase: Phase, now: datetime, snapshot: ClusterSnapshot | None) -> O:
    if phase.state is not e.state:
        e = entered(e, phase.state, now)
    if phase.command is Command.CREATE_PLACEMENT and not e.placement:
        e = replace(e, placement=placement_name(e))
    if phase.outcome is not None:
        e = e.told(phase.outcome)
    if phase.remark:
        e = replace(e, outcome=f"{e.outcome} {phase.remark}".strip())
    if phase.state in (E.STARTED, E.CANCELLING, E.CANCELLED):
        spared = tuple(spare(p, now) if in_its_run(p, snapshot) or unanswered(p) else p for p in e.preemptions)
        e = replace(e, preemptions=spared)
    return replace(
        e,
        started_at=phase.started_at or e.started_at,
        finished_at=now if phase.state.terminal else e.finished_at,
        late=phase.late or e.late,
    )


def with_plan(e: O, plan: OperationPlan, now: datetime) -> O:
    """The operation with another plan for its rest; what already left is kept."""
    kept = {p.job_id: p for p in e.preemptions}
    for p in planned_preemptions(plan, now):
        old = kept.get(p.job_id)
        if old is None:
            kept[p.job_id] = p
        elif old.state is P.SPARED or (old.action is not p.action and old.state.cancellable):
            _check(f"job {p.job_id}", PREEMPTIONS, old.state, p.state)
            unsaved = old.state is P.CHECKPOINTING and p.action is Action.KILL
            asked = unsaved or unanswered(old)
            # A save may have ended its program: what it has lost is told by how it was before.
            kept[p.job_id] = replace(p, asked_at=old.asked_at if asked else None, job=old.job if unsaved else p.job)
    wanted = {planned.job_id for planned in plan.chosen.actions}
    preemptions = tuple(p if p.job_id in wanted else spare(p, now, "another plan was made") for p in kept.values())
    if e.state is not E.PREEMPTING:
        e = replace(entered(e, E.PREEMPTING, now), state_since=e.state_since)
    return replace(e, plan=plan, preemptions=preemptions, revision=e.revision + 1)


def times(p: Preemption, step: Step, snapshot: ClusterSnapshot, now: datetime) -> dict[str, Any]:
    state = step.state
    if step.void:
        return times(p, replace(step, void=False), snapshot, now) | {"requeued_at": None, "actual_lost_node_s": None}
    if state is P.CHECKPOINTING:
        return {"asked_at": now}
    if state is P.VACATING:
        return _leaving(p, step, snapshot, now)
    if state is P.VACATED:
        itself = p.state is P.VACATING and unanswered(p) and not p.attempts  # ... has requeued itself
        left = _leaving(p, step, snapshot, now) if itself else {}
        waits_until = p.waits_until or _waits_until(p, snapshot, now)
        return left | {"vacated_at": p.vacated_at or now, "waits_until": waits_until}
    if state is P.SUSPENDED:
        return {"vacated_at": now}
    if state is P.RETURNED:
        return {"vacated_at": p.vacated_at or now, "returned_at": now}
    if state is P.ENDED and p.action is Action.END:
        return {"vacated_at": now, "actual_lost_node_s": 0.0}
    return {}


def _leaving(p: Preemption, step: Step, snapshot: ClusterSnapshot, now: datetime) -> dict[str, Any]:
    changes: dict[str, Any] = {"requeued_at": now, "actual_lost_node_s": 0.0}
    if p.action is Action.SUSPEND:
        return changes
    if p.action in CHECKPOINTS and step.command is None and p.asked_at is not None:
        # It requeued itself after it was asked: that is its word that it has saved itself.
        return changes | {"checkpointed_at": now, "actual_checkpoint_s": (now - p.asked_at).total_seconds()}
    over = has_had_its_time(p.job, p.asked_at, now)
    if p.asked_at is not None and (over or step.command is Command.RUN_AGAIN):
        took_s = (now - p.asked_at).total_seconds()
        repeats_s = took_s if step.command is Command.REQUEUE else 0.0  # what it has done since it was asked
        lost_node_s = repeats_s * max(1, p.job.num_nodes)
        return changes | {"checkpointed_at": now, "actual_checkpoint_s": took_s, "actual_lost_node_s": lost_node_s}
    seen = snapshot.job_by_id.get(p.job_id, p.job)
    claims, _ = read_claims(seen, p.job)
    saved = last_checkpoint(claims, p.job.start_time or p.job.submit_time, now)
    changes["actual_lost_node_s"] = unsaved_s(seen, saved, now) * max(1, p.job.num_nodes)
    if p.asked_at is not None and saved >= p.asked_at.replace(microsecond=0):
        changes |= {"checkpointed_at": saved, "actual_checkpoint_s": max(0.0, (saved - p.asked_at).total_seconds())}
    return changes


def _waits_until(p: Preemption, snapshot: ClusterSnapshot, now: datetime) -> datetime | None:
    """When Slurm lets a job start that was just requeued; one that waits for long was told so by its owner."""
    seen = snapshot.job_by_id.get(p.job_id)
    until = None if seen is None else seen.eligible_time
    return until if until is not None and until - now < _SLURMS_WAIT else None


def with_intent(p: Preemption, step: Step, seen: Job | None) -> Preemption:
    """What has to be known of a command before it is given: until Slurm answers it may have been carried out."""
    if step.command in REQUEUING and p.answer is not Answer.TAKEN:
        return replace(p, answer=Answer.OPEN)
    if step.command is Command.FIRST_IN_QUEUE and seen is not None:
        return replace(p, nice_before=seen.nice, nice_given=first_nice(seen))
    return p


def with_answer(before: Preemption, p: Preemption, command: Command | None, result: str) -> Preemption:
    """After Slurm's answer. A refusal tells only of its own command, not of one before whose answer was lost."""
    if command not in REQUEUING:
        return p
    if result == "ok":
        return replace(p, answer=Answer.TAKEN)
    unasked = before.answer in (None, Answer.REFUSED)
    return replace(p, answer=Answer.REFUSED) if result == "refused" and unasked else p


def spare(p: Preemption, now: datetime, why: str = "no longer needed") -> Preemption:
    if not p.state.cancellable:
        return p
    if unanswered(p):  # it may end at any moment: it leaves all the same, to run again
        note = "it was asked to save itself and may end by that, so it is run again"
        return preemption_entered(p, P.VACATING, now, attempted_at=None, attempts=0, requeued_at=now, note=note)
    return preemption_entered(p, P.SPARED, now, note=why)


def in_its_run(p: Preemption, snapshot: ClusterSnapshot | None) -> bool:
    seen = snapshot.job_by_id.get(p.job_id) if snapshot else p.job
    return seen is not None and seen.run == p.job.run and seen.state.holds_nodes


def with_preemption(e: O, index: int, p: Preemption) -> O:
    return replace(e, preemptions=(*e.preemptions[:index], p, *e.preemptions[index + 1 :]))


def _boots(node: Node, e: Eviction, now: datetime) -> bool:
    if node.boot_s is None:
        return False
    return node.name in e.plan.free_nodes or now + timedelta(seconds=node.boot_s) <= e.plan.deadline


def lost_nodes(e: Eviction, snapshot: ClusterSnapshot, others: Iterable[Operation]) -> dict[str, str]:
    """Placement nodes that will not become free: they failed, or a job is on them that leaves for nothing else."""
    leaving = {p.job_id for p in e.preemptions if p.state is not P.SPARED}
    expected = {*leaving, *e.plan.staying, e.preemptor.job_id}
    lost: dict[str, str] = {}
    for name in e.plan.placement_nodes:
        if why := _why_lost(snapshot.node_by_name.get(name), e, snapshot):
            lost[name] = why
        foreign = (job for job in snapshot.jobs_on.get(name, ()) if job.job_id not in expected)
        lost |= {job.job_id: f"it holds node {name}" for job in foreign if _stays_on(job, e)}
    promised = frozenset[str]().union(*(other.promised_jobs for other in others)) if lost else frozenset[str]()
    return {what: why for what, why in lost.items() if what not in promised}


def _why_lost(node: Node | None, e: Eviction, snapshot: ClusterSnapshot) -> str:
    if node is None or not (node.available or _boots(node, e, snapshot.taken_at)):
        return "the node is not available any more"
    job, partition = snapshot.job_by_id.get(e.preemptor.job_id, e.preemptor), e.plan.partition
    unsuited = partition and not suits(node, job, partition)
    return f"the node does not suit it any more in partition {partition}" if unsuited else ""


def moved_ends(e: Operation, snapshot: ClusterSnapshot, execution: ExecutionConfig, now: datetime) -> dict[str, str]:
    """Jobs that were to end by themselves and will not do so when it was counted on, and why.

    Their limits were extended, they stood suspended, Slurm lets them run on, or they take longer than jobs like them.
    """
    at_plan = {job.job_id: job for job in e.plan.leaving}
    counted = {each.job_id: each.ready_s for each in e.plan.chosen.actions if each.action is Action.END}
    ending = [p.job_id for p in e.preemptions if p.state is P.PLANNED and p.job_id in counted]
    latest, moved = latest_of(e, execution), dict[str, str]()
    for job_id in ending:
        seen, before = snapshot.job_by_id.get(job_id), at_plan.get(job_id)
        if seen is None or before is None or seen.state is not JobState.RUNNING or seen.run != before.run:
            continue  # the table of its steps knows what follows
        promised = e.plan.made_at + timedelta(seconds=counted[job_id])
        if why := _why_moved(before, seen, promised, latest, now):
            moved[job_id] = why
    return moved


def _why_moved(before: Job, seen: Job, promised: datetime, latest: datetime, now: datetime) -> str:
    due = promised
    if _surely_over(before) <= latest:  # else it was counted on by what earlier runs took
        due = max(due, _surely_over(seen))
    if due > latest and _surely_over(seen) > latest:
        return f"its own end was moved to {'never' if seen.ends_by is None else _moment(seen.ends_by)}"
    return "it did not end when it was to" if now > due else ""


def _surely_over(job: Job) -> datetime:
    end = job.ends_by
    return _NEVER if end is None else end + timedelta(seconds=TIME_LIMIT_SLACK_S)


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _stays_on(job: Job, e: Eviction) -> bool:
    inside = job.reservation == e.placement and e.is_for(job)
    return not inside and job.state is not JobState.COMPLETING
