"""What a step changes in the records: times, actual costs, spared jobs, lost nodes. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from clearway.config.configuration import Mode
from clearway.execution.job_lifecycle import Step
from clearway.model.claims import last_checkpoint, read_claims
from clearway.model.cluster import ClusterSnapshot, JobState, Node
from clearway.model.operations import CHECKPOINTS, Eviction, EvictionState, Operation, Preemption, PreemptionState
from clearway.model.outcome import Outcome
from clearway.model.plan import OperationPlan
from clearway.model.problem import Action
from clearway.model.transitions import O, entered, planned_again, preemption_entered

# What an operation begins with that no operator asked for.
FIRST_STATE = {
    Mode.OBSERVE: EvictionState.PROPOSED,
    Mode.APPROVE: EvictionState.AWAITING_APPROVAL,
    Mode.AUTOMATIC: EvictionState.PLACING,
}


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
    state: EvictionState,
    now: datetime,
    *,
    eviction_id: int = 0,
    outcome: Outcome | None = None,
) -> O:
    """The operation of a fresh plan, of which nothing is done yet."""
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


def with_plan(e: O, plan: OperationPlan, now: datetime) -> O:
    """The operation with another plan for its rest; what already left is kept."""
    kept = {p.job_id: p for p in e.preemptions}
    for p in planned_preemptions(plan, now):
        old = kept.get(p.job_id)
        if old is None:
            kept[p.job_id] = p
        elif old.state is PreemptionState.SPARED or (old.action is not p.action and old.state.cancellable):
            kept[p.job_id] = planned_again(old, p)
    wanted = {planned.job_id for planned in plan.chosen.actions}
    preemptions = tuple(p if p.job_id in wanted else spare(p, now, "another plan was made") for p in kept.values())
    if e.state is not EvictionState.PREEMPTING:
        e = replace(entered(e, EvictionState.PREEMPTING, now), state_since=e.state_since)
    return replace(e, plan=plan, preemptions=preemptions, revision=e.revision + 1)


def times(p: Preemption, step: Step, snapshot: ClusterSnapshot, now: datetime) -> dict[str, object]:
    """What entering a state means for the preemption's times and its actual costs."""
    state = step.state
    if state is PreemptionState.CHECKPOINTING:
        return {"asked_at": now}
    if state is PreemptionState.VACATING:
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
    if state in (PreemptionState.VACATED, PreemptionState.SUSPENDED):
        return {"vacated_at": now}
    if state is PreemptionState.RETURNED:
        return {"vacated_at": p.vacated_at or now, "returned_at": now}
    if state is PreemptionState.ENDED and p.action is Action.END:
        return {"vacated_at": now, "actual_lost_node_s": 0.0}
    return {}


def spare(p: Preemption, now: datetime, why: str = "no longer needed") -> Preemption:
    if not p.state.cancellable:
        return p
    return preemption_entered(p, PreemptionState.SPARED, now, note=why)


def in_its_run(p: Preemption, snapshot: ClusterSnapshot | None) -> bool:
    """Whether a job is still where it was chosen; one that has gone by itself was not spared."""
    seen = snapshot.job_by_id.get(p.job_id) if snapshot else p.job
    return seen is not None and seen.run == p.job.run and seen.state.holds_nodes


def with_preemption(e: O, index: int, p: Preemption) -> O:
    return replace(e, preemptions=(*e.preemptions[:index], p, *e.preemptions[index + 1 :]))


def _boots(node: Node, e: Eviction, now: datetime) -> bool:
    """Whether a node that is switched off is as planned, or would be up in time all the same."""
    if node.boot_s is None:
        return False
    return node.name in e.plan.free_nodes or now + timedelta(seconds=node.boot_s) <= e.plan.deadline


def lost_nodes(e: Eviction, snapshot: ClusterSnapshot, others: Iterable[Operation]) -> dict[str, str]:
    """Placement nodes that will not become free by this plan: they failed, or a foreign job is on them.

    A job that leaves for one of the ``others`` under way is none: its nodes may be shared out among several evictions.
    """
    leaving = {p.job_id for p in e.preemptions if p.state is not PreemptionState.SPARED}
    expected = {*leaving, *e.plan.staying, e.preemptor.job_id}
    lost: dict[str, str] = {}
    for name in e.plan.placement_nodes:
        node = snapshot.node_by_name.get(name)
        if node is None or not (node.available or _boots(node, e, snapshot.taken_at)):
            lost[name] = "the node is not available any more"
        for job in snapshot.jobs_on.get(name, ()):
            inside = job.reservation == e.placement and e.is_for(job)
            if job.job_id not in expected and not inside and job.state is not JobState.COMPLETING:
                lost[job.job_id] = f"it holds node {name}"
    if lost:
        for other in others:
            lost = {what: why for what, why in lost.items() if what not in other.promised_jobs}
    return lost
