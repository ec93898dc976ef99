"""Whether a limit would hold a waiting job back once its nodes are free. Pure.

Of one limit the first of the QoS of the job and of its partition that sets it counts, instead of that of the
association and the accounts above it. That of the partition comes first, unless the job's QoS has the flag OverPartQOS.
Limits on all of a group (Grp) count what is in use: less what leaves, and with what other urgent jobs take that do not
run yet. Slurm counts a node once, however many jobs of a group are on it. Jobs that stand suspended keep what they
have.

When in doubt the job is held back, and the sentence says so. Source: https://slurm.schedmd.com/resource_limits.html,
and measurements on 22.05.8 (docs/explanation/limits.md).
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TypeVar

from clearway.eligibility.partitions import accounts_above, partition_holds_back
from clearway.model.cluster import ClusterSnapshot, Job, JobState, Node
from clearway.model.limits import Association, Cap, Caps, LimitKind, Limits, Qos

K = TypeVar("K", int, str)

_COUNTS = (JobState.RUNNING, JobState.SUSPENDED, JobState.CONFIGURING, JobState.UNKNOWN)
_IN_USE = (LimitKind.GROUP, LimitKind.USER, LimitKind.ACCOUNT)
_IN_MINUTES = tuple(kind for kind in LimitKind if "Mins" in kind)
_NEVER_ASKED = ("energy", "vmem", "pages", "fs/")  # no job asks for them beforehand
_HIGHEST_LEVEL = 64  # of accounts; a longer chain is none

# What a reason of Slurm's begins with, where the limit may stop binding when other jobs leave.
_MAY_BE_LIFTED = ("qosgrp", "qosmaxjobs", "assocgrp", "assocmaxjobs")
_MAY_BE_LIFTED_OF_ONE = ("peruser", "peraccount", "peruserlimit", "peraccountlimit")


def may_be_lifted(reason: str) -> bool:
    """Whether Slurm names a limit that other jobs may be the cause of."""
    reason = reason.replace("_", "").lower()
    if not reason.startswith(("qos", "assoc")) or "minutes" in reason or "wall" in reason:
        return False
    return reason.startswith(_MAY_BE_LIFTED) or reason.endswith(_MAY_BE_LIFTED_OF_ONE)


@dataclass(frozen=True)
class Later:
    """The jobs that count once a plan is carried out."""

    snapshot: ClusterSnapshot
    leaving: frozenset[str] = frozenset()  # job ids; a job that is suspended does not leave in this sense
    coming: tuple[tuple[Job, tuple[str, ...]], ...] = ()  # that are to start on these nodes, the job itself excepted

    @cached_property
    def counted(self) -> tuple[Job, ...]:
        return tuple(job for job in self.snapshot.jobs if job.state in _COUNTS)


def held(job: Job, resource: str) -> int:
    """What the job has of a resource, or asks for, on all of its nodes; ``billing`` as if it was its processors."""
    if resource == "jobs":
        return 1
    if resource in ("cpu", "billing"):
        return job.cpus
    if resource == "mem":
        return job.memory_mib * job.num_nodes
    if resource == "node":
        return job.num_nodes
    return job.num_nodes * _gpus_of(job.gpus or (), resource)


@dataclass(frozen=True)
class Asked:
    """What the job would be given: whole nodes where it asks for them, as far as the nodes are chosen."""

    job: Job
    nodes: Sequence[Node]  # of all tasks together
    tasks: int  # of an array; of what the job asks for each has as much
    weighted: bool

    @property
    def node_names(self) -> frozenset[str]:
        return frozenset(node.name for node in self.nodes)

    @property
    def minutes(self) -> float:
        return math.inf if self.job.time_limit_s is None else self.job.time_limit_s / 60

    def in_all(self, resource: str, of_each: float) -> float:
        """Of all tasks; of a node that tasks share Slurm counts one."""
        if resource != "node":
            return self.tasks * of_each
        if self.nodes:
            return len(self.nodes)
        return self.tasks * of_each if self.job.exclusive else of_each

    def of(self, resource: str) -> float | None:
        """Of one task; None where it is not known."""
        job = self.job
        if resource == "wall":
            return self.minutes
        if resource == "billing" and self.weighted:
            return None
        if not resource.startswith("gres/gpu") and resource not in ("jobs", "cpu", "billing", "mem", "node"):
            kind, _, name = resource.partition("/")
            named = job.gres if kind == "gres" else job.licenses
            return None if name.partition(":")[0] in named else 0
        asked = held(job, resource)
        return self._of_whole_nodes(resource, asked) if job.exclusive and self.nodes else asked

    def _of_whole_nodes(self, resource: str, asked: int) -> int:
        cpus = self._on_nodes(node.cpus for node in self.nodes)
        if resource in ("cpu", "billing"):
            return max(asked, cpus)
        if resource == "mem":  # so much for each processor, or for each node: Slurm does not tell which
            most = self._on_nodes(node.memory_mib for node in self.nodes)
            return max(asked, min(most, math.ceil(asked * cpus / max(self.job.cpus, 1))))
        if resource.startswith("gres/gpu"):
            return max(asked, self._on_nodes(_gpus_of(node.gpus, resource) for node in self.nodes))
        return asked

    def _on_nodes(self, of_each_node: Iterable[int]) -> int:
        """What a task has of what the nodes have."""
        return math.ceil(sum(of_each_node) / self.tasks)


def _gpus_of(gpus: Iterable[tuple[str, int]], resource: str) -> int:
    """Of the type that the resource names, if it names one."""
    _, _, gpu_type = resource.removeprefix("gres/gpu").partition(":")
    return sum(count for name, count in gpus if gpu_type in ("", name))


def limit_name(kind: LimitKind, resource: str, *, of_qos: bool) -> str:
    """The limit as sacctmgr takes it: "GrpTRES=cpu"."""
    if resource == "jobs":
        per = {LimitKind.GROUP: "GrpJobs", LimitKind.ACCOUNT: "MaxJobsPerAccount"}
        return per.get(kind, "MaxJobsPerUser" if of_qos else "MaxJobs")
    if resource == "wall":
        return "GrpWall" if kind is LimitKind.GROUP else "MaxWall"
    word = "Grp" if kind.startswith("Grp") else "Min" if kind is LimitKind.LEAST else "Max"
    return f"{word}TRES{kind.removeprefix(word)}={resource}"


@dataclass(frozen=True, slots=True)
class _Scope:
    """Limits of one QoS or association."""

    name: str
    caps: Caps
    counts: Mapping[LimitKind, Callable[[Job], bool]]  # which jobs a limit of this kind counts
    run_minutes: Mapping[str, int] = field(default_factory=dict)
    of_qos: bool = False


def holds_back(
    job: Job, partition: str, limits: Limits, later: Later, nodes: Sequence[Node] = (), *, tasks: int = 1
) -> str:
    """Why Slurm would not start this job in this partition were its nodes free; empty where it would.

    ``nodes`` are those that it is to start on; () where they are not chosen yet: then the job counts as asking for the
    least that it may be given. ``tasks``: of an array, how many are to start at once.
    """
    if limits.unknown:
        return f"whether a limit holds it back is not known: {limits.unknown}"
    found = limits.partitions.get(partition)
    if found is None:
        return f"what partition {partition} allows is not known"
    qos = limits.qos.get(job.qos)
    if why := partition_holds_back(job, found, qos.flags if qos is not None else None, limits):
        return why
    if not limits.enforced:
        return ""
    if job.user not in limits.users:
        return "its limits are read in its turn"
    chain, orders = _chain(job, partition, limits), _orders(job, found.qos, limits)
    if isinstance(chain, str):
        return chain
    if isinstance(orders, str):
        return orders
    asked = Asked(job, nodes, tasks, weighted=found.weighted)
    # Where it is not known which QoS comes first, no order may bind.
    return next(filter(None, (_first_that_binds(order, chain, limits, later, asked) for order in orders)), "")


def _chain(job: Job, partition: str, limits: Limits) -> list[Association] | str:
    """The job's association, then the accounts from its own up to the root."""
    own = [each for each in limits.associations if (each.user, each.account) == (job.user, job.account)]
    fitting = [each for each in own if each.partition == partition] or [each for each in own if not each.partition]
    if not fitting:
        return f"Slurm knows no association of user {job.user} with account {job.account}"
    accounts = {each.account: each for each in limits.associations if not each.user}
    chain, name = [fitting[0]], job.account
    while name:
        account = accounts.get(name)
        if account is None or len(chain) > _HIGHEST_LEVEL:
            return f"the limits of account {name} are not known"
        chain.append(account)
        name = account.parent
    return chain


