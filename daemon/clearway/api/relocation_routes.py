"""Compaction and promotion: requests like all others, and what they would do.

The token's name must be allowed to drain. The loop checks it.
"""

from fastapi import APIRouter, Response

from clearway.api import schemas, views
from clearway.api.context import Actor, Context, Daemon, Report
from clearway.api.request_routes import REFUSALS, ask
from clearway.model.orders import MoveKind
from clearway.model.report import CycleReport
from clearway.model.requests import RequestKind
from clearway.relocation.controller import jobs_left
from clearway.relocation.plan import plan_moves

router = APIRouter(tags=["moves"])


@router.post("/compactions", status_code=202, responses=REFUSALS)
def compact(daemon: Daemon, actor: Actor, response: Response) -> schemas.RequestView:
    """Move jobs off the emptiest nodes onto others that are partly used, so that whole nodes become empty.

    When the request is handled its ``eviction_id`` names what was begun, which is an eviction like others.
    """
    return ask(daemon, response, RequestKind.COMPACT, None, actor)


@router.post("/promotions", status_code=202, responses=REFUSALS)
def promote(daemon: Daemon, actor: Actor, response: Response) -> schemas.RequestView:
    """Move jobs from lower-ranked nodes to free higher-ranked ones, and off scarce nodes that they do not need."""
    return ask(daemon, response, RequestKind.PROMOTE, None, actor)


@router.post("/compactions/what-if")
def compaction(daemon: Daemon, report: Report) -> schemas.WhatIfView:
    """Which jobs a compaction would move now, and why others stay; changes nothing and needs no token."""
    return _what_if(MoveKind.COMPACTION, daemon, report)


@router.post("/promotions/what-if")
def promotion(daemon: Daemon, report: Report) -> schemas.WhatIfView:
    """Which jobs a promotion would move now, and why others stay; changes nothing and needs no token."""
    return _what_if(MoveKind.PROMOTION, daemon, report)


def _what_if(kind: MoveKind, daemon: Context, report: CycleReport) -> schemas.WhatIfView:
    with daemon.planning():
        context = daemon.planning_context(report)
        jobs = jobs_left(kind, daemon.store, context.config, context.now)
        plan = plan_moves(kind, context, jobs=jobs, actor="what-if")
    # Moves have no deadline, so nothing to trade.
    return views.what_if_view(context.now, plan).model_copy(update={"curve": None})
