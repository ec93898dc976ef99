"""What the audit trail has of a daemon's configuration and tokens: each change, with old and new values.

What was recorded last is kept in the database, so that a change shows that was made while the daemon did not run. Keys
are ``section.key``, rules ``preemptors``; a token is named by the beginning of its hash. No value is a secret: of the
database's URL the password is left out.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import clearway
from clearway.api.logins import Entry
from clearway.config.configuration import Config
from clearway.model.audit import Audited, AuditKind, AuditRow
from clearway.model.clock import Clock
from clearway.store.repository import Store

_PASSWORD = re.compile(r"(?<=//)([^:/@]*):.*@")
_HASH_SHOWN = len("sha256:") + 12

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ConfigurationRecord:
    """Every method raises ``StoreError`` where it cannot be recorded: then nothing may be taken over."""

    store: Store
    clock: Clock
    owner: str  # the daemon's name

    def started(self, config: Config, tokens: Iterable[Entry]) -> AuditRow:
        about = {"version": clearway.__version__, "mode": config.daemon.mode.value}
        return self._record(AuditKind.START, config, tokens, about)

    def changed(self, config: Config, tokens: Iterable[Entry]) -> None:
        self._record(AuditKind.CONFIGURATION, config, tokens, {})

    def refused(self, why: str) -> None:
        about = {"why": why}
        kind = AuditKind.CONFIGURATION_REFUSED
        self.store.audit(Audited(at=self.clock.now(), actor=self.owner, kind=kind, about=about))

    def halted(self, why: str) -> None:
        """The stop switch as the daemon sees it; ``why`` empty: it is gone. A file for it names nobody."""
        self.store.audit(Audited(at=self.clock.now(), actor=self.owner, kind=AuditKind.HALT, about={"halted": why}))

    def _record(self, kind: AuditKind, config: Config, tokens: Iterable[Entry], about: Values) -> AuditRow:
        key = f"configuration {self.owner}"
        kept, values = self.store.get_value(key), flat(config, tokens)
        changes = differences(flat(Config(), ()) if kept is None else kept, values)
        audited = Audited(at=self.clock.now(), actor=self.owner, kind=kind, about=about | {"changes": changes})
        return self.store.audit_keeping(audited, key, values)


def flat(config: Config, tokens: Iterable[Entry]) -> Values:
    """Every value by its key, as JSON has it."""
    found: Values = {}
    for section, values in config.model_dump(mode="json").items():
        if isinstance(values, dict):
            found |= {f"{section}.{name}": value for name, value in values.items()}
        else:
            found[section] = values
    found["store.url"] = _PASSWORD.sub(r"\1:***@", str(found["store.url"]).partition("?")[0])
    for entry in tokens:
        found[f"token {entry.digest[:_HASH_SHOWN]}"] = entry.line.rpartition(" ")[0]
    return found


def differences(old: Values, new: Values) -> dict[str, list[Any]]:
    """Old and new value of each key whose values differ; None for one that is not there."""
    return {
        key: [old.get(key), new.get(key)]
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key) or (key in old) != (key in new)
    }
