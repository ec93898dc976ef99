"""What an urgent job asks of its nodes, and which nodes serve it once certain jobs have left. Pure.

A job that may share its nodes takes a part of each: a node serves it as soon as so many processors, so much memory and
so many GPUs are free there. Without GPUs it is given parts only where they differ from whole nodes, and where what it
takes of each is beyond doubt. Every other job takes whole nodes; where it asks for certain or contiguous ones, the
planner is told which are good enough and where they lie.

Where it is not known what each job holds on a node (``clearway.eligibility.node_usage``), each counts as holding all of
it: it is then free when all have left, which is always true.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any, NamedTuple

from clearway.eligibility.constraint import alternatives, satisfied
from clearway.eligibility.node_usage import PREFIX, amounts_of, held_by_job, licenses_of, shares_memory, sum_of
from clearway.model.cluster import ClusterSnapshot, Job, Node
from clearway.model.problem import Amounts, EvictionProblem, Needs, NodeResources, gres_kind
from clearway.planning.formulation.partial_nodes import serves_beside, serving
from clearway.planning.formulation.places import places_of

_SLOT = "#"  # no node's name has it
_MOST_SLOTS = 4_096  # of all nodes together

_Rank = tuple[int, int, str]  # of a node: the least is free soonest and surest
Once = Callable[[Hashable, Callable[[], Any]], Any]  # as ``Survey.once``


class Holding(NamedTuple):
    """A node that could serve on what it has, and what is held there by jobs that do not leave anyway."""

    node: Node
    fixed: Amounts  # of those that may not leave
    jobs: Mapping[str, Amounts]  # of the others
    like: int  # nodes of one number have, and hold in all, the same


class Sharing(NamedTuple):
    """The nodes of a problem with needs, and what each job holds of those that could serve."""

    nodes: tuple[NodeResources, ...]
    holds: Mapping[str, Mapping[str, Amounts]]  # job_id -> node -> amounts: of those that may leave
    free: frozenset[str]  # nodes that serve while all of them stay


def needs_of(
    job: Job, snapshot: ClusterSnapshot, eligible: Collection[str], *, whole: bool = False, several: bool = False
) -> Needs | None:
    """The needs of a waiting job on these nodes; None where any whole nodes do that are good enough.

    ``whole``: whole nodes, unless it asks for GPUs. ``several``: tasks of an array, of which a node may hold some.
    """
    if job.gpus:
        per_node = _part_with_gpus(job, snapshot.nodes)
    else:
        per_node = None if whole else _part_without_gpus(job, snapshot, eligible, several=several)
    alike = alternatives(job.features) or ()
    licenses = [PREFIX + name for name in licenses_of(job.licenses) or ()]
    needs = Needs(
        per_node=per_node or Amounts(),
        required_nodes=tuple(sorted((*job.required_nodes, *licenses))),
        contiguous=job.contiguous,
        one_switch=job.switches == 1,
        switches=job.switches if 1 < job.switches < job.num_nodes else 0,  # so many nodes are under no more
        same_feature=alike if len(alike) > 1 else (),
    )
    return None if needs == Needs() else needs


def holdings(
    eligible: Collection[str],
    snapshot: ClusterSnapshot,
    gone: Collection[str],
    may_leave: Collection[str],
    *,
    whole: bool,
) -> Sequence[Holding]:
    """Of all these nodes, in Slurm's order; ``gone`` are jobs that leave anyway. ``whole``: jobs hold whole nodes."""
    found: list[Holding] = []
    numbers: dict[tuple[Amounts, ...], int] = {}
    for node in snapshot.nodes:
        if node.name not in eligible:
            continue
        jobs = snapshot.jobs_on.get(node.name, ())
        held = _held(node, jobs, {job.job_id for job in jobs if job.job_id not in gone}, whole=whole)
        fixed = sum_of([amounts for job_id, amounts in held.items() if job_id not in may_leave])
        leaving = {job_id: amounts for job_id, amounts in held.items() if job_id in may_leave}
        signs = (amounts_of(node), fixed, *([sum_of(leaving.values())] if leaving else []))
        found.append(Holding(node, fixed, leaving, numbers.setdefault(signs, len(numbers))))
    return found


