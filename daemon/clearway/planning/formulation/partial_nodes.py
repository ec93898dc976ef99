"""When a node that jobs share can serve the preemptor: enough of it must be given back.

Model: a resource is short when everything that is held now leaves less than the need; the jobs that leave must give
back at least the shortage. These do not count: resources that are not short, jobs that hold nothing of those that are,
and a resource of which every job gives back at least as large a share as of another. A job that holds more than the
shortage counts as holding just that, so that nodes which ask the same of the same jobs are one demand.

GPUs: a need for a type counts GPUs of that type, a need without one counts all. A node that lacks the need even when it
is empty, is excluded, or has not the features or the partition, can never serve.

Required nodes: each counts as many nodes as all others together and one more (``Supply.weight``), so that a plan frees
enough only with every one of them.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter, methodcaller
from typing import NamedTuple

from clearway.model.problem import Amounts, Candidate, EvictionProblem, Needs, NodeResources

Vector = tuple[int, ...]  # one number for each resource that is short


class Demand(NamedTuple):
    """Of nodes that are free as soon as the jobs that left gave back what is missing."""

    held: tuple[tuple[int, Vector], ...]  # by rank of the job
    missing: Vector


Demands = Mapping[Demand, int]  # -> nodes that are free once it is met


@dataclass(frozen=True, slots=True)
class Supply:
    """The nodes of a problem, by what they ask of the jobs."""

    needed: int  # nodes by weight, those that can serve at once are taken off
    weight: int  # of a required node
    demands: Demands

    def nodes(self, weighed: int) -> int:
        """How many nodes stand behind a sum of weights."""
        return weighed // self.weight + weighed % self.weight


def demands(
    problem: EvictionProblem, needs: Needs, candidates: Sequence[Candidate]
) -> Iterator[tuple[NodeResources, Demand]]:
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
    """What the nodes that can serve ask; ``candidates`` stand in the order of their ranks."""
    required = set(needs.required_nodes)
    weight = 1 + sum(node.name not in required for node in problem.nodes) if required else 1
    asked: Counter[Demand] = Counter()
    for node, demand in demands(problem, needs, candidates):
        asked[demand] += weight if node.name in required else 1
    kept, free = changed(asked, (), range(len(candidates)))
    needed = len(required) * weight + max(0, problem.nodes_needed - len(required)) - free
    return Supply(max(0, needed), weight, kept)


def changed(asked: Demands, gone: Collection[int], able: Collection[int]) -> tuple[Demands, int]:
    """The demands that can still be met once some jobs have left, and the nodes that are free by then.

    Others are ``able`` to leave; each demand is looked at for each window, so that this takes much of a plan's time.
    """
    kept: dict[Demand, int] = {}
    free = 0
    for demand, nodes in asked.items():
        after: Demand | None = demand
        held = [each for each in demand.held if each[0] in able]
        if len(held) < len(demand.held):
            missing = demand.missing
            for rank, amounts in demand.held:
                if rank in gone:
                    missing = tuple([short - given for short, given in zip(missing, amounts, strict=True)])
            after = _canonical(Demand(tuple(held), missing))
        if after is not None and after.held:
            kept[after] = kept.get(after, 0) + nodes
        elif after is not None:
            free += nodes
    return kept, free


_Short = tuple[int, list[int]]  # what is missing of a resource, and what each job gives back of that
_Resource = tuple[Callable[[Amounts], int], int]  # how much of it an amount is, and how much is needed


def _resources(per_node: Amounts) -> list[_Resource]:
    asked: list[_Resource] = [(attrgetter("cores"), per_node.cores), (attrgetter("memory_mib"), per_node.memory_mib)]
    asked += [(methodcaller("gpus_of", name), count) for name, count in per_node.gpus]
    return [(of, needed) for of, needed in asked if needed]


def _resources_of(node: NodeResources, of_nodes: Sequence[_Resource]) -> Sequence[_Resource]:
    return of_nodes if node.pool is None else _resources(node.pool)


def serves_beside(node: NodeResources, needs: Needs, held: Iterable[Amounts] = ()) -> bool:
    """Whether it serves the preemptor while jobs stay that hold these amounts, and all candidates else have left."""
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
    if node.pool is None and (
        node.name in needs.excluded_nodes
        or (needs.partition and needs.partition not in node.partitions)
        or not set(needs.features) <= set(node.features)
    ):
        return False
    if not resources:  # whole nodes
        return not staying
    return all(of(node.has) - sum([of(held or node.has) for held in staying]) >= needed for of, needed in resources)


def _asks(
    node: NodeResources, needs: Needs, resources: Sequence[_Resource], jobs: Iterable[tuple[int, Amounts | None]]
) -> Demand | None:
    """What must be given back on a node; None when it can never serve."""
    if not _has_room(node, needs, resources, ()):
        return None
    held = [(rank, holds or node.has) for rank, holds in jobs]
    if not resources:  # whole nodes: any job there is in the way
        return None if _stays(node) else _canonical(Demand(tuple((rank, (1,)) for rank, _ in held), (len(held),)))
    missing = [needed - of(node.has) + of(node.held) + sum(of(holds) for _, holds in held) for of, needed in resources]
    vectors = [(rank, tuple(of(holds) for of, _ in resources)) for rank, holds in held]
    return _canonical(Demand(tuple(vectors), tuple(missing)))


def _canonical(node: Demand) -> Demand | None:
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
    return Demand(tuple(sorted(held)), tuple([missing for missing, _ in short]))


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
