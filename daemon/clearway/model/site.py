"""What is known of a site beside jobs and nodes: its name, switches, licenses, and what Slurm checks. Frozen data."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Vouched:
    """What a job says of itself and Slurm checks on this site, at its submission and at each change by its owner."""

    accounts: bool = False
    qos: bool = False
    # Partitions that choose by what is not checked, to the words of slurm.conf: "AllowAccounts".
    partitions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """Which cluster this is: a job id means nothing without it. slurmctld says no more that outlives its restart."""

    name: str  # ClusterName
    state: str  # StateSaveLocation, where its controllers keep jobs and the next id
    hosts: tuple[str, ...]  # SlurmctldHost, the first controller and its backups

    def is_same(self, other: "ClusterIdentity") -> bool:
        """A backup controller may come and go."""
        return (self.name, self.state) == (other.name, other.state) and not set(self.hosts).isdisjoint(other.hosts)

    def __str__(self) -> str:
        return f"cluster {self.name} ({self.state} on {', '.join(self.hosts)})"


@dataclass(frozen=True, slots=True)
class PowerSaving:
    """Slurm's power saving, which boots nodes for jobs and switches idle ones off."""

    resume_s: float = 0.0  # how long a node may take to boot
    suspend_s: float = 0.0  # ... and to go off, before which it is not booted
    hides_nodes: bool = False  # nodes of the cloud that are off are in no answer of Slurm's


@dataclass(frozen=True, slots=True)
class Topology:
    """The leaf switch of each node, where Slurm knows it (``TopologyPlugin=topology/tree``)."""

    switch_of: Mapping[str, str] = field(default_factory=dict)  # node to leaf switch
    unknown: str = "it has not been read"  # why it is not known; "" where it is


@dataclass(frozen=True, slots=True)
class License:
    total: int
    used: int = 0  # by jobs, and outside of Slurm as far as it knows of that
    reserved: int = 0  # by reservations, whether jobs use them there or not