def _orders(job: Job, of_partition: str, limits: Limits) -> list[list[Qos]] | str:
    """The QoS whose limits count, the first before the second; in both orders where the first is not known."""
    names = [name for name in dict.fromkeys((of_partition, job.qos)) if name]
    if unknown := next((name for name in names if name not in limits.qos), ""):
        return f"the limits of QoS {unknown} are not known"
    found = [limits.qos[name] for name in names]
    flags = limits.qos[job.qos].flags if len(found) > 1 else frozenset[str]()
    if flags is None:
        return [found, found[::-1]]
    return [found[::-1] if "overpartqos" in flags else found]


def _first_that_binds(
    order: Sequence[Qos], chain: Sequence[Association], limits: Limits, later: Later, asked: Asked
) -> str:
    job = asked.job
    scopes = [*(_scope_of_qos(qos, job, chain[0].uid, limits) for qos in order), *_scopes_above(job, chain, limits)]
    set_by_qos: set[tuple[LimitKind, str]] = set()
    for scope in scopes:
        for key, cap in sorted(scope.caps.items()):
            if key in set_by_qos:
                continue
            if why := _Limit(scope, *key, cap).binds(later, asked, safe=limits.safe):
                return why
        if scope.of_qos:
            set_by_qos |= scope.caps.keys()
    least = max([0, *(each.least_priority for each in order), *(each.least_priority for each in chain)])
    return f"its priority is below the least that its limits ask for ({least})" if job.priority < least else ""