def share(
    needs: Needs,
    held: Sequence[Holding],
    snapshot: ClusterSnapshot,
    pools: tuple[Sequence[NodeResources], Mapping[str, Mapping[str, Amounts]]],
    once: Once,
) -> Sharing:
    """The nodes that could serve, and what the jobs hold there; ``pools`` are those of licenses.

    Where nodes must lie together all nodes are told of, in Slurm's order; those that cannot serve have nothing.
    ``once`` is asked for what preemptors share that can use the same nodes (with the same object for ``held``).
    """
    could: dict[int, bool] = {}
    free: dict[int, bool] = {}
    for like, each in {each.like: each for each in held}.items():
        one = _resources(each, needs, snapshot)
        could[like], free[like] = serves_beside(one, needs), serves_beside(one, needs, each.jobs.values())
    serving_ones = [each for each in held if could[each.like]]
    name = (id(held), tuple([each.node.name for each in serving_ones]))

    def nodes() -> tuple[NodeResources, ...]:
        found = {each.node.name: _resources(each, needs, snapshot) for each in serving_ones}
        if not needs.contiguous:
            return tuple(found.values())
        other = Amounts(cores=1)
        return tuple([found.get(n.name) or NodeResources(n.name, Amounts(), held=other) for n in snapshot.nodes])

    def holds() -> Mapping[str, Mapping[str, Amounts]]:
        by_job: dict[str, dict[str, Amounts]] = {}
        for each in serving_ones:
            for job_id in each.jobs:
                by_job.setdefault(job_id, {})[each.node.name] = each.jobs[job_id]
        return by_job

    by_job = once(("holds", *name), holds)
    if pools[1]:
        by_job = {job_id: {**by_job.get(job_id, {}), **pools[1].get(job_id, {})} for job_id in {*by_job, *pools[1]}}
    told = once(("nodes", *name, needs.contiguous, needs.same_feature), nodes)
    empty = frozenset(each.node.name for each in held if free[each.like])
    return Sharing((*told, *pools[0]) if pools[0] else told, by_job, empty)


def _resources(each: Holding, needs: Needs, snapshot: ClusterSnapshot) -> NodeResources:
    """The node as the planner sees it."""
    has = frozenset(each.node.features)
    alike = tuple(feature for feature in needs.same_feature if satisfied(feature, has))
    switch = snapshot.topology.switch_of.get(each.node.name, "")
    return NodeResources(each.node.name, amounts_of(each.node), held=each.fixed, features=alike, switch=switch)


