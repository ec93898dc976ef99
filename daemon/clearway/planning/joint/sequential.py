"""Several urgent jobs one after another, the most pressing first: each gets the best plan that those before it leave.

Model: see ``several``. What earlier requests are given is gone, and what their jobs leave over is free. The time of
their checkpoints on the file system has passed, and jobs have gone on ending meanwhile: the next request's delay is
shorter by that time, and so are the times after which jobs end. Requests that are alike (see ``alike``) are served as
one; where that cannot be, each half of them as one.

Cost: one solution for each group of requests that are alike; where not all can be served, up to twice as many as there
are requests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil
from operator import attrgetter

from clearway.model.plan import CurvePoint
from clearway.model.problem import Action, EvictionProblem, Option
from clearway.planning.base import Planner
from clearway.planning.formulation.narrowed import candidates_on, with_options
from clearway.planning.joint.alike import MOST_GROUPS, as_one, groups_of, handed_out
from clearway.planning.joint.requests import Allocation, Request, holders_of


def in_turn(requests: Sequence[Request], planner: Planner) -> tuple[Allocation, ...]:
    """The allocations of those requests that can be served so, the most pressing first."""
    waiting = groups_of(requests, MOST_GROUPS)
    taken = _Taken([group[0] for group in waiting])
    allocations, served = [], []
    while waiting:
        group = waiting.pop(0)
        allocation = taken.serve(as_one(group), planner)
        if allocation is not None:
            allocations.append(allocation)
            served.append(group)
        elif len(group) > 1:
            half = len(group) // 2
            waiting[:0] = [group[:half], group[half:]]
    return handed_out(allocations, served)


_BY_JOB_ID = attrgetter("job_id")


class _Taken:
    """What earlier requests were given."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._holders = holders_of(requests)
        self._gone: set[str] = set()  # jobs that leave for earlier requests
        self._nodes: set[str] = set()  # given to earlier requests, or kept for a suspended job
        self._written_s = 0

    def serve(self, request: Request, planner: Planner) -> Allocation | None:
        problem, free = self._left_for(request)
        if problem.nodes_needed > sum(each.nodes for each in problem.candidates):
            return None
        point = planner.solve(problem).choose()
        if point is None:
            return None
        jobs = request.problem.candidates
        options = {(job.job_id, option.action): option for job in jobs for option in job.options}
        gone = [(each.job_id, options[each.job_id, each.action]) for each in sorted(point.actions, key=_BY_JOB_ID)]
        nodes = self._choose(request, problem, free, point)
        holders = {job_id for name in nodes for job_id in self._holders[name]}
        leaving = [each for each in gone if each[1].action is not Action.END]
        ending = [each for each in gone if each[1].action is Action.END and each[0] in holders]
        self._written_s += sum(ceil(option.checkpoint_s) for _, option in leaving)
        self._gone |= {job_id for job_id, _ in leaving}
        suspended = {job_id for job_id, option in leaving if option.action is Action.SUSPEND}
        self._nodes |= {*nodes, *(name for name, jobs in self._holders.items() if jobs & suspended)}
        done_s = max([self._written_s, *(ceil(option.ready_s) for _, option in ending)])
        return Allocation(request.job_id, tuple(leaving), tuple(ending), nodes, done_s)

    def _left_for(self, request: Request) -> tuple[EvictionProblem, tuple[str, ...]]:
        """The request's problem with what is left, and the nodes that are free for it."""
        left = candidates_on(request.problem, self._holders.keys() - self._nodes)
        freed = {name for each in left.candidates for name in each.node_names if self._holders[name] <= self._gone}
        free = tuple(sorted({*request.free_nodes, *freed} - self._nodes))
        left = replace(
            left,
            nodes_needed=max(0, request.nodes - len(free)),
            max_delay_s=max(0, left.max_delay_s - self._written_s),
            candidates=tuple([each for each in left.candidates if each.job_id not in self._gone]),
        )
        return with_options(left, self._later), free

    def _later(self, option: Option) -> Option:
        """It once the earlier checkpoints are written: jobs go on ending meanwhile."""
        return replace(option, ready_s=max(0.0, option.ready_s - self._written_s))

    def _choose(
        self, request: Request, problem: EvictionProblem, free: tuple[str, ...], point: CurvePoint
    ) -> tuple[str, ...]:
        """Free nodes first, then those of jobs that are made to leave, then those of jobs that end by themselves."""
        actions: Mapping[str, Action] = {planned.job_id: planned.action for planned in point.actions}
        freed: dict[str, bool] = {}
        for candidate in problem.candidates:
            for name in candidate.node_names:
                if self._holders[name] <= self._gone | actions.keys():
                    freed[name] = freed.get(name, False) or actions[candidate.job_id] is Action.END
        order = [*free, *sorted(freed, key=lambda name: (freed[name], name))]
        return tuple(sorted(order[: request.nodes]))
