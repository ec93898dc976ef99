"""What Slurm's own preemption would sort jobs by, read anew every ten minutes: administrators hardly ever change it.

Only comparisons with Slurm's rule need it. So a failure costs nothing but those: what was known stays, and what was
never known counts as equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from clearway.model.cluster import PreemptPriorities
from clearway.model.errors import SlurmError
from clearway.slurm.parse import preempt

READ_EVERY_S = 600.0


class PreemptReader:
    """``read`` is given what runs a command of Slurm and returns what it prints."""

    def __init__(self) -> None:
        self._known = PreemptPriorities()
        self._read_at: datetime | None = None

    def read(self, run: Callable[[Sequence[str]], str], now: datetime) -> tuple[PreemptPriorities, int]:
        """The priorities, and how many queries that took now."""
        if self._read_at is not None and abs((now - self._read_at).total_seconds()) < READ_EVERY_S:
            return self._known, 0
        self._read_at = now
        try:
            of_qos = preempt.sorts_by_qos(run(["scontrol", "show", "config"]))
        except SlurmError:
            return self._known, 1
        try:
            if of_qos:
                records = run(["scontrol", "show", "assoc_mgr", "flags=qos"])
                self._known = PreemptPriorities(preempt.read_qos_priorities(records), of_qos=True)
            else:
                tiers = preempt.read_tiers(run(["scontrol", "--oneliner", "show", "partition"]))
                self._known = PreemptPriorities(tiers)
        except SlurmError:
            pass
        return self._known, 2
