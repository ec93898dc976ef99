"""Items for the dynamic program: single jobs, and groups of jobs linked through shared nodes.

Model: a node is free only when every job on it has left. Jobs linked through shared nodes form a group (a
connected component of the node classes); jobs of different groups do not influence each other, so each group
is one item of which at most one pick is taken. A pick is a set of jobs with one way each.

Only sets that are unions of node classes matter: any other set has a job that frees nothing. For each union
the picks are the undominated totals (steps, lost work) of its jobs' ways. A pick P is dropped when another
pick Q of its item frees at least as many nodes, takes no more steps, loses no more work and comes first in the
order of ``planning.base``: Q could replace P in every plan. That this holds for ties as well follows from
the way plans of equally many preemptees are compared: the sorted list of (job_id, action) that holds the
smallest element in which two lists differ comes first, and exchanging P for Q changes nothing else. The same
fact turns the rule into arithmetic: each (job_id, action) is one bit, the first the highest, and of two plans
with equally many preemptees the one with the larger sum of bits (its preference) comes first.

Cost: a group with u unions, j jobs and T steps takes O(u j T) time. A group with more than ``UNIONS_LIMIT``
unions is not enumerated: its picks are then each class alone, the chain that adds the cheapest class per node
step by step, and the whole group; plans stay valid and the curve says that it is not exact.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from clearway.model import ACTION_ORDER
from clearway.planning.windows import Way, Window

UNIONS_LIMIT = 1024
_BITS = len(ACTION_ORDER)


class Pick(NamedTuple):
    """A set of jobs that leave, with the way of each: what it frees and what it costs."""

    nodes: int
    steps: int
    lost: int
    preference: int
    ways: tuple[Way, ...]

    @property
    def key(self) -> tuple[int, int, int, int]:
        """Smaller is better, as ``planning.base`` defines it."""
        return (self.lost, self.steps, len(self.ways), -self.preference)

    def joined(self, way: Way, preference: int) -> Pick:
        return Pick(
            nodes=self.nodes,
            steps=self.steps + way.steps,
            lost=self.lost + way.lost,
            preference=self.preference + preference,
            ways=(*self.ways, way),
        )


_BY_FIRST_RANK = attrgetter("first_rank")
_NOTHING = Pick(nodes=0, steps=0, lost=0, preference=0, ways=())


class Item(NamedTuple):
    """At most one of its picks is taken; they stand in the order in which ties prefer them."""

    first_rank: int
    last_rank: int
    bits: int  # of a preference, that belong to its first job and all jobs after that
    picks: tuple[Pick, ...]

    @property
    def single(self) -> bool:
        """Whether it is one job, which frees the same nodes in each of its ways."""
        return self.first_rank == self.last_rank


def items_of(window: Window) -> tuple[tuple[Item, ...], bool]:
    """The items in the order of their first job_id, and whether they hold every pick that matters.

    They hold for any smaller number of missing nodes and any earlier deadline as well.
    """
    exact = True
    items: list[Item] = []
    jobs_of_window = max(window.ways, default=0) + 1
    for jobs, classes in _groups(window):
        if len(jobs) == 1:
            (first,), ((_, nodes),) = jobs, classes
            highest = _BITS * (jobs_of_window - first) - 1
            picks = tuple(
                [
                    Pick(nodes, way.steps, way.lost, 1 << (highest - way.order), (way,))
                    for way in window.ways[first]  # in the order of preference
                    if way.steps <= window.last_step
                ]
            )
        else:
            first = min(jobs)
            group = _Group(window, classes, jobs_of_window)
            unions = group.every_union()
            if unions is None:
                exact = False
                unions = group.some_unions()
            merged = [pick for union in unions.values() for pick in union if pick.nodes]
            picks = tuple(sorted(_undominated(merged, window), key=lambda pick: -pick.preference))
        if picks:
            items.append(Item(first, max(jobs), _BITS * (jobs_of_window - first), picks))
    items.sort(key=_BY_FIRST_RANK)
    return tuple(items), exact


def _bit(way: Way, jobs: int) -> int:
    return 1 << (_BITS * (jobs - way.rank) - 1 - way.order)


def _groups(window: Window) -> Iterator[tuple[frozenset[int], list[tuple[frozenset[int], int]]]]:
    """Connected components of the node classes: the jobs of each, and its classes."""
    parent: dict[int, int] = {}

    def root(rank: int) -> int:
        while (above := parent.setdefault(rank, rank)) != rank:
            parent[rank] = parent[above]  # halves the path
            rank = parent[rank]
        return rank

    shared = [jobs for jobs in window.classes if len(jobs) > 1]
    if not shared:
        for jobs, nodes in window.classes.items():
            yield jobs, [(jobs, nodes)]
        return
    for jobs in shared:
        first, *others = jobs
        for rank in others:
            parent[root(rank)] = root(first)
    groups: dict[int, list[tuple[frozenset[int], int]]] = defaultdict(list)
    for jobs, nodes in window.classes.items():
        groups[root(next(iter(jobs)))].append((jobs, nodes))
    for classes in groups.values():
        yield frozenset().union(*(jobs for jobs, _ in classes)), classes


_Union = frozenset[int]
_Picks = tuple[Pick, ...]


class _Group:
    """The unions of a group's classes with their picks."""

    def __init__(self, window: Window, classes: Sequence[tuple[frozenset[int], int]], jobs_of_window: int) -> None:
        self._window = window
        self._jobs_of_window = jobs_of_window
        self._classes = sorted(classes, key=lambda item: (len(item[0]), sorted(item[0])))

    def every_union(self) -> Mapping[_Union, _Picks] | None:
        """All unions with their picks; None when there are more than ``UNIONS_LIMIT``."""
        unions: dict[_Union, _Picks] = {frozenset(): (_NOTHING,)}
        for jobs, _ in self._classes:
            for union in list(unions):
                wider = union | jobs
                if wider not in unions:
                    unions[wider] = self._widened(unions[union], wider - union)
                    if len(unions) > UNIONS_LIMIT:
                        return None
        return {union: self._with_nodes(union, picks) for union, picks in unions.items()}

    def some_unions(self) -> Mapping[_Union, _Picks]:
        """Each class alone, and a chain from the cheapest class per node to the whole group."""
        unions: dict[_Union, _Picks] = {jobs: self._widened((_NOTHING,), jobs) for jobs, _ in self._classes}
        chain: _Union = frozenset()
        left = list(self._classes)
        while left:
            added = min(left, key=lambda item: self._price(item[0] - chain, item[1]))
            wider = chain | added[0]
            if wider not in unions:
                unions[wider] = self._widened(unions.get(chain, (_NOTHING,)), wider - chain)
            chain = wider
            left = [item for item in left if not item[0] <= chain]
        return {union: self._with_nodes(union, picks) for union, picks in unions.items()}

    def _price(self, jobs: frozenset[int], nodes: int) -> tuple[float, float, list[int]]:
        """What a class costs per node in the chain: lost work of its cheapest ways, then jobs."""
        lost = sum(min(way.lost for way in self._window.ways[rank]) for rank in jobs)
        return (lost / nodes, len(jobs) / nodes, sorted(jobs))

    def _widened(self, picks: _Picks, jobs: Iterable[int]) -> _Picks:
        for rank in sorted(jobs):
            ways = [(way, _bit(way, self._jobs_of_window)) for way in self._window.ways[rank]]
            picks = _undominated([pick.joined(way, bit) for pick in picks for way, bit in ways], self._window)
        return picks

    def _with_nodes(self, union: _Union, picks: _Picks) -> _Picks:
        nodes = sum(nodes for jobs, nodes in self._classes if jobs <= union)
        return tuple(Pick(nodes, pick.steps, pick.lost, pick.preference, pick.ways) for pick in picks)


def _undominated(picks: Iterable[Pick], window: Window) -> _Picks:
    """Those picks that an optimal plan may need; freeing more than is missing counts as just enough."""
    by_step: list[tuple[int, int, int, int] | None] = [None] * (window.last_step + 1)
    kept: list[Pick] = []
    ordered = sorted(picks, key=lambda pick: (-min(pick.nodes, window.missing), pick.key))
    for pick in ordered:
        if pick.steps > window.last_step:
            continue
        key = pick.key
        best = by_step[pick.steps]
        if best is not None and best <= key:
            continue
        kept.append(pick)
        for step in range(pick.steps, window.last_step + 1):
            known = by_step[step]
            if known is None or key < known:
                by_step[step] = key
    return tuple(kept)
