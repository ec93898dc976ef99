"""When a node that jobs share can serve the preemptor: enough of it must be given back.

Model: what the jobs that stay hold on a node must leave room for the need, in each resource. A resource is short when
everything that is held now leaves less than the need; the jobs that leave must give back at least the shortage. These
do not count: resources that are not short, jobs that hold nothing of those that are, and a resource of which every job
gives back at least as large a share as of another. A job that holds more than the shortage counts as holding just that,
so that nodes which ask the same of the same jobs are one class. Where all jobs must leave, the class is named by the
set of its jobs alone.

GPUs: a need for a type counts GPUs of that type, a need without one counts all. A node that lacks the need even when it
is empty, is excluded, or has not the features or the partition, can never serve.

Required nodes: each counts as many nodes as all others together and one more (``Supply.weight``). So a plan frees
enough only with every one of them, and no planner needs to know.

Cost: time in the number of (job, node) pairs.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from clearway.model.problem import Amounts, Candidate, EvictionProblem, Needs, NodeResources

Vector = tuple[int, ...]  # one number for each resource that is short


class PartialNode(NamedTuple):
    """Nodes that are free as soon as the jobs that left gave back what is missing; not all of them need to."""

    held: tuple[tuple[int, Vector], ...]  # by rank of the job
    missing: Vector

    def missing_after(self, gone: Collection[int]) -> Vector:
        """What is still missing once these jobs have left."""
        missing = self.missing
        for rank, amounts in self.held:
            if rank in gone:
                missing = minus(missing, amounts)
        return missing


NodeClasses = Mapping[frozenset[int], int]  # ranks of the jobs that must all leave -> nodes that are free then
PartialNodes = Mapping[PartialNode, int]


@dataclass(frozen=True, slots=True)
class Supply:
    """The nodes of a problem, by what they ask of the jobs."""

    needed: int  # nodes by weight, those that can serve at once are taken off
    weight: int  # of a required node
    classes: NodeClasses
    partial: PartialNodes

    def nodes(self, weighed: int) -> int:
        """How many nodes stand behind a sum of weights."""
        return weighed // self.weight + weighed % self.weight


def minus(missing: Vector, amounts: Vector) -> Vector:
    return tuple([max(0, short - given) for short, given in zip(missing, amounts, strict=True)])


def demands(
    problem: EvictionProblem, needs: Needs, candidates: Sequence[Candidate]
) -> Iterator[tuple[NodeResources, PartialNode]]:
    """Every node that can serve once enough candidates have left it, and what it asks of them, by their ranks.

    Raises:
        ValueError: nodes and candidates do not fit together.
    """
    if len({node.name for node in problem.nodes}) < len(problem.nodes):
        raise ValueError("an eviction problem names each node once")
    jobs_on: dict[str, list[tuple[int, Amounts | None]]] = {node.name: [] for node in problem.nodes}
    for rank, candidate in enumerate(candidates):
        if candidate.holds and len(candidate.holds) != len(candidate.node_names):
            raise ValueError(f"job {candidate.job_id}: holds must tell of each of its nodes")
        for name, holds in _held_by(candidate):
            if name not in jobs_on:
                raise ValueError(f"job {candidate.job_id}: node {name} is not among the nodes of the problem")
            jobs_on[name].append((rank, holds))
    resources = _resources(needs.per_node)
    for node in problem.nodes:
        asked = _asks(node, needs, _resources_of(node, resources), jobs_on[node.name])
        if asked is not None:
            yield node, asked


def _held_by(candidate: Candidate) -> Iterable[tuple[str, Amounts | None]]:
    """By node what the job holds there; None: all of it."""
    return zip(candidate.node_names, candidate.holds or [None] * len(candidate.node_names), strict=True)


def supply_of(problem: EvictionProblem, needs: Needs, candidates: Sequence[Candidate]) -> Supply:
    """The classes of the nodes that can serve; ``candidates`` stand in the order of their ranks."""
    required = set(needs.required_nodes)
    weight = 1 + sum(node.name not in required for node in problem.nodes) if required else 1
    asked = ((asks, weight if node.name in required else 1) for node, asks in demands(problem, needs, candidates))
    classes, partial, free = _by_demand(asked, Counter())
    needed = len(required) * weight + max(0, problem.nodes_needed - len(required)) - free
    return Supply(max(0, needed), weight, classes, partial)


def _by_demand(
    asked: Iterable[tuple[PartialNode, int]], classes: Counter[frozenset[int]]
) -> tuple[NodeClasses, PartialNodes, int]:
    """Adds so many nodes of each demand to the classes; with them, those of parts, and how many are free at once."""
    partial: Counter[PartialNode] = Counter()
    free = 0
    for asks, nodes in asked:
        if not asks.held:
            free += nodes
        elif all_must_leave([amounts for _, amounts in asks.held], asks.missing):
            classes[frozenset(rank for rank, _ in asks.held)] += nodes
        else:
            partial[asks] += nodes
    return dict(classes), dict(partial), free


def all_must_leave(held: Sequence[Vector], missing: Vector) -> bool:
    """Whether every job on a node is needed, because without it the others give back too little."""
    given = [sum(column) for column in zip(*held, strict=True)]
    return all(
        any(all_ - mine < short for all_, mine, short in zip(given, amounts, missing, strict=True)) for amounts in held
    )


def changed(
    classes: NodeClasses, partial: PartialNodes, gone: Collection[int], able: Collection[int]
) -> tuple[NodeClasses, PartialNodes, int]:
    """The classes that can still be freed once some jobs have left, and the nodes that are free by then."""
    whole: Counter[frozenset[int]] = Counter()
    freed = 0
    left = set(able).difference(gone)
    for jobs, nodes in classes.items():
        holders = jobs.difference(gone)
        if not holders:
            freed += nodes
        elif holders <= left:
            whole[holders] += nodes
    kept = (
        (_canonical(PartialNode(tuple([job for job in node.held if job[0] in left]), node.missing_after(gone))), nodes)
        for node, nodes in partial.items()
    )
    found, parts, free = _by_demand(((asks, nodes) for asks, nodes in kept if asks is not None), whole)
    return found, parts, freed + free


_Short = tuple[int, list[int]]  # what is missing of a resource, and what each job gives back of that
_Resource = tuple[Callable[[Amounts], int], int]  # how much of it an amount is, and how much is needed


def _resources(per_node: Amounts) -> list[_Resource]:
    found: list[_Resource] = [
        (lambda amounts: amounts.cores, per_node.cores),
        (lambda amounts: amounts.memory_mib, per_node.memory_mib),
    ]
    found += [(lambda amounts, name=name: amounts.gpus_of(name), count) for name, count in per_node.gpus]  # type: ignore[misc]
    return [(of, needed) for of, needed in found if needed]


def _resources_of(node: NodeResources, of_nodes: Sequence[_Resource]) -> Sequence[_Resource]:
    return of_nodes if node.pool is None else _resources(node.pool)


def serves(node: NodeResources, needs: Needs) -> bool:
    """Whether an empty node of this kind could serve the preemptor."""
    return _has_room(node, needs, _resources_of(node, _resources(needs.per_node)), ())


def could_serve(node: NodeResources, needs: Needs) -> bool:
    """Whether it could serve the preemptor once every candidate has left it."""
    return _has_room(node, needs, _resources(needs.per_node), _stays(node))


def serves_beside(node: NodeResources, needs: Needs, held: Iterable[Amounts]) -> bool:
    """Whether it serves the preemptor while jobs stay that hold these amounts."""
    return _has_room(node, needs, _resources_of(node, _resources(needs.per_node)), [*_stays(node), *held])


def _stays(node: NodeResources) -> list[Amounts]:
    return [] if node.held == Amounts() else [node.held]


def serving(problem: EvictionProblem, gone: Collection[str]) -> list[NodeResources]:
    """The nodes (and pools) of a problem with needs that serve once these jobs have left, in the problem's order."""
    needs = problem.needs or Needs()
    resources = _resources(needs.per_node)
    staying: dict[str, list[Amounts | None]] = defaultdict(list)
    for candidate in problem.candidates:
        if candidate.job_id not in gone:
            for name, amounts in _held_by(candidate):
                staying[name].append(amounts)
    return [
        node
        for node in problem.nodes
        if _has_room(node, needs, _resources_of(node, resources), [*_stays(node), *staying.get(node.name, ())])
    ]


