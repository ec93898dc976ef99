"""Read: the report on urgent jobs."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query

from clearway.api.authorization import needs
from clearway.api.context import Daemon
from clearway.api.report_schemas import ReportView, report_view
from clearway.api.sight import Seen
from clearway.model.durations import parse_duration_s
from clearway.model.identity import Role
from clearway.model.urgent_report import MOST_CASES
from clearway.telemetry.report import part_of, report

router = APIRouter(tags=["evictions"], dependencies=[needs(Role.USER)])


@router.get("/report")
def urgent_report(
    daemon: Daemon,
    seen: Seen,
    since: Annotated[str, Query(max_length=40, description="how far to look back, such as 7d or 12h")] = "7d",
) -> ReportView:
    """What Clearway did or would have done for urgent jobs, what happened, and what Slurm's own rule would lose."""
    now = daemon.clock.now()
    try:
        at = now - timedelta(seconds=parse_duration_s(since))
    except ValueError as error:
        raise HTTPException(422, f"since: {error}") from None
    found = daemon.store.cases_since(at, MOST_CASES + 1)
    told, user = found[:MOST_CASES], seen.own_alone
    if user is not None:
        told = tuple(part for case in told if (part := part_of(case, user)) is not None)
    return report_view(report(told, at, now, more=len(found) > MOST_CASES), complete=user is None)
