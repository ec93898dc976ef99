"""The cluster's leaf switches, read only while a waiting job asks for one, and anew every five minutes.

They change with topology.conf alone. What cannot be read is not known: the job that asks is left to Slurm, which
says why, and the next look comes after a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from clearway.model.cluster import Job, JobState, Topology
from clearway.model.errors import SlurmError
from clearway.slurm.parse import FieldError, read_leaf_switches

READ_EVERY_S = 300.0
READ_AGAIN_S = 60.0  # after a failure


class TopologyReader:
    """Keeps what was read. Of one that is younger than its time nothing is asked again."""

    def __init__(self) -> None:
        self._known = Topology()
        self._read_at: datetime | None = None

    def read(self, run: Callable[[Sequence[str]], str], jobs: Iterable[Job], now: datetime) -> tuple[Topology, int]:
        """The topology, and how many queries that took now; ``run`` runs a command and returns what it prints."""
        if not any(job.switches == 1 and job.state is JobState.PENDING for job in jobs):
            return Topology(), 0
        if self._read_at is not None:
            age_s = abs((now - self._read_at).total_seconds())
            if age_s < (READ_AGAIN_S if self._known.unknown else READ_EVERY_S):
                return self._known, 0
        self._read_at = now
        try:
            switch_of = read_leaf_switches(run(["scontrol", "show", "topology"]))
            self._known = Topology(switch_of, unknown="")
        except (SlurmError, FieldError) as error:
            self._known = Topology(unknown=f"scontrol show topology: {error}")
        return self._known, 1
