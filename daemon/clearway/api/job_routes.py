"""Read: jobs, as the newest snapshot shows them, and what Clearway has to do with each."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Path, Query

from clearway.api import job_schemas, job_views, schemas
from clearway.api.authorization import needs
from clearway.api.context import Context, Daemon, Report
from clearway.api.eviction_routes import Ask
from clearway.api.forms import JOB_ID, LONGEST_NAME, UserFilter
from clearway.api.job_schemas import JobRole
from clearway.api.job_views import Part, parts_of
from clearway.api.sight import Own, Seen, Sight
from clearway.eligibility.context import PlanningContext
from clearway.execution.save_tests import AGAIN_AFTER, SaveTestRequest, why_not_again
from clearway.model.cluster import ClusterSnapshot, Job, JobState
from clearway.model.operations import OperationKind
from clearway.model.plan import Explanation
from clearway.model.records import Involvement
from clearway.model.report import CycleReport
from clearway.model.requests import RequestKind, Role

router = APIRouter(prefix="/jobs", tags=["jobs"], dependencies=[needs(Role.USER)])

JobId = Annotated[
    str,
    Path(
        pattern=JOB_ID,
        description="Slurm's own numeric id, or the id as users know it: 123_4 (array task), 123+1 (heterogeneous)",
    ),
]


@router.post(
    "/{job_id}/test-preemption",
    status_code=202,
    responses={
        404: {"model": schemas.Problem, "description": "the queue has no such job"},
        409: {"model": schemas.Problem, "description": "another test is under way, or was lately"},
    },
)
def test_preemption(daemon: Daemon, seen: Seen, report: Report, ask: Ask, job_id: JobId) -> schemas.RequestView:
    """Ask a running job to save itself as an eviction would; nothing is requeued. For its owner and for operators.

    The request stays open until the job has answered, or too much time has passed; its result says what came of it, and
    the job's ``tests`` have the figures.
    """
    operator = seen.asker.role.includes(Role.OPERATOR)
    found = _found(job_id, seen, report)
    if found is None:
        raise HTTPException(404, f"no job {job_id} is in the queue")
    if found.user != seen.asker.name and not operator:
        raise HTTPException(403, f"job {job_id} is not yours, and this needs the role {Role.OPERATOR} otherwise")
    now = daemon.clock.now()
    recent = daemon.store.save_tests_since(now - AGAIN_AFTER)
    why = why_not_again(found.job_id, found.user, recent, now)
    kind = RequestKind.TEST_PREEMPTION
    if not why and any(each.kind == kind and each.actor == ask.actor for each in daemon.store.pending_requests()):
        why = "you have asked for a test that has not begun yet"
    if why:
        raise HTTPException(409, why)
    return ask(kind, document=SaveTestRequest(job_id=found.job_id, operator=operator).model_dump_json())


@dataclass(frozen=True)
class Listing:
    """Which jobs are listed, and which page of them."""

    user: UserFilter = None
    state: Annotated[JobState | None, Query(description="jobs in this state alone")] = None
    node: Annotated[str | None, Query(max_length=LONGEST_NAME, description="jobs that hold this node alone")] = None
    limit: Annotated[int, Query(ge=1, le=1_000, description="maximum number of jobs")] = 100
    offset: Annotated[int, Query(ge=0, le=1_000_000, description="number of jobs to skip")] = 0

    def of(self, snapshot: ClusterSnapshot, own: str | None) -> list[Job]:
        """In the order of their ids; ``own``: the user whose jobs alone are shown."""
        listed = snapshot.jobs if self.node is None else snapshot.jobs_on.get(self.node, ())
        users = {own, self.user} - {None}
        found = [job for job in listed if users <= {job.user} and self.state in (None, job.state)]
        return sorted(found, key=_by_number)


@router.get("")
def jobs(daemon: Daemon, seen: Seen, report: Report, listing: Annotated[Listing, Depends()]) -> job_schemas.JobList:
    """The jobs of the newest snapshot: whether each can be saved, what it would lose now, what is done with it."""
    found, end = listing.of(report.snapshot, seen.own_alone), listing.offset + listing.limit
    listed = found[listing.offset : end]
    context, known = daemon.planning_context(report, listed), _known(listed, seen, report)
    items = tuple(job_views.row(known[job.job_id], context) for job in listed)
    next_offset = end if len(found) > end else None
    return job_schemas.JobList(taken_at=report.snapshot.taken_at, items=items, next_offset=next_offset)


def _by_number(job: Job) -> tuple[int, str]:
    return (int(job.job_id) if job.job_id.isdigit() else 0, job.job_id)


def _known(jobs: Collection[Job], seen: Sight, report: CycleReport) -> Mapping[str, job_views.Known]:
    """What the newest cycle makes of these jobs, as far as the asker may see it."""
    waiting = {each.preemptor.job.job_id: each for each in seen.waiting(report)}
    parts = parts_of(jobs, report)
    operations = {part.operation.eviction_id: part.operation for found in parts.values() for part in found}
    owns = {number: seen.part_of(operation) for number, operation in operations.items()}
    told = seen.of_snapshot(report.snapshot)

    def visible(found: Collection[Part]) -> tuple[tuple[Part, Own], ...]:
        return tuple((part, own) for part in found if (own := owns[part.operation.eviction_id]) is not None)

    return {
        job.job_id: job_views.Known(
            job,
            visible(parts.get(job.job_id, ())),
            mine := waiting.get(job.job_id),
            "" if mine is None else told.told(mine.why),
        )
        for job in jobs
    }


@router.get(
    "/{job_id}",
    responses={404: {"model": schemas.Problem, "description": "neither the queue nor the database has such a job"}},
)
def job(
    daemon: Daemon,
    seen: Seen,
    report: Report,
    job_id: JobId,
    limit: Annotated[int, Query(ge=1, le=50, description="maximum number of operations")] = 10,
    offset: Annotated[int, Query(ge=0, le=1_000_000, description="number of newest operations to skip")] = 0,
) -> job_schemas.JobView:
    """Everything that Clearway has to do with a job, what it would lose now, and what its owner can do about that.

    The first page of its operations also has those that are under way and leave it alone.
    """
    found = _found(job_id, seen, report)
    key = found.job_id if found is not None and job_id == found.display_id else job_id
    involved = daemon.store.involvements(key, own=seen.own_alone, limit=limit + 1, offset=offset)
    next_offset = offset + limit if len(involved) > limit else None
    tests = daemon.store.save_tests_of(key, own=seen.own_alone)
    remembered = job_views.Remembered(involved[:limit], tests, next_offset)
    if found is None and not involved and not tests:
        raise HTTPException(404, f"Clearway knows nothing of job {job_id}: neither the queue nor its database has it")
    jobs = () if found is None else (found,)
    context, known = daemon.planning_context(report, jobs), _known(jobs, seen, report)
    parts = () if found is None else known[found.job_id].parts
    operations = [_operation(each, parts, daemon, seen, context) for each in remembered.involved]
    if offset == 0:
        operations += _leaving_it_alone(parts, daemon)
        operations.sort(key=lambda each: each.eviction_id, reverse=True)
    if found is None:
        return job_views.gone_view(job_id, report, operations, remembered)
    return job_views.job_view(known[found.job_id], report, context, operations, remembered)


def _found(job_id: str, seen: Sight, report: CycleReport) -> Job | None:
    """The job of the queue, where the asker may see it."""
    found = job_views.find(job_id, report.snapshot)
    return found if found is not None and seen.own_alone in (None, found.user) else None


def _leaving_it_alone(parts: Collection[tuple[Part, Own]], daemon: Context) -> list[job_schemas.JobOperationView]:
    """The operations under way in which the job stays where it is."""
    return [
        job_views.operation_in(part, own, _explanation(daemon, part.operation.eviction_id, part.operation.kind))
        for part, own in parts
        if part.role in (JobRole.CANDIDATE, JobRole.RESIDENT)
    ]


def _operation(
    involved: Involvement, parts: Collection[tuple[Part, Own]], daemon: Context, seen: Sight, context: PlanningContext
) -> job_schemas.JobOperationView:
    number = involved.eviction_id
    part = next((each for each, _ in parts if each.operation.eviction_id == number), None)
    own = seen.involvement(lambda: daemon.store.eviction(number))
    explanation = None if involved.preemption is None else _explanation(daemon, number, involved.kind)
    return job_views.operation_of(involved, part, own, explanation, context)


def _explanation(daemon: Context, eviction_id: int, kind: OperationKind) -> Explanation | None:
    return daemon.store.explanation(eviction_id) if kind is OperationKind.EVICTION else None
