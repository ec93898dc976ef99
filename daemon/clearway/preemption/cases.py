"""What is kept of urgent jobs for the report, from plans and snapshots. Pure.

A case begins with the first plan for an urgent job and keeps that plan. Later proposals for the same job do not change
it: a daemon that acts would have acted on the first one. A plan that is carried out takes its place. The case is
followed until the job has started or left the queue, the operation is over, and the jobs of the plan have left or
``SOON`` has passed.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from clearway.model.cluster import ClusterSnapshot, JobState
from clearway.model.operations import Eviction, EvictionState, Preemption, PreemptionState
from clearway.model.problem import Action
from clearway.model.urgent_report import Case, CaseJob

SOON = timedelta(hours=1)  # a job that ends so soon after it would have left "ended soon anyway"
MOST_JOBS = 200  # kept of a case; of more their number and loss

_UNDONE = (EvictionState.CANCELLING, EvictionState.CANCELLED, EvictionState.FAILED)
_NOT_CARRIED_OUT = (EvictionState.PROPOSED, EvictionState.AWAITING_APPROVAL, EvictionState.SUPERSEDED)


def acted(e: Eviction) -> bool:
    """Whether Clearway has begun to carry it out: it has had a placement."""
    return e.state not in _NOT_CARRIED_OUT and bool(e.placement)


def case_of(e: Eviction, before: Case | None = None) -> Case:
    """The case of this plan; ``before``: what is known of the urgent job so far."""
    plan, job = e.plan, e.preemptor
    listed, rest = e.preemptions[:MOST_JOBS], e.preemptions[MOST_JOBS:]
    known = {each.job_id: each.left_at for each in before.jobs} if before is not None else {}
    same = before is not None and before.eviction_id == e.eviction_id
    begun = acted(e) or (same and before is not None and before.acted)
    case = Case(
        job_id=job.job_id,
        began_at=e.created_at,
        display_id=job.display_id,
        user=job.user,
        submitted_at=job.submit_time,
        num_nodes=plan.nodes_needed,
        eviction_id=e.eviction_id,
        mode=e.mode,
        planned_at=plan.made_at,
        deadline=plan.deadline,
        expected_start=plan.made_at + timedelta(seconds=plan.chosen.max_delay_s),
        nodes=plan.placement_nodes,
        jobs=tuple(_job(p, known.get(p.job_id)) for p in listed),
        unlisted=len(rest),
        unlisted_node_s=sum(_loss(p, begun=begun) for p in rest),
        acted=begun,
        called_off=begun and e.started_at is None and e.state in _UNDONE,
        over=e.state.terminal,
        outcome=e.outcome,
        started_at=e.started_at,
    )
    if before is None:
        return case
    return replace(
        case,
        began_at=before.began_at,
        beside=before.beside if same and before.acted else None,
        started_at=case.started_at or before.started_at,
        gone_at=before.gone_at,
    )


def followed(case: Case, snapshot: ClusterSnapshot, now: datetime, *, planned: bool = False) -> Case:
    """The case after this snapshot; one that shows less than there is (``unreadable``) proves no end.

    ``planned``: there is an open plan for the urgent job, so that the case is not closed.
    """
    seen = snapshot.job_by_id.get(case.job_id)
    if case.started_at is None and seen is not None and seen.state is not JobState.PENDING and seen.nodes:
        case = replace(case, started_at=seen.start_time, gone_at=None)
    if snapshot.unreadable:
        return case
    pending = seen is not None and seen.state is JobState.PENDING
    if case.started_at is None and case.gone_at is None and not pending:
        case = replace(case, gone_at=now)
    if any(each.left_at is None for each in case.jobs):
        case = replace(
            case,
            jobs=tuple(
                replace(each, left_at=snapshot.taken_at)
                if each.left_at is None and not _is_there(each, snapshot)
                else each
                for each in case.jobs
            ),
        )
    return replace(case, closed_at=now) if not planned and _at_its_end(case, now) else case


def _is_there(job: CaseJob, snapshot: ClusterSnapshot) -> bool:
    """Whether it still holds nodes, in the run that was preempted."""
    seen = snapshot.job_by_id.get(job.job_id)
    return seen is not None and seen.state.holds_nodes and seen.start_time == job.started_at


def _at_its_end(case: Case, now: datetime) -> bool:
    ended = case.started_at or case.gone_at
    if ended is None or (case.acted and not case.over):
        return False
    return all(each.left_at for each in case.jobs) or now >= max(ended, case.expected_start) + SOON


def _job(p: Preemption, left_at: datetime | None) -> CaseJob:
    return CaseJob(
        job_id=p.job_id,
        display_id=p.job.display_id,
        user=p.job.user,
        num_nodes=p.job.num_nodes,
        nodes=p.job.nodes,
        action=p.action,
        started_at=p.job.start_time,
        predicted_lost_node_s=p.predicted_lost_node_s,
        predicted_checkpoint_s=p.predicted_checkpoint_s,
        left_at=p.vacated_at or left_at,
        preempted=_preempted(p),
        actual_lost_node_s=p.actual_lost_node_s,
        actual_checkpoint_s=p.actual_checkpoint_s,
    )


def _preempted(p: Preemption) -> bool:
    return p.requeued_at is not None and p.action is not Action.END and p.state is not PreemptionState.SPARED


def _loss(p: Preemption, *, begun: bool) -> float:
    if not begun:
        return p.predicted_lost_node_s
    return (p.actual_lost_node_s or 0.0) if _preempted(p) else 0.0
