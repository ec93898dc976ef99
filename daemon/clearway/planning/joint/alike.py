"""Urgent jobs that ask for the same: planned as one of as many nodes, and what that one is given handed out again.

Model: requests with the same candidates, free nodes and needs are alike. Within one delay a plan for all of them is a
plan for one request of as many nodes, and the other way round, as a node serves one of them at most and nothing tells
their nodes apart. Nodes that lie together, or that are required, are some request's own, and a suspended job's nodes
serve one request only: such requests stay apart. Requests within delays that differ are made one only where there would
be more than ``MOST_GROUPS`` otherwise. They are cut apart where delays differ the most, and have the shortest of their
group: a plan may become dearer, never late.

Handing out: the most pressing request comes first, and takes nodes that are free already, then those of jobs that
leave, the widest first, then those of jobs that end. A job is used up before the next one leaves, so that few requests
count on a job that leaves for another one.

Cost: O(requests x groups) comparisons of candidates, and time in the number of nodes that are given.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil

from clearway.model.problem import Action, Option
from clearway.planning.joint.requests import Allocation, Request, holders_of

MOST_GROUPS = 6  # of requests that are alike but for their delays


def groups_of(requests: Sequence[Request], most: int | None = None) -> list[list[Request]]:
    """Requests that can be planned as one, the most pressing first; ``most`` of those that differ in delays alone.

    Without it only requests within the same delay are one, so that nothing is lost.
    """
    kinds: list[list[Request]] = []
    open_kinds: list[list[Request]] = []  # those that others may join
    for request in sorted(requests, key=_pressing):
        mine = next((kind for kind in open_kinds if alike(kind[0], request)), None)
        if mine is not None:
            mine.append(request)
            continue
        kinds.append([request])
        if divisible(request):
            open_kinds.append(kinds[-1])
    groups = [group for kind in kinds for group in _by_delay(kind, most)]
    return sorted(groups, key=lambda group: _pressing(group[0]))


def as_one(group: Sequence[Request]) -> Request:
    """One request for the nodes of all of them, within the shortest delay; named as the first."""
    if len(group) == 1:
        return group[0]
    first = group[0]
    asked = sum(request.problem.nodes_needed for request in group)
    nodes = sum(request.nodes for request in group)
    if first.problem.needs is None:
        asked = max(0, nodes - len(first.free_nodes))
    return replace(first, nodes=nodes, problem=replace(first.problem, nodes_needed=asked, preemptor_nodes=nodes))


def handed_out(allocations: Sequence[Allocation], groups: Sequence[Sequence[Request]]) -> tuple[Allocation, ...]:
    """What each request of these groups is given of what its group was: allocations are named by their first."""
    members = {group[0].job_id: group for group in groups}
    holders = holders_of(group[0] for group in groups)
    gone: set[str] = set()
    written_s = 0
    found: list[Allocation] = []
    for given in allocations:
        ending = dict(given.ending)
        order = _in_order(given, holders, ending)
        left = dict(given.leaving)
        group = members[given.job_id]
        for request, mine in _shares(group, order):
            jobs = sorted(set[str]().union(*[holders.get(name, ()) for name in mine]))
            last = request is group[-1]  # what holds none of the nodes leaves for it
            leaving = [(job_id, left.pop(job_id)) for job_id in (sorted(left) if last else jobs) if job_id in left]
            earlier = tuple(sorted(gone.intersection(jobs)))
            gone |= {job_id for job_id, _ in leaving}
            written_s += sum(ceil(option.checkpoint_s) for _, option in leaving)
            ends = tuple([(job_id, ending[job_id]) for job_id in jobs if job_id in ending])
            nodes = tuple(sorted(mine))
            found.append(Allocation(request.job_id, tuple(leaving), ends, nodes, _done_s(written_s, ends), earlier))
    return tuple(found)


def _done_s(written_s: int, ends: Iterable[tuple[str, Option]]) -> int:
    return max([written_s, *(ceil(option.ready_s) for _, option in ends)])


def _shares(group: Sequence[Request], order: Sequence[str]) -> Iterable[tuple[Request, Sequence[str]]]:
    """Each request's own part of the nodes."""
    begin = 0
    for request in group:
        yield request, order[begin : begin + request.nodes]
        begin += request.nodes


def _in_order(given: Allocation, holders: Mapping[str, Iterable[str]], ending: Mapping[str, Option]) -> list[str]:
    """Its nodes: free ones, those of jobs that leave, those of jobs that end; those of one job side by side."""
    own = Counter(job_id for name in given.nodes for job_id in holders.get(name, ()))
    leaving = sorted(given.leaving, key=lambda each: (-own[each[0]], ceil(each[1].checkpoint_s), each[0]))
    turn = {job_id: number for number, (job_id, _) in enumerate(leaving, 1)}

    def place(name: str) -> tuple[float, int, str]:
        jobs = holders.get(name, ())
        ends_s = max([ending[job_id].ready_s for job_id in jobs if job_id in ending], default=-1.0)
        return (ends_s, max([turn.get(job_id, 0) for job_id in jobs], default=0), name)

    return sorted(given.nodes, key=place)


def _pressing(request: Request) -> tuple[int, str]:
    return (request.problem.max_delay_s, request.job_id)


def divisible(request: Request) -> bool:
    """Whether its nodes may be any, and jobs that leave for it may make room for others as well."""
    needs = request.problem.needs
    if needs is not None and (needs.together or needs.required_nodes or request.problem.pools):
        return False
    options = (option for each in request.problem.candidates for option in each.options)
    return not any(option.action is Action.SUSPEND for option in options)


def alike(one: Request, other: Request) -> bool:
    """Whether they differ in delays and numbers of nodes alone."""
    mine, theirs = one.problem, other.problem
    return (
        mine.needs == theirs.needs
        and one.free_nodes == other.free_nodes
        and mine.busy_s == theirs.busy_s
        and mine.candidates == theirs.candidates
        and mine.nodes == theirs.nodes
    )


def _by_delay(kind: Sequence[Request], most: int | None) -> Iterable[list[Request]]:
    """Requests that are alike, by their delays; the widest of the steps between these stay apart."""
    by_delay: dict[int, list[Request]] = defaultdict(list)
    for request in kind:
        by_delay[request.problem.max_delay_s].append(request)
    delays = sorted(by_delay)
    steps = sorted(pairwise(delays), key=lambda pair: ((pair[0] + 1) / (pair[1] + 1), pair))
    cuts = {after for _, after in (steps if most is None else steps[: most - 1])}
    group: list[Request] = []
    for delay_s in delays:
        if delay_s in cuts:
            yield group
            group = []
        group += by_delay[delay_s]
    if group:
        yield group
