"""What seldom changes, read anew every few minutes: slurmctld's version, its order of preemption, its leaf switches.

Both readers are given what runs a command of Slurm and returns what it prints.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from clearway.model.cluster import Job, JobState, PreemptPriorities, Topology
from clearway.model.errors import SlurmError
from clearway.slurm.parse import FieldError, preempt, read_leaf_switches
from clearway.slurm.releases import release_of

PRIORITIES_EVERY_S = 600.0
VERSION_AGAIN_S = 10.0  # while it is not known
TOPOLOGY_EVERY_S = 300.0
TOPOLOGY_AGAIN_S = 60.0  # after a failure
NEVER = datetime.min.replace(tzinfo=UTC)

Run = Callable[[Sequence[str]], str]


class PreemptReader:
    """slurmctld's version, and what Slurm's own preemption sorts jobs by.

    Only comparisons with Slurm's rule need the order. So a failure costs nothing but those: what was known stays, and
    what was never known counts as equal. A version that was known stays as well, when an answer does not tell it; while
    none is known, Clearway does not act (``releases``).
    """

    def __init__(self) -> None:
        self.version = ""  # as slurmctld last told it; empty: not yet
        self._known = PreemptPriorities()
        self._read_at = NEVER

    def read(self, run: Run, now: datetime) -> tuple[PreemptPriorities, int]:
        """The priorities, and how many queries that took now."""
        every_s = PRIORITIES_EVERY_S if self.version else VERSION_AGAIN_S
        if abs((now - self._read_at).total_seconds()) < every_s:
            return self._known, 0
        self._read_at, queries = now, 1
        with suppress(SlurmError):
            config = run(["scontrol", "show", "config"])
            version = preempt.version(config)
            self.version = version if release_of(version) else self.version
            of_qos, queries = preempt.sorts_by_qos(config), 2
            if of_qos:
                records = run(["scontrol", "show", "assoc_mgr", "flags=qos"])
                self._known = PreemptPriorities(preempt.read_qos_priorities(records), of_qos=True)
            else:
                tiers = preempt.read_tiers(run(["scontrol", "--oneliner", "show", "partition"]))
                self._known = PreemptPriorities(tiers)
        return self._known, queries


class TopologyReader:
    """The leaf switches, read only while a waiting job asks for one.

    They change with topology.conf alone. What cannot be read is not known: the job that asks is left to Slurm, and
    the topology says why.
    """

    def __init__(self) -> None:
        self._known = Topology()
        self._read_at = NEVER

    def read(self, run: Run, jobs: Iterable[Job], now: datetime) -> tuple[Topology, int]:
        """The topology, and how many queries that took now."""
        if not any(job.switches == 1 and job.state is JobState.PENDING for job in jobs):
            return Topology(), 0
        every_s = TOPOLOGY_AGAIN_S if self._known.unknown else TOPOLOGY_EVERY_S
        if abs((now - self._read_at).total_seconds()) < every_s:
            return self._known, 0
        self._read_at = now
        try:
            switch_of = read_leaf_switches(run(["scontrol", "show", "topology"]))
            self._known = Topology(switch_of, unknown="")
        except (SlurmError, FieldError) as error:
            self._known = Topology(unknown=f"scontrol show topology: {error}")
        return self._known, 1
