"""Read: the audit trail, for admins."""

from typing import Annotated

from fastapi import APIRouter, Query

from clearway.api.audit_schemas import AuditCheckView, AuditList, audit_view
from clearway.api.authorization import needs
from clearway.api.context import Daemon
from clearway.model.requests import Role
from clearway.store.base import LARGEST_ID

router = APIRouter(prefix="/audit", tags=["audit"], dependencies=[needs(Role.ADMIN)])


@router.get("")
def audit(
    daemon: Daemon,
    limit: Annotated[int, Query(ge=1, le=100, description="maximum number of entries")] = 50,
    before: Annotated[int | None, Query(ge=1, le=LARGEST_ID, description="entries of lower numbers alone")] = None,
) -> AuditList:
    """Who asked for what, what came of it, changes of the configuration, and refusals; newest first."""
    found = daemon.store.audit_trail(limit=limit + 1, before=before)
    items = tuple(audit_view(row) for row in found[:limit])
    return AuditList(items=items, next_before=items[-1].sequence if len(found) > limit else None)


@router.get("/check")
def check(daemon: Daemon) -> AuditCheckView:
    """Follow the chain of hashes from the first entry to the last; it takes a second for 100,000 entries."""
    return AuditCheckView.model_validate(daemon.store.check_audit())
