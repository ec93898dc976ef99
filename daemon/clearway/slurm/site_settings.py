"""What is read beside jobs and nodes: slurmctld's version and configuration, leaf switches, licenses, and limits.
Limits are read while Clearway plans for waiting jobs: those of their users, accounts, QoS and partitions alone, by two
queries a cycle (4 ms each) that slurmctld answers also while slurmdbd is down. Every ten minutes one more tells which
account is below which (30 ms with 1,000 accounts). What a QoS is above of slurmdbd alone knows: it is asked where it
matters, and not waited for a second time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from clearway.eligibility.node_usage import asks_for_any
from clearway.model.cluster import Job, JobState, PreemptPriorities
from clearway.model.errors import SlurmError, SlurmRefusedError
from clearway.model.limits import Association, Limits, Partition, Qos
from clearway.model.site import ClusterIdentity, License, PowerSaving, Topology, Vouched
from clearway.slurm.parse import FieldError, site
from clearway.slurm.process import checked, is_name
from clearway.slurm.releases import means_sub_accounts, release_of

CONFIG_EVERY_S = 600.0
VERSION_AGAIN_S = 10.0  # while it is not known
TOPOLOGY_EVERY_S = 300.0
TOPOLOGY_AGAIN_S = 60.0  # after a failure
NEVER = datetime.min.replace(tzinfo=UTC)

Run = Callable[[Sequence[str]], str]
PARTITIONS = ("scontrol", "--oneliner", "show", "partition")


def read_preemption(run: Run, config: str, partitions: str) -> PreemptPriorities:
    """Slurm's own; ``config`` and ``partitions`` are what ``scontrol show`` says of them."""
    of_qos = site.sorts_by_qos(config)
    if of_qos:
        records = run(["scontrol", "show", "assoc_mgr", "flags=qos"])
        found, preempted = site.read_qos_priorities(records), site.preempted_qos(records)
    else:
        records = partitions
        found, preempted = site.read_tiers(records), site.preempted_partitions(records)
    if not site.preempts(config):
        preempted = {}
    grace_s = site.longest_grace_s(records) if preempted else 0.0
    return PreemptPriorities(found, of_qos=of_qos, preempts=preempted, grace_s=grace_s)


class ConfigReader:
    """What slurmctld goes by, kept after a failure; unread, Clearway does not act (``releases``)."""

    def __init__(self) -> None:
        self.version = ""  # as slurmctld last told it; empty: not yet
        self.preemption = PreemptPriorities()
        self.power = PowerSaving()
        self.vouched = Vouched()
        self.cluster: ClusterIdentity | None = None
        # How long jobs may run beyond their limits, by partition that has its own setting; "": all others. None: ever.
        self.over_times: Mapping[str, int | None] = {"": 0}
        self._read_at = NEVER

    def has_heard(self, over_times: Mapping[str, int | None]) -> None:
        """Those of partitions, read meanwhile."""
        self.over_times = {"": self.over_times[""], **over_times}

    def read(self, run: Run, now: datetime) -> int:
        """Read it again where that is due; how many queries that took."""
        every_s = CONFIG_EVERY_S if self.version else VERSION_AGAIN_S
        if not _due(self._read_at, now, every_s):
            return 0
        self._read_at, queries = now, 1
        with suppress(SlurmError):
            config = run(["scontrol", "show", "config"])
            version = site.version(config)
            self.version = version if release_of(version) else self.version
            self.power = site.read_power_saving(config)
            self.cluster = site.read_identity(config) or self.cluster
            queries += 1
            partitions = run(PARTITIONS)
            self.over_times = {"": site.over_time(config)} | site.read_over_times(partitions)
            self.vouched = read_vouched(config, partitions)
            queries += site.sorts_by_qos(config)
            self.preemption = read_preemption(run, config, partitions)
        return queries


def read_vouched(config: str, partitions: str) -> Vouched:
    """Where partitions cannot be read nothing is vouched for."""
    try:
        return site.read_vouched(config, partitions)
    except FieldError:
        return Vouched()


