"""Logins that failed, and roles that did not suffice, in the audit trail: some of them in full, all of them counted.

An attacker may send many thousands a second. So at most ``MOST`` in ``WINDOW_S`` are entries of their own; the first
entry after that says how many more there were. That is less than 300 kB a day, whatever comes.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from clearway.model.audit import Audited, AuditKind
from clearway.model.clock import Clock
from clearway.model.errors import StoreError
from clearway.store.base import Store

MOST = 5
WINDOW_S = 600.0
_LONGEST = 200  # characters of what a caller chose


@dataclass
class Refusals:
    """Safe for several threads. ``count`` is told every one, by its reason: token or role."""

    store: Store
    clock: Clock
    count: Callable[[str], None] = lambda _: None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _began_s: float | None = None  # of the present window
    _inside: int = 0
    _unrecorded: int = 0

    def note(self, reason: str, why: str, *, actor: str, peer: str, path: str) -> None:
        """A database that does not answer makes no refusal an admission, and none an error: it stays unrecorded."""
        self.count(reason)
        with self._lock:
            now_s = self.clock.monotonic()
            if self._began_s is None or now_s - self._began_s >= WINDOW_S:
                self._began_s, self._inside = now_s, 0
            if self._inside >= MOST:
                self._unrecorded += 1
                return
            self._inside += 1
            more, self._unrecorded = self._unrecorded, 0
        about = {"reason": reason, "why": why[:_LONGEST], "peer": peer[:_LONGEST], "path": path[:_LONGEST]}
        if more:
            about |= {"more_before": str(more)}
        try:
            self.store.audit(Audited(at=self.clock.now(), actor=actor, kind=AuditKind.REFUSED, about=about))
        except StoreError:
            with self._lock:
                self._unrecorded += more + 1
