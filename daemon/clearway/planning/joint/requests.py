"""Several urgent jobs that are planned together: what each needs, and what each is given."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from clearway.model.plan import Cost
from clearway.model.problem import EvictionProblem, Option


@dataclass(frozen=True, slots=True)
class Request:
    """One urgent job: its own problem, every candidate's nodes by name, and the nodes that are free for it already."""

    job_id: str
    nodes: int  # that it asks for, the free ones included
    problem: EvictionProblem
    free_nodes: tuple[str, ...]


def holders_of(requests: Iterable[Request]) -> Mapping[str, set[str]]:
    """By node: the jobs on it that are candidates of any request; none of other nodes."""
    holders: dict[str, set[str]] = defaultdict(set)
    for request in requests:
        for candidate in request.problem.candidates:
            for name in candidate.node_names:
                holders[name].add(candidate.job_id)
    return holders


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a request is given: the jobs that leave for it, those that end by themselves, and its nodes."""

    job_id: str
    leaving: tuple[tuple[str, Option], ...]  # by job_id
    ending: tuple[tuple[str, Option], ...]
    nodes: tuple[str, ...]
    done_s: int  # by when its checkpoints, and those before them, are written
    depends_on: tuple[str, ...] = ()  # jobs that leave for requests before it and have to be gone for it as well


def cost_of(allocations: Iterable[Allocation]) -> Cost:
    """Of all of them together."""
    return Cost.of(option for allocation in allocations for _, option in allocation.leaving)
