"""Read: the present in one answer, from the newest cycle alone; a stream that tells when to read it again; who asks."""

import json
from collections.abc import AsyncIterator

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse

from clearway.api import now_schemas, now_views, views
from clearway.api.authorization import Asker, needs
from clearway.api.context import Context, Daemon, Report
from clearway.api.health_routes import health_of
from clearway.api.sight import Seen
from clearway.model.requests import Role

router = APIRouter(tags=["now"], dependencies=[needs(Role.USER)])


@router.get("/identity")
def identity(asker: Asker, daemon: Daemon, seen: Seen) -> now_schemas.IdentityView:
    """Who asks, and what the asker may do."""
    config = daemon.config()
    may = not asker.anonymous and (asker.role.includes(Role.OPERATOR) or config.drain.owners)
    return now_schemas.IdentityView(
        name=asker.name,
        role=asker.role,
        sees_all_jobs=seen.all("jobs"),
        may_request_drains=may,
        own_approvals=config.access.own_approvals,
    )


@router.get("/now")
def now(daemon: Daemon, seen: Seen, report: Report) -> now_schemas.NowView:
    """Mode, nodes, urgent jobs and everything that is planned or under way, as the newest cycle left it.

    It needs no database, so it is answered while that is down.
    """
    cluster = views.cluster_view(report, daemon.config(), daemon.backend)
    own = seen.of_snapshot(report.snapshot)
    waiting = (views.preemptor_view(each, report) for each in seen.waiting(report))
    everybody = seen.all("jobs")
    return now_schemas.NowView(
        health=health_of(daemon),
        leads=daemon.leads(),
        at=report.at,
        clock_doubt=report.clock_doubt,
        cluster=cluster if everybody else cluster.model_copy(update={"skipped": ()}),
        # Which nodes an operation empties tells where others' jobs run.
        nodes=now_views.node_map(report, report.open_evictions if everybody else ()) if seen.all("nodes") else None,
        waiting=tuple(each.model_copy(update={"why": own.told(each.why)}) for each in waiting),
        operations=tuple(seen.operations_now(report)),
    )


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