def _scope_of_qos(qos: Qos, job: Job, uid: int | None, limits: Limits) -> _Scope:
    def in_qos(other: Job) -> bool:
        ran_in = limits.partitions.get(next(iter(other.partitions), ""))
        return other.qos == qos.name or (ran_in is not None and ran_in.qos == qos.name)

    of_user, of_account = _of_one(qos.users, uid), _of_one(qos.accounts, job.account)
    return _Scope(
        f"QoS {qos.name}",
        {**qos.caps, **of_user, **of_account},
        {
            LimitKind.GROUP: in_qos,
            LimitKind.USER: lambda other: other.user == job.user and in_qos(other),
            LimitKind.ACCOUNT: lambda other: other.account == job.account and in_qos(other),
        },
        qos.run_minutes,
        of_qos=True,
    )


def _of_one(shown: Mapping[K, Caps], key: K | None) -> Caps:
    """What one user or account may have. Slurm shows the limits, the same for all, only of those with jobs."""
    if key is not None and key in shown:
        return shown[key]
    caps: Caps = next(iter(shown.values()), {})
    return {what: Cap(cap.limit) for what, cap in caps.items()}


def _scopes_above(job: Job, chain: Sequence[Association], limits: Limits) -> Iterator[_Scope]:
    own, *accounts = chain

    def of_own(other: Job) -> bool:
        in_it = not own.partition or next(iter(other.partitions), "") == own.partition
        return (other.user, other.account) == (job.user, job.account) and in_it

    yield _Scope(
        f"the association of user {own.user} with account {own.account}",
        own.caps,
        {LimitKind.GROUP: of_own, LimitKind.USER: of_own},
        own.run_minutes,
    )
    for account in accounts:
        group = {key: cap for key, cap in account.caps.items() if key[0].value.startswith("Grp")}
        below = {name for name in limits.parents if account.account in accounts_above(name, limits)}
        counts = partial(_is_of, below | {account.account})
        yield _Scope(f"account {account.account}", group, {LimitKind.GROUP: counts}, account.run_minutes)


