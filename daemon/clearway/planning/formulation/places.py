"""Where nodes must lie together: one problem for each place, and the best of the answers.

Model: a place is a set of nodes that may hold the whole preemptor: for contiguous nodes as many in a row as are needed
(in Slurm's order, that of ``EvictionProblem.nodes``), for one switch the nodes of a leaf switch, for both such rows
within one switch. A node whose switch is not known is in no place; required nodes must be in it. Jobs that hold no node
of a place are left out of its problem. For every deadline the best plan of all places counts (``planning.base``).

Cost: one solution for each place: for contiguous nodes about as many as there are nodes.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from clearway.model.plan import Curve
from clearway.model.problem import EvictionProblem, Needs, NodeResources
from clearway.planning.formulation.narrowed import on_nodes
from clearway.planning.formulation.partial_nodes import serves
from clearway.planning.formulation.shared_bandwidth import plan_rank, side_by_side


def over_places(problem: EvictionProblem, solve: Callable[[EvictionProblem], Curve]) -> Curve:
    """The curve of a problem, solved place by place where its nodes must lie together."""
    needs = problem.needs
    if needs is None or not (needs.contiguous or needs.one_switch):
        return side_by_side(problem, solve)
    on: dict[str, list[int]] = defaultdict(list)
    for number, candidate in enumerate(problem.candidates):
        for name in candidate.node_names:
            on[name].append(number)
    curves = [side_by_side(_only(problem, needs, place, on), solve) for place in _places(problem, needs)]
    nowhere = side_by_side(_only(problem, needs, (), on), solve)
    return replace(
        nowhere,
        points=tuple(
            [min(points, key=plan_rank) for points in zip(nowhere.points, *(c.points for c in curves), strict=True)]
        ),
        exact=all(curve.exact for curve in (nowhere, *curves)),
        gap=max(curve.gap for curve in (nowhere, *curves)),
    )


def in_a_row(nodes: Sequence[NodeResources], count: int, *, one_switch: bool) -> list[Sequence[NodeResources]]:
    """All rows of so many nodes, in Slurm's order; under one leaf switch each where that is wanted."""
    rows = [nodes[first : first + count] for first in range(len(nodes) - count + 1)]
    if one_switch:
        rows = [row for row in rows if len({node.switch for node in row}) == 1 and row[0].switch]
    return rows


def by_switch(nodes: Sequence[NodeResources]) -> dict[str, tuple[NodeResources, ...]]:
    """The nodes of each leaf switch, without those whose switch is not known."""
    found: dict[str, list[NodeResources]] = defaultdict(list)
    for node in nodes:
        if node.switch:
            found[node.switch].append(node)
    return {switch: tuple(row) for switch, row in found.items()}


def _places(problem: EvictionProblem, needs: Needs) -> Iterator[Sequence[NodeResources]]:
    nodes, count = problem.nodes, max(1, problem.nodes_needed)
    if needs.contiguous:
        rows = in_a_row(nodes, count, one_switch=needs.one_switch)
        found = [row for row in rows if all(serves(node, needs) for node in row)]
    else:
        found = [row for row in by_switch(nodes).values() if sum(serves(node, needs) for node in row) >= count]
    for row in found:
        if set(needs.required_nodes) <= {node.name for node in row}:
            yield row


def _only(
    problem: EvictionProblem, needs: Needs, place: Sequence[NodeResources], on: Mapping[str, Sequence[int]]
) -> EvictionProblem:
    names = {node.name for node in place}
    near = {number for name in names if name in on for number in on[name]}
    here = [on_nodes(problem.candidates[number], names) for number in sorted(near)]
    apart = replace(needs, contiguous=False, one_switch=False)
    return replace(problem, candidates=tuple(here), nodes=tuple(place), needs=apart)
