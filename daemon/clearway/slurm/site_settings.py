"""What is read beside jobs and nodes: slurmctld's version and configuration, its leaf switches, and its licenses.

All readers are given what runs a command of Slurm and returns what it prints.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from clearway.eligibility.node_usage import asks_for_any
from clearway.model.cluster import Job, JobState, License, PowerSaving, PreemptPriorities, Topology
from clearway.model.errors import SlurmError
from clearway.slurm.parse import FieldError, read_leaf_switches, read_licenses, read_power_saving, site
from clearway.slurm.releases import release_of

CONFIG_EVERY_S = 600.0
VERSION_AGAIN_S = 10.0  # while it is not known
TOPOLOGY_EVERY_S = 300.0
TOPOLOGY_AGAIN_S = 60.0  # after a failure
NEVER = datetime.min.replace(tzinfo=UTC)

Run = Callable[[Sequence[str]], str]


class ConfigReader:
    """slurmctld's version, what its own preemption sorts jobs by, and its power saving.

    After a failure what was known stays. Until it is known, jobs count as equal, Slurm as one that preempts none, and
    a node that is off as out of order. While no version is known, Clearway does not act (``releases``).
    """

    def __init__(self) -> None:
        self.version = ""  # as slurmctld last told it; empty: not yet
        self._known = PreemptPriorities()
        self._power = PowerSaving()
        self._read_at = NEVER

    def read(self, run: Run, now: datetime) -> tuple[PreemptPriorities, PowerSaving, int]:
        """The priorities, power saving, and how many queries that took now."""
        every_s = CONFIG_EVERY_S if self.version else VERSION_AGAIN_S
        if abs((now - self._read_at).total_seconds()) < every_s:
            return self._known, self._power, 0
        self._read_at, queries = now, 1
        with suppress(SlurmError):
            config = run(["scontrol", "show", "config"])
            version = site.version(config)
            self.version = version if release_of(version) else self.version
            self._power = read_power_saving(config)
            of_qos, queries = site.sorts_by_qos(config), 2
            if of_qos:
                records = run(["scontrol", "show", "assoc_mgr", "flags=qos"])
                found, preempted = site.read_qos_priorities(records), site.preempted_qos(records)
            else:
                records = run(["scontrol", "--oneliner", "show", "partition"])
                found, preempted = site.read_tiers(records), site.preempted_partitions(records)
            if not site.preempts(config):
                preempted = {}
            grace_s = site.longest_grace_s(records) if preempted else 0.0
            self._known = PreemptPriorities(found, of_qos=of_qos, preempts=preempted, grace_s=grace_s)
        return self._known, self._power, queries


class TopologyReader:
    """The leaf switches, read only while a waiting job asks for few.

    They change with topology.conf alone. What cannot be read is not known: the job that asks is left to Slurm, and
    the topology says why.
    """

    def __init__(self) -> None:
        self._known = Topology()
        self._read_at = NEVER

    def read(self, run: Run, jobs: Iterable[Job], now: datetime) -> tuple[Topology, int]:
        """The topology, and how many queries that took now."""
        if not any(job.switches and job.state is JobState.PENDING for job in jobs):
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


def licenses_now(run: Run, jobs: Iterable[Job]) -> tuple[Mapping[str, License], int]:
    """The licenses, asked for only while a waiting job wants some, and how many queries that took.

    Where they cannot be read none is known, and no job leaves for one.
    """
    if not asks_for_any(jobs):
        return {}, 0
    with suppress(SlurmError, FieldError):
        return read_licenses(run(["scontrol", "--oneliner", "show", "licenses"])), 1
    return {}, 1
