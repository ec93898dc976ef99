"""The audit trail: who did what, each entry chained to the one before, so that a change or a gap shows. Pure. An
entry's text is canonical JSON (sorted keys, no blanks, ASCII) of its number, time, actor, kind and content; its hash is
SHA-256 over the hash before (at first 64 zeros), a line feed, and this text. Whoever can write to the database can make
the whole chain anew: a hash noted elsewhere (the daemon's log, at each start) shows that too.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

BEFORE_THE_FIRST = "0" * 64


class AuditKind(StrEnum):
    REQUEST = "request"  # somebody asked for an approval, a cancellation, a pause, a drain ...
    ANSWER = "answer"  # what the daemon made of a request
    START = "start"  # a daemon begins, with this configuration
    CONFIGURATION = "configuration"  # keys or tokens were changed: old and new values
    CONFIGURATION_REFUSED = "configuration_refused"
    TAKEOVER = "takeover"  # another daemon acts from now on
    HALT = "halt"  # the daemon saw the stop switch, by request or by file, or that it is gone
    USER_PAUSE = "user_pause"  # by the daemon itself: plans for a user's urgent jobs wait for approval, or none is made
    STOPPED = "stopped"  # by the daemon itself: nodes were lost after jobs had left them (clearway resume)
    TOKEN = "token"  # noqa: S105 - `clearway token` has made one
    RESTORE = "restore"  # the database was made from a backup; names the head of the trail that this one replaced
    ADOPTED = "adopted"  # the database was given to another cluster, or to one that was renamed or moved
    REFUSED = "refused"  # a login failed, or a role did not suffice


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """What is to be recorded. ``about``: JSON values; never a secret."""

    at: datetime
    actor: str  # a user or the name of a token; of what the daemon does itself: the daemon's name
    kind: AuditKind
    about: Mapping[str, Any] = field(default_factory=dict)

    def text(self, sequence: int) -> str:
        document = {
            "sequence": sequence,
            "at": self.at.astimezone(UTC).isoformat(timespec="microseconds"),
            "actor": self.actor,
            "kind": self.kind.value,
            "about": dict(self.about),
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    sequence: int  # 1, 2, 3 ... without a gap
    entry: str  # canonical JSON
    previous: str  # hash of the entry before
    hash: str

    def document(self) -> dict[str, Any]:
        try:
            found = json.loads(self.entry)
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def fault(self, sequence: int, previous: str) -> str:
        """Why this is not entry number ``sequence``, following an entry with the hash ``previous``; empty: it is."""
        if self.sequence != sequence:
            return f"entry {sequence} is missing"
        if self.previous != previous:
            return f"entry {sequence} does not follow from entry {sequence - 1}"
        if self.hash != hash_of(previous, self.entry) or self.document().get("sequence") != sequence:
            return f"entry {sequence} was changed"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCheck:
    entries: int  # good ones, from the first on
    head: str  # hash of the last good entry
    fault: str = ""  # what is wrong after it; empty: nothing

    @property
    def intact(self) -> bool:
        return not self.fault


def hash_of(previous: str, entry: str) -> str:
    return hashlib.sha256(f"{previous}\n{entry}".encode()).hexdigest()
