"""Limits on waiting jobs, read while Clearway plans for them: those of their users, accounts, QoS and partitions alone.

Two queries a cycle (4 ms each), answered by slurmctld itself, also while slurmdbd is down. Every ten minutes one more
tells which account is below which (30 ms with 1,000 accounts), and one whether limits are enforced. What a QoS is
above of is in slurmdbd's answer alone: it is asked where it matters, and not waited for a second time.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from clearway.model.cluster import Job
from clearway.model.errors import SlurmError
from clearway.model.limits import Association, Limits, Partition, Qos
from clearway.slurm.parse import FieldError, limits
from clearway.slurm.process import checked, is_name
from clearway.slurm.site_settings import NEVER, Run

SETTINGS_EVERY_S = 600.0
MOST_USERS = 100  # whose limits are read in one cycle


class LimitReader:
    """What the limits are, and what is in use. What cannot be read is not known, and says why."""

    def __init__(self) -> None:
        self._settings_at = NEVER
        self._enforced: frozenset[str] = frozenset()
        self._parents: dict[str, str] = {}
        self._flags: Mapping[str, frozenset[str]] = {}
        self._flags_at = NEVER

    def read(self, run: Run, jobs: Iterable[Job], now: datetime) -> Limits:
        """Those of the first jobs; ``Limits.users`` says of whose."""
        try:
            return self._read(run, jobs, now)
        except (SlurmError, FieldError) as error:
            return Limits(unknown=str(error))

    def _read(self, run: Run, jobs: Iterable[Job], now: datetime) -> Limits:
        waiting = list(jobs)
        fit = (job.user for job in waiting if is_name(job.user))
        users = list(dict.fromkeys(fit))[:MOST_USERS]
        waiting = [job for job in waiting if job.user in set(users)]
        if not waiting:
            return Limits()
        if _due(self._settings_at, now):
            self._enforced = limits.enforcement(run(["scontrol", "show", "config"]))
            self._parents, self._settings_at = {}, now
        partitions = limits.read_partitions(run(["scontrol", "--oneliner", "show", "partition"]))
        found = Limits(
            partitions=partitions,
            enforced=not self._enforced.isdisjoint({"limits", "safe", "all"}),
            safe="safe" in self._enforced,
            users=frozenset(users),
        )
        named = {name: partitions[name] for job in waiting for name in job.partitions if name in partitions}
        if found.enforced:
            qos = sorted({job.qos for job in waiting} | {each.qos for each in named.values()} - {""})
            associations, known = self._records(run, users, sorted({job.account for job in waiting} - {""}), qos)
            found = replace(found, associations=associations, qos=known, parents=self._parents)
        return replace(found, qos=self._with_flags(run, found.qos, waiting, named, now))

    def _records(
        self, run: Run, users: Sequence[str], accounts: Sequence[str], qos: Sequence[str]
    ) -> tuple[tuple[Association, ...], dict[str, Qos]]:
        """Associations of these users and all accounts above them; these QoS.

        An account's record names the one above it. Those of other users are left out by Slurm, those of other accounts
        are asked for now and then alone: a site has thousands.
        """
        asked = ["scontrol", "--oneliner", "show", "assoc_mgr", f"users={_list(users)}", "flags=assoc"]
        if not set(accounts) <= self._parents.keys():
            every = limits.read_associations(run(asked))
            self._parents = {each.account: each.parent for each in every if not each.user}
        above = list(dict.fromkeys(name for account in accounts for name in _above(account, self._parents)))
        asked[-1] = f"accounts={_list(above)}"
        text = run([*asked, *([f"qos={_list(qos)}", "flags=assoc,qos"] if qos else ["flags=assoc"])])
        found = limits.read_associations(text)
        if any(each.parent and each.parent not in above for each in found):
            self._parents = {}  # an account was moved: the next cycle asks for all again
        return tuple(found), limits.read_qos(text)

    def _with_flags(
        self, run: Run, qos: Mapping[str, Qos], jobs: Sequence[Job], named: Mapping[str, Partition], now: datetime
    ) -> dict[str, Qos]:
        """With the flags by which a QoS is above a partition's limits, where a job asks for more than those."""
        matters = any(_flags_matter(job, named[name]) for job in jobs for name in job.partitions if name in named)
        if matters and _due(self._flags_at, now):
            self._flags_at, self._flags = now, {}
            with suppress(SlurmError):
                query = ["sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=name,flags"]
                self._flags = limits.read_qos_flags(run(query))
        names = {job.qos for job in jobs} | qos.keys() if matters else qos.keys()
        known = {name: qos.get(name, Qos(name=name)) for name in names}
        return {name: replace(each, flags=self._flags.get(name)) for name, each in known.items()}


def _flags_matter(job: Job, partition: Partition) -> bool:
    long = partition.max_time_s is not None and (job.time_limit_s is None or job.time_limit_s > partition.max_time_s)
    large = partition.max_nodes is not None and job.num_nodes > partition.max_nodes
    return bool(partition.qos and partition.qos != job.qos) or long or large or job.num_nodes < partition.min_nodes


def _above(account: str, parents: Mapping[str, str]) -> list[str]:
    """The account, and those above it up to the root."""
    chain: list[str] = []
    while account and account not in chain:
        chain.append(account)
        account = parents.get(account, "")
    return chain


def _due(before: datetime, now: datetime) -> bool:
    return abs((now - before).total_seconds()) >= SETTINGS_EVERY_S


def _list(names: Iterable[str]) -> str:
    return ",".join(checked(name) for name in names)
