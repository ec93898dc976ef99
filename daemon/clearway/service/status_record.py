"""What `clearway status` shows beside operations: mode, and the urgent jobs that wait. Kept as one small value.

The command line may run where the daemon does not answer, so it reads the database. The value is written when it
changes: at once where another mode holds or other jobs wait, else (other sentences) at most every few seconds.
"""

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from clearway.api.views import MOST_WAITING, preemptor_view
from clearway.config.configuration import Mode
from clearway.model.clock import Clock
from clearway.model.errors import LeaseLostError, StoreError
from clearway.model.report import CycleReport
from clearway.store.base import STATUS, Store

_SENTENCES_EVERY_S = 5.0


@dataclass(slots=True)
class StatusRecord:
    """For the daemon that leads."""

    store: Store
    clock: Clock
    _written: dict[str, Any] = field(default_factory=dict)
    _written_at: float = 0.0  # by the monotonic clock

    def note(self, report: CycleReport, mode: Mode, backend_why: str) -> None:
        """A database that does not answer, or is another daemon's now, is no failure of this cycle."""
        shown = (preemptor_view(waiting, report) for waiting in report.waiting[:MOST_WAITING])
        waiting = [each.model_dump(mode="json", exclude={"left_s"}) for each in shown]
        value = {
            "mode": mode.value,
            "backend_why": backend_why,
            "slurm_version": report.snapshot.slurm_version,
            "only_observes": report.only_observes,
            "waiting": waiting,
            "waiting_preemptors": len(report.waiting),
            "left_to_slurm": dict(sorted(Counter(report.left_to_slurm).items())),
        }
        if value == self._written:
            return
        now_s = self.clock.monotonic()
        if _facts(value) == _facts(self._written) and now_s - self._written_at < _SENTENCES_EVERY_S:
            return
        with contextlib.suppress(StoreError, LeaseLostError):
            self.store.set_value(STATUS, value)
            self._written, self._written_at = value, now_s


def _facts(value: dict[str, Any]) -> tuple[Any, ...]:
    """The value without its sentences."""
    waiting = [(each["job_id"], each["eviction_id"], each["deadline"]) for each in value.get("waiting", ())]
    return *(value.get(key) for key in ("mode", "only_observes", "slurm_version", "waiting_preemptors")), waiting
