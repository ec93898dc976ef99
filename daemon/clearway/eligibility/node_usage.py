"""What nodes have, what jobs hold of them and of licenses, and what is free there. Pure.

What a job holds on a node is believed only where the sums over its jobs are what the node itself says is taken, of
processors, of memory (where Slurm shares it out) and of every type of GPU. Elsewhere (uneven jobs, jobs that stand
suspended, requests that do not tell the type) it is not known.

Slurm tells a job's processors in all. How a certain job of several nodes has them spread is known only where each of
its nodes has no other job of several nodes: two uneven ones can hide each other in the sums.

What an urgent job asks for of licenses is a pool beside its nodes (``NodeResources.pool``) that must be freed as a
required node must: jobs that hold the license give it back when they leave, wherever they run. What no known job holds
(used outside of Slurm, reserved, or promised to another urgent job) is never given back.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from math import ceil
from typing import Self

from clearway.eligibility.constraint import alternatives, satisfied
from clearway.eligibility.under_way import UnderWay
from clearway.model.cluster import ClusterSnapshot, Job, JobState, Node, Spread, only_gpus
from clearway.model.problem import Amounts, NodeResources, gres_kind

PREFIX = "license "
_ITEM = re.compile(r"([A-Za-z0-9_.+-]+(?:@[A-Za-z0-9_.+-]+)?)(?:[:=*](\d{1,9}))?", re.ASCII)


def amounts_of(node: Node) -> Amounts:
    """All that a node has."""
    return Amounts(node.cpus, node.memory_mib, node.gpus)


def could_hold(node: Node, job: Job) -> bool:
    """Whether the node, were it empty, has the processors, memory and GPUs that the job asks of each."""
    if node.cpus < job.cpus_per_node or node.memory_mib < job.memory_mib:
        return False
    has = amounts_of(node)
    return all(has.gpus_of(gpu_type) >= count for gpu_type, count in job.gpus or ())


def suits(node: Node, job: Job, partition: str) -> bool:
    """Whether a waiting job could run on this node of a partition, were it empty and switched on."""
    return (
        partition in node.partitions
        and node.name not in job.excluded_nodes
        and any(satisfied(each, frozenset(node.features)) for each in alternatives(job.features) or ())
        and could_hold(node, job)
    )


def shares_memory(nodes: Iterable[Node]) -> bool:
    """Whether Slurm shares out memory: a node whose memory it does not share out says that none is taken."""
    return any(node.alloc_memory_mib for node in nodes)


def held_by_job(node: Node, jobs: Sequence[Job]) -> dict[str, Amounts] | None:
    """What each of the node's jobs holds there, by job_id; None where that is not known."""
    gpus = _gpus_by_job(node, jobs)
    if gpus is None or any(job.state is JobState.SUSPENDED or job.cpus % len(job.nodes) for job in jobs):
        return None
    memory_counts = shares_memory((node,))
    held = {
        job.job_id: Amounts(job.cpus // len(job.nodes), job.memory_mib if memory_counts else 0, gpus[job.job_id])
        for job in jobs
    }
    taken = Amounts(node.alloc_cpus, node.alloc_memory_mib, _by_type(node.alloc_gpus or ()))
    return held if sum_of(held.values()) == taken else None


def processors_by_node(job: Job, snapshot: ClusterSnapshot) -> dict[str, int]:
    """The processors that the job holds on each of its nodes, evenly spread or not; empty where that is not known."""
    if len(job.nodes) < 2:
        return dict.fromkeys(job.nodes, job.cpus)
    found: dict[str, int] = {}
    for name in job.nodes:
        node = snapshot.node_by_name.get(name)
        others = [each for each in snapshot.jobs_on.get(name, ()) if each.job_id != job.job_id]
        if node is None or any(len(each.nodes) > 1 or each.state is JobState.SUSPENDED for each in others):
            return {}
        found[name] = node.alloc_cpus - sum(each.cpus for each in others)
    return found if min(found.values()) > 0 and sum(found.values()) == job.cpus else {}


def most_memory_mib(job: Job, processors: int) -> int:
    """The most where it holds so many processors: each node may have an equal share of all, or each processor."""
    if not job.cpus or not job.nodes:
        return job.memory_mib
    return max(job.memory_mib, ceil(job.memory_mib * len(job.nodes) * processors / job.cpus))


@dataclass(frozen=True, slots=True)
class FreeCapacity:
    """Processors as Slurm counts them, and MiB of memory by what jobs hold, that are free on each node."""

    cpus: dict[str, int]
    memory_mib: dict[str, int]

    @classmethod
    def of(cls, snapshot: ClusterSnapshot) -> Self:
        held_mib = {name: sum(job.memory_mib for job in jobs) for name, jobs in snapshot.jobs_on.items()}
        unread = {name for job in snapshot.jobs if job.job_id in snapshot.unread_jobs for name in job.nodes}
        cpus = {node.name: 0 if node.name in unread else node.cpus - node.alloc_cpus for node in snapshot.nodes}
        taken_mib = {node.name: max(held_mib.get(node.name, 0), node.alloc_memory_mib) for node in snapshot.nodes}
        return cls(cpus, {node.name: node.memory_mib - taken_mib[node.name] for node in snapshot.nodes})

    def fits(self, node: str, cpus: int, memory_mib: int) -> bool:
        return self.cpus.get(node, 0) >= cpus and self.memory_mib.get(node, 0) >= memory_mib

    def take(self, node: str, cpus: int, memory_mib: int) -> bool:
        """Whether that fits beside what was counted before; then it is counted too, with those that come together."""
        if not self.fits(node, cpus, memory_mib):
            return False
        self.cpus[node] -= cpus
        self.memory_mib[node] -= memory_mib
        return True


Gpus = tuple[tuple[str, int], ...]  # by type


def sum_of(amounts: Iterable[Amounts]) -> Amounts:
    """All of these together."""
    cores = memory_mib = 0
    gpus: Counter[str] = Counter()
    for each in amounts:
        cores += each.cores
        memory_mib += each.memory_mib
        gpus.update(dict(each.gpus))
    return Amounts(cores, memory_mib, _by_type(gpus.items()))


def _gpus_by_job(node: Node, jobs: Sequence[Job]) -> dict[str, Gpus] | None:
    """By type; one that asked for any type has what the others leave of those in use, where that is of one type."""
    asked = _gpus_asked(node, jobs)
    if asked is None:
        return None
    plain = {name for name, _ in node.gpus if name == gres_kind(name)}
    left = Counter(dict(node.alloc_gpus or ()))
    found: dict[str, list[tuple[str, int]]] = {job_id: [] for job_id in asked}
    untyped: dict[str, list[tuple[str, int]]] = {}  # by kind of resource: job and number
    for job_id, name, count in ((job_id, *each) for job_id, gpus in asked.items() for each in gpus):
        if name == gres_kind(name) and name not in plain:
            untyped.setdefault(name, []).append((job_id, count))
        else:
            found[job_id].append((name, count))
            left[name] -= count
    shares = _of_any_type(untyped, left)
    if shares is None:
        return None
    for job_id, share in shares:
        found[job_id].append(share)
    return {job_id: _by_type(each) for job_id, each in found.items()}


def _of_any_type(
    untyped: Mapping[str, Sequence[tuple[str, int]]], left: Mapping[str, int]
) -> list[tuple[str, tuple[str, int]]] | None:
    """Jobs that asked for no type, and what each has of what is left; None where that is not known."""
    shares: list[tuple[str, tuple[str, int]]] = []
    for kind, those in untyped.items():
        rest = [(name, count) for name, count in left.items() if count and gres_kind(name) == kind]
        if len(those) == 1:
            shares += [(those[0][0], each) for each in rest]
        elif len(rest) == 1:
            shares += [(job_id, (rest[0][0], count)) for job_id, count in those]
        else:
            return None
    return shares


def _gpus_asked(node: Node, jobs: Iterable[Job]) -> dict[str, Gpus] | None:
    """By job; Slurm gives whole nodes with all their GPUs, asked for or not (measured)."""
    if node.gpus and node.alloc_gpus is None:
        return None
    used = dict(node.alloc_gpus or ())
    all_used = tuple(each for each in node.gpus if each[0] in used)
    asked = {job.job_id: all_used if job.exclusive else job.gpus for job in jobs}
    known = {job_id: gpus for job_id, gpus in asked.items() if gpus is not None}
    return known if len(known) == len(asked) else None


def _by_type(gpus: Iterable[tuple[str, int]]) -> Gpus:
    return tuple(sorted((name, count) for name, count in gpus if count))


NodeKinds = Mapping[str, tuple[Amounts, ...]]  # what the unlike nodes of a partition have, by its name


def node_kinds(nodes: Iterable[Node]) -> NodeKinds:
    """The same for the same nodes in any order."""
    alike = {(node.partitions, node.cpus, node.memory_mib, node.gpus): node for node in nodes}
    kinds: dict[str, set[Amounts]] = defaultdict(set)
    for node in alike.values():
        for name in node.partitions:
            kinds[name].add(amounts_of(node))
    return {name: tuple(sorted(found, key=astuple)) for name, found in kinds.items()}


def job_with_least_nodes(job: Job, kinds: NodeKinds) -> Job:
    """A waiting job with the number of nodes that it takes at least, where it leaves that open; any other as it is.

    Of ``-n 64`` or ``--gpus=8`` Slurm tells one node as the least. The least that can hold the job follows from what
    its nodes have: processors, memory and generic resources of the largest node of its partitions. The job is planned
    for on so many nodes, with an even share of its tasks and GPUs on each; Slurm takes any split that fits (measured).
    """
    if job.state is not JobState.PENDING or job.spread is None:
        return job
    return _spread(job, job.spread, [has for name in job.partitions for has in kinds.get(name, ())])


def _spread(job: Job, spread: Spread, kinds: Sequence[Amounts]) -> Job:
    counts = [count for has in kinds if (count := _least(job, spread, has))]
    nodes = max(job.num_nodes, min(counts, default=0))
    if nodes == job.num_nodes and not (nodes and spread.cpus_per_gpu):
        return job
    return replace(
        job,
        num_nodes=nodes,
        cpus=max(job.cpus, spread.cpus_for_gpus(nodes)),
        memory_mib=_memory_mib(job, spread, nodes, max((has.memory_mib for has in kinds), default=0)),
        gpus=spread.gpus_on_each(nodes),
        even_cpus=spread.cpus_on_each(nodes),
    )


def _memory_mib(job: Job, spread: Spread, nodes: int, most: int) -> int:
    """Memory on each node, of which one has ``most``."""
    if spread.memory_per_gpu_mib and not spread.per_socket:
        return spread.memory_on_each(nodes)
    told = job.memory_mib
    if told > most:  # no node has it, so it is that of all tasks
        told = ceil(told * job.num_nodes / nodes)
    # Slurm 22.05 does not count processors of GPUs, nor the memory that comes with each. Whether it is memory of
    # processors or of nodes is not told.
    cpus = spread.cpus_for_gpus(nodes)
    return told if cpus <= job.cpus else max(told, min(most, ceil(told * cpus / max(job.cpus, 1))))


def _least(job: Job, spread: Spread, has: Amounts) -> int:
    """So many nodes of this kind can hold the job; 0: no number of them can."""
    if any(has.gpus_of(name) < count for name, count in spread.gpus_per_node) or not has.cores:
        return 0
    # What is asked for in all, and what one node has of it.
    needs = [(max(job.cpus, spread.cpus_for_gpus(job.num_nodes)), has.cores)]
    per_node = dict(spread.gpus_per_node)
    needs += [(count, per_node.get(name, has.gpus_of(name))) for name, count in spread.gpus_per_job]
    # With fewer processors than tasks the job overcommits them.
    fit = [has.cores // spread.cpus_per_task] if spread.cpus_per_task and job.cpus >= spread.tasks else []
    fit += [has.gpus_of(name) // count for name, count in spread.gpus_per_task]
    if spread.cpus_per_gpu:
        gpus = has.cores // spread.cpus_per_gpu  # that have their processors
        of_node, of_job, of_task = map(only_gpus, (spread.gpus_per_node, spread.gpus_per_job, spread.gpus_per_task))
        if gpus < max(of_node, of_task, min(of_job, 1)):
            return 0
        needs += [(of_job, gpus)] if of_job else []
        fit += [gpus // of_task] if of_task else []
    needs += [(spread.tasks, min(fit))] if fit else []
    if job.memory_mib > has.memory_mib > 0:
        needs.append((job.memory_mib * job.num_nodes, has.memory_mib))
    return _enough(needs)


def _enough(needs: Iterable[tuple[int, int]]) -> int:
    """Nodes that have all that is asked for, by what one of them has; 0 where one has nothing of something."""
    known = list(needs)
    return max(ceil(asked / has) for asked, has in known) if all(has for _, has in known) else 0


def licenses_of(text: str) -> Mapping[str, int] | None:
    """``matlab:2,abaqus`` as numbers by name; None for anything else, as one of several licenses."""
    found: Counter[str] = Counter()
    for item in filter(None, text.split(",")):
        read = _ITEM.fullmatch(item.strip())
        if read is None:
            return None
        found[read[1]] += int(read[2] or 1)
    return {name: count for name, count in found.items() if count}


def held_by(job: Job) -> Mapping[str, int]:
    """What a job holds; nothing where that cannot be told. Suspended jobs keep theirs."""
    return (licenses_of(job.licenses) or {}) if job.licenses and job.state.holds_nodes else {}


def pools(
    job: Job, snapshot: ClusterSnapshot, under_way: UnderWay, gone: Collection[str], may_leave: Collection[str]
) -> tuple[list[NodeResources], dict[str, dict[str, Amounts]]]:
    """The pools of a waiting job's licenses, and what each job that may leave holds of them; ``gone`` leave anyway."""
    found: list[NodeResources] = []
    holds: dict[str, dict[str, Amounts]] = {}
    asked = licenses_of(job.licenses) or {}
    promised = _promised(snapshot, under_way)
    for name, count in sorted(asked.items()):
        license_ = snapshot.licenses.get(name)
        pool = f"{PREFIX}{name}"
        if license_ is None:
            found.append(NodeResources(pool, Amounts(), pool=Amounts(count)))
            continue
        ours = count if job.reservation else 0  # its own placement holds them for it
        fixed = license_.used + max(0, license_.reserved - ours) + promised[name]
        for each in snapshot.jobs:
            held = held_by(each).get(name, 0)
            if held and each.job_id in gone:
                fixed -= held
            elif held and each.job_id in may_leave:
                fixed -= held
                holds.setdefault(each.job_id, {})[pool] = Amounts(held)
        found.append(NodeResources(pool, Amounts(license_.total), held=Amounts(max(0, fixed)), pool=Amounts(count)))
    return found, holds


def _promised(snapshot: ClusterSnapshot, under_way: UnderWay) -> Counter[str]:
    """What urgent jobs of other evictions wait for whose placements do not hold it yet."""
    found: Counter[str] = Counter()
    for each in under_way.evictions:
        preemptor = getattr(each.plan, "preemptor", None)
        now = snapshot.job_by_id.get(preemptor.job_id) if preemptor is not None else None
        if now is not None and now.state is JobState.PENDING and not now.reservation:
            found.update(licenses_of(now.licenses) or {})
    return found


def asks_for_any(jobs: Iterable[Job]) -> bool:
    """Whether a waiting job asks for licenses: only then they are read."""
    return any(job.licenses and job.state is JobState.PENDING for job in jobs)
