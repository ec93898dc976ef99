"""Several urgent jobs at once: one problem, so that no job leaves for two of them and no plan is in vain.

Model: each request (an urgent job's) needs so many nodes, out of those that can serve it, within its own delay. A
candidate leaves at most once, by one way, in time for one request. From then on its nodes are free for that request and
for every later one (a job of eight nodes can make room for two that need four). A node that several jobs share is free
when all of them have left. A suspended job's nodes serve only the request that it was suspended for. Checkpoints are
written one after another, the most pressing first: those that a request and all earlier ones need must fit into its
delay, which is possible in some order exactly when it is in this one (earliest due date first). Jobs that end by
themselves within a request's delay cost nothing. Delays are whole seconds, rounded down, checkpoint times rounded up.

Method (requests that are alike are one): where many candidates or nodes make the program over all of them (``program``)
too slow, one in parts comes first: of requests for whole nodes ``phases``, of others ``parts``. A plan that is within
``GAP`` of its bound is taken as it is, that of ``MANY`` requests whatever its gap is. Where not all requests can be
served, they are admitted in the order in which they are given, each if it can be served beside those before it.
"""

from collections.abc import Collection, Sequence

from clearway.planning.base import Seconds
from clearway.planning.joint.parts import by_parts
from clearway.planning.joint.phases import GAP, by_phases
from clearway.planning.joint.program import JointProgram
from clearway.planning.joint.requests import (
    MOST_GROUPS,
    Allocation,
    Best,
    Request,
    as_one,
    cost_of,
    groups_of,
    handed_out,
)

MOST_PHASES = 12  # of one program: where delays are more, those that are about the same are one
MANY = 12  # urgent jobs: the program over all of them would take far longer than a cycle has
FEW_NODES = 48  # with so many the program over all of them is solved in a fraction of a second
FEW_CANDIDATES = 60  # with so many the program over all of them is solved in well under a second


def plan_together(requests: Sequence[Request], seconds_left: Seconds) -> Best | None:
    """The best plan found for all requests, or for as many as can be served; None without time, or where none can be.

    Where not all requests are served, ``least_node_s`` is no bound on what others would lose.
    """
    first = _in_parts(requests, seconds_left)
    if first is not None and first.later:  # there was no time for more
        return first
    if first is not None and first.allocations:
        served = len(first.allocations) == len(requests)
        if len(requests) >= MANY or (served and gap_of(first.allocations, first.least_node_s) <= GAP):
            return first
    found = [each for each in (by_program(requests, seconds_left), first) if each is not None]
    order = [request.job_id for request in requests]
    if not found:
        return None
    best = min(found, key=lambda each: (unserved(each.served, order), cost_of(each.allocations)))
    return best._replace(least_node_s=max(each.least_node_s for each in found))


def _in_parts(requests: Sequence[Request], seconds_left: Seconds) -> Best | None:
    """The plan of a program in parts, where the program would take too long; None where there is none."""
    problems = {(id(each.problem.candidates), id(each.problem.nodes)): each.problem for each in requests}.values()
    jobs = {job.job_id for problem in problems for job in problem.candidates}
    nodes = {node.name for problem in problems for node in problem.nodes}
    nodes.update(*[job.node_names for problem in problems if problem.needs is None for job in problem.candidates])
    if len(nodes) <= FEW_NODES or len(jobs) <= FEW_CANDIDATES:
        return None
    if any(request.problem.needs is not None for request in requests):
        return by_parts(requests, seconds_left)
    return by_phases(groups_of(requests, MOST_GROUPS), seconds_left)


def gap_of(allocations: Sequence[Allocation], least_node_s: float) -> float:
    """The share of what a plan loses that may be needless, where no plan loses less than this."""
    lost = cost_of(allocations).lost_work_node_s
    return (lost - min(lost, least_node_s)) / lost if lost else 0.0


def by_program(requests: Sequence[Request], seconds_left: Seconds) -> Best | None:
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


def _best(requests: Sequence[Request], seconds_left: Seconds) -> Best | None:
    program, groups = _program(requests)
    best = program.best(seconds_left)
    if best is None:
        return None
    exact = all(each.problem.max_delay_s == group[0].problem.max_delay_s for group in groups for each in group)
    return best._replace(
        allocations=handed_out(best.allocations, groups),
        proven=best.proven and exact,
        least_node_s=best.least_node_s if exact else 0.0,
    )


def unserved(served: Collection[str], order: Sequence[str]) -> tuple[bool, ...]:
    """Smaller is better: the first job in ``order`` counts more than all after it."""
    return tuple(job_id not in served for job_id in order)
