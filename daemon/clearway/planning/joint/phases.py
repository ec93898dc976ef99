"""How many nodes by when: one program of many urgent jobs that can all use the same whole nodes.

Model: requests that differ in delays and numbers of nodes alone are phases, the most pressing first: by phase p's delay
T_p so many nodes are needed as its requests and all before them ask for, N_p. No node is shared. A job j of n_j nodes
leaves at most once, by a way of cost c that takes s seconds, for a phase q; where it ends by itself, it does so by
phase e_j:

    for each p:  sum of n_j over the jobs that left for q <= p < e_j  >=  N_p - nodes of the jobs that ended by then
    for each p:  sum of s over the jobs that left for q <= p          <=  T_p

Lost work comes first; coming back, checkpoint time and preemptees decide between plans that lose the same. A way that
takes no time is there for the first phase that it is in time for alone. The bound is that of lost work alone in parts
of jobs, within the longest delay of each phase.

Cost: columns are jobs times ways times phases; in parts a thousand jobs in four phases take HiGHS 0.02 s.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, groupby
from math import ceil, inf
from typing import NamedTuple

import numpy as np

from clearway.model.problem import Action, Candidate, Option
from clearway.planning.base import Seconds
from clearway.planning.joint.nodes import Demand, Given, allocated
from clearway.planning.joint.reduced_cost import Numbers, Program, ProgramBuilder, over_used, relaxed
from clearway.planning.joint.requests import Best, Request, as_one, ends_of, handed_out, holders_of

GAP = 2e-3  # of the cost: with so little left HiGHS looks no further
ENOUGH = 0.1  # likewise, where the time for that is up
IN_DOUBT = 350  # columns at first
_LESS = 1e-4  # node-seconds that a second of checkpoints, or a preemptee, counts as


class _Leaving(NamedTuple):
    """A column: a way of a job, and the phase that it leaves for."""

    job: Candidate
    option: Option
    phase: int
    last: int  # the first phase by which the job has ended anyway; the number of phases where it does not

    @property
    def seconds(self) -> int:
        return ceil(self.option.checkpoint_s)

    @property
    def cost(self) -> float:
        return self.option.lost_work_node_s + _LESS * (1 + self.seconds + self.option.return_node_s)


def by_phases(groups: Sequence[Sequence[Request]], seconds_left: Seconds) -> Best | None:
    """The plan for groups of requests that differ in delays and nodes alone; None without one, or time for one.

    A group has the shortest delay of its requests.
    """
    requests = [as_one(group) for group in groups]
    if seconds_left() <= 0 or not _suited(requests):
        return None
    shortest = [group[0].problem.max_delay_s for group in groups]
    ways, program = _program(requests, shortest)
    later_s = seconds_left() / 2
    found = relaxed(program, later_s).solved(lambda: seconds_left() - later_s, GAP, IN_DOUBT).values
    if found is None and (used := over_used(program, GAP, ENOUGH, seconds_left)) is not None:
        found = used.values
    if found is None or np.any(program.matrix @ found > program.most):  # HiGHS keeps to whole numbers nearly
        return None
    leaves = {ways[at].job.job_id: ways[at] for at in np.flatnonzero(found)}
    delays = accumulate((max(each.problem.max_delay_s for each in group) for group in groups), max)
    longest, whole = _program(requests, list(delays))
    lost = np.array([way.option.lost_work_node_s for way in longest])
    least = relaxed(replace(whole, cost=lost), inf).least
    given = allocated(
        requests,
        shortest,
        _given(leaves, requests, shortest),
        {job_id: (way.option, way.phase) for job_id, way in leaves.items()},
    )
    return None if given is None else Best(handed_out(given, groups), False, max(0.0, least))


def _suited(requests: Sequence[Request]) -> bool:
    """Whether all can use the same whole nodes, of which no two jobs share one, and no job is suspended."""
    first = requests[0]
    alike = all(
        each.problem.candidates == first.problem.candidates and each.free_nodes == first.free_nodes
        for each in requests[1:]
    )
    if not alike or any(each.problem.needs is not None for each in requests):
        return False
    options = (option for each in first.problem.candidates for option in each.options)
    shared = any(len(jobs) > 1 for jobs in holders_of(requests[:1]).values())
    return not shared and not any(option.action is Action.SUSPEND for option in options)


def _program(requests: Sequence[Request], limits: Sequence[int]) -> tuple[list[_Leaving], Program]:
    """The columns, and the program."""
    missing: Numbers = np.cumsum([float(each.nodes) for each in requests]) - len(requests[0].free_nodes)
    ends = ends_of(requests[:1])
    ways: list[_Leaving] = []
    builder = ProgramBuilder()
    for job in requests[0].problem.candidates:
        end_s = ends[job.job_id].ready_s if job.job_id in ends else inf
        last = sum(limit_s < end_s for limit_s in limits)  # they stand in the order of the phases
        missing[last:] -= job.nodes
        ways += _ways(job, last, limits)
    columns = [builder.column(way.cost) for way in ways]
    for phase, limit_s in enumerate(limits):
        gone = [(at, way) for at, way in enumerate(ways) if way.phase <= phase]
        builder.at_least([(at, float(way.job.nodes)) for at, way in gone if phase < way.last], float(missing[phase]))
        builder.at_most([(at, float(way.seconds)) for at, way in gone if way.seconds], limit_s)
    for _, some in groupby(columns, key=lambda at: ways[at].job.job_id):
        builder.at_most([(at, 1.0) for at in some], 1.0)
    return ways, builder.program()


def _ways(job: Candidate, last: int, limits: Sequence[int]) -> Iterator[_Leaving]:
    for option in job.options:
        if option.action is not Action.END:
            soonest_s = max(ceil(option.checkpoint_s), option.ready_s)
            in_time = [phase for phase in range(last) if soonest_s <= limits[phase]]
            for phase in in_time if option.checkpoint_s else in_time[:1]:
                yield _Leaving(job, option, phase, last)


def _given(leaves: Mapping[str, _Leaving], requests: Sequence[Request], limits: Sequence[int]) -> Iterator[Given]:
    """What each phase is given: free nodes, then those of one job after another."""
    left = {job.job_id: list(job.node_names) for job in requests[0].problem.candidates}
    free = list(requests[0].free_nodes)
    leaving = sorted(leaves, key=lambda job_id: (leaves[job_id].phase, leaves[job_id].option.checkpoint_s, job_id))
    ends = sorted((end.ready_s, job_id) for job_id, end in ends_of(requests[:1]).items())
    for phase, request in enumerate(requests):
        nodes, free = free[: request.nodes], free[request.nodes :]
        yield Given(phase, nodes, Demand((), ()))
        missing = request.nodes - len(nodes)
        going = [job_id for job_id in leaving if leaves[job_id].phase <= phase]
        for job_id in (*going, *[job_id for ready_s, job_id in ends if ready_s <= limits[phase]]):
            nodes, left[job_id] = left[job_id][:missing], left[job_id][missing:]
            missing -= len(nodes)
            if nodes:
                yield Given(phase, nodes, Demand(((job_id, (1,)),), (1,)))
