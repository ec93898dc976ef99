"""What several urgent jobs ask of each node before it serves them, which nodes are alike in that, and who gets which.

Model: a node serves a request when the jobs that have left give back what it lacks. A request for whole nodes asks that
all jobs leave, also those that are candidates of other requests alone; a request with needs asks so much of each
resource (see ``formulation.partial_nodes``). A node is given to one request at most. Nodes on which the same jobs are,
and that ask the same for the same requests, are one class; required nodes, leaf switches and rows keep theirs apart.

Cost: time in the number of (request, job, node) triples; for a request of contiguous nodes every node is its own class.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from operator import gt, sub
from typing import NamedTuple

from clearway.model.problem import NodeResources, Option
from clearway.planning.formulation.partial_nodes import Vector, demands
from clearway.planning.formulation.places import by_switch, places_of, with_feature
from clearway.planning.joint.requests import Allocation, Request, ends_of, holders_of


class Demand(NamedTuple):
    """What has to be given back on a node: of each resource that is short, by the jobs that hold it, by job_id."""

    held: tuple[tuple[str, Vector], ...]
    missing: Vector

    def needs_of(self, gone: Sequence[str]) -> list[str] | None:
        """Those of ``gone`` that suffice and cannot be fewer: the first ones are dropped first; None: all do not."""
        held = dict(self.held)
        left = [job_id for job_id in gone if job_id in held]
        given = [held[job_id] for job_id in left]
        spare = [sum([each[place] for each in given]) - short for place, short in enumerate(self.missing)]
        if min(spare, default=0) < 0:
            return None
        for job_id in tuple(left):
            rest = [more - own for more, own in zip(spare, held[job_id], strict=True)]
            if min(rest, default=0) >= 0:
                left.remove(job_id)
                spare = rest
        return left


class Choice(NamedTuple):
    """Sets of classes, at most so many of which may be chosen; nodes of other classes are none for the request."""

    among: tuple[frozenset[int], ...]
    most: int


@dataclass(frozen=True)
class NodeClass:
    """Nodes that are alike; requests by their number."""

    names: tuple[str, ...]
    jobs: frozenset[str]  # that hold these nodes
    asks: Mapping[int, Demand]

    @cached_property
    def must_leave(self) -> Mapping[int, frozenset[str]]:
        """By request: the jobs without which the others give back too little."""
        found = {}
        for request, (held, missing) in self.asks.items():
            given = [sum(column) for column in zip(*[amounts for _, amounts in held], strict=True)]
            spare = list(map(sub, given, missing))
            found[request] = frozenset(job_id for job_id, amounts in held if any(map(gt, amounts, spare)))
        return found

    def takes_all_jobs(self, request: int) -> bool:
        return len(self.must_leave[request]) == len(self.asks[request].held)


class JointNodes:
    """The classes, and the places of those requests whose nodes must lie together."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._requests = requests
        self._holders = holders_of(requests)
        asks: dict[str, dict[int, Demand]] = defaultdict(dict)
        for number, request in enumerate(requests):
            for name, demand in self._asks(request).items():
                asks[name][number] = demand
        all_signs = [self._signs_of(request) for request in requests]
        alike: dict[object, list[str]] = defaultdict(list)
        for name in sorted(asks):
            signs = tuple([signs.get(name) for signs in all_signs])
            alike[frozenset(self._holders[name]), tuple(asks[name].items()), signs].append(name)
        self.classes = [
            NodeClass(tuple(names), frozenset(self._holders[names[0]]), asks[names[0]]) for names in alike.values()
        ]
        self._class_of = {name: number for number, each in enumerate(self.classes) for name in each.names}

    def _asks(self, request: Request) -> dict[str, Demand]:
        problem = request.problem
        if problem.needs is None:
            named = {name for candidate in problem.candidates for name in candidate.node_names}
            whole = {name: sorted(self._holders[name]) for name in {*request.free_nodes, *named}}
            return {
                name: Demand(tuple((job_id, (1,)) for job_id in jobs), (len(jobs),) if jobs else ())
                for name, jobs in whole.items()
            }
        ids = [candidate.job_id for candidate in problem.candidates]
        return {
            node.name: Demand(tuple(sorted((ids[rank], amounts) for rank, amounts in asked.held)), asked.missing)
            for node, asked in demands(problem, problem.needs, problem.candidates)
        }

    @staticmethod
    def _signs_of(request: Request) -> dict[str, object]:
        """What keeps nodes apart that are alike otherwise."""
        needs = request.problem.needs
        if needs is None:
            return {}
        if needs.contiguous:
            return {node.name: node.name for node in request.problem.nodes}
        required, features = set(needs.required_nodes), set(needs.same_feature)
        under = needs.one_switch or needs.switches > 0
        return {
            node.name: (
                node.name in required,
                node.switch if under else "",
                node.pool is not None,
                tuple(sorted(features.intersection(node.features))),
            )
            for node in request.problem.nodes
        }

    def choices(self, number: int) -> list[Choice]:
        """What has to be chosen where the request's nodes must lie together; nothing where they may lie anywhere."""
        problem = self._requests[number].problem
        needs = problem.needs
        if needs is None or not needs.together:
            return []
        pools = frozenset(self._able(number, problem.pools))

        def choice(places: Iterable[Sequence[NodeResources]], most: int) -> Choice:
            return Choice(tuple([frozenset(self._able(number, place)) | pools for place in places]), most)

        if needs.contiguous or needs.one_switch:
            places = places_of(problem.nodes, needs, max(1, problem.nodes_needed - len(pools)))
            whole = (each for each in places if not needs.contiguous or len(self._able(number, each)) == len(each))
            return [choice(whole, 1)]
        plain = [node for node in problem.nodes if node.pool is None]
        found = [choice(by_switch(plain).values(), needs.switches)] if needs.switches else []
        if needs.same_feature:
            found.append(choice(with_feature(plain, needs.same_feature), 1))
        return found

    def _able(self, number: int, nodes: Sequence[NodeResources]) -> list[int]:
        """The classes of those that can serve the request."""
        found = [self._class_of.get(node.name) for node in nodes]
        return [each for each in found if each is not None and number in self.classes[each].asks]


