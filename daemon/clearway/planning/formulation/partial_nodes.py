"""When a node that jobs share can serve the preemptor: enough of it must be given back.

Model: what the jobs that stay hold on a node must leave room for the need, in each resource. A resource is short when
everything that is held now leaves less than the need; the jobs that leave must then give back at least the shortage.
These do not count: resources that are not short, jobs that hold nothing of those that are, and a resource of which
every job gives back at least as large a share as of another. A job that holds more than the shortage counts as holding
just that, so that nodes which ask the same of the same jobs are one class. Where all jobs must leave, the class is
named by the set of its jobs alone.

GPUs: a need for a type counts GPUs of that type, a need without one counts all. A node that lacks the need even when it
is empty, is excluded, or has not the features or the partition, can never serve.

Required nodes: each counts as many nodes as all others together and one more (``Supply.weight``). So a plan frees
enough only with every one of them, and no planner needs to know.

Cost: time in the number of (job, node) pairs.
"""

from __future__ import annotations

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

    def without(self, gone: Collection[int]) -> PartialNode:
        """What is left to be done once these jobs have left."""
        missing = self.missing
        for rank, amounts in self.held:
            if rank in gone:
                missing = minus(missing, amounts)
        return PartialNode(tuple(each for each in self.held if each[0] not in gone), missing)

    def only(self, able: Collection[int]) -> PartialNode:
        """The same node when only these jobs can leave."""
        return PartialNode(tuple(each for each in self.held if each[0] in able), self.missing)


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
        for name, holds in zip(
            candidate.node_names, candidate.holds or [None] * len(candidate.node_names), strict=True
        ):
            if name not in jobs_on:
                raise ValueError(f"job {candidate.job_id}: node {name} is not among the nodes of the problem")
            jobs_on[name].append((rank, holds))
    resources = _resources(needs.per_node)
    for node in problem.nodes:
        asked = _asks(node, needs, resources, jobs_on[node.name])
        if asked is not None:
            yield node, asked


def supply_of(problem: EvictionProblem, needs: Needs, candidates: Sequence[Candidate]) -> Supply:
    """The classes of the nodes that can serve; ``candidates`` stand in the order of their ranks."""
    required = set(needs.required_nodes)
    weight = 1 + sum(node.name not in required for node in problem.nodes) if required else 1
    needed = len(required) * weight + max(0, problem.nodes_needed - len(required))
    classes: Counter[frozenset[int]] = Counter()
    partial: Counter[PartialNode] = Counter()
    for node, asked in demands(problem, needs, candidates):
        weighs = weight if node.name in required else 1
        if not asked.held:
            needed -= weighs
        elif all_must_leave(asked):
            classes[frozenset(rank for rank, _ in asked.held)] += weighs
        else:
            partial[asked] += weighs
    return Supply(max(0, needed), weight, dict(classes), dict(partial))


def all_must_leave(node: PartialNode) -> bool:
    """Whether every job on it is needed, because without it the others give back too little."""
    given = [sum(column) for column in zip(*[amounts for _, amounts in node.held], strict=True)]
    return all(
        any(all_ - mine < short for all_, mine, short in zip(given, amounts, node.missing, strict=True))
        for _, amounts in node.held
    )


def changed(
    classes: NodeClasses, partial: PartialNodes, gone: Collection[int], able: Collection[int]
) -> tuple[NodeClasses, PartialNodes, int]:
    """The classes that can still be freed once some jobs have left, and the nodes that are free by then."""
    whole: dict[frozenset[int], int] = defaultdict(int)
    parts: dict[PartialNode, int] = defaultdict(int)
    freed = 0
    for jobs, nodes in classes.items():
        left = jobs.difference(gone)
        if not left:
            freed += nodes
        elif all(rank in able for rank in left):
            whole[left] += nodes
    for node, nodes in partial.items():
        kept = _canonical(node.without(gone).only(able))
        if kept is None:
            continue
        if not kept.held:
            freed += nodes
        elif all_must_leave(kept):
            whole[frozenset(rank for rank, _ in kept.held)] += nodes
        else:
            parts[kept] += nodes
    return dict(whole), dict(parts), freed


_Resource = tuple[Callable[[Amounts], int], int]  # how much of it an amount is, and how much is needed


