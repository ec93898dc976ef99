"""What Slurm lets run at once: limits of associations, of QoS and of partitions, and what is in use. Frozen data.

Resources are named as Slurm names its TRES (``cpu``, ``mem`` in MiB, ``node``, ``billing``, ``gres/gpu``), and ``jobs``
and ``wall`` beside them. Source: https://slurm.schedmd.com/resource_limits.html
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class LimitKind(StrEnum):
    """What a limit is on; the value is what Slurm calls it."""

    GROUP = "Grp"  # all running jobs of the QoS, or of the association and those below it
    USER = "PerUser"  # all running jobs of one user in the QoS; of an association: its own running jobs
    ACCOUNT = "PerAccount"  # all running jobs of one account in the QoS
    JOB = "PerJob"
    NODE = "PerNode"  # of one job on each of its nodes
    LEAST = "Min"  # of one job, which must ask for at least as much
    GROUP_MINUTES = "GrpMins"  # used up by all jobs so far
    GROUP_RUN_MINUTES = "GrpRunMins"  # that all running jobs may still use within their time limits
    USER_RUN_MINUTES = "RunMinsPerUser"
    ACCOUNT_RUN_MINUTES = "RunMinsPerAccount"
    JOB_MINUTES = "MinsPerJob"  # within the time limit of one job


@dataclass(frozen=True, slots=True)
class Cap:
    """A limit, and how much of it is in use; ``wall`` and all minutes are in minutes."""

    limit: int
    used: int = 0


Caps = Mapping[tuple[LimitKind, str], Cap]  # by kind and resource; what is not limited is absent


@dataclass(frozen=True, slots=True, kw_only=True)
class Qos:
    """A QoS as Slurm holds it. ``users`` are by number, as Slurm shows them there."""

    name: str
    caps: Caps = field(default_factory=dict)
    users: Mapping[int, Caps] = field(default_factory=dict)
    accounts: Mapping[str, Caps] = field(default_factory=dict)
    least_priority: int = 0
    run_minutes: Mapping[str, int] = field(default_factory=dict)  # of running jobs, also where they are not limited
    flags: frozenset[str] | None = None  # in lower case; None: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Association:
    """An account on the cluster, or a user in one. Limits of a user's own jobs are inherited already."""

    account: str
    user: str = ""  # "": the account itself
    uid: int | None = None
    partition: str = ""  # "": all
    parent: str = ""  # of an account; a user's association is below its account
    caps: Caps = field(default_factory=dict)
    least_priority: int = 0
    run_minutes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """What a partition asks of its jobs. None is no limit."""

    name: str
    state: str = "UP"
    qos: str = ""
    max_nodes: int | None = None
    min_nodes: int = 0
    max_time_s: int | None = None
    max_cpus_per_node: int | None = None
    max_memory_mib: int | None = None  # on each node
    allow_accounts: frozenset[str] | None = None  # None: all
    deny_accounts: frozenset[str] = frozenset()
    allow_qos: frozenset[str] | None = None
    deny_qos: frozenset[str] = frozenset()
    allow_groups: frozenset[str] | None = None  # of the operating system
    allow_alloc_nodes: str = ""  # a host list of where jobs may be submitted; "": anywhere
    root_only: bool = False
    reservations_only: bool = False  # takes jobs that ask for a reservation
    weighted: bool = False  # its TRES ``billing`` is not the number of processors


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What bounds certain waiting jobs. Of other users and QoS nothing is known."""

    unknown: str = ""  # why they are not known; "" where they are
    enforced: bool = False  # whether limits of associations and QoS count at all
    safe: bool = False  # a job starts only where its minutes suffice to its end
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    qos: Mapping[str, Qos] = field(default_factory=dict)
    associations: tuple[Association, ...] = ()  # of these users, and of all accounts above them
    parents: Mapping[str, str] = field(default_factory=dict)  # account to account above it
    users: frozenset[str] = frozenset()  # whose associations were asked for
    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)  # user to those of partitions' AllowGroups
    sub_accounts: bool | None = None  # whether partitions that name an account mean those below it; None: not known