def required_of(request: Request) -> Collection[str]:
    return request.problem.needs.required_nodes if request.problem.needs is not None else ()


Ways = Mapping[str, tuple[Option, int]]  # of each job that leaves: how, and the first request by which it is gone


class Given(NamedTuple):
    """Nodes that a request (by its number) is given, and what it asks of each of them."""

    request: int
    names: Sequence[str]
    demand: Demand


def given_of(
    classes: Sequence[tuple[NodeClass, Sequence[str]]], counts: Iterable[tuple[int, int, float]]
) -> Iterator[Given]:
    """So many (in ``counts`` the last) of the names of a class (the first) go to a request (the second)."""
    left = [iter(names) for _, names in classes]
    for number, request, count in counts:
        if names := list(islice(left[number], round(count))):
            yield Given(request, names, classes[number][0].asks[request])


def allocated(
    requests: Sequence[Request],
    limits: Sequence[float],
    given: Iterable[Given],
    ways: Ways,
    ends: Mapping[str, Option] | None = None,
) -> tuple[Allocation, ...] | None:
    """Each job goes for the first request with a node that needs it; a job that no request needs stays.

    Requests are in the order of their delays, ``limits``. ``ends``: the ways of the jobs that may be counted on to end
    by themselves; without them all that do. None where a node would have less than it needs.
    """
    ends = ends_of(requests) if ends is None else ends
    nodes: list[list[str]] = [[] for _ in requests]
    ending: list[dict[str, Option]] = [{} for _ in requests]
    first_user: dict[str, int] = {}
    for number, names, demand in given:
        nodes[number] += names
        needed = demand.needs_of(_gone(demand, number, limits[number], ends, ways))
        if needed is None:
            return None
        for job_id in needed:
            if job_id in ends and ends[job_id].ready_s <= limits[number]:
                ending[number][job_id] = ends[job_id]
            else:
                first_user[job_id] = min(number, first_user.get(job_id, number))
    leaving: dict[int, list[tuple[str, Option]]] = defaultdict(list)
    for job_id, user in sorted(first_user.items()):
        leaving[user].append((job_id, ways[job_id][0]))
    return tuple(
        Allocation(request.job_id, tuple(leaving[number]), tuple(sorted(ends_.items())), tuple(sorted(names)))
        for number, (request, ends_, names) in enumerate(zip(requests, ending, nodes, strict=True))
    )


def _gone(demand: Demand, number: int, limit_s: float, ends: Mapping[str, Option], ways: Ways) -> list[str]:
    """The jobs of a node that have gone by then; the first ones are needed the least: those that end late."""
    held = [job_id for job_id, _ in demand.held]
    ended = [each for each in held if each in ends and ends[each].ready_s <= limit_s]
    left = [each for each in held if each not in ended and each in ways and ways[each][1] <= number]
    ended.sort(key=lambda job_id: ends[job_id].ready_s, reverse=True)
    return [*ended, *sorted(left, key=lambda job_id: -ways[job_id][1])]
