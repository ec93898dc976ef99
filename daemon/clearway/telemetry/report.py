"""Urgent jobs in retrospect: what is kept of each, from plans and snapshots, and the report that is made of it.

A case begins with the first plan for an urgent job and keeps that plan. Later proposals for the same job do not change
it: a daemon that acts would have acted on the first one. A plan that is carried out takes its place. The case is
followed until the job has started or left the queue, the operation is over, and the jobs of the plan have left or
``SOON`` has passed. It is written only where it has changed.

The report tells what Clearway did or would have done, beside what happened and Slurm's own rule. What would have
happened is told no further than the first plan goes: when the urgent job would have started, and what the jobs of that
plan would have lost. An urgent job that starts at another time changes all that starts after it; of this nothing is
said (docs/decisions/0074).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from clearway.estimates.checkpoint_load import approval_s
from clearway.execution.cycle_context import CycleContext
from clearway.execution.open_operations import OpenOperations
from clearway.model.cluster import ClusterSnapshot, Job, JobState, Submission
from clearway.model.operations import Eviction, EvictionState, Preemption, PreemptionState
from clearway.model.problem import Action
from clearway.model.records import Beside, Case, CaseJob
from clearway.planning.rules import SLURM_DEFAULT
from clearway.store.repository import Store

SOON = timedelta(hours=1)  # a job that ends so soon after it would have left "ended soon anyway"
MOST_JOBS = 200  # kept of a case; of more their number and loss
MOST_OPEN = 1_000  # cases that are followed at a time; beyond them none is begun
_ASKED_EVERY = timedelta(seconds=10)
_EXPLAINED_WITHIN = timedelta(hours=2)  # of older plans no explanation is to come

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
        restarts=job.restart_count,
        num_nodes=plan.nodes_needed,
        eviction_id=e.eviction_id,
        mode=e.mode,
        planned_at=plan.made_at,
        begins_in_s=plan.begins_in_s,
        deadline=plan.deadline,
        expected_start=plan.free_at,
        nodes=plan.placement_nodes,
        jobs=tuple(_case_job(p, known.get(p.job_id)) for p in listed),
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
    """The case after this snapshot; an ``unreadable`` one proves no end, and what is ``planned`` is not closed."""
    seen = _job_of(case, snapshot)
    pending = seen is not None and seen.state is JobState.PENDING
    if case.started_at is None and seen is not None and not pending and seen.nodes:
        case = replace(case, started_at=seen.start_time, gone_at=None)
    if snapshot.unreadable:
        return case
    if case.started_at is None and case.gone_at is None and not pending:
        case = replace(case, gone_at=now)
    if any(each.left_at is None for each in case.jobs):
        case = replace(case, jobs=tuple(_seen(each, snapshot) for each in case.jobs))
    return replace(case, closed_at=now) if not planned and _at_its_end(case, now) else case


def _job_of(case: Case, snapshot: ClusterSnapshot) -> Job | None:
    """None as well where another job has its id."""
    another = snapshot.is_another(case.job_id, submission_of(case))
    return None if another else snapshot.job_by_id.get(case.job_id)


def _is_another_case(before: Case, newest: Eviction) -> bool:
    another = newest.eviction_id != before.eviction_id and before.acted and before.over
    return another or not submission_of(before).leads_to(newest.preemptor.submission)


def submission_of(case: Case) -> Submission:
    return Submission(case.user, case.submitted_at, case.restarts)


def _seen(job: CaseJob, snapshot: ClusterSnapshot) -> CaseJob:
    """It stays while it still holds nodes, in the run that was preempted."""
    seen = snapshot.job_by_id.get(job.job_id)
    there = seen is not None and seen.state.holds_nodes and seen.start_time == job.started_at
    return job if there or job.left_at is not None else replace(job, left_at=snapshot.taken_at)


def _at_its_end(case: Case, now: datetime) -> bool:
    ended = case.started_at or case.gone_at
    if ended is None or (case.acted and not case.over):
        return False
    return all(each.left_at for each in case.jobs) or now >= max(ended, case.expected_start) + SOON


def _case_job(p: Preemption, left_at: datetime | None) -> CaseJob:
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


@dataclass(slots=True)
class CaseKeeper:
    """What it remembers may be lost: open cases are read again, and what was planned since begins a case then."""

    store: Store
    operations: OpenOperations
    _open: dict[str, Case] | None = field(default=None, init=False)  # by job id; None: to be read
    _asked_at: datetime | None = field(default=None, init=False)

    def forget(self) -> None:
        """Another daemon may write now."""
        self._open = None

    def follow(self, context: CycleContext) -> None:
        known, now = self._known(), context.now
        ask = self._asked_at is None or not timedelta(0) <= now - self._asked_at < _ASKED_EVERY
        if ask:
            self._asked_at = now
        self._begin(known, context)
        evictions = self.operations.by_preemptor()
        after: list[tuple[Case, Case]] = []
        for before in tuple(known.values()):
            newest = evictions.get(before.job_id)
            if newest is not None and _is_another_case(before, newest):
                self._keep(replace(before, closed_at=now))  # the next cycle begins another one, beside its losses
                continue
            case = self._planned(before, newest)
            after.append((before, followed(case, context.snapshot, now, planned=newest is not None)))
        besides = self._besides((case for _, case in after if ask or case.closed_at), context)
        for before, case in after:
            compared = replace(case, beside=case.beside or besides.get(case.eviction_id))
            if compared != before:
                self._keep(compared)

    def _known(self) -> dict[str, Case]:
        if self._open is None:
            self._open = {case.job_id: case for case in self.store.open_cases()}
        return self._open

    def _begin(self, known: Mapping[str, Case], context: CycleContext) -> None:
        for e in self.operations.all():
            if isinstance(e, Eviction) and not e.plan.ordinary and e.preemptor.job_id not in known:
                if context.database_full or len(known) >= MOST_OPEN:
                    return
                self._keep(case_of(e))

    def _planned(self, case: Case, newest: Eviction | None) -> Case:
        """With what is carried out for it."""
        if newest is not None and acted(newest):
            return case_of(newest, case)
        if case.acted and not case.over:
            known = self.operations.find(case.eviction_id)
            return case_of(known, case) if isinstance(known, Eviction) else replace(case, over=True)
        return case

    def _besides(self, cases: Iterable[Case], context: CycleContext) -> dict[int, Beside]:
        """By eviction, of those that are known now. A problem counts what passes until a plan is begun."""
        now, execution = context.now, context.config.execution
        wanted = {
            case.eviction_id: case.planned_at + timedelta(seconds=case.begins_in_s + approval_s(case.mode, execution))
            for case in cases
            if case.beside is None and (case.closed_at or now - case.planned_at < _EXPLAINED_WITHIN)
        }
        explained = self.store.explanations(set(wanted)) if wanted else {}
        return {
            eviction_id: Beside(
                None if rule.cost is None else rule.cost.lost_work_node_s, wanted[eviction_id], rule.unsaved_nodes
            )
            for eviction_id, found in explained.items()
            for rule in found.rules
            if rule.rule == SLURM_DEFAULT.name
        }

    def _keep(self, case: Case) -> None:
        self.store.keep_case(case)
        if case.closed_at is None:
            self._known()[case.job_id] = case
        else:
            self._known().pop(case.job_id, None)
