"""Nodes that are emptied, brought back or promised, and jobs that are moved: requests like all others, and what-ifs.

The token's name must be allowed to drain, by the configuration or by the rights that Slurm gives a user of that name.
The loop checks it.
"""

from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Path, Query
from starlette.convertors import StringConvertor, register_url_convertor

from clearway.api import schemas, views
from clearway.api.authorization import Asker, needs
from clearway.api.context import Context, Daemon, Report
from clearway.api.eviction_routes import OPERATOR, Ask, EvictionId
from clearway.api.forms import NOT_FOUND
from clearway.api.sight import Seen
from clearway.drain.plan import plan_drain
from clearway.drain.request import DrainRequest, UndrainRequest, chosen_nodes
from clearway.drain.rolling import preview
from clearway.execution.lifecycle import not_ours_to_drain
from clearway.model.cluster import ClusterSnapshot
from clearway.model.errors import DrainError
from clearway.model.operations import Promise
from clearway.model.orders import DrainOrder, MoveKind, RollingDrain, RollingState
from clearway.model.records import LARGEST_ID
from clearway.model.report import CycleReport
from clearway.model.requests import RequestKind, Role
from clearway.promise.request import PromiseRequest
from clearway.relocation.controller import jobs_left
from clearway.relocation.plan import plan_moves

_VIEWER = [needs(Role.VIEWER)]
router = APIRouter(tags=["drains"], dependencies=[needs(Role.USER)])
moves = APIRouter(tags=["moves"], dependencies=_VIEWER)
rolling = APIRouter(prefix="/rolling-drains", tags=["drains"], dependencies=_VIEWER)


class _RollingSegment(StringConvertor):
    """Else /what-if would be a number to the route that reads one, and not a path with a method of its own."""

    regex = "(?!what-if$)[^/]+"


register_url_convertor("rolling", _RollingSegment())
RollingId = Annotated[int, Path(ge=1, le=LARGEST_ID, description="number of the rolling drain")]


def _may_ask(asker: Asker, daemon: Daemon) -> None:
    if not asker.role.includes(Role.OPERATOR) and not daemon.config().drain.owners:
        raise HTTPException(403, f"this needs the role {Role.OPERATOR}, for drain.owners is not set")


_ASKING = [Depends(_may_ask)]


@router.post("/drains", status_code=202, dependencies=_ASKING)
def drain(ask: Ask, wish: DrainRequest) -> schemas.RequestView:
    """Empty nodes: nothing new starts there, and every job is saved and goes on elsewhere.

    When the request is handled its ``eviction_id`` names the drain, which is an eviction like others; that of a rolling
    one its ``rolling_id``.
    """
    return ask(RequestKind.DRAIN, document=wish.model_dump_json())


@router.post("/undrains", status_code=202, dependencies=_ASKING)
def undrain(ask: Ask, wish: UndrainRequest) -> schemas.RequestView:
    """Let nodes take jobs again that a drain has emptied."""
    return ask(RequestKind.UNDRAIN, document=wish.model_dump_json())


@router.post(
    "/drains/what-if",
    name="what_if",
    responses={409: {"model": schemas.Problem, "description": "these nodes cannot be drained"}},
)
def drain_what_if(daemon: Daemon, seen: Seen, report: Report, wish: DrainRequest) -> schemas.WhatIfView:
    """How the jobs on these nodes would leave; changes nothing."""
    if wish.rolling is not None:
        raise HTTPException(422, "rolling: ask rolling-drains/what-if")
    order = _order(wish, report.snapshot)
    why = not_ours_to_drain(order.nodes, report.snapshot)
    if why:
        raise HTTPException(409, why)
    plan = plan_drain(order, daemon.planning_context(report), daemon.planner)
    return seen.of_snapshot(report.snapshot).what_if(views.what_if_view(report.snapshot.taken_at, plan))


def _order(wish: DrainRequest, snapshot: ClusterSnapshot) -> DrainOrder:
    try:
        wish.check_times(snapshot.taken_at)
        return wish.order(chosen_nodes(wish.nodes, snapshot), "what-if")
    except DrainError as error:
        raise HTTPException(422, str(error)) from None


@moves.post("/compactions", status_code=202, dependencies=[OPERATOR])
def compact(ask: Ask) -> schemas.RequestView:
    """Move jobs off the emptiest nodes onto others that are partly used, so that whole nodes become empty.

    When the request is handled its ``eviction_id`` names what was begun, which is an eviction like others.
    """
    return ask(RequestKind.COMPACT)


@moves.post("/promotions", status_code=202, dependencies=[OPERATOR])
def promote(ask: Ask) -> schemas.RequestView:
    """Move jobs from lower-ranked nodes to free higher-ranked ones, and off scarce nodes that they do not need."""
    return ask(RequestKind.PROMOTE)