def _resources(per_node: Amounts) -> list[_Resource]:
    found: list[_Resource] = [
        (lambda amounts: amounts.cores, per_node.cores),
        (lambda amounts: amounts.memory_mib, per_node.memory_mib),
    ]
    found += [(lambda amounts, name=name: amounts.gpus_of(name), count) for name, count in per_node.gpus]  # type: ignore[misc]
    return [(of, needed) for of, needed in found if needed]


def serves(node: NodeResources, needs: Needs) -> bool:
    """Whether an empty node of this kind could serve the preemptor."""
    return _allowed(node, needs) and all(of(node.has) >= needed for of, needed in _resources(needs.per_node))


def _allowed(node: NodeResources, needs: Needs) -> bool:
    return (
        node.name not in needs.excluded_nodes
        and (not needs.partition or needs.partition in node.partitions)
        and set(needs.features) <= set(node.features)
    )


def could_serve(node: NodeResources, needs: Needs) -> bool:
    """Whether it could serve the preemptor once every candidate has left it."""
    return _has_room(node, needs, _resources(needs.per_node), ())


def serving(problem: EvictionProblem, gone: Collection[str]) -> list[NodeResources]:
    """The nodes of a problem with needs that serve once the jobs ``gone`` have left, in the problem's order."""
    needs = problem.needs or Needs()
    resources = _resources(needs.per_node)
    staying: dict[str, list[Amounts | None]] = defaultdict(list)
    for candidate in problem.candidates:
        if candidate.job_id not in gone:
            holds = candidate.holds or [None] * len(candidate.node_names)
            for name, amounts in zip(candidate.node_names, holds, strict=True):
                staying[name].append(amounts)
    return [node for node in problem.nodes if _has_room(node, needs, resources, staying.get(node.name, ()))]


def _has_room(
    node: NodeResources, needs: Needs, resources: Sequence[_Resource], staying: Sequence[Amounts | None]
) -> bool:
    """Whether it serves beside candidates that hold these amounts (None: all of it)."""
    if not _allowed(node, needs):
        return False
    if not resources:  # whole nodes
        return not staying and node.held == Amounts()
    for of, needed in resources:
        taken = of(node.held) + sum([of(holds or node.has) for holds in staying])
        if of(node.has) - taken < needed:
            return False
    return True


def _asks(
    node: NodeResources, needs: Needs, resources: Sequence[_Resource], jobs: Iterable[tuple[int, Amounts | None]]
) -> PartialNode | None:
    """What must be given back on a node; None when it can never serve."""
    if not serves(node, needs):
        return None
    held = [(rank, holds or node.has) for rank, holds in jobs]
    missing = [needed - of(node.has) + of(node.held) + sum(of(holds) for _, holds in held) for of, needed in resources]
    vectors = [(rank, tuple(of(holds) for of, _ in resources)) for rank, holds in held]
    if not resources:  # whole nodes: any job there is in the way
        if node.held != Amounts():
            return None
        return PartialNode(tuple((rank, (1,)) for rank, _ in vectors), (len(vectors),) if vectors else ())
    return _canonical(PartialNode(tuple(vectors), tuple(missing)))


def _canonical(node: PartialNode) -> PartialNode | None:
    """The same demand in its shortest form; None when it cannot be met."""
    given = [sum(column) for column in zip(*[amounts for _, amounts in node.held], strict=True)]
    if any(short > (given[place] if given else 0) for place, short in enumerate(node.missing)):
        return None
    short = [place for place, amount in enumerate(node.missing) if amount > 0]
    columns = [[min(amounts[place], node.missing[place]) for _, amounts in node.held] for place in short]
    deciding = _deciding([node.missing[place] for place in short], columns)
    held = []
    for row, (rank, _) in enumerate(node.held):
        clipped = tuple([columns[place][row] for place in deciding])
        if any(clipped):
            held.append((rank, clipped))
    return PartialNode(tuple(sorted(held)), tuple([node.missing[short[place]] for place in deciding]))


def _deciding(missing: Sequence[int], columns: Sequence[Sequence[int]]) -> list[int]:
    """The resources that decide: one goes when every job gives back at least as large a share of it as of another."""
    kept = list(range(len(missing)))
    for place in range(len(missing)):
        if any(
            other != place
            and all(
                mine * missing[other] >= its * missing[place]
                for mine, its in zip(columns[place], columns[other], strict=True)
            )
            for other in kept
        ):
            kept.remove(place)
    return kept
