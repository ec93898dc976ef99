"""Read: predicted and actual checkpoints and restarts, and which applications are not trusted any more."""

from typing import Annotated

from fastapi import APIRouter, Query

from clearway.api import schemas, views
from clearway.api.context import Daemon

router = APIRouter(tags=["calibration"])


@router.get("/calibration")
def calibration(
    daemon: Daemon,
    limit: Annotated[int, Query(ge=1, le=1_000, description="maximum number of applications")] = 100,
    offset: Annotated[int, Query(ge=0, le=1_000_000, description="number of applications to skip")] = 0,
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
