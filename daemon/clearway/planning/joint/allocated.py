"""From nodes that are given and jobs that have left to what each request is given."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import ceil, inf
from typing import NamedTuple

from clearway.model.problem import Action, Option
from clearway.planning.joint.nodes import Demand
from clearway.planning.joint.requests import Allocation, Request

Ways = Mapping[str, tuple[Option, int]]  # of each job that leaves: how, and the first request by which it is gone


class Given(NamedTuple):
    """Nodes that a request (by its number) is given, and what it asks of each of them."""

    request: int
    names: Sequence[str]
    demand: Demand


def ends_of(requests: Iterable[Request]) -> dict[str, Option]:
    """The ways of the jobs that end by themselves."""
    return {
        job.job_id: option
        for request in requests
        for job in request.problem.candidates
        for option in job.options
        if option.action is Action.END
    }


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
    first_user: dict[str, int] = {}
    ending: list[dict[str, Option]] = [{} for _ in requests]
    depends_on: list[set[str]] = [set() for _ in requests]
    for number, names, demand in given:
        nodes[number] += names
        needed = _needed(demand, number, limits[number], ends, ways)
        if needed is None:
            return None
        for job_id in needed:
            if _ends_s(job_id, ends) <= limits[number]:
                ending[number][job_id] = ends[job_id]
            else:
                first_user[job_id] = min(number, first_user.get(job_id, number))
                depends_on[number].add(job_id)
    leaving_for: dict[int, list[tuple[str, Option]]] = defaultdict(list)
    for job_id, user in sorted(first_user.items()):
        leaving_for[user].append((job_id, ways[job_id][0]))
    allocations, written_s = [], 0
    for number, request in enumerate(requests):
        leaving = leaving_for[number]
        written_s += sum(ceil(option.checkpoint_s) for _, option in leaving)
        done_s = max([written_s, *(ceil(option.ready_s) for option in ending[number].values())])
        allocations.append(
            Allocation(
                job_id=request.job_id,
                leaving=tuple(leaving),
                ending=tuple(sorted(ending[number].items())),
                nodes=tuple(sorted(nodes[number])),
                done_s=done_s,
                depends_on=tuple(sorted(job_id for job_id in depends_on[number] if first_user[job_id] < number)),
            )
        )
    return tuple(allocations)


def _ends_s(job_id: str, ends: Mapping[str, Option]) -> float:
    return ends[job_id].ready_s if job_id in ends else inf


def _needed(demand: Demand, number: int, limit_s: float, ends: Mapping[str, Option], ways: Ways) -> list[str] | None:
    """The jobs that have to be gone from a node; rather those that leave than those that end by themselves."""
    held = [job_id for job_id, _ in demand.held]
    ended = [each for each in held if _ends_s(each, ends) <= limit_s]
    ended.sort(key=lambda job_id: _ends_s(job_id, ends), reverse=True)
    left = [each for each in held if each not in ended and each in ways and ways[each][1] <= number]
    gone = [*ended, *sorted(left, key=lambda job_id: -ways[job_id][1])]
    return demand.needs_of(gone) if demand.met_by(gone) else None