def _has_room(
    node: NodeResources, needs: Needs, resources: Sequence[_Resource], staying: Sequence[Amounts | None]
) -> bool:
    """Whether it serves beside what holds these amounts (None: all of it)."""
    return (
        (node.pool is not None or _suits(node, needs))
        and not (staying and not resources)  # whole nodes
        and all(of(node.has) - sum([of(held or node.has) for held in staying]) >= needed for of, needed in resources)
    )


def _suits(node: NodeResources, needs: Needs) -> bool:
    return (
        node.name not in needs.excluded_nodes
        and (not needs.partition or needs.partition in node.partitions)
        and set(needs.features) <= set(node.features)
    )


def _asks(
    node: NodeResources, needs: Needs, resources: Sequence[_Resource], jobs: Iterable[tuple[int, Amounts | None]]
) -> PartialNode | None:
    """What must be given back on a node; None when it can never serve."""
    if not _has_room(node, needs, resources, ()):
        return None
    held = [(rank, holds or node.has) for rank, holds in jobs]
    if not resources:  # whole nodes: any job there is in the way
        return None if _stays(node) else _canonical(PartialNode(tuple((rank, (1,)) for rank, _ in held), (len(held),)))
    missing = [needed - of(node.has) + of(node.held) + sum(of(holds) for _, holds in held) for of, needed in resources]
    vectors = [(rank, tuple(of(holds) for of, _ in resources)) for rank, holds in held]
    return _canonical(PartialNode(tuple(vectors), tuple(missing)))


def _canonical(node: PartialNode) -> PartialNode | None:
    """The same demand in its shortest form; None when it cannot be met."""
    columns = list(zip(*[amounts for _, amounts in node.held], strict=True)) or [()] * len(node.missing)
    if any(sum(column) < missing for column, missing in zip(columns, node.missing, strict=True)):
        return None
    short = [
        (missing, [min(amount, missing) for amount in column])
        for column, missing in zip(columns, node.missing, strict=True)
        if missing > 0
    ]
    short = _deciding(short)
    rows = zip(*[column for _, column in short], strict=True)
    held = [(rank, row) for (rank, _), row in zip(node.held, rows, strict=False) if any(row)]
    return PartialNode(tuple(sorted(held)), tuple([missing for missing, _ in short]))


def _deciding(short: Sequence[_Short]) -> list[_Short]:
    """The resources that decide: one goes when every job gives back at least as large a share of it as of another."""
    kept = list(short)
    for mine in short:
        missing, column = mine
        if any(
            other is not mine and all(a * other[0] >= b * missing for a, b in zip(column, other[1], strict=True))
            for other in kept
        ):
            kept.remove(mine)
    return kept