class TopologyReader:
    """The leaf switches; where they cannot be read a job that asks for few is left to Slurm."""

    def __init__(self) -> None:
        self._known = Topology()
        self._read_at = NEVER

    def read(self, run: Run, jobs: Iterable[Job], now: datetime) -> tuple[Topology, int]:
        if not any(job.switches and job.state is JobState.PENDING for job in jobs):
            return Topology(), 0
        every_s = TOPOLOGY_AGAIN_S if self._known.unknown else TOPOLOGY_EVERY_S
        if not _due(self._read_at, now, every_s):
            return self._known, 0
        self._read_at = now
        try:
            switch_of = site.read_leaf_switches(run(["scontrol", "show", "topology"]))
            self._known = Topology(switch_of, unknown="")
        except (SlurmError, FieldError) as error:
            self._known = Topology(unknown=f"scontrol show topology: {error}")
        return self._known, 1


def licenses_now(run: Run, jobs: Iterable[Job]) -> tuple[Mapping[str, License], int]:
    """The licenses while a waiting job wants some, and how many queries that took; unread, no job leaves for one."""
    if not asks_for_any(jobs):
        return {}, 0
    with suppress(SlurmError, FieldError):
        return site.read_licenses(run(["scontrol", "--oneliner", "show", "licenses"])), 1
    return {}, 1


SETTINGS_EVERY_S = 600.0
GROUPS_EVERY_S = 60.0
MOST_USERS = 100  # whose limits are read in one cycle
_ASSOCIATIONS = ("scontrol", "--oneliner", "show", "assoc_mgr")
# Whole paths: ``slurm.bin_dir`` is where Slurm's commands are.
_GETENT, _ID = "/usr/bin/getent", "/usr/bin/id"


class LimitReader:
    """What the limits are, and what is in use. What cannot be read is not known, and says why."""

    def __init__(self) -> None:
        self._settings_at = NEVER
        self._version = ""
        self._enforced: frozenset[str] = frozenset()
        self._parents: dict[str, str] = {}
        self._flags: Mapping[str, frozenset[str]] = {}
        self._flags_at = NEVER
        self._groups: dict[str, frozenset[str]] = {}  # user to groups of ``_allowed``
        self._allowed: frozenset[str] = frozenset()
        self._groups_at = NEVER
        self.over_times: Mapping[str, int | None] = {}  # as ``ConfigReader`` has them, as they were read last

    def read(self, run: Run, jobs: Iterable[Job], now: datetime) -> Limits:
        """Those of the first jobs; ``Limits.users`` says of whose."""
        try:
            return self._read(run, jobs, now)
        except (SlurmError, FieldError) as error:
            return Limits(unknown=str(error))

    def _read(self, run: Run, jobs: Iterable[Job], now: datetime) -> Limits:
        waiting, users = _of_first_users(jobs)
        if not waiting:
            return Limits()
        if _due(self._settings_at, now):
            config = run(["scontrol", "show", "config"])
            self._enforced, self._version = site.enforcement(config), site.version(config)
            self._parents, self._settings_at = {}, now
        records = run(PARTITIONS)
        partitions, self.over_times = site.read_partitions(records), site.read_over_times(records)
        named = {name: partitions[name] for job in waiting for name in job.partitions if name in partitions}
        found = Limits(
            partitions=partitions,
            enforced=not self._enforced.isdisjoint({"limits", "safe", "all"}),
            safe="safe" in self._enforced,
            users=frozenset(users),
            sub_accounts=means_sub_accounts(self._version),
            groups=self._groups_of(run, waiting, named, now),
        )
        if found.enforced:
            qos = sorted({job.qos for job in waiting} | {each.qos for each in named.values()} - {""})
            associations, known = self._records(run, users, sorted({job.account for job in waiting} - {""}), qos)
            found = replace(found, associations=associations, qos=known, parents=self._parents)
        elif found.sub_accounts is not False and any(
            each.allow_accounts is not None or each.deny_accounts for each in named.values()
        ):
            found = replace(found, parents=self._accounts(run, users))
        return replace(found, qos=self._with_flags(run, found.qos, waiting, named, now))

    def _records(
        self, run: Run, users: Sequence[str], accounts: Sequence[str], qos: Sequence[str]
    ) -> tuple[tuple[Association, ...], dict[str, Qos]]:
        """Associations of these users and of all accounts above them (a site has thousands of others); these QoS."""
        if not set(accounts) <= self._parents.keys():
            self._parents = self._accounts(run, users)
        above = list(dict.fromkeys(name for account in accounts for name in _above(account, self._parents)))
        asked = [*_ASSOCIATIONS, f"users={_list(users)}", f"accounts={_list(above)}"]
        text = run([*asked, *([f"qos={_list(qos)}", "flags=assoc,qos"] if qos else ["flags=assoc"])])
        found = site.read_associations(text)
        if any(each.parent and each.parent not in above for each in found):
            self._parents = {}  # an account was moved: the next cycle asks for all again
        return tuple(found), site.read_qos(text)

    def _groups_of(
        self, run: Run, jobs: Sequence[Job], named: Mapping[str, Partition], now: datetime
    ) -> dict[str, frozenset[str]]:
        """User to groups, of those that partitions allow and that their jobs name; asked as slurmctld asks, of NSS. Not
        of Slurm: 24.11 lets any user's job name such a partition, and says nothing.
        """
        closed = {name: each.allow_groups for name, each in named.items() if each.allow_groups is not None}
        users = {job.user for job in jobs if not closed.keys().isdisjoint(job.partitions)}
        allowed = frozenset[str]().union(*closed.values())
        if allowed != self._allowed or _due(self._groups_at, now, GROUPS_EVERY_S):
            self._groups, self._allowed, self._groups_at = {}, allowed, now
        if new := sorted(users - self._groups.keys()):
            self._groups |= _groups(run, new, allowed)
        return {user: self._groups[user] for user in users}

    def _accounts(self, run: Run, users: Sequence[str]) -> dict[str, str]:
        every = site.read_associations(run([*_ASSOCIATIONS, f"users={_list(users)}", "flags=assoc"]))
        return {each.account: each.parent for each in every if not each.user}

    def _with_flags(
        self, run: Run, qos: Mapping[str, Qos], jobs: Sequence[Job], named: Mapping[str, Partition], now: datetime
    ) -> dict[str, Qos]:
        """With the flags by which a QoS is above a partition's limits, where a job asks for more than those."""
        matters = any(_flags_matter(job, named[name]) for job in jobs for name in job.partitions if name in named)
        if matters and _due(self._flags_at, now):
            self._flags_at, self._flags = now, {}
            with suppress(SlurmError):
                query = ["sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=name,flags"]
                self._flags = site.read_qos_flags(run(query))
        names = {job.qos for job in jobs} | qos.keys() if matters else qos.keys()
        known = {name: qos.get(name, Qos(name=name)) for name in names}
        return {name: replace(each, flags=self._flags.get(name)) for name, each in known.items()}


