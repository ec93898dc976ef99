"""The state machines as data, and what a step changes in the records: times, costs, spared jobs, lost nodes. Pure.
Every state is entered through here: a step that no table has is refused. The lifecycles decide when. The diagrams of
docs/explanation/architecture.md are made from these tables.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

from clearway.config.configuration import Mode
from clearway.execution.job_lifecycle import Command, Step
from clearway.execution.lifecycle import Phase, placement_name
from clearway.model.claims import last_checkpoint, read_claims
from clearway.model.cluster import ClusterSnapshot, Job, JobState, Node
from clearway.model.errors import TransitionError
from clearway.model.operations import CHECKPOINTS, Eviction, O, Operation, OperationKind, Preemption
from clearway.model.operations import EvictionState as E
from clearway.model.operations import PreemptionState as P
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.model.plan import OperationPlan
from clearway.model.problem import Action

S = TypeVar("S", bound=StrEnum)
Table = Mapping[S, Mapping[S, str]]  # from, to, why

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
    P.VACATED: {P.QUEUED: "may start again", P.RETURNED: "runs again", P.ENDED: "over", P.FAILED: "held in the queue"},
    P.QUEUED: {P.RETURNED: "runs again", P.ENDED: "over", P.FAILED: "held in the queue"},
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
    jobs = {job.job_id: job for job in plan.leaving}
    return tuple(
        Preemption(
            job=jobs[planned.job_id],
            action=planned.action,
            reason=reasons.get(planned.job_id, ""),
            predicted_lost_node_s=planned.lost_work_node_s,
            predicted_checkpoint_s=float(planned.checkpoint_s),
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
        spared = tuple(spare(p, now) if in_its_run(p, snapshot) else p for p in e.preemptions)
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
            kept[p.job_id] = p
    wanted = {planned.job_id for planned in plan.chosen.actions}
    preemptions = tuple(p if p.job_id in wanted else spare(p, now, "another plan was made") for p in kept.values())
    if e.state is not E.PREEMPTING:
        e = replace(entered(e, E.PREEMPTING, now), state_since=e.state_since)
    return replace(e, plan=plan, preemptions=preemptions, revision=e.revision + 1)


def times(p: Preemption, step: Step, snapshot: ClusterSnapshot, now: datetime) -> dict[str, object]:
    state = step.state
    if state is P.CHECKPOINTING:
        return {"asked_at": now}
    if state is P.VACATING:
        changes: dict[str, object] = {"requeued_at": now, "actual_lost_node_s": 0.0}
        if p.action is Action.SUSPEND:
            return changes
        if p.action in CHECKPOINTS and step.command is None and p.asked_at is not None:
            # It requeued itself after it was asked: that is its word that it has saved itself.
            return changes | {"checkpointed_at": now, "actual_checkpoint_s": (now - p.asked_at).total_seconds()}
        claims, _ = read_claims(snapshot.job_by_id.get(p.job_id, p.job), p.job)
        saved = last_checkpoint(claims, p.job.start_time or p.job.submit_time, now)
        changes["actual_lost_node_s"] = max(0.0, (now - saved).total_seconds()) * max(1, p.job.num_nodes)
        if p.asked_at is not None and saved >= p.asked_at.replace(microsecond=0):
            changes |= {"checkpointed_at": saved, "actual_checkpoint_s": max(0.0, (saved - p.asked_at).total_seconds())}
        return changes
    if state in (P.VACATED, P.SUSPENDED):
        return {"vacated_at": now}
    if state is P.RETURNED:
        return {"vacated_at": p.vacated_at or now, "returned_at": now}
    if state is P.ENDED and p.action is Action.END:
        return {"vacated_at": now, "actual_lost_node_s": 0.0}
    return {}


def spare(p: Preemption, now: datetime, why: str = "no longer needed") -> Preemption:
    if not p.state.cancellable:
        return p
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
        node = snapshot.node_by_name.get(name)
        if node is None or not (node.available or _boots(node, e, snapshot.taken_at)):
            lost[name] = "the node is not available any more"
        foreign = (job for job in snapshot.jobs_on.get(name, ()) if job.job_id not in expected)
        lost |= {job.job_id: f"it holds node {name}" for job in foreign if _stays_on(job, e)}
    promised = frozenset[str]().union(*(other.promised_jobs for other in others)) if lost else frozenset[str]()
    return {what: why for what, why in lost.items() if what not in promised}


def _stays_on(job: Job, e: Eviction) -> bool:
    inside = job.reservation == e.placement and e.is_for(job)
    return not inside and job.state is not JobState.COMPLETING
