"""What the lifecycles of all operations share: one row of a table, and the rows at its end. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from clearway.execution.job_lifecycle import Command, S
from clearway.model.operations import Eviction, EvictionState

E = EvictionState


@dataclass(frozen=True, slots=True)
class Phase:
    """One row of the eviction's table; ``event`` is written down for people."""

    state: EvictionState
    command: Command | None = None
    event: str = ""
    outcome: str = ""
    late: bool = False
    started_at: datetime | None = None


def close_phase(e: Eviction, now: datetime, watch_return: timedelta) -> Phase | None:
    """The rows of an eviction with nothing of its own left on the cluster: its preemptees return."""
    if e.state is E.STARTED:
        return Phase(E.RETURNING)
    open_ones = [p for p in e.preemptions if not p.state.terminal]
    suspended = any(p.state is S.SUSPENDED for p in open_ones)  # only the eviction that did it will resume it
    if open_ones and (suspended or now - e.state_since < watch_return):
        return None
    final = E.COMPLETED
    if e.state is E.CANCELLING:
        final = E.FAILED if e.started_at is None and e.late else E.CANCELLED
    outcome = e.outcome
    if open_ones:
        outcome += f" {len(open_ones)} preempted job(s) had not returned when watching ended."
    return Phase(final, outcome=outcome.strip())
