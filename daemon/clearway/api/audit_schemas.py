"""What is answered of the audit trail."""

from datetime import datetime
from typing import Any

from pydantic import Field

from clearway.api.plan_schemas import Answer
from clearway.model.audit import AuditKind, AuditRow


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


def audit_view(row: AuditRow) -> AuditView:
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
