"""Empty nodes and bring them back: requests like all others, and what a drain would do.

The token's name must be allowed to drain, by the configuration or by the rights that Slurm gives a user of that name.
The loop checks it.
"""

from fastapi import APIRouter, HTTPException, Response

from clearway.api import schemas, views
from clearway.api.context import Actor, Daemon, Report
from clearway.api.request_routes import REFUSALS, ask
from clearway.drain.plan import plan_drain
from clearway.drain.request import DrainRequest, UndrainRequest
from clearway.drain.selection import chosen_nodes
from clearway.execution.node_hold import not_ours_to_drain
from clearway.model.errors import DrainError
from clearway.model.requests import RequestKind

router = APIRouter(tags=["drains"])


@router.post("/drains", status_code=202, responses=REFUSALS)
def drain(daemon: Daemon, actor: Actor, wish: DrainRequest, response: Response) -> schemas.RequestView:
    """Empty nodes: nothing new starts there, and every job is saved and goes on elsewhere.

    When the request is handled its ``eviction_id`` names the drain, which is an eviction like others; that of a rolling
    one its ``rolling_id``.
    """
    return ask(daemon, response, RequestKind.DRAIN, None, actor, wish.model_dump_json())


@router.post("/undrains", status_code=202, responses=REFUSALS)
def undrain(daemon: Daemon, actor: Actor, wish: UndrainRequest, response: Response) -> schemas.RequestView:
    """Let nodes take jobs again that a drain has emptied."""
    return ask(daemon, response, RequestKind.UNDRAIN, None, actor, wish.model_dump_json())


@router.post(
    "/drains/what-if", responses={409: {"model": schemas.Problem, "description": "these nodes cannot be drained"}}
)
def what_if(daemon: Daemon, report: Report, wish: DrainRequest) -> schemas.WhatIfView:
    """How the jobs on these nodes would leave; changes nothing and needs no token."""
    if wish.rolling is not None:
        raise HTTPException(422, "rolling: ask rolling-drains/what-if")
    snapshot = report.snapshot
    try:
        wish.check_times(snapshot.taken_at)
        nodes = chosen_nodes(wish.nodes, snapshot)
    except DrainError as error:
        raise HTTPException(422, str(error)) from None
    why = not_ours_to_drain(nodes, snapshot)
    if why:
        raise HTTPException(409, why)
    with daemon.planning():
        context = daemon.planning_context(report, counts=False)
        plan = plan_drain(wish.order(nodes, "what-if"), context, daemon.planner)
    return views.what_if_view(snapshot.taken_at, plan)
