"""Where nodes must lie together: one problem for each place, and the best of the answers.

Model: a place is a set of nodes that may hold the whole preemptor: for contiguous nodes as many in a row as are needed
(in Slurm's order, that of ``EvictionProblem.nodes``), for at most k switches those of k leaf switches, for one of
several features the nodes that have it, and where several of these are asked for such sets within one another. A node
whose switch is not known is in no place of switches; required nodes must be in it; pools (licenses) are in every place.

Cost: one solution for each place: for contiguous nodes about as many as there are nodes, for k of S switches S over k,
of which ``MOST_PLACES`` are tried. Where there are more, those with fewest jobs come first, and the curve is not exact.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, islice
from math import comb

from clearway.model.plan import Curve
from clearway.model.problem import Amounts, Candidate, EvictionProblem, Needs, NodeResources
from clearway.planning.formulation.partial_nodes import serves_beside
from clearway.planning.formulation.shared_bandwidth import plan_rank

MOST_PLACES = 500  # of several switches

Place = Sequence[NodeResources]


def over_places(problem: EvictionProblem, solve: Callable[[EvictionProblem], Curve]) -> Curve:
    """The curve of a problem, solved place by place where its nodes must lie together."""
    needs = problem.needs
    if needs is None or not needs.together:
        return solve(problem)
    on: dict[str, list[int]] = defaultdict(list)
    for number, candidate in enumerate(problem.candidates):
        for name in candidate.node_names:
            on[name].append(number)
    curves = [solve(_only(problem, needs, place, on)) for place in ((), *_places(problem, needs))]
    points = [min(each, key=plan_rank) for each in zip(*(curve.points for curve in curves), strict=True)]
    every = not needs.switches or comb(len(by_switch(problem.nodes)), needs.switches) <= MOST_PLACES
    exact = every and all(curve.exact for curve in curves)
    return replace(curves[0], points=tuple(points), exact=exact, gap=max(curve.gap for curve in curves))


def by_switch(nodes: Place) -> dict[str, tuple[NodeResources, ...]]:
    """The nodes of each leaf switch, without those whose switch is not known."""
    found: dict[str, list[NodeResources]] = defaultdict(list)
    for node in nodes:
        if node.switch:
            found[node.switch].append(node)
    return {switch: tuple(row) for switch, row in found.items()}


def with_feature(nodes: Place, names: Sequence[str]) -> list[Place]:
    """The nodes that have each of these features."""
    return [[node for node in nodes if name in node.features] for name in names]


def places_of(nodes: Place, needs: Needs, count: int) -> Iterator[Place]:
    """The sets of nodes that may hold ``count`` nodes of the preemptor; pools are in none.

    A place may have nodes that cannot serve, but for those of rows it is not asked whether enough can.
    """
    nodes = [node for node in nodes if node.pool is None]
    for some in with_feature(nodes, needs.same_feature) if needs.same_feature else [nodes]:
        if needs.contiguous:
            # Rows are counted among all nodes: one that has not the feature lies between its neighbours.
            names = {node.name for node in some}
            rows = (nodes[first : first + count] for first in range(len(nodes) - count + 1))
            yield from (row for row in rows if _fits(row, needs, names))
        elif needs.one_switch:
            yield from by_switch(some).values()
        elif needs.switches:
            yield from _under_some(by_switch(some), needs.switches)
        else:
            yield some


def _fits(row: Place, needs: Needs, names: Collection[str]) -> bool:
    """Whether it is of these nodes alone, and lies under no more switches than may be."""
    under, most = {node.switch for node in row}, 1 if needs.one_switch else needs.switches
    few = not most or (len(under) <= most and "" not in under)
    return few and all(node.name in names for node in row)


def _under_some(leaves: Mapping[str, Place], most: int) -> Iterator[Place]:
    """The nodes of so many leaf switches, of the largest ones first."""
    order = sorted(leaves, key=lambda switch: (-len(leaves[switch]), switch))
    for switches in islice(combinations(order, min(most, len(order))), MOST_PLACES):
        yield tuple(node for switch in switches for node in leaves[switch])


def _places(problem: EvictionProblem, needs: Needs) -> Iterator[Place]:
    pools = problem.pools
    count = max(1, problem.nodes_needed - len(pools))
    required = set(needs.required_nodes)
    able = {node.name for node in problem.nodes if serves_beside(replace(node, held=Amounts()), needs)}
    for place in places_of(problem.nodes, needs, count):
        if sum(node.name in able for node in place) >= count and required <= {node.name for node in (*place, *pools)}:
            yield (*place, *pools)


def _on_nodes(candidate: Candidate, names: Collection[str]) -> Candidate:
    """The candidate with those of its nodes alone that are among these."""
    kept = [index for index, name in enumerate(candidate.node_names) if name in names]
    return replace(
        candidate,
        nodes=len(kept),
        node_names=tuple([candidate.node_names[index] for index in kept]),
        holds=tuple([candidate.holds[index] for index in kept]) if candidate.holds else (),
    )


def _only(problem: EvictionProblem, needs: Needs, place: Place, on: Mapping[str, Sequence[int]]) -> EvictionProblem:
    names = {node.name for node in place}
    near = {number for name in names if name in on for number in on[name]}
    here = [_on_nodes(problem.candidates[number], names) for number in sorted(near)]
    apart = replace(needs, contiguous=False, one_switch=False, switches=0, same_feature=())
    return replace(problem, candidates=tuple(here), nodes=tuple(place), needs=apart)
