"""The daemon's health; the present in one answer, and a stream that tells when to read it again; the past."""

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import lru_cache
from types import SimpleNamespace
from typing import Annotated, NamedTuple

from fastapi import APIRouter, HTTPException, Query, Response
from fastapi.responses import StreamingResponse

import clearway
from clearway.api import report_schemas, schemas, views
from clearway.api.authorization import PUBLIC, Asker, Seen, Sight, needs
from clearway.api.context import Context, Daemon, JobFilter, Report, UserFilter, paged, problems
from clearway.estimates.history import RunKey
from clearway.model.cluster import ClusterSnapshot, Node
from clearway.model.durations import parse_duration_s
from clearway.model.operations import Drain, Eviction, Operation, Preemption, Promise
from clearway.model.records import LARGEST_ID
from clearway.model.report import CycleReport
from clearway.model.requests import Role
from clearway.slurm.parse.hostlist import compress, expand

health_router = APIRouter(tags=["health"], dependencies=[PUBLIC])

LEASE_OVER = "this daemon could not renew its lease; another one may act"
_UNWELL = problems({503: "no"})
_NOTHING_SEEN = SimpleNamespace(paused=False, halted="", stopped="", only_observes="", standby=False)


def health_of(daemon: Context) -> report_schemas.Health:
    config, age_s = daemon.config().daemon, daemon.pulse.age_s
    return views.view(
        report_schemas.Health,
        daemon.report() or _NOTHING_SEEN,
        status="stale" if age_s > config.stale_after else "ok" if daemon.pulse.beaten else "starting",
        version=clearway.__version__,
        backend=daemon.backend,
        mode=config.mode,
        standby=daemon.standby,
        last_cycle_age_s=age_s,
        stale_after_s=config.stale_after,
    )


# async: these answer even when every worker thread waits for the database.
@health_router.get("/health")
async def health(daemon: Daemon) -> report_schemas.Health:
    """Always 200 while the process answers; the body says more."""
    return health_of(daemon)


@health_router.get("/liveness", responses=_UNWELL)
async def liveness(daemon: Daemon) -> report_schemas.Health:
    """503 when the last cycle that succeeded is older than daemon.stale_after."""
    found = health_of(daemon)
    if found.status == "stale":
        raise HTTPException(
            503, f"no cycle has succeeded for {found.last_cycle_age_s:.0f} s (stale after {found.stale_after_s:.0f} s)"
        )
    return found


@health_router.get("/leader", responses=_UNWELL)
async def leader(daemon: Daemon) -> report_schemas.Health:
    """200 on the daemon that acts, 503 on one that stands by: for load balancers."""
    if not daemon.leads():
        raise HTTPException(503, "another daemon acts on this database, or none")
    return health_of(daemon)


@health_router.get("/readiness", responses=_UNWELL)
async def readiness(daemon: Daemon) -> report_schemas.Health:
    """503 until a first cycle has succeeded, while the database takes no write (it does not answer, or is locked, full
    or read-only), and where the daemon cannot renew its lease.
    """
    if not daemon.pulse.beaten:
        raise HTTPException(503, "no cycle has succeeded yet")
    if why := await daemon.probe.why_not():
        raise HTTPException(503, why)
    if daemon.lease_over:
        raise HTTPException(503, LEASE_OVER)
    return health_of(daemon)


