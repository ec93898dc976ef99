"""Change: what an operator asks is written to the store; the loop reads it in its next cycle and writes the result.

Nothing here calls Slurm. The actor is the name of the identity.
"""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Path, Response

from clearway.api import schemas, views
from clearway.api.authorization import Actor, needs
from clearway.api.context import Daemon
from clearway.api.eviction_routes import EvictionId
from clearway.api.forms import NOT_FOUND
from clearway.api.sight import Seen
from clearway.model.requests import RequestKind, Role
from clearway.store.base import LARGEST_ID
from clearway.telemetry.log import get_logger

router = APIRouter(tags=["requests"])
log = get_logger()

OPERATOR = needs(Role.OPERATOR)


@dataclass(frozen=True)
class Asking:
    """Stores a request for the loop, and wakes it. The route that takes it names the role that this needs."""

    daemon: Daemon
    actor: Actor
    response: Response

    def __call__(
        self, kind: RequestKind, eviction_id: int | None = None, *, document: str = "", rolling_id: int | None = None
    ) -> schemas.RequestView:
        store, now = self.daemon.store, self.daemon.clock.now()
        request_id = store.add_request(kind, eviction_id, self.actor, now, document, rolling_id)
        log.info("request", request=request_id, kind=kind, eviction=eviction_id, actor=self.actor)
        self.daemon.wake()
        self.response.headers["Location"] = f"/api/v1/requests/{request_id}"
        asked = {"kind": kind, "eviction_id": eviction_id, "rolling_id": rolling_id, "created_at": now}
        return views.view(
            schemas.RequestView, self, request_id=request_id, **asked, handled_at=None, code=None, result=""
        )


Ask = Annotated[Asking, Depends()]


@router.post("/evictions/{eviction_id}/approve", status_code=202, dependencies=[OPERATOR], responses=NOT_FOUND)
def approve(ask: Ask, eviction_id: EvictionId) -> schemas.RequestView:
    """Let an eviction that awaits approval be carried out."""
    return ask(RequestKind.APPROVE, eviction_id)


@router.post("/evictions/{eviction_id}/cancel", status_code=202, dependencies=[OPERATOR], responses=NOT_FOUND)
def cancel(ask: Ask, eviction_id: EvictionId) -> schemas.RequestView:
    """Undo what can be undone: jobs that have not passed their point of no return stay."""
    return ask(RequestKind.CANCEL, eviction_id)


@router.post("/pause", status_code=202, dependencies=[OPERATOR])
def pause(ask: Ask) -> schemas.RequestView:
    """Begin nothing new; what has passed its point of no return is followed to its end."""
    return ask(RequestKind.PAUSE)


@router.post("/resume", status_code=202, dependencies=[OPERATOR])
def resume(ask: Ask) -> schemas.RequestView:
    """End a pause."""
    return ask(RequestKind.RESUME)


@router.post("/halt", status_code=202, dependencies=[OPERATOR])
def halt(ask: Ask) -> schemas.RequestView:
    """Give Slurm no command any more, from this moment on, also in the middle of a cycle."""
    return ask(RequestKind.HALT)


@router.post("/unhalt", status_code=202, dependencies=[OPERATOR])
def unhalt(ask: Ask) -> schemas.RequestView:
    """End a halt. One by the file `daemon.halt_file` lasts until the file is removed."""
    return ask(RequestKind.UNHALT)


@router.get("/requests/{request_id}", dependencies=[needs(Role.USER)], responses=NOT_FOUND)
def request(
    daemon: Daemon,
    seen: Seen,
    request_id: Annotated[int, Path(ge=1, le=LARGEST_ID, description="number of the request")],
) -> schemas.RequestView:
    """The result of a request, for viewers and for whoever has asked it."""
    found = daemon.store.request(request_id)
    if found is None or (seen.asker.name != found.actor and not seen.asker.role.includes(Role.VIEWER)):
        raise HTTPException(404, f"no request {request_id}")
    return schemas.RequestView.model_validate(found)
