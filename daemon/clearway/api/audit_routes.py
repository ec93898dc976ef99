"""Read: the audit trail, for admins."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from clearway.api.authorization import needs
from clearway.api.context import Daemon
from clearway.api.plan_schemas import Answer
from clearway.model.audit import AuditKind, AuditRow
from clearway.model.identity import Role
from clearway.store.base import LARGEST_ID

router = APIRouter(prefix="/audit", tags=["audit"], dependencies=[needs(Role.ADMIN)])


class AuditView(Answer):
    sequence: int = Field(description="its number: 1, 2, 3 ... without a gap")
    at: datetime | None = Field(description="when it happened; null: the entry was changed and cannot be read")
    actor: str = Field(description="user, name of a token, or the daemon's own name; empty: not known")
    kind: str = Field(description=f"{', '.join(AuditKind)}; empty: the entry was changed and cannot be read")
    about: dict[str, Any] = Field(description="what was asked, changed or refused")
    previous: str = Field(description="hash of the entry before; 64 zeros: there is none")
    hash: str = Field(description="SHA-256 over the hash before, a line feed and the entry as canonical JSON")


class AuditList(Answer):
    items: tuple[AuditView, ...] = Field(description="newest first")
    next_before: int | None = Field(description="value of before for the next page; null: this was the last")


class AuditCheckView(Answer):
    intact: bool = Field(description="whether every entry is there and unchanged")
    entries: int = Field(description="number of good entries, from the first on")
    head: str = Field(description="hash of the last good entry; note it elsewhere, for a trail made anew has another")
    fault: str = Field(description="what is wrong after it, as a sentence; empty: nothing")


@router.get("")
def audit(
    daemon: Daemon,
    limit: Annotated[int, Query(ge=1, le=100, description="maximum number of entries")] = 50,
    before: Annotated[int | None, Query(ge=1, le=LARGEST_ID, description="entries of lower numbers alone")] = None,
) -> AuditList:
    """Who asked for what, what came of it, changes of the configuration, and refusals; newest first."""
    found = daemon.store.audit_trail(limit=limit + 1, before=before)
    items = tuple(_view(row) for row in found[:limit])
    return AuditList(items=items, next_before=items[-1].sequence if len(found) > limit else None)


def _view(row: AuditRow) -> AuditView:
    document = row.document()
    about = document.get("about")
    return AuditView(
        sequence=row.sequence,
        at=document.get("at"),
        actor=str(document.get("actor", "")),
        kind=str(document.get("kind", "")),
        about=about if isinstance(about, dict) else {},
        previous=row.previous,
        hash=row.hash,
    )


@router.get("/check")
def check(daemon: Daemon) -> AuditCheckView:
    """Follow the chain of hashes from the first entry to the last; it takes a second for 100,000 entries."""
    return AuditCheckView.model_validate(daemon.store.check_audit())
