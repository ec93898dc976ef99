"""Read: how good predictions of checkpoints and restarts were, and which applications are not trusted any more."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from clearway.api import schemas, views
from clearway.api.context import Daemon

router = APIRouter(tags=["calibration"])


@router.get("/calibration")
def calibration(
    daemon: Daemon,
    limit: Annotated[int, Query(ge=1, le=1_000, description="most applications to answer with")] = 100,
    offset: Annotated[int, Query(ge=0, le=1_000_000, description="how many of the first to leave out")] = 0,
) -> schemas.CalibrationView:
    """By checkpointer, and by user, application and checkpointer in their order, over the newest records of each."""
    history = daemon.history()
    keys = history.keys[offset : offset + limit]
    now = daemon.clock.now()
    more = len(history.keys) > offset + limit
    return schemas.CalibrationView(
        checkpointers=tuple(views.checkpointer_calibration(name, history) for name in history.checkpointers[:limit]),
        items=tuple(views.application_calibration(key, history, now) for key in keys),
        next_offset=offset + limit if more else None,
    )