def _is_of(accounts: Collection[str], job: Job) -> bool:
    return job.account in accounts


@dataclass(frozen=True, slots=True)
class _Limit:
    """One limit of a scope: how much of a resource, and in which way it is counted."""

    scope: _Scope
    kind: LimitKind
    resource: str
    cap: Cap

    def binds(self, later: Later, asked: Asked, *, safe: bool) -> str:
        """Why this limit would hold the job back; empty where it would not."""
        if self.resource.startswith(_NEVER_ASKED):
            return ""
        name = limit_name(self.kind, self.resource, of_qos=self.scope.of_qos)
        why = self._exceeded(later, asked, safe=safe)
        return f"{self.scope.name} has the limit {name}={self.cap.limit}{why}" if why else ""

    def _exceeded(self, later: Later, asked: Asked, *, safe: bool) -> str:
        """What follows the name of the limit in the sentence that says why it binds."""
        wants, cap = asked.of(self.resource), self.cap
        if wants is None:
            return ", and how much of it the job would take is not known"
        if self.resource == "wall" and self.kind is LimitKind.GROUP:
            return f", and {cap.used} minutes are used up" if cap.used >= cap.limit else ""
        if self.kind in _IN_USE:
            used, wants = self._used_later(later, asked), asked.in_all(self.resource, wants)
            told = f"; others would have {used} in use, and the job asks for {_amount(wants)} more"
            return told if used + wants > cap.limit else ""
        if self.kind in _IN_MINUTES:
            tasks = 1 if self.kind is LimitKind.JOB_MINUTES else asked.tasks
            return self._minutes_exceeded(tasks * wants * asked.minutes if wants else 0.0, safe=safe)
        return self._exceeded_by_one_job(wants, asked)

    def _exceeded_by_one_job(self, wants: float, asked: Asked) -> str:
        if self.kind is LimitKind.NODE:
            wants = math.ceil(wants / max(asked.job.num_nodes, 1))
        # A job on whole nodes will be given more than it asks for, perhaps enough.
        least = self.kind is LimitKind.LEAST and (asked.nodes or not asked.job.exclusive)
        limit = self.cap.limit
        binds = wants < limit if least else wants > limit and self.kind is not LimitKind.LEAST
        return f", and the job asks for {_amount(wants)}" if binds else ""

    def _minutes_exceeded(self, minutes: float, *, safe: bool) -> str:
        """``minutes`` are those of the job within its time limit. What leaves is not taken off: it had its share."""
        cap, used = self.cap, 0 if self.kind is LimitKind.JOB_MINUTES else self.cap.used
        if self.kind is LimitKind.GROUP_MINUTES:
            if cap.used >= cap.limit:
                return ", which is used up"
            used += self.scope.run_minutes.get(self.resource, 0)
            if not safe:
                return ""
        return f"; {used} are in use, and the job asks for {_amount(minutes)}" if used + minutes > cap.limit else ""

    def _used_later(self, later: Later, asked: Asked) -> int:
        """What others will have in use: never less than the jobs that stay are known to have."""
        counts = self.scope.counts[self.kind]
        mine = [job for job in later.counted if counts(job)]
        staying = [job for job in mine if job.job_id not in later.leaving]
        coming = [(job, nodes) for job, nodes in later.coming if counts(job)]
        if self.resource == "node":
            seen = _nodes_of(mine)
            stay = _nodes_of(staying) | {name for _, nodes in coming for name in nodes}
            shared = len(asked.node_names & stay)  # counted once, and asked for as well
            return len(stay) + max(0, self.cap.used - len(seen)) - shared
        stays = sum(held(job, self.resource) for job in staying)
        leaves = sum(held(job, self.resource) for job in mine) - stays
        return max(self.cap.used - leaves, stays) + sum(held(job, self.resource) for job, _ in coming)


def _nodes_of(jobs: Iterable[Job]) -> set[str]:
    return {name for job in jobs for name in job.nodes}


def _amount(value: float) -> str:
    return "no end" if math.isinf(value) else f"{value:.0f}"
