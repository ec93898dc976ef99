"""Jobs, as the newest snapshot shows them, and what Clearway has to do with each; what would be done for an urgent job.

A what-if question is answered with the daemon's own decision on the newest snapshot, and changes nothing.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from math import ceil
from typing import Annotated, Self

from fastapi import APIRouter, HTTPException, Path, Query
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from clearway.api import job_schemas, job_views, schemas, views
from clearway.api.authorization import Own, Seen, Sight, needs
from clearway.api.context import LONGEST_NAME, Context, Daemon, Report, UserFilter, paged, problems
from clearway.api.job_schemas import JOB_ID, JobRole
from clearway.api.job_views import Part, parts_of
from clearway.api.operation_routes import Ask
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.urgent import matching_rule, name_of
from clearway.execution.save_tests import AGAIN_AFTER, SaveTestRequest, why_not_again
from clearway.model.cluster import ClusterSnapshot, Job, JobState
from clearway.model.durations import Duration
from clearway.model.explanation import Explanation
from clearway.model.operations import Operation, OperationKind
from clearway.model.plan import NoPlan
from clearway.model.records import Involvement
from clearway.model.report import CycleReport
from clearway.model.requests import RequestKind, Role
from clearway.preemption.detection import imagined, imagined_job, max_delay_of
from clearway.preemption.plan import decide
from clearway.preemption.validation import over_budget
from clearway.slurm.parse.jobs import even_cpus

router = APIRouter(prefix="/jobs", tags=["jobs"], dependencies=[needs(Role.USER)])
what_ifs = APIRouter(tags=["what-if"], dependencies=[needs(Role.USER)])

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
    responses=problems({404: "the queue has no such job", 409: "another test is under way, or was lately"}),
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


@router.get("")
def jobs(
    daemon: Daemon,
    seen: Seen,
    report: Report,
    page: Annotated[views.Page, paged("jobs", most=1_000, usual=100)],
    user: UserFilter = None,
    state: Annotated[JobState | None, Query(description="jobs in this state alone")] = None,
    node: Annotated[str | None, Query(max_length=LONGEST_NAME, description="jobs that hold this node alone")] = None,
) -> job_schemas.JobList:
    """The jobs of the newest snapshot: whether each can be saved, what it would lose now, what is done with it."""
    snapshot, users = report.snapshot, {seen.own_alone, user} - {None}
    listed = snapshot.jobs if node is None else snapshot.jobs_on.get(node, ())
    wanted = [job for job in listed if users <= {job.user} and state in (None, job.state)]
    wanted.sort(key=lambda job: (int(job.job_id) if job.job_id.isdigit() else 0, job.job_id))
    shown = wanted[page.offset : page.end + 1]
    context, known = daemon.planning_context(report, shown), _known(shown, seen, report)
    rows = [job_views.row(known[job.job_id], context, job_schemas.JobRow) for job in shown]
    return views.page(job_schemas.JobList, rows, page, taken_at=snapshot.taken_at)


def _known(jobs: Collection[Job], seen: Sight, report: CycleReport) -> Mapping[str, job_views.Known]:
    """What the newest cycle makes of these jobs, as far as the asker may see it."""
    waiting = {each.preemptor.job.job_id: each for each in seen.waiting(report)}
    parts, told = parts_of(jobs, report, seen), seen.of_snapshot(report.snapshot)
    return {
        job.job_id: job_views.Known(
            job, parts.get(job.job_id, ()), mine := waiting.get(job.job_id), "" if mine is None else told.told(mine.why)
        )
        for job in jobs
    }


@router.get("/{job_id}", responses=problems({404: "neither the queue nor the database has such a job"}))
def job(
    daemon: Daemon,
    seen: Seen,
    report: Report,
    job_id: JobId,
    page: Annotated[views.Page, paged("operations", most=50, usual=10, newest=True)],
) -> job_schemas.JobView:
    """Everything that Clearway has to do with a job, what it would lose now, and what its owner can do about that.

    The first page of its operations also has those that are under way and leave it alone.
    """
    found = _found(job_id, seen, report)
    key = found.job_id if found is not None and job_id == found.display_id else job_id
    found_operations = daemon.store.involvements(
        key, seen=found, own=seen.own_alone, limit=page.limit + 1, offset=page.offset
    )
    involved = found_operations[: page.limit]
    tests = daemon.store.save_tests_of(key, seen=found, own=seen.own_alone)
    if found is None and not involved and not tests:
        raise HTTPException(404, f"Clearway knows nothing of job {job_id}: neither the queue nor its database has it")
    jobs = () if found is None else (found,)
    context, known = daemon.planning_context(report, jobs), _known(jobs, seen, report)
    parts = () if found is None else known[found.job_id].parts
    operations = list(_operations(involved, parts, daemon, seen, context))
    if page.offset == 0:
        operations += [  # those under way that leave it alone
            job_views.operation_view(part.operation, part, own, _explanation(daemon, part.operation), context)
            for part, own in parts
            if part.role in (JobRole.CANDIDATE, JobRole.RESIDENT)
        ]
        operations.sort(key=lambda each: each.eviction_id, reverse=True)
    told: dict[str, object] = {
        "taken_at": report.snapshot.taken_at,
        "tests": tuple(views.view(job_schemas.SaveTestView, each, job_id=each.job.job_id) for each in tests),
        "operations": tuple(operations),
        "next_offset": page.end if len(found_operations) > page.limit else None,
    }
    if found is None:
        return job_views.gone_view(job_id, report, involved, tests, told)
    return job_views.job_view(known[found.job_id], report, context, told)


def _found(job_id: str, seen: Sight, report: CycleReport) -> Job | None:
    """The job of the queue, where the asker may see it."""
    found = job_views.find(job_id, report.snapshot)
    return found if found is not None and seen.own_alone in (None, found.user) else None


def _operations(
    involved: Iterable[Involvement],
    parts: Collection[tuple[Part, Own]],
    daemon: Context,
    seen: Sight,
    context: PlanningContext,
) -> Iterator[job_schemas.JobOperationView]:
    for each in involved:
        part = next((part for part, _ in parts if part.operation.eviction_id == each.eviction_id), None)
        own = seen.involvement(partial(daemon.store.eviction, each.eviction_id))
        explained = None if each.preemption is None else _explanation(daemon, each)
        yield job_views.operation_view(each, part, own, explained, context)


def _explanation(daemon: Context, known: Involvement | Operation) -> Explanation | None:
    return daemon.store.explanation(known.eviction_id) if known.kind is OperationKind.EVICTION else None


LONGEST_DELAY_S = 7 * 86_400.0
_DELAY_FORMS = [
    {"type": "number", "minimum": 0, "maximum": LONGEST_DELAY_S},
    {"type": "string", "pattern": r"^\s*([0-9]{1,9}(\.[0-9]{1,6})?|([0-9]{1,9}[dhms])+)\s*$"},
]
_DELAY_SCHEMA = WithJsonSchema({"anyOf": _DELAY_FORMS, "examples": ["10m", 600]})


class WhatIf(BaseModel):
    """An urgent job that does not exist. Without what it asks of each node it asks for whole nodes."""

    model_config = ConfigDict(extra="forbid", strict=True)

    nodes: int | None = Field(
        None, ge=1, description="number of nodes that the job asks for; null: as many as its tasks need"
    )
    max_delay: Annotated[Duration, Field(le=LONGEST_DELAY_S), _DELAY_SCHEMA] | None = Field(
        None,
        description="how long the job may wait: seconds, or 90s, 10m, 1h30m; at most 7 days; null: as the rule says "
        "that makes such a job urgent",
    )
    partition: str | None = Field(
        None, max_length=255, description="partition of the job; null: any partition of the cluster"
    )
    tasks: int = Field(0, ge=0, le=10_000_000, description="number of tasks; 0: whole nodes")
    cpus_per_task: int = Field(1, ge=1, le=100_000, description="processors of each task")
    memory_mib: int = Field(0, ge=0, le=2**40, description="memory that it asks for on each node, MiB; 0: not known")
    gpus: dict[Annotated[str, Field(max_length=64)], Annotated[int, Field(ge=1, le=10_000)]] = Field(
        {}, max_length=16, description='GPUs that it asks for on each node, by type; "": of any type'
    )
    exclusive: bool = Field(False, description="whether it wants whole nodes, whatever its tasks need")
    constraint: str = Field("", max_length=1_024, description="features that its nodes must have, joined by &")
    qos: str = Field("", max_length=255, description="QoS of the job; empty: none in particular")
    account: str = Field("", max_length=255, description="account of the job; empty: none in particular")
    job_name: str = Field("", max_length=1_024, description="name of the job")
    comment: str = Field("", max_length=1_024, description="Comment of the job, with its claims")

    @model_validator(mode="after")
    def _has_a_size(self) -> Self:
        if self.nodes is None and not self.tasks:
            raise ValueError("nodes or tasks must be given")
        return self


@what_ifs.post("/what-if")
def what_if(daemon: Daemon, seen: Seen, report: Report, question: WhatIf) -> schemas.WhatIfView:
    """The trade-off curve, the plan and the reasons, as if the asker had just submitted such a job."""
    snapshot, config = report.snapshot, daemon.config()
    job = _job(question, seen.asker.name, snapshot)
    rule = matching_rule(job, config.preemptors)
    max_delay_s = question.max_delay
    if max_delay_s is None and rule is not None:
        max_delay_s = min(LONGEST_DELAY_S, max_delay_of(job, rule))
    named = "" if rule is None else name_of(rule, config.preemptors.index(rule))
    about = {"rule": named, "max_delay_s": max_delay_s}
    if max_delay_s is None:
        none = NoPlan("no rule makes such a job urgent, so it would wait for its turn; name a max_delay to plan for it")
        return views.what_if_view(snapshot.taken_at, none).model_copy(update=about)
    preemptor = imagined(job.num_nodes, max_delay_s, job.partitions, snapshot.taken_at, job)
    decision = decide(preemptor, daemon.planning_context(report), daemon.planner)
    budget = "" if isinstance(decision, NoPlan) else over_budget(decision, report.usage, config.budget)
    answer = views.what_if_view(snapshot.taken_at, decision, budget=budget).model_copy(update=about)
    return seen.of_snapshot(snapshot).what_if(answer)


def _job(question: WhatIf, user: str, snapshot: ClusterSnapshot) -> Job:
    """The job as Slurm would show it while it waits."""
    known = sorted({partition for node in snapshot.nodes for partition in node.partitions})
    if question.partition is not None and question.partition not in known:
        raise HTTPException(422, f"partition: there is none of this name; there are {', '.join(known[:20])}")
    partitions = tuple(known) if question.partition is None else (question.partition,)
    cpus = question.tasks * question.cpus_per_task
    largest = max((node.cpus for node in snapshot.nodes if set(partitions) & set(node.partitions)), default=1)
    nodes = question.nodes or ceil(cpus / max(1, largest))
    if nodes > len(snapshot.nodes):
        raise HTTPException(422, f"nodes: the cluster has {len(snapshot.nodes)}")
    even = even_cpus(question.tasks, question.cpus_per_task, nodes)
    return imagined_job(
        nodes,
        partitions,
        snapshot.taken_at,
        user=user,
        name=question.job_name,
        features=question.constraint,
        **question.model_dump(include={"qos", "account", "comment", "memory_mib"}),
        gpus=tuple(sorted(question.gpus.items())),
        exclusive=question.exclusive or not question.tasks,
        cpus=even * nodes,
        even_cpus=even,
        cpus_per_node=even,
    )
