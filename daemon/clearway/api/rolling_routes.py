"""Rolling drains: ordered with ``POST /drains``, each of their drains an eviction like others."""

from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Query, Response

from clearway.api import schemas
from clearway.api.context import Actor, Daemon, Report
from clearway.api.request_routes import REFUSALS, ask
from clearway.drain.plan import plan_drain
from clearway.drain.request import DrainRequest
from clearway.drain.rolling import preview
from clearway.drain.selection import chosen_nodes
from clearway.model.errors import DrainError
from clearway.model.requests import RequestKind
from clearway.model.rolling import RollingDrain
from clearway.store.base import LARGEST_ID

router = APIRouter(prefix="/rolling-drains", tags=["drains"])
RollingId = Annotated[int, Path(ge=1, le=LARGEST_ID, description="number of the rolling drain")]


@router.get("")
def rolling_drains(
    daemon: Daemon,
    limit: Annotated[int, Query(ge=1, le=100, description="maximum number of rolling drains")] = 50,
    offset: Annotated[int, Query(ge=0, le=1_000_000, description="number of newest rolling drains to skip")] = 0,
) -> schemas.RollingList:
    """Rolling drains, newest first."""
    found = daemon.store.rolling_drains(limit=limit + 1, offset=offset)
    items = tuple(_view(each) for each in found[:limit])
    return schemas.RollingList(items=items, next_offset=offset + limit if len(found) > limit else None)


@router.get("/{rolling_id}")
def rolling_drain(daemon: Daemon, rolling_id: RollingId) -> schemas.RollingView:
    """One rolling drain, with the turn of each of its nodes."""
    found = daemon.store.rolling_drain(rolling_id)
    if found is None:
        raise HTTPException(404, f"no rolling drain {rolling_id}")
    return _view(found)


@router.post("/{rolling_id}/cancel", status_code=202, responses=REFUSALS)
def cancel(daemon: Daemon, actor: Actor, rolling_id: RollingId, response: Response) -> schemas.RequestView:
    """Begin no more of its drains, and cancel what is not empty yet; empty nodes stay drained."""
    if daemon.store.rolling_drain(rolling_id) is None:
        raise HTTPException(404, f"no rolling drain {rolling_id}")
    return ask(daemon, response, RequestKind.CANCEL_ROLLING, None, actor, rolling_id=rolling_id)


@router.post("/what-if")
def what_if(daemon: Daemon, report: Report, wish: DrainRequest) -> schemas.RollingWhatIf:
    """Which nodes would be emptied together if nothing changed; changes nothing and needs no token."""
    snapshot = report.snapshot
    try:
        wish.check_times(snapshot.taken_at)
        order = wish.order(chosen_nodes(wish.nodes, snapshot), "what-if")
    except DrainError as error:
        raise HTTPException(422, str(error)) from None
    context = daemon.planning_context(report, counts=False)
    with daemon.planning():
        found = preview(order, wish.rolling or 1, snapshot, lambda each: plan_drain(each, context, daemon.planner))
    return schemas.RollingWhatIf(
        taken_at=snapshot.taken_at,
        batches=tuple(schemas.BatchView.model_validate(batch) for batch in found.batches),
        skipped=dict(found.skipped),
    )


def _view(rolling: RollingDrain) -> schemas.RollingView:
    return schemas.RollingView(
        rolling_id=rolling.rolling_id,
        state=rolling.state,
        at_once=rolling.at_once,
        actor=rolling.order.actor,
        reason=rolling.order.reason,
        begin_at=rolling.order.begin_at,
        parallel=rolling.order.parallel,
        force=rolling.order.force,
        created_at=rolling.created_at,
        progressed_at=rolling.progressed_at,
        finished_at=rolling.finished_at,
        outcome=rolling.outcome,
        turns=tuple(
            schemas.TurnView(node=turn.node, state=turn.state, drain_id=turn.drain_id or None, note=turn.note)
            for turn in rolling.turns
        ),
    )