@moves.post("/compactions/what-if")
def compaction(daemon: Daemon, report: Report) -> schemas.WhatIfView:
    """Which jobs a compaction would move now, and why others stay; changes nothing."""
    return _moves_what_if(MoveKind.COMPACTION, daemon, report)


@moves.post("/promotions/what-if")
def promotion(daemon: Daemon, report: Report) -> schemas.WhatIfView:
    """Which jobs a promotion would move now, and why others stay; changes nothing."""
    return _moves_what_if(MoveKind.PROMOTION, daemon, report)


def _moves_what_if(kind: MoveKind, daemon: Context, report: CycleReport) -> schemas.WhatIfView:
    context = daemon.planning_context(report)
    jobs = jobs_left(kind, daemon.store, context.config, context.now)
    plan = plan_moves(kind, context, jobs=jobs, actor="what-if")
    # Moves have no deadline, so nothing to trade.
    return views.what_if_view(context.now, plan).model_copy(update={"curve": None})


@rolling.get("")
def rolling_drains(
    daemon: Daemon,
    state: Annotated[RollingState | None, Query(description="rolling drains in this state alone")] = None,
    limit: Annotated[int, Query(ge=1, le=100, description="maximum number of rolling drains")] = 50,
    offset: Annotated[int, Query(ge=0, le=1_000_000, description="number of newest rolling drains to skip")] = 0,
) -> schemas.RollingList:
    """Rolling drains, newest first."""
    return views.rolling_list(daemon.store, limit, offset, state)


@rolling.get("/{rolling_id:rolling}", responses=NOT_FOUND)
def rolling_drain(daemon: Daemon, rolling_id: RollingId) -> schemas.RollingView:
    """One rolling drain, with the turn of each of its nodes."""
    return views.rolling_view(_existing(daemon, rolling_id))


@rolling.post("/{rolling_id}/cancel", status_code=202, dependencies=[OPERATOR], responses=NOT_FOUND)
def cancel(daemon: Daemon, ask: Ask, rolling_id: RollingId) -> schemas.RequestView:
    """Begin no more of its drains, and cancel what is not empty yet; empty nodes stay drained."""
    _existing(daemon, rolling_id)
    return ask(RequestKind.CANCEL_ROLLING, rolling_id=rolling_id)


def _existing(daemon: Context, rolling_id: int) -> RollingDrain:
    found = daemon.store.rolling_drain(rolling_id)
    if found is None:
        raise HTTPException(404, f"no rolling drain {rolling_id}")
    return found


@rolling.post("/what-if", name="what_if")
def rolling_what_if(daemon: Daemon, report: Report, wish: DrainRequest) -> schemas.RollingWhatIf:
    """Which nodes would be emptied together if nothing changed; changes nothing."""
    order = _order(wish, report.snapshot)
    snapshot, context = report.snapshot, daemon.planning_context(report)
    found = preview(order, wish.rolling or 1, snapshot, lambda each: plan_drain(each, context, daemon.planner))
    return views.view(schemas.RollingWhatIf, snapshot, found, skipped=dict(found.skipped))


promised = APIRouter(prefix="/promises", tags=["promises"], dependencies=[needs(Role.VIEWER)])


@promised.post("", status_code=202, dependencies=[OPERATOR])
def promise(ask: Ask, wish: PromiseRequest) -> schemas.RequestView:
    """Have nodes free from a time on, for the jobs of some users.

    When the request is handled its ``eviction_id`` names the promise, which is an eviction like others.
    """
    return ask(RequestKind.PROMISE, document=wish.model_dump_json())


@promised.get("")
def promises(
    daemon: Daemon,
    limit: Annotated[int, Query(ge=1, le=100, description="maximum number of promises")] = 50,
    offset: Annotated[int, Query(ge=0, le=1_000_000, description="number of newest promises to skip")] = 0,
) -> schemas.EvictionList:
    """Promises, the newest first; /evictions/{eviction_id} has more of each."""
    return views.promise_list(daemon.store, limit, offset)


@promised.delete("/{eviction_id}", name="cancel", status_code=202, dependencies=[OPERATOR], responses=NOT_FOUND)
def cancel_promise(daemon: Daemon, ask: Ask, eviction_id: EvictionId) -> schemas.RequestView:
    """Cancel a promise: its reservation is removed, and no further job leaves for it."""
    if not isinstance(daemon.store.eviction(eviction_id), Promise):
        raise HTTPException(404, f"no promise {eviction_id}")
    return ask(RequestKind.CANCEL, eviction_id)
