"""The nodes of a large cluster that a plan for several urgent jobs will hardly do without.

Model: what a node costs a request is what the cheapest jobs lose that have to leave it, each job's loss spread evenly
over its nodes. Each request keeps its required nodes, and the nodes that cost it least: as many as all requests are
given together, and a few more. Where its nodes must lie together, it keeps the places (rows, leaf switches) that cost
least. A node that is left out counts as one that can serve no request: a plan may become dearer, never wrong.

Cost: time in the number of (request, job, node) triples, and of nodes in all places.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter

from clearway.model.problem import Action, Amounts, Candidate, NodeResources
from clearway.planning.formulation.narrowed import candidates_on
from clearway.planning.joint.nodes import Demand, JointNodes
from clearway.planning.joint.requests import Request

FEW_NODES = 48  # with so many none is left out: the program over all of them is solved in a fraction of a second
SPARE_NODES = 8  # of each request, beyond what all requests need
FEW_PLACES = 6  # of each request whose nodes must lie together, beyond one for each request

_Price = tuple[float, float]  # lost work, and seconds of checkpoints


def with_the_cheapest_nodes(requests: Sequence[Request]) -> list[Request]:
    """The same requests on fewer nodes; equal to ``requests`` where none is left out."""
    nodes = JointNodes(requests)
    if sum(len(each.names) for each in nodes.classes) <= FEW_NODES:
        return list(requests)
    kept: set[str] = set()
    total = sum(request.nodes for request in requests)
    for number, request in enumerate(requests):
        prices = _prices(nodes, number, request)
        found = [place for choice in nodes.choices(number) for place in choice.among]
        places = [list(prices)]
        if found:
            places = [[name for each in place for name in nodes.classes[each].names] for place in found]
        lost = [sum(lost for lost, _ in sorted([prices[name] for name in names])[: request.nodes]) for names in places]
        by_cost = [names for _, names in sorted(zip(lost, places, strict=True), key=itemgetter(0))]
        for names in by_cost[: len(requests) + FEW_PLACES]:
            kept |= set(sorted(names, key=lambda name: (prices[name], name))[: total + SPARE_NODES])
        kept |= set(request.problem.needs.required_nodes if request.problem.needs is not None else ())
    return [_on(request, kept) for request in requests]


def _prices(nodes: JointNodes, number: int, request: Request) -> dict[str, _Price]:
    jobs = {job.job_id: _price(job, request.problem.max_delay_s) for job in request.problem.candidates}
    return {
        name: price_of(each.asks[number], jobs) for each in nodes.classes if number in each.asks for name in each.names
    }


def _price(job: Candidate, limit_s: float) -> _Price:
    """What each of its nodes costs."""
    found = [
        (0.0, 0.0) if option.action is Action.END else (option.lost_work_node_s, option.checkpoint_s)
        for option in job.options
        if max(option.ready_s, option.checkpoint_s) <= limit_s
    ]
    lost, checkpoint_s = min(found, default=(float("inf"), 0.0))
    return lost / max(1, job.nodes), checkpoint_s / max(1, job.nodes)


def price_of(demand: Demand, jobs: Mapping[str, _Price]) -> _Price:
    """What the cheapest of its jobs cost that give back enough."""
    dearest = (float("inf"), 0.0)
    order = sorted([job_id for job_id, _ in demand.held], key=lambda job_id: (jobs.get(job_id, dearest), job_id))
    gone = demand.needs_of(order[::-1]) if demand.held else []
    paid = [jobs.get(job_id, dearest) for job_id in gone]
    return sum(lost for lost, _ in paid), sum(checkpoint_s for _, checkpoint_s in paid)


def _on(request: Request, kept: Collection[str]) -> Request:
    """The request where only these nodes can serve."""
    problem = candidates_on(request.problem, kept)
    nodes = tuple([node if node.name in kept else _useless(node) for node in problem.nodes])
    free = tuple([name for name in request.free_nodes if name in kept])
    return replace(request, problem=replace(problem, nodes=nodes), free_nodes=free)


def _useless(node: NodeResources) -> NodeResources:
    """It keeps its place in the row of all nodes."""
    return replace(node, has=Amounts(), held=Amounts(cores=1))
