"""Change: what an operator asks is written to the store; the loop reads it in its next cycle and writes the result.

Nothing here calls Slurm. The actor is the name of the token.
"""

from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Response

from clearway.api import schemas
from clearway.api.context import Actor, Context, Daemon
from clearway.api.eviction_routes import EvictionId
from clearway.model.requests import RequestKind
from clearway.store.base import LARGEST_ID
from clearway.telemetry.log import get_logger

router = APIRouter(tags=["requests"])
log = get_logger()

REFUSALS: dict[int | str, dict[str, object]] = {
    401: {"model": schemas.Problem, "description": "no valid token"},
    403: {"model": schemas.Problem, "description": "changes are switched off"},
}


@router.post("/evictions/{eviction_id}/approve", status_code=202, responses=REFUSALS)
def approve(daemon: Daemon, actor: Actor, eviction_id: EvictionId, response: Response) -> schemas.RequestView:
    """Let an eviction that awaits approval be carried out."""
    return ask(daemon, response, RequestKind.APPROVE, eviction_id, actor)


@router.post("/evictions/{eviction_id}/cancel", status_code=202, responses=REFUSALS)
def cancel(daemon: Daemon, actor: Actor, eviction_id: EvictionId, response: Response) -> schemas.RequestView:
    """Undo what can be undone: jobs that have not passed their point of no return stay."""
    return ask(daemon, response, RequestKind.CANCEL, eviction_id, actor)


@router.post("/pause", status_code=202, responses=REFUSALS)
def pause(daemon: Daemon, actor: Actor, response: Response) -> schemas.RequestView:
    """Begin nothing new; what has passed its point of no return is followed to its end."""
    return ask(daemon, response, RequestKind.PAUSE, None, actor)


@router.post("/resume", status_code=202, responses=REFUSALS)
def resume(daemon: Daemon, actor: Actor, response: Response) -> schemas.RequestView:
    """End a pause."""
    return ask(daemon, response, RequestKind.RESUME, None, actor)


@router.get("/requests/{request_id}")
def request(
    daemon: Daemon, request_id: Annotated[int, Path(ge=1, le=LARGEST_ID, description="number of the request")]
) -> schemas.RequestView:
    """The result of a request."""
    found = daemon.store.request(request_id)
    if found is None:
        raise HTTPException(404, f"no request {request_id}")
    return schemas.RequestView.model_validate(found)


def ask(
    daemon: Context,
    response: Response,
    kind: RequestKind,
    eviction_id: int | None,
    actor: str,
    document: str = "",
    rolling_id: int | None = None,
) -> schemas.RequestView:
    """Store a request for the loop, and wake it."""
    now = daemon.clock.now()
    request_id = daemon.store.add_request(kind, eviction_id, actor, now, document, rolling_id)
    log.info("request", request=request_id, kind=kind, eviction=eviction_id, actor=actor)
    daemon.wake()
    response.headers["Location"] = f"/api/v1/requests/{request_id}"
    return schemas.RequestView(
        request_id=request_id,
        kind=kind,
        eviction_id=eviction_id,
        rolling_id=rolling_id,
        actor=actor,
        created_at=now,
        handled_at=None,
        result="",
    )
