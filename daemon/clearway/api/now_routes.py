"""The daemon's health, for people, supervisors and Prometheus; the present in one answer; who asks.

A stream tells when to read the present again.
"""

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from fastapi import APIRouter, HTTPException, Response
from fastapi.responses import StreamingResponse

import clearway
from clearway.api import schemas, status_schemas, views
from clearway.api import status_schemas as n
from clearway.api.authorization import PUBLIC, Asker, needs
from clearway.api.context import Context, Daemon, Report
from clearway.api.sight import Seen, Sight
from clearway.api.views import eviction_summary, view
from clearway.model.cluster import ClusterSnapshot, Node
from clearway.model.operations import Drain, Eviction, Operation, Preemption, Promise
from clearway.model.report import CycleReport
from clearway.model.requests import Role
from clearway.slurm.parse.hostlist import compress, expand

health_router = APIRouter(tags=["health"], dependencies=[PUBLIC])

_UNWELL: dict[int | str, dict[str, object]] = {503: {"model": schemas.Problem, "description": "no"}}


def health_of(daemon: Context) -> schemas.Health:
    report, config, age_s = daemon.report(), daemon.config(), daemon.pulse.age_s
    stale_after_s = config.daemon.stale_after
    return schemas.Health(
        status="stale" if age_s > stale_after_s else "ok" if daemon.pulse.beaten else "starting",
        version=clearway.__version__,
        backend=daemon.backend,
        mode=config.daemon.mode,
        paused=report is not None and report.paused,
        halted="" if report is None else report.halted,
        stopped="" if report is None else report.stopped,
        only_observes="" if report is None else report.only_observes,
        standby=report is not None and report.standby,
        last_cycle_age_s=age_s,
        stale_after_s=stale_after_s,
    )


# async: these three answer even when every worker thread waits for the database.
@health_router.get("/health")
async def health(daemon: Daemon) -> schemas.Health:
    """Always 200 while the process answers; the body says more."""
    return health_of(daemon)


@health_router.get("/liveness", responses=_UNWELL)
async def liveness(daemon: Daemon) -> schemas.Health:
    """503 when the last cycle that succeeded is older than daemon.stale_after."""
    found = health_of(daemon)
    if found.status == "stale":
        raise HTTPException(
            503, f"no cycle has succeeded for {found.last_cycle_age_s:.0f} s (stale after {found.stale_after_s:.0f} s)"
        )
    return found


@health_router.get("/leader", responses=_UNWELL)
async def leader(daemon: Daemon) -> schemas.Health:
    """200 on the daemon that acts, 503 on one that stands by: for load balancers."""
    if not daemon.leads():
        raise HTTPException(503, "another daemon acts on this database, or none")
    return health_of(daemon)


@health_router.get("/readiness", responses=_UNWELL)
def readiness(daemon: Daemon) -> schemas.Health:
    """503 until a first cycle has succeeded, and while the database does not answer."""
    if not daemon.pulse.beaten:
        raise HTTPException(503, "no cycle has succeeded yet")
    daemon.store.get_value("paused")  # raises StoreError, which is answered with 503
    return health_of(daemon)


