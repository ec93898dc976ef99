"""Nodes that are promised for a time to come: requests like all others, and the promises that there are.

The token's name must be allowed to drain, by the configuration or by the rights that Slurm gives a user of that name.
The loop checks it.
"""

from typing import Annotated

from fastapi import APIRouter, HTTPException, Query

from clearway.api import schemas, views
from clearway.api.authorization import needs
from clearway.api.context import Daemon
from clearway.api.eviction_routes import EvictionId
from clearway.api.problems import NOT_FOUND
from clearway.api.request_routes import OPERATOR, Ask
from clearway.model.operations import OperationKind, Promise
from clearway.model.requests import RequestKind, Role
from clearway.promise.request import PromiseRequest

router = APIRouter(prefix="/promises", tags=["promises"], dependencies=[needs(Role.VIEWER)])


@router.post("", status_code=202, dependencies=[OPERATOR])
def promise(ask: Ask, wish: PromiseRequest) -> schemas.RequestView:
    """Have nodes free from a time on, for the jobs of some users.

    When the request is handled its ``eviction_id`` names the promise, which is an eviction like others.
    """
    return ask(RequestKind.PROMISE, document=wish.model_dump_json())


@router.get("")
def promises(
    daemon: Daemon,
    limit: Annotated[int, Query(ge=1, le=100, description="maximum number of promises")] = 50,
    offset: Annotated[int, Query(ge=0, le=1_000_000, description="number of newest promises to skip")] = 0,
) -> schemas.EvictionList:
    """Promises, the newest first; /evictions/{eviction_id} has more of each."""
    found = daemon.store.evictions(kind=OperationKind.PROMISE, limit=limit + 1, offset=offset)
    items = tuple(views.eviction_summary(each, schemas.EvictionSummary) for each in found[:limit])
    return schemas.EvictionList(items=items, next_offset=offset + limit if len(found) > limit else None)


@router.delete("/{eviction_id}", status_code=202, dependencies=[OPERATOR], responses=NOT_FOUND)
def cancel(daemon: Daemon, ask: Ask, eviction_id: EvictionId) -> schemas.RequestView:
    """Cancel a promise: its reservation is removed, and no further job leaves for it."""
    if not isinstance(daemon.store.eviction(eviction_id), Promise):
        raise HTTPException(404, f"no promise {eviction_id}")
    return ask(RequestKind.CANCEL, eviction_id)