def _of_first_users(jobs: Iterable[Job]) -> tuple[list[Job], list[str]]:
    waiting = list(jobs)
    users = list(dict.fromkeys(job.user for job in waiting if is_name(job.user)))[:MOST_USERS]
    return [job for job in waiting if job.user in set(users)], users


def _groups(run: Run, users: Sequence[str], allowed: Iterable[str]) -> dict[str, frozenset[str]]:
    """Which of these groups each user is in; a user or a group that is not known is in none, and has none."""
    by_gid: dict[str, set[str]] = {}
    for group in sorted(allowed):
        with suppress(SlurmRefusedError):
            by_gid.setdefault(run([_GETENT, "group", checked(group)]).split(":")[2], set()).add(group)
    found = dict.fromkeys(users, frozenset[str]())
    for user in users:
        with suppress(SlurmRefusedError):
            gids = run([_ID, "-G", "--", checked(user)]).split()
            found[user] = frozenset(group for gid in gids for group in by_gid.get(gid, ()))
    return found


def _flags_matter(job: Job, partition: Partition) -> bool:
    long = partition.max_time_s is not None and (job.time_limit_s is None or job.time_limit_s > partition.max_time_s)
    large = partition.max_nodes is not None and job.num_nodes > partition.max_nodes
    return bool(partition.qos and partition.qos != job.qos) or long or large or job.num_nodes < partition.min_nodes


def _above(account: str, parents: Mapping[str, str]) -> list[str]:
    chain: list[str] = []
    while account and account not in chain:
        chain.append(account)
        account = parents.get(account, "")
    return chain


def _due(before: datetime, now: datetime, every_s: float = SETTINGS_EVERY_S) -> bool:
    return abs((now - before).total_seconds()) >= every_s


def _list(names: Iterable[str]) -> str:
    return ",".join(checked(name) for name in names)
