"""What operators ask over REST and the command line, as the store keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What an operator asked over REST or CLI, for the loop to carry out."""

    request_id: int
    kind: str  # approve, cancel, pause, resume, drain, undrain, cancel_rolling, compact, promote
    eviction_id: int | None
    actor: str
    created_at: datetime
    document: str = ""  # what a drain or undrain is about, as JSON
    handled_at: datetime | None = None
    result: str = ""
    rolling_id: int | None = None  # the rolling drain that it is about, or has led to

    @property
    def refused(self) -> bool:
        return self.result.startswith("refused")
