"""From what the daemon last saw, and what its database holds, to the answers about a job. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from clearway.api import job_schemas as j
from clearway.api import views
from clearway.api.job_parts import Part, doing
from clearway.api.plan_schemas import VerdictView
from clearway.api.schemas import PreemptorView
from clearway.api.sight import Own
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.saving import IfUrgent, SavingWay, if_urgent, saving
from clearway.eligibility.urgent import matching_rule
from clearway.estimates.costs import lost_work_node_s
from clearway.estimates.learning import runs_again
from clearway.model.claims import read_claims
from clearway.model.cluster import ClusterSnapshot, Job, JobState
from clearway.model.involvement import Involvement
from clearway.model.operations import OperationKind
from clearway.model.plan import Choice, Explanation, node_hours
from clearway.model.report import CycleReport, Waiting
from clearway.model.save_test import SaveTest


@dataclass(frozen=True, slots=True)
class Known:
    """A job and what the newest cycle makes of it; ``parts`` are those that the asker may see, newest first."""

    job: Job
    parts: tuple[tuple[Part, Own], ...] = ()
    waiting: Waiting | None = None
    why: str = ""  # of ``waiting``, as the asker may be told


def find(job: str, snapshot: ClusterSnapshot) -> Job | None:
    """A job by either form of its id. A waiting array is one record, which is found by the id of each task as well."""
    if (found := snapshot.job_by_id.get(job)) is not None:
        return found
    array = job.partition("_")[0] if "_" in job else None
    folded = None
    for each in snapshot.jobs:
        if each.display_id == job:
            return each
        if array is not None and each.array_job_id == array and each.state is JobState.PENDING:
            folded = each if each.array_task_id is None else folded
    return folded


def row(known: Known, context: PlanningContext) -> j.JobRow:
    job = known.job
    runs = job.state is JobState.RUNNING
    lost_node_s = lost_work_node_s(job, read_claims(job)[0], context.now) if runs else None
    found = saving(job, context)
    return j.JobRow(
        **_of_job(job),
        state=job.state,
        way=found.way,
        can_be_saved=found.possible,
        would_lose_node_s=lost_node_s,
        **_now(known, context),
    )


def _of_job(job: Job) -> dict[str, object]:
    return {
        "job_id": job.job_id,
        "display_id": job.display_id,
        "user": job.user,
        "name": job.name,
        "partitions": job.partitions,
        "nodes": job.num_nodes,
        "started_at": job.start_time if job.state.holds_nodes else None,
    }


def _now(known: Known, context: PlanningContext) -> dict[str, object]:
    part, own = known.parts[0] if known.parts else (None, None)
    sentence = ""
    if known.why:
        sentence = known.why[:1].upper() + known.why[1:].rstrip(".") + "."
    elif part is not None and own is not None:
        sentence = own.told(doing(part))
    elif known.job.state is JobState.RUNNING and matching_rule(known.job, context.config.preemptors):
        sentence = "It is an urgent job, so it is never preempted."
    return {
        "eviction_id": None if part is None else part.operation.eviction_id,
        "role": None if part is None else part.role,
        "doing": sentence,
    }


def job_view(
    known: Known,
    report: CycleReport,
    context: PlanningContext,
    operations: Sequence[j.JobOperationView],
    tests: Sequence[SaveTest],
    next_offset: int | None,
) -> j.JobView:
    """Of a job that is in the queue."""
    job, rules = known.job, context.config.preemptors
    rule = matching_rule(job, rules)
    found, urgent = saving(job, context), if_urgent(job, context)
    return j.JobView(
        **row(known, context).model_dump(),
        taken_at=report.snapshot.taken_at,
        account=job.account,
        qos=job.qos,
        node_names=job.nodes,
        time_limit_s=job.time_limit_s,
        restarts=job.restart_count,
        urgent="" if rule is None else rule.name or f"rule {rules.index(rule) + 1}",
        waiting=None if known.waiting is None else _waiting(known, known.waiting, report),
        saving=views.view(j.SavingView, found),
        if_urgent=None if urgent is None else _if_urgent_view(urgent),
        tests=tuple(views.view(j.SaveTestView, each, job_id=each.job.job_id) for each in tests),
        operations=tuple(operations),
        next_offset=next_offset,
    )


def _waiting(known: Known, waiting: Waiting, report: CycleReport) -> PreemptorView:
    return views.preemptor_view(waiting, report).model_copy(update={"why": known.why})


def gone_view(
    job: str,
    involved: Sequence[Involvement],
    report: CycleReport,
    operations: Sequence[j.JobOperationView],
    tests: Sequence[SaveTest],
    next_offset: int | None,
) -> j.JobView:
    """Of a job that is no longer in the queue, as its operations remember it."""
    seen = next((each.preemption.job for each in involved if each.preemption is not None), None)
    seen = seen or next((each.job for each in tests), None)
    if seen is not None:
        own = _of_job(seen) | {"started_at": None}
    else:
        subject = involved[0].subject
        own = {"job_id": subject.job_id, "display_id": subject.display_id, "user": subject.user, "name": ""}
        own |= {"partitions": (), "nodes": 0, "started_at": None}
    unread = report.snapshot.hides(job)
    return j.JobView(
        **own,
        state=None,
        way=SavingWay.NOTHING,
        can_be_saved=False,
        would_lose_node_s=None,
        eviction_id=None,
        role=None,
        doing="Slurm's record of it cannot be read just now." if unread else "",
        taken_at=report.snapshot.taken_at,
        account="" if seen is None else seen.account,
        qos="" if seen is None else seen.qos,
        node_names="",
        time_limit_s=None if seen is None else seen.time_limit_s,
        restarts=0 if seen is None else seen.restart_count,
        urgent="",
        waiting=None,
        saving=None,
        if_urgent=None,
        tests=tuple(views.view(j.SaveTestView, each, job_id=each.job.job_id) for each in tests),
        operations=tuple(operations),
        next_offset=next_offset,
    )


def _if_urgent_view(found: IfUrgent) -> j.IfUrgentView:
    return views.view(j.IfUrgentView, found, ways=tuple(views.view(j.WayView, way) for way in found.ways))


def operation_of(
    involved: Involvement, part: Part | None, own: Own, explanation: Explanation | None, context: PlanningContext
) -> j.JobOperationView:
    """One that serves the job or that it leaves for; ``part``: as the newest cycle has it, while it is open."""
    p, subject = involved.preemption, involved.subject
    serves = involved.kind is OperationKind.EVICTION
    until = None if part is None else part.operation.runs_until
    at, why = (None, "") if p is None else runs_again(p, until, context.history, context.now)
    verdict = None if part is None else part.verdict
    return views.view(
        j.JobOperationView,
        involved,
        role=j.JobRole.PREEMPTOR if p is None else j.JobRole.PREEMPTEE,
        outcome=own.told(involved.outcome),
        for_job_id=subject.job_id if serves else None,
        for_display_id=subject.display_id if serves else None,
        for_user=subject.user,
        nodes=() if part is None else part.nodes,
        preemption=None if p is None else own.preemption(views.preemption_view(p)),
        verdict=None if verdict is None else _verdict(part, own),
        sparing=None if p is None or not serves else _sparing(p.job_id, explanation),
        runs_again_at=at,
        runs_again_why=why,
    )


def operation_in(part: Part, own: Own, explanation: Explanation | None) -> j.JobOperationView:
    """An open one in which the job stays: it was a candidate, or is on a node that is emptied."""
    operation = part.operation
    serves = operation.kind is OperationKind.EVICTION
    return views.view(
        j.JobOperationView,
        operation,
        role=part.role,
        deadline=operation.plan.deadline,
        outcome=own.told(operation.outcome),
        rule=getattr(operation.plan, "rule", ""),
        for_job_id=operation.subject.job_id if serves else None,
        for_display_id=operation.subject.display_id if serves else None,
        for_user=operation.subject.user,
        nodes=part.nodes,
        preemption=None,
        verdict=_verdict(part, own),
        sparing=None if part.verdict is None or not serves else _sparing(part.verdict.job_id, explanation),
        runs_again_at=None,
        runs_again_why="",
    )


def _verdict(part: Part | None, own: Own) -> VerdictView | None:
    if part is None or part.verdict is None:
        return None
    told = views.view(VerdictView, part.verdict)
    return told.model_copy(update={"reason": own.told(told.reason)})


def _sparing(job_id: str, explanation: Explanation | None) -> j.SparingView:
    found = None
    if explanation is not None:
        found = next((each for each in explanation.alternatives if each.job_id == job_id), None)
    if found is None or explanation is None or not found.known:
        return j.SparingView(known=False, possible=False, more_lost_work_node_s=None, sentence="")
    spared = found.choice is Choice.SPARED
    if found.cost is None:
        why = "No plan in time has it leave." if spared else "Without it the nodes could not be freed in time."
        return j.SparingView(known=True, possible=False, more_lost_work_node_s=None, sentence=why)
    more_node_s = round(found.cost.lost_work_node_s - explanation.cost.lost_work_node_s, 3)
    which = "with it" if spared else "without it"
    more = f"loses {node_hours(more_node_s)} more" if more_node_s > 0 else "loses no less, and costs more otherwise"
    sentence = f"The best plan {which} {more}."
    return j.SparingView(known=True, possible=True, more_lost_work_node_s=more_node_s, sentence=sentence)
