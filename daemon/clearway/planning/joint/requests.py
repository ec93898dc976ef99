"""Several urgent jobs that are planned together: what each needs, and what each is given.

Alike are requests with the same candidates, free nodes and needs. Within one delay a plan for all of them is a plan for
one request of as many nodes, and the other way round. Nodes that lie together, or that are required, are some request's
own, and a suspended job's nodes serve one request only: such requests stay apart. Requests within delays that differ
are made one only where there would be too many otherwise: they are cut apart where delays differ the most, and have the
shortest of their group, so that a plan may become dearer, never late.

Handing out what a group was given: the most pressing request comes first, and takes nodes that are free already, then
those of jobs that leave, the widest first, then those of jobs that end: few requests count on a job that leaves for
another one.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice, pairwise
from math import ceil
from typing import NamedTuple

from clearway.model.plan import Cost
from clearway.model.problem import Action, EvictionProblem, Option

MOST_GROUPS = 6  # of requests that are alike but for their delays


@dataclass(frozen=True, slots=True)
class Request:
    """One urgent job: its own problem, every candidate's nodes by name, and the nodes that are free for it already."""

    job_id: str
    nodes: int  # that it asks for, the free ones included
    problem: EvictionProblem
    free_nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a request, or a group of them, is given: the jobs that leave for it, those that end, and its nodes."""

    job_id: str
    leaving: tuple[tuple[str, Option], ...]  # by job_id
    ending: tuple[tuple[str, Option], ...]
    nodes: tuple[str, ...]
    # Only where it is handed out to each request:
    done_s: int = 0  # by when its checkpoints, and those before them, are written
    depends_on: tuple[str, ...] = ()  # jobs that leave for requests before it and have to be gone for it as well


class Best(NamedTuple):
    """The cheapest plan found; ``least_node_s``: no plan for the requests that it serves loses less than this.

    ``proven``: no plan loses less work, as HiGHS says.
    """

    allocations: tuple[Allocation, ...]
    proven: bool
    least_node_s: float
    later: frozenset[str] = frozenset()  # requests that there was no time for

    @property
    def served(self) -> frozenset[str]:
        return frozenset(allocation.job_id for allocation in self.allocations)


def cost_of(allocations: Iterable[Allocation]) -> Cost:
    """Of all of them together."""
    return Cost.of(option for allocation in allocations for _, option in allocation.leaving)


def holders_of(requests: Iterable[Request]) -> Mapping[str, set[str]]:
    """By node: the jobs on it that are candidates of any request; none of other nodes."""
    holders: dict[str, set[str]] = defaultdict(set)
    for request in requests:
        for candidate in request.problem.candidates:
            for name in candidate.node_names:
                holders[name].add(candidate.job_id)
    return holders


def ends_of(requests: Iterable[Request]) -> dict[str, Option]:
    """The ways of the jobs that end by themselves."""
    jobs = (job for request in requests for job in request.problem.candidates)
    return {job.job_id: option for job in jobs for option in job.options if option.action is Action.END}


def groups_of(requests: Sequence[Request], most: int | None = None) -> list[list[Request]]:
    """Requests that can be planned as one, the most pressing first; ``most`` of those that differ in delays alone.

    Without it only requests within the same delay are one, so that nothing is lost.
    """
    kinds: list[list[Request]] = []
    open_kinds: list[list[Request]] = []  # those that others may join
    for request in sorted(requests, key=_pressing):
        mine = next((kind for kind in open_kinds if alike(kind[0], request)), None)
        if mine is None:
            mine = []
            kinds.append(mine)
            if divisible(request):
                open_kinds.append(mine)
        mine.append(request)
    groups = [group for kind in kinds for group in _by_delay(kind, most)]
    return sorted(groups, key=lambda group: _pressing(group[0]))


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


def _by_delay(kind: Sequence[Request], most: int | None) -> list[list[Request]]:
    """Requests that are alike, in the order of their delays; the widest of the steps between these stay apart."""
    delays = sorted({request.problem.max_delay_s for request in kind})
    steps = sorted(pairwise(delays), key=lambda pair: ((pair[0] + 1) / (pair[1] + 1), pair))
    cuts = sorted([after for _, after in (steps if most is None else steps[: most - 1])])
    parts = groupby(kind, key=lambda request: bisect_right(cuts, request.problem.max_delay_s))
    return [list(part) for _, part in parts]


def as_one(group: Sequence[Request], delay_s: int | None = None) -> Request:
    """One request for the nodes of all of them, named as the first; within the shortest delay, or this one."""
    first, nodes = group[0], sum(request.nodes for request in group)
    problem = first.problem
    if len(group) > 1:
        asked = sum(request.problem.nodes_needed for request in group)
        if problem.needs is None:
            asked = max(0, nodes - len(first.free_nodes))
        problem = replace(problem, nodes_needed=asked, preemptor_nodes=nodes)
    if delay_s is not None:
        problem = replace(problem, max_delay_s=delay_s)
    return replace(first, nodes=nodes, problem=problem)


def handed_out(allocations: Sequence[Allocation], groups: Sequence[Sequence[Request]]) -> tuple[Allocation, ...]:
    """What each request of these groups is given of what its group was: allocations are named by their first."""
    members = {group[0].job_id: group for group in groups}
    holders = holders_of(group[0] for group in groups)
    gone: set[str] = set()
    written_s = 0
    found: list[Allocation] = []
    for given in allocations:
        ending, left = dict(given.ending), dict(given.leaving)
        order = iter(_in_order(given, holders, ending))
        group = members[given.job_id]
        for request in group:
            mine = sorted(islice(order, request.nodes))
            jobs = sorted(set[str]().union(*[holders.get(name, ()) for name in mine]))
            last = request is group[-1]  # what holds none of the nodes leaves for it
            leaving = [(job_id, left.pop(job_id)) for job_id in (sorted(left) if last else jobs) if job_id in left]
            earlier = tuple(sorted(gone.intersection(jobs)))
            gone |= {job_id for job_id, _ in leaving}
            written_s += sum(ceil(option.checkpoint_s) for _, option in leaving)
            ends = tuple([(job_id, ending[job_id]) for job_id in jobs if job_id in ending])
            done_s = max([written_s, *(ceil(option.ready_s) for _, option in ends)])
            found.append(Allocation(request.job_id, tuple(leaving), ends, tuple(mine), done_s, earlier))
    return tuple(found)


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