@health_router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def metrics(daemon: Daemon) -> Response:
    """Prometheus' text format."""
    return Response(daemon.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


_NOTHING = "-"


def operation_now(e: Operation, jobs: Iterable[n.JobProgress]) -> n.OperationNow:
    free_at = e.plan.made_at + timedelta(seconds=e.plan.chosen.max_delay_s)
    return eviction_summary(e, n.OperationNow, kind=e.kind, predicted_nodes_free_at=free_at, jobs=tuple(jobs))


def job_progress(e: Operation) -> Iterable[n.JobProgress]:
    for each in e.preemptions:
        yield view(
            n.JobProgress,
            each,
            each.job,
            nodes=len(each.job.nodes),
            predicted_lost_work_node_s=each.predicted_lost_node_s,
            actual_lost_work_node_s=each.actual_lost_node_s,
        )


def node_map(report: CycleReport, operations: Iterable[Operation]) -> n.NodeMap:
    """``operations``: those that the asker may know the nodes of."""
    base = _base(report.snapshot)
    uses = dict[str, str]()
    for e in operations:
        for name, use in _uses(e):
            uses[name] = use
    return n.NodeMap(names=base.folded, states=base.states, uses="".join(uses.get(x, _NOTHING) for x in base.names))


def _uses(e: Operation) -> Iterator[tuple[str, str]]:
    """Later ones count: a node that is held and that a job still leaves is one that a job leaves."""
    if e.state.acting:
        nodes, use = _kept_nodes(e)
        yield from ((name, use) for name in nodes)
    leaves = "l" if e.state.acting else "w"
    for each in () if e.state.terminal else e.preemptions:
        if _leaves(each, e):
            yield from ((name, leaves) for name in each.job.nodes)


def _kept_nodes(e: Operation) -> tuple[tuple[str, ...], str]:
    """The nodes that an operation keeps for its goal, and how the map shows them."""
    if isinstance(e, Eviction | Promise):
        return e.plan.placement_nodes, "h" if e.state.before_start else "r"
    return e.drained_nodes, "d" if isinstance(e, Drain) else "m"


def _leaves(p: Preemption, e: Operation) -> bool:
    """Whether the job still has its nodes, and leaves them or would."""
    if p.vacated_at is not None or p.state.terminal:
        return False
    return not (e.state.acting and e.state.undoing and p.state.cancellable)


@dataclass(frozen=True, slots=True)
class _Base:
    snapshot: ClusterSnapshot
    folded: str
    names: tuple[str, ...]
    states: str


_kept: list[_Base] = []  # of the newest snapshot: all askers of a cycle have the same one


def _base(snapshot: ClusterSnapshot) -> _Base:
    before = _kept[0] if _kept else None
    if before is not None and before.snapshot is snapshot:
        return before
    own = [node.name for node in snapshot.nodes]
    if before is not None and [node.name for node in before.snapshot.nodes] == own:
        folded, names = before.folded, before.names
    else:
        folded = compress(own)
        names = expand(folded, limit=max(1, len(own)))
        if set(names) != set(own):  # names that are no host list
            folded, names = ",".join(own), tuple(own)
    nodes, holders = snapshot.node_by_name, snapshot.jobs_on
    states = "".join(_state(nodes[name], held=name in holders) for name in names)
    made = _Base(snapshot, folded, names, states)
    _kept[:] = [made]
    return made


def _state(node: Node, *, held: bool) -> str:
    if not node.available:
        return "s" if node.silent else "u"
    if not held and node.alloc_cpus == 0:
        return "f"
    return "p" if 0 < node.alloc_cpus < node.cpus else "b"


def shown(report: CycleReport) -> tuple[object, ...]:
    """Whatever of a report a page shows that does not only follow from the time."""
    base = _base(report.snapshot)
    return (
        base.folded,
        base.states,
        tuple(
            (each.preemptor.job.job_id, each.preemptor.deadline, each.eviction_id, each.why) for each in report.waiting
        ),
        tuple(
            (e.eviction_id, e.state, e.revision, e.outcome, tuple((p.state, p.asked_at) for p in e.preemptions))
            for e in report.open_evictions
        ),
        tuple((each.rolling_id, each.state) for each in report.rolling_drains),
        (report.paused, report.halted, report.stopped, report.standby, report.clock_doubt, report.only_observes),
    )


router = APIRouter(tags=["now"], dependencies=[needs(Role.USER)])


@router.get("/identity")
def identity(asker: Asker, daemon: Daemon, seen: Seen) -> status_schemas.IdentityView:
    """Who asks, and what the asker may do."""
    config = daemon.config()
    may = not asker.anonymous and (asker.role.includes(Role.OPERATOR) or config.drain.owners)
    return status_schemas.IdentityView(
        name=asker.name,
        role=asker.role,
        sees_all_jobs=seen.all("jobs"),
        may_request_drains=may,
        own_approvals=config.access.own_approvals,
    )


@router.get("/now")
def now(daemon: Daemon, seen: Seen, report: Report) -> status_schemas.NowView:
    """Mode, nodes, urgent jobs and everything that is planned or under way, as the newest cycle left it.

    It needs no database, so it is answered while that is down.
    """
    cluster = views.cluster_view(report, daemon.config(), daemon.backend)
    own = seen.of_snapshot(report.snapshot)
    waiting = (views.preemptor_view(each, report) for each in seen.waiting(report))
    everybody = seen.all("jobs")
    return status_schemas.NowView(
        health=health_of(daemon),
        leads=daemon.leads(),
        at=report.at,
        clock_doubt=report.clock_doubt,
        cluster=cluster if everybody else cluster.model_copy(update={"skipped": ()}),
        # Which nodes an operation empties tells where others' jobs run.
        nodes=node_map(report, report.open_evictions if everybody else ()) if seen.all("nodes") else None,
        waiting=tuple(own.redacted(each, "why") for each in waiting),
        operations=tuple(_operations(seen, report)),
    )


def _operations(seen: Sight, report: CycleReport) -> Iterator[status_schemas.OperationNow]:
    for e in report.open_evictions:
        own = seen.part_of(e)
        if own is not None:
            jobs = (each for each in job_progress(e) if own.has(each.job_id))
            yield own.summary(operation_now(e, jobs))


class EventStream(StreamingResponse):
    media_type = "text/event-stream"


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
async def stream(daemon: Daemon) -> EventStream:
    """Server-sent events without data of jobs: `changed` when `/now` has changed, `alive` every 15 s.

    Both say how old the last cycle is. The stream ends after 5 minutes, and when the daemon stops; ask again then.
    """
    # X-Accel-Buffering: nginx would keep events back until there are some kilobytes of them.
    return EventStream(_told(daemon), headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})


async def _told(daemon: Context) -> AsyncIterator[str]:
    async for changed in daemon.feed.events():
        health = health_of(daemon)
        about = {"status": health.status, "last_cycle_age_s": round(health.last_cycle_age_s, 1)}
        yield f"event: {'changed' if changed else 'alive'}\ndata: {json.dumps(about)}\n\n"