@health_router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def metrics(daemon: Daemon) -> Response:
    """Prometheus' text format."""
    return Response(daemon.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def node_map(report: CycleReport, operations: Iterable[Operation]) -> report_schemas.NodeMap:
    """``operations``: those that the asker may know the nodes of."""
    base = _base(report.snapshot)
    uses = dict(use for e in operations for use in _uses(e))
    shown = "".join(uses.get(name, "-") for name in base.names)
    return report_schemas.NodeMap(names=base.folded, states=base.states, uses=shown)


def _uses(e: Operation) -> Iterator[tuple[str, str]]:
    """Later ones count: a node that is held and that a job still leaves is one that a job leaves."""
    if e.state.acting and isinstance(e, Eviction | Promise):
        yield from ((name, "h" if e.state.before_start else "r") for name in e.plan.placement_nodes)
    elif e.state.acting:
        yield from ((name, "d" if isinstance(e, Drain) else "m") for name in e.drained_nodes)
    for each in () if e.state.terminal else e.preemptions:
        if _leaves(each, e):
            yield from ((name, "l" if e.state.acting else "w") for name in each.job.nodes)


def _leaves(p: Preemption, e: Operation) -> bool:
    """Whether the job still has its nodes, and leaves them or would."""
    stays = e.state.acting and e.state.undoing and p.state.cancellable
    return p.vacated_at is None and not p.state.terminal and not stays


class _Base(NamedTuple):
    snapshot: ClusterSnapshot
    folded: str
    names: tuple[str, ...]
    states: str


_kept: list[_Base] = []  # of the newest snapshot: all askers of a cycle have the same one


def _base(snapshot: ClusterSnapshot) -> _Base:
    before = _kept[0] if _kept else None
    if before is not None and before.snapshot is snapshot:
        return before
    folded, names = _folded(tuple(node.name for node in snapshot.nodes))
    nodes, holders = snapshot.node_by_name, snapshot.jobs_on
    made = _Base(snapshot, folded, names, "".join(_state(nodes[name], held=name in holders) for name in names))
    _kept[:] = [made]
    return made


@lru_cache(maxsize=1)
def _folded(own: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    folded = compress(own)
    names = expand(folded, limit=max(1, len(own)))
    return (folded, names) if set(names) == set(own) else (",".join(own), own)  # names that are no host list


def _state(node: Node, *, held: bool) -> str:
    if not node.available:
        return "s" if node.silent else "u"
    if not held and node.alloc_cpus == 0:
        return "f"
    return "p" if 0 < node.alloc_cpus < node.cpus else "b"


def shown(report: CycleReport) -> tuple[object, ...]:
    """Whatever of a report a page shows that does not only follow from the time."""
    base = _base(report.snapshot)
    waiting = [(w.preemptor.job.job_id, w.preemptor.deadline, w.eviction_id, w.why) for w in report.waiting]
    jobs = [[(p.state, p.asked_at) for p in e.preemptions] for e in report.open_evictions]
    operations = [(e.eviction_id, e.state, e.revision, e.outcome) for e in report.open_evictions]
    rolling = [(each.rolling_id, each.state) for each in report.rolling_drains]
    holds = (report.paused, report.halted, report.stopped, report.standby, report.clock_doubt, report.only_observes)
    return base.folded, base.states, waiting, operations, jobs, rolling, holds


router = APIRouter(tags=["now"], dependencies=[needs(Role.USER)])


@router.get("/identity")
def identity(asker: Asker, daemon: Daemon, seen: Seen) -> report_schemas.IdentityView:
    """Who asks, and what the asker may do."""
    config = daemon.config()
    may = not asker.anonymous and (asker.role.includes(Role.OPERATOR) or config.drain.owners)
    return report_schemas.IdentityView(
        name=asker.name,
        role=asker.role,
        sees_all_jobs=seen.all("jobs"),
        may_request_drains=may,
        own_approvals=config.access.own_approvals,
    )


@router.get("/now")
def now(daemon: Daemon, seen: Seen, report: Report) -> report_schemas.NowView:
    """Mode, nodes, urgent jobs and everything that is planned or under way, as the newest cycle left it.

    It needs no database, so it is answered while that is down.
    """
    own = seen.of_snapshot(report.snapshot)
    waiting = (views.preemptor_view(each, report) for each in seen.waiting(report))
    everybody = seen.all("jobs")
    return report_schemas.NowView(
        health=health_of(daemon),
        leads=daemon.leads(),
        at=report.at,
        clock_doubt=report.clock_doubt,
        cluster=_cluster(daemon, seen, report),
        # Which nodes an operation empties tells where others' jobs run.
        nodes=node_map(report, report.open_evictions if everybody else ()) if seen.all("nodes") else None,
        waiting=tuple(own.redacted(each, "why") for each in waiting),
        operations=tuple(_operations(seen, report)),
    )


def _cluster(daemon: Context, seen: Sight, report: CycleReport) -> report_schemas.ClusterView:
    whole = views.cluster_view(report, daemon.config(), daemon.backend).model_copy(update={"standby": daemon.standby})
    return whole if seen.all("jobs") else whole.model_copy(update={"skipped": ()})


def _operations(seen: Sight, report: CycleReport) -> Iterator[report_schemas.OperationNow]:
    for e in report.open_evictions:
        if (own := seen.part_of(e)) is not None:
            jobs = tuple(
                views.view(report_schemas.JobProgress, each, each.job, nodes=len(each.job.nodes))
                for each in e.preemptions
                if own.has(each.job_id)
            )
            shown = {"kind": e.kind, "predicted_nodes_free_at": e.plan.free_at, "jobs": jobs}
            yield own.summary(views.eviction_summary(e, report_schemas.OperationNow, **shown))


_EVENT = {  # of each of them
    "type": "object",
    "properties": {
        "event": {"enum": ["changed", "alive"]},
        "data": {"type": "string", "description": "JSON: status, last_cycle_age_s"},
    },
}


@router.get(
    "/stream",
    response_class=Response,  # of no media type: its refusals are JSON
    responses={200: {"content": {"text/event-stream": {"schema": _EVENT}}, "description": "server-sent events"}},
)
async def stream(daemon: Daemon) -> StreamingResponse:
    """Server-sent events without data of jobs: `changed` when `/now` has changed, `alive` every 15 s.

    Both say how old the last cycle is. The stream ends after 5 minutes, and when the daemon stops; ask again then.
    """
    # X-Accel-Buffering: nginx would keep events back until there are some kilobytes of them.
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_told(daemon), headers=headers, media_type="text/event-stream")


async def _told(daemon: Context) -> AsyncIterator[str]:
    async for changed in daemon.feed.events():
        health = health_of(daemon)
        about = {"status": health.status, "last_cycle_age_s": round(health.last_cycle_age_s, 1)}
        yield f"event: {'changed' if changed else 'alive'}\ndata: {json.dumps(about)}\n\n"


_USER = [needs(Role.USER)]
snapshot = APIRouter(tags=["cluster"], dependencies=_USER)
learned = APIRouter(dependencies=_USER)


@snapshot.get("/cluster")
def cluster(daemon: Daemon, seen: Seen, report: Report) -> report_schemas.ClusterView:
    """Nodes, jobs and evictions in numbers, the budget, and what could not be read."""
    return _cluster(daemon, seen, report)


@snapshot.get("/preemptors")
def preemptors(seen: Seen, report: Report, job_id: JobFilter = None, user: UserFilter = None) -> schemas.PreemptorList:
    """The urgent jobs that wait, with their deadlines and what is done for them.

    Ordinary jobs for which eternal jobs make room are among them.
    """
    own = seen.of_snapshot(report.snapshot)
    found = (views.preemptor_view(each, report) for each in seen.waiting(report))
    items = tuple(
        own.redacted(each, "why")
        for each in found
        if user in (None, each.user) and job_id in (None, each.job_id, each.display_id)
    )
    return schemas.PreemptorList(taken_at=report.snapshot.taken_at, items=items)


@snapshot.get("/status")
def status(daemon: Daemon, seen: Seen) -> report_schemas.StatusView:
    """Whether a daemon leads, in which mode, the urgent jobs that wait, and what is planned or under way.

    Any daemon of the database answers, also one that stands by.
    """
    report, leads = daemon.report(), daemon.leads()
    operations = report.open_evictions if report is not None and leads else daemon.store.open_evictions()
    halted = report.halted if report is not None and leads else ""
    found = views.read_status(daemon.store, daemon.clock.now(), daemon.config().daemon, operations)
    return seen.status(found.model_copy(update={"halted": halted or found.halted}), operations)


@snapshot.get("/leaders")
def leaders(
    daemon: Daemon, page: Annotated[views.Page, paged("leaders", most=1_000, usual=50)]
) -> report_schemas.LeaderList:
    """The daemons that have acted on this database, newest first."""
    return views.leader_list(daemon.store, page)


@learned.get("/calibration", tags=["calibration"])
def calibration(
    daemon: Daemon,
    seen: Seen,
    page: Annotated[views.Page, paged("applications", most=1_000, usual=100)],
    user: UserFilter = None,
) -> report_schemas.CalibrationView:
    """By checkpointer, and by user, application and checkpointer in their order, over the newest records of each."""
    history, everybody = daemon.history(), seen.all("jobs", "usage")
    keys = [key for key in history.keys if (everybody or key.user == seen.asker.name) and user in (None, key.user)]
    return views.calibration_view(history, keys, daemon.clock.now(), page)


@learned.get("/walltime/advice", tags=["walltime"], responses=problems({404: "no such job has ended yet"}))
def walltime_advice(
    daemon: Daemon,
    seen: Seen,
    user: Annotated[str, Query(max_length=255, description="user of the jobs")],
    name: Annotated[str, Query(max_length=255, description="the application as the job calls it, else its name")],
) -> report_schemas.WalltimeAdviceView:
    """Time limits and run times of the jobs of this user and name that the daemon has seen end."""
    if user != seen.asker.name and not seen.all("jobs", "usage"):
        raise HTTPException(403, "Slurm's PrivateData shows each user the own jobs alone")
    found = views.advice(user, name, daemon.runs(RunKey(user, name)))
    if found is None:
        raise HTTPException(404, f"no job {name!r} of user {user!r} has been seen to end")
    return found


urgent = APIRouter(tags=["evictions"], dependencies=[needs(Role.USER)])


@urgent.get("/report")
def urgent_report(
    daemon: Daemon,
    seen: Seen,
    since: Annotated[str, Query(max_length=40, description="how far to look back, such as 7d or 12h")] = "7d",
) -> report_schemas.ReportView:
    """What Clearway did or would have done for urgent jobs, what happened, and what Slurm's own rule would lose."""
    try:
        since_s = parse_duration_s(since)
    except ValueError as error:
        raise HTTPException(422, f"since: {error}") from None
    return views.urgent_report(daemon.store, since_s, daemon.clock.now(), seen.own_alone)


trail = APIRouter(prefix="/audit", tags=["audit"], dependencies=[needs(Role.ADMIN)])


@trail.get("")
def audit(
    daemon: Daemon,
    limit: Annotated[int, Query(ge=1, le=100, description="maximum number of entries")] = 50,
    before: Annotated[int | None, Query(ge=1, le=LARGEST_ID, description="entries of lower numbers alone")] = None,
) -> report_schemas.AuditList:
    """Who asked for what, what came of it, changes of the configuration, and refusals; newest first."""
    found = daemon.store.audit_trail(limit=limit + 1, before=before)
    items = tuple(views.audit_view(row) for row in found[:limit])
    return report_schemas.AuditList(items=items, next_before=items[-1].sequence if len(found) > limit else None)


@trail.get("/check")
def check(daemon: Daemon) -> report_schemas.AuditCheckView:
    """Follow the chain of hashes from the first entry to the last; it takes a second for 100,000 entries."""
    return report_schemas.AuditCheckView.model_validate(daemon.store.check_audit())