def slotted(sharing: Sharing, needs: Needs, tasks: int) -> Sharing:
    """The same nodes, each once for every task that it could hold beside others.

    The second slot of a node is a node that has one part less, and so on: it serves as soon as two parts are free. So
    many tasks of n nodes each fit as soon as there are tasks x n slots, if no node counts for more than all the tasks.
    """
    most = max(1, min(tasks, _MOST_SLOTS // max(1, len(sharing.nodes))))
    part, nodes, slots = needs.per_node, list[NodeResources](), dict[str, list[str]]()
    for node in sharing.nodes:
        for number in range(most):
            has = _less(node.has, part, number)
            each = replace(node, name=f"{node.name}{_SLOT}{number}" if number else node.name, has=has)
            if number and not serves_beside(each, needs):
                break
            nodes.append(each)
            slots.setdefault(node.name, []).append(each.name)
    holds = {
        job_id: {slot: amounts for name, amounts in held.items() for slot in slots[name]}
        for job_id, held in sharing.holds.items()
    }
    held_on: defaultdict[str, list[Amounts]] = defaultdict(list)
    for held in holds.values():
        for slot, amounts in held.items():
            held_on[slot].append(amounts)
    free = frozenset(each.name for each in nodes if serves_beside(each, needs, held_on[each.name]))
    return Sharing(tuple(nodes), holds, free)


def node_of(slot: str) -> str:
    """The name of the node of a slot."""
    return slot.partition(_SLOT)[0]


def _less(has: Amounts, part: Amounts, times: int) -> Amounts:
    """What is left of a node; GPUs of no certain type are taken from the types that it has most of."""
    left = dict(has.gpus)
    for kind, count in part.gpus:
        for _ in range(count * times):
            alike = [name for name in left if gres_kind(name) == kind]
            own = kind if kind in left or not alike else max(alike, key=lambda name: left[name])
            left[own] = left.get(own, 0) - 1
    gpus = tuple((name, max(0, count)) for name, count in left.items())
    return Amounts(max(0, has.cores - times * part.cores), max(0, has.memory_mib - times * part.memory_mib), gpus)


def placement_nodes(
    problem: EvictionProblem, nodes: int, leaving: Mapping[str, int], first: Sequence[str]
) -> list[str]:
    """The nodes that the preemptor shall start on: required ones, then those that serve at once, then by rank.

    ``leaving``: jobs to their ranks, the surest lowest; a node has the highest of the jobs that leave it. ``first`` is
    the order of those that serve at once.
    """
    rank = _when_free(problem, leaving, first)
    needs = problem.needs
    if needs is None:
        held = {name for each in problem.candidates if each.job_id not in leaving for name in each.node_names}
        return sorted(rank.keys() - held, key=rank.__getitem__)[:nodes]
    return _among_serving(problem, needs, nodes, leaving, rank)


def _among_serving(
    problem: EvictionProblem, needs: Needs, nodes: int, leaving: Mapping[str, int], rank: Mapping[str, _Rank]
) -> list[str]:
    serves = {node.name for node in serving(problem, leaving.keys()) if node.pool is None}
    order = {name: (name not in needs.required_nodes, *rank.get(name, (0, 0, name))) for name in serves}
    able = ([node.name for node in place if node.name in serves] for place in places_of(problem.nodes, needs, nodes))
    rows = [sorted(names, key=lambda name: order[name])[:nodes] for names in able if len(names) >= nodes]
    required = set(needs.required_nodes) - {node.name for node in problem.pools}
    rows = [row for row in rows if required <= set(row)]
    return min(rows, key=lambda row: sorted((order[name] for name in row), reverse=True), default=[])


def _when_free(problem: EvictionProblem, leaving: Mapping[str, int], first: Sequence[str]) -> dict[str, _Rank]:
    rank = {name: (0, place, name) for place, name in enumerate(first)}
    for candidate in (each for each in problem.candidates if each.job_id in leaving):
        for name in set(candidate.node_names).difference(first):
            rank[name] = max(rank.get(name, (0, 0, name)), (1, leaving[candidate.job_id], name))
    return rank


def takes_parts(problem: EvictionProblem) -> bool:
    return problem.needs is not None and problem.needs.per_node != Amounts()


def _part_with_gpus(job: Job, nodes: Sequence[Node]) -> Amounts | None:
    """What the job takes of each node; None where it takes whole ones, or that is not known."""
    memory_counts = shares_memory(nodes)
    if job.exclusive or not job.even_cpus or (memory_counts and not job.memory_mib):
        return None
    per_core = max((node.cpus_per_core for node in nodes), default=1)
    cpus = ceil(max(job.even_cpus, job.cpus_per_node) / per_core) * per_core
    return Amounts(cpus, job.memory_mib if memory_counts else 0, job.gpus or ())


def _part_without_gpus(
    job: Job, snapshot: ClusterSnapshot, eligible: Collection[str], *, several: bool
) -> Amounts | None:
    """What the job takes of each node; None where whole nodes do as well, and on any doubt.

    Slurm does not tell of ``--threads-per-core`` and ``--ntasks-per-core``: where cores have several threads, every
    processor that the job asks for counts as a core.
    """
    if _in_doubt(job):
        return None
    memory_counts = shares_memory(snapshot.nodes)
    # ``--mem=0`` is all that a node has, and told as the memory of some node.
    if memory_counts and not 0 < job.memory_mib < min(node.memory_mib for node in snapshot.nodes):
        return None
    nodes = [node for name in eligible if (node := snapshot.node_by_name[name]).cpus >= job.even_cpus]
    per_core = max([node.cpus_per_core for node in nodes], default=1)
    part = Amounts(job.even_cpus * per_core, job.memory_mib * per_core if memory_counts else 0)
    if any(node.cpus < part.cores or node.memory_mib < part.memory_mib for node in nodes):
        return None  # what may be too much for a node is not asked of it
    shared = any(_in_parts(node, snapshot, several=several) for node in nodes if node.cpus > part.cores)
    return part if shared else None


def _in_doubt(job: Job) -> bool:
    """Whether it could take more of one of its nodes than an even share, or have them whole after all."""
    # Of a job in several partitions Slurm tells for one of them whether nodes are shared there.
    uneven = job.even_cpus * job.num_nodes != job.cpus or job.cpus_per_node > job.even_cpus
    unknown = job.gpus is None or bool(job.gres) or not job.even_cpus
    return job.exclusive or uneven or unknown or len(job.partitions) > 1


def _in_parts(node: Node, snapshot: ClusterSnapshot, *, several: bool) -> bool:
    """Whether a job there may hold less than the whole node."""
    jobs = snapshot.jobs_on.get(node.name, ())
    return several or len(jobs) > 1 or (len(jobs) == 1 and node.alloc_cpus < node.cpus)


def _held(node: Node, jobs: Sequence[Job], staying: Collection[str], *, whole: bool) -> Mapping[str, Amounts]:
    """What each of the jobs that are not leaving anyway holds; "" stands for what no known job holds."""
    known = None if whole else held_by_job(node, jobs)
    if known is not None:
        return {job_id: amounts for job_id, amounts in known.items() if job_id in staying}
    if not jobs and node.alloc_cpus:
        return {"": amounts_of(node)}
    return dict.fromkeys(staying, amounts_of(node))
