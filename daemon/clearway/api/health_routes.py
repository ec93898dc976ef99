"""The state of the daemon, for people, supervisors and Prometheus."""

from fastapi import APIRouter, HTTPException, Response

import clearway
from clearway.api import schemas
from clearway.api.authorization import PUBLIC
from clearway.api.context import Context, Daemon

router = APIRouter(tags=["health"], dependencies=[PUBLIC])

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
@router.get("/health")
async def health(daemon: Daemon) -> schemas.Health:
    """Always 200 while the process answers; the body says more."""
    return health_of(daemon)


@router.get("/liveness", responses=_UNWELL)
async def liveness(daemon: Daemon) -> schemas.Health:
    """503 when the last cycle that succeeded is older than daemon.stale_after."""
    found = health_of(daemon)
    if found.status == "stale":
        raise HTTPException(
            503, f"no cycle has succeeded for {found.last_cycle_age_s:.0f} s (stale after {found.stale_after_s:.0f} s)"
        )
    return found


@router.get("/leader", responses=_UNWELL)
async def leader(daemon: Daemon) -> schemas.Health:
    """200 on the daemon that acts, 503 on one that stands by: for load balancers."""
    if not daemon.leads():
        raise HTTPException(503, "another daemon acts on this database, or none")
    return health_of(daemon)


@router.get("/readiness", responses=_UNWELL)
def readiness(daemon: Daemon) -> schemas.Health:
    """503 until a first cycle has succeeded, and while the database does not answer."""
    if not daemon.pulse.beaten:
        raise HTTPException(503, "no cycle has succeeded yet")
    daemon.store.get_value("paused")  # raises StoreError, which is answered with 503
    return health_of(daemon)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def metrics(daemon: Daemon) -> Response:
    """Prometheus' text format."""
    return Response(daemon.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
