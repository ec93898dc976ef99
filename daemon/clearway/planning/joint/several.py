"""Several urgent jobs at once: one problem, so that no job leaves for two of them and no plan is in vain.

Model: each request (an urgent job's) needs so many nodes, out of those that can serve it, within its own delay. A
candidate leaves at most once, by one way, in time for one request. From then on its nodes are free for that request and
for every later one (a job of eight nodes can make room for two that need four). A node that several jobs share is free
when all of them have left. A suspended job's nodes serve only the request that it was suspended for. Checkpoints are
written one after another, the most pressing first: those that a request and all earlier ones need must fit into its
delay, which is possible in some order exactly when it is in this one (earliest due date first). Jobs that end by
themselves within a request's delay cost nothing. Delays are whole seconds, rounded down, checkpoint times rounded up.

Method (requests that are alike are one: ``alike``):
1. One request after another (``sequential``): always valid, but the first may take what only the second had needed.
2. A bound: one request for all these nodes within the longest delay loses no more than all of them together. Where the
   first plan serves all requests and reaches the bound, it is proven (in lost work, where candidates are many).
3. Where candidates are many and requests differ in delays and nodes alone, before all of these: the program of nodes by
   phase, with a bound of its own (``phases``). Within 0.2 % of that (5 % where requests are many) nothing else is
   looked for.
4. Else the exact program (``program``): over all candidates where they are few, else over those that any of the
   solutions so far chose, as long as time allows.
Where requests have needs (parts of nodes, certain nodes) there is the program alone (``at_once``), on large clusters
beside programs in parts (``parts``); where they are few, the caller plans them in turn and compares. Where not all
requests can be served, they are admitted in the order in which they are given, each if it can be served beside those
before it.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from clearway.model.plan import Cost
from clearway.model.problem import Candidate, EvictionProblem, Option
from clearway.planning.base import Planner
from clearway.planning.formulation.narrowed import candidates_on, with_options
from clearway.planning.joint.alike import MOST_GROUPS, as_one, groups_of, handed_out
from clearway.planning.joint.cheapest_nodes import FEW_NODES, with_the_cheapest_nodes
from clearway.planning.joint.parts import by_parts
from clearway.planning.joint.phases import GAP, by_phases
from clearway.planning.joint.program import Best, JointProgram
from clearway.planning.joint.requests import Allocation, JointPlan, Request, holders_of
from clearway.planning.joint.sequential import in_turn

MOST_PHASES = 12  # of one program: where delays are more, those that are about the same are one
MANY = 12  # urgent jobs: with a plan that is as good as this they are not planned in another way as well
GAP_OF_MANY = 0.05
FEW_CANDIDATES = 60  # with so many the program over all of them is solved in well under a second


def plan_together(requests: Sequence[Request], planner: Planner, seconds_left: Callable[[], float]) -> JointPlan:
    """The best plan found for all requests, or for as many as can be served.

    ``seconds_left`` says how long the programs may still take; the rest takes two solutions for each group of requests
    that are alike, and one more.
    """
    groups = groups_of(requests, MOST_GROUPS)
    merged = [as_one(group) for group in groups]
    few = len({each.job_id for request in merged for each in request.problem.candidates}) <= FEW_CANDIDATES
    phased = None if few else by_phases(groups, seconds_left)
    plans: list[JointPlan] = []
    least_node_s, useful = 0.0, set[str]()
    if phased is not None:
        least_node_s = phased.least_node_s
        if phased.allocations is not None:
            plans.append(JointPlan(phased.allocations, gap=1.0))
            useful = {job_id for allocation in phased.allocations for job_id, _ in allocation.leaving}
            gap = gap_of(plans[0].allocations, least_node_s)
            if gap <= (GAP if len(requests) < MANY else GAP_OF_MANY):
                return replace(plans[0], gap=gap)
    turns = JointPlan(in_turn(requests, planner), gap=1.0)
    plans.append(turns)
    bound, chosen = _bound(merged, max(request.problem.max_delay_s for request in requests), planner)
    least_node_s = max(least_node_s, bound.lost_work_node_s)
    useful |= chosen | {job_id for allocation in turns.allocations for job_id, _ in allocation.leaving}
    as_little = turns.cost <= bound or (not few and turns.cost.lost_work_node_s <= bound.lost_work_node_s)
    if len(turns.allocations) == len(requests) and as_little:
        return replace(turns, gap=0.0)
    if not few:
        useful |= {
            planned.job_id
            for request in merged
            for point in planner.solve(request.problem).points
            for planned in point.actions
        }
    best = by_program(requests if few else _only(requests, useful), seconds_left)
    if best is not None:
        plans.append(JointPlan(best.allocations, gap=1.0))
    order = [request.job_id for request in requests]
    found = min(plans, key=lambda each: (unserved(each.served, order), each.cost))
    if few and best is not None and best.proven:
        return replace(found, gap=0.0)
    served = len(found.allocations) == len(requests)
    return replace(found, gap=gap_of(found.allocations, least_node_s) if served else 0.0)


def gap_of(allocations: Sequence[Allocation], least_node_s: float) -> float:
    """The share of what a plan loses that may be needless, where no plan loses less than this."""
    lost = JointPlan(tuple(allocations), gap=1.0).cost.lost_work_node_s
    return (lost - min(lost, least_node_s)) / lost if lost else 0.0


def at_once(requests: Sequence[Request], seconds_left: Callable[[], float], *, in_a_hurry: bool = False) -> Best | None:
    """As ``by_program``; of large clusters what the programs in parts find, or the program of the cheapest nodes.

    Where not all requests are served, ``least_node_s`` is no bound on what others would lose. Of many on a large
    cluster the plan is the one in parts, if there is one, and ``in_a_hurry`` of fewer where it leaves none of them out;
    for some of them there may have been no time.
    """
    many = in_a_hurry or (len(requests) >= MANY and _number_of_nodes(requests) > FEW_NODES)
    phased = by_parts(requests, seconds_left) if many else None
    if phased is not None and phased.allocations is not None:
        plan = Best(phased.allocations, proven=False, least_node_s=phased.least_node_s, later=phased.later)
        if len(requests) >= MANY or len(plan.allocations) + len(plan.later) == len(requests):
            return plan
    if many and seconds_left() <= 0:
        return None
    narrowed = with_the_cheapest_nodes(requests)
    if narrowed == list(requests):
        return by_program(requests, seconds_left)
    phased = phased if many else by_parts(requests, seconds_left)
    least_node_s = 0.0 if phased is None else phased.least_node_s
    found: list[Best] = []
    if phased is not None and phased.allocations is not None:
        found.append(Best(phased.allocations, proven=False, least_node_s=least_node_s, later=phased.later))
        gap = gap_of(phased.allocations, least_node_s)
        if len(phased.allocations) == len(requests) and gap <= GAP:
            return found[0]
    best = by_program(narrowed, seconds_left)
    if best is not None:
        found.append(Best(best.allocations, proven=False, least_node_s=least_node_s))
    order = [request.job_id for request in requests]

    def rank(each: Best) -> tuple[tuple[bool, ...], Cost]:
        plan = JointPlan(each.allocations, gap=1.0)
        return unserved(plan.served, order), plan.cost

    return min(found, key=rank, default=None)


def _number_of_nodes(requests: Sequence[Request]) -> int:
    """Those that could serve any of them."""
    nodes = {id(each.problem.nodes): each.problem.nodes for each in requests}
    names = {node.name for some in nodes.values() for node in some}
    whole = {id(each.problem.candidates): each.problem for each in requests if each.problem.needs is None}
    return len(names.union(*[each.node_names for problem in whole.values() for each in problem.candidates]))


def by_program(requests: Sequence[Request], seconds_left: Callable[[], float]) -> Best | None:
    """The cheapest plan for all requests, with needs or without, or for those that are admitted; None without time."""
    best = _best(requests, seconds_left)
    if best is not None:
        return best
    admitted: list[Request] = []
    waiting = [list(requests)]
    while waiting:
        some = waiting.pop(0)
        feasible = _program([*admitted, *some])[0].feasible(seconds_left)
        if feasible is None:
            return None
        if feasible:
            admitted += some
        elif len(some) > 1:
            half = len(some) // 2
            waiting[:0] = [some[:half], some[half:]]
    return _best(admitted, seconds_left) if admitted else Best((), proven=True, least_node_s=0.0)


def _program(requests: Sequence[Request]) -> tuple[JointProgram, list[list[Request]]]:
    """The program of these requests, those as one that are alike; and which are."""
    groups = groups_of(requests)
    if len(groups) > MOST_PHASES:
        groups = groups_of(requests, MOST_GROUPS)
    return JointProgram([as_one(group) for group in groups]), groups


def _best(requests: Sequence[Request], seconds_left: Callable[[], float]) -> Best | None:
    program, groups = _program(requests)
    best = program.best(seconds_left)
    if best is None:
        return None
    exact = all(each.problem.max_delay_s == group[0].problem.max_delay_s for group in groups for each in group)
    return best._replace(
        allocations=handed_out(best.allocations, groups),
        proven=best.proven and exact,
        least_node_s=best.least_node_s if exact else 0.0,
        sure=best.sure and exact,
    )


def unserved(served: Collection[str], order: Sequence[str]) -> tuple[bool, ...]:
    """Smaller is better: the first job in ``order`` counts more than all after it."""
    return tuple(job_id not in served for job_id in order)


def _bound(requests: Sequence[Request], delay_s: int, planner: Planner) -> tuple[Cost, set[str]]:
    """No plan for all requests costs less than this; and the jobs that the curve of the bound chose."""
    holders: dict[str, Candidate] = {}
    for request in requests:
        for each in request.problem.candidates:
            known = holders.get(each.job_id, replace(each, node_names=(), options=()))
            names = tuple(sorted({*known.node_names, *each.node_names}))
            options = {option.action: option for option in (*each.options, *known.options)}
            holders[each.job_id] = replace(known, nodes=len(names), node_names=names, options=tuple(options.values()))
    step_s = min(request.problem.step_s for request in requests)
    free = {name for request in requests for name in request.free_nodes}
    problem = EvictionProblem(
        nodes_needed=max(0, sum(request.nodes for request in requests) - len(free)),
        max_delay_s=delay_s,
        step_s=step_s,
        candidates=tuple(holders.values()),
    )

    def quicker(option: Option) -> Option:  # a bound must not take longer than what it bounds
        checkpoint_s, ready_s = (each // step_s * step_s for each in (option.checkpoint_s, option.ready_s))
        return replace(option, checkpoint_s=checkpoint_s, ready_s=ready_s)

    curve = planner.solve(with_options(problem, quicker))
    point = curve.choose()
    least = point.cost if point is not None and curve.exact else Cost()
    return least, {planned.job_id for each in curve.points for planned in each.actions}


def _only(requests: Sequence[Request], jobs: Collection[str]) -> list[Request]:
    """The requests with these candidates alone; what they share with others cannot be freed."""
    groups = groups_of(requests)
    names = {name for name, holders in holders_of(group[0] for group in groups).items() if holders.issubset(jobs)}
    found: dict[str, Request] = {}
    for group in groups:
        left = candidates_on(group[0].problem, names).candidates
        found |= {each.job_id: replace(each, problem=replace(each.problem, candidates=left)) for each in group}
    return [found[request.job_id] for request in requests]
