"""The daemon's planner in its default configuration, and the rules that it is judged beside.

All that the benchmarks of the problem set know of the planners' insides stands here.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from math import ceil, inf
from operator import le

from clearway.config.configuration import PlanningConfig
from clearway.model.plan import PlannedAction
from clearway.model.problem import Action, EvictionProblem, Option
from clearway.planning.base import Planner
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.planning.joint.requests import Allocation, Request
from clearway.planning.joint.several import gap_of, plan_together
from clearway.planning.rules import SLURM_DEFAULT, YOUNGEST_PRUNE
from clearway_lab.baselines import Greedy
from tests.benchmarks.best_known import asked_of
from tests.benchmarks.crowds import Crowd

PLANNER: Planner = EvictionDP()
BESIDE: tuple[Planner, ...] = (Greedy(), SLURM_DEFAULT, YOUNGEST_PRUNE)


@dataclass(frozen=True, slots=True)
class Planned:
    """What a planner says of a problem; ``lost_node_s`` is infinite where it has no plan.

    ``seconds``: of processor time, until the plan that is carried out is there.
    """

    lost_node_s: float
    exact: bool
    gap: float  # that it admits
    seconds: float


def as_the_daemon_asks(problem: EvictionProblem) -> EvictionProblem:
    """At the resolution at which the daemon plans by default, as ``preemption.problem`` makes it."""
    step_s = max(1, ceil(problem.max_delay_s / PlanningConfig().steps))
    return replace(problem, step_s=step_s, max_delay_s=problem.max_delay_s // step_s * step_s)


def planned(problem: EvictionProblem, planner: Planner = PLANNER) -> Planned:
    """The plan that the daemon would carry out; it is checked that it can be, to the second."""
    asked = as_the_daemon_asks(problem)
    begin = time.process_time()
    curve = planner.decide(asked, waiting_nodes=problem.waiting_nodes)
    point = curve.choose()
    seconds = time.process_time() - begin
    if point is None:
        return Planned(inf, curve.exact, curve.gap, seconds)
    lost_node_s = true_loss(problem, point.actions)
    told = point.lost_work_node_s
    assert told is not None
    assert abs(lost_node_s - told) <= 1e-3, (planner.name, lost_node_s, told)
    return Planned(lost_node_s, curve.exact, curve.gap, seconds)


def true_loss(problem: EvictionProblem, actions: Iterable[PlannedAction]) -> float:
    """What these actions lose; it is checked that they free enough in time."""
    options: dict[str, list[Option]] = {each.job_id: list(each.options) for each in problem.candidates}
    taken: dict[str, Option] = {}
    for each in actions:
        assert each.job_id not in taken, "a job leaves twice"
        taken[each.job_id] = next(option for option in options[each.job_id] if option.action is each.action)
    ways = list(taken.values())
    assert all(way.ready_s <= problem.max_delay_s for way in ways), "a way is not open in time"
    timed = [way for way in ways if way.checkpoint_s]
    shares = [way.checkpoint_s if way.file_system_s is None else way.file_system_s for way in timed]
    rests = [way.checkpoint_s - share for way, share in zip(timed, shares, strict=True)]
    written_s = sum(shares) + max(rests, default=0) + (problem.busy_s if timed else 0)
    assert written_s <= problem.max_delay_s, "checkpoints are not written in time"
    assert freed(problem, taken) >= problem.nodes_needed, "too few nodes are freed"
    return sum(way.lost_work_node_s for way in ways)


def freed(problem: EvictionProblem, gone: Iterable[str]) -> int:
    """Nodes that can serve once these jobs have left."""
    left = set(gone)
    if problem.needs is None and not any(each.node_names for each in problem.candidates):
        return sum(each.nodes for each in problem.candidates if each.job_id in left)
    return len(serving_names(problem, left))


def serving_names(problem: EvictionProblem, gone: AbstractSet[str]) -> set[str]:
    """The same where nodes have names."""
    found = set()
    for node in asked_of(problem):
        given: dict[int, int] = defaultdict(int)
        for job_id, amounts in node.held.items():
            if job_id in gone:
                for place, amount in enumerate(amounts):
                    given[place] += amount
        if all(node.free[place] + given[place] >= asked for place, asked in enumerate(node.asked)):
            found.add(node.name)
    return found


@dataclass(frozen=True, slots=True)
class CrowdPlanned:
    """What is planned for a crowd in one cycle: how many are served, and what that loses in all."""

    served: int
    lost_node_s: float
    gap: float  # that it admits; 0.0: it says that none is needless, or knows no bound
    seconds: float


def crowd_planned(crowd: Crowd, limit_s: float | None = None) -> CrowdPlanned:
    """As ``preemption.batch`` plans for many at once, with the time that a cycle has for it, or so much."""
    requests = _requests(crowd)
    limit_s = PlanningConfig().time_per_cycle if limit_s is None else limit_s
    begin = time.process_time()

    def seconds_left() -> float:
        return limit_s - (time.process_time() - begin)

    best = plan_together(requests, seconds_left)
    allocations: Sequence[Allocation] = () if best is None else best.allocations
    gap = 1.0 if best is None else gap_of(allocations, best.least_node_s)
    seconds = time.process_time() - begin
    return CrowdPlanned(len(allocations), crowd_loss(crowd, allocations), gap, seconds)


def _requests(crowd: Crowd) -> list[Request]:
    found = []
    for ask in crowd.asks:
        problem = crowd.problem(ask)
        free: tuple[str, ...] = ()
        if problem.needs is not None:
            free = tuple(each.name for each in asked_of(problem) if all(map(le, each.asked, each.free)))
        found.append(Request(ask.job_id, ask.nodes, as_the_daemon_asks(problem), free))
    return found


def crowd_loss(crowd: Crowd, allocations: Sequence[Allocation]) -> float:
    """What these plans lose; it is checked that each serves its urgent job in time, beside the others."""
    asks = {ask.job_id: ask for ask in crowd.asks}
    jobs = {each.job_id: each for each in crowd.candidates}
    given: set[str] = set()
    gone: dict[str, Option] = {}
    written_s = 0
    for each in sorted(allocations, key=lambda each: asks[each.job_id].delay_s):
        ask = asks.pop(each.job_id)
        assert len(set(each.nodes)) == ask.nodes, "it has other nodes than it asks for"
        assert given.isdisjoint(each.nodes), "a node is given twice"
        given.update(each.nodes)
        for job_id, option in each.leaving:
            assert job_id not in gone, "a job leaves twice"
            gone[job_id] = next(way for way in jobs[job_id].options if way.action is option.action)
            written_s += ceil(gone[job_id].checkpoint_s)
            assert gone[job_id].ready_s <= ask.delay_s, "a way is not open in time"
        assert written_s <= ask.delay_s, "checkpoints are not written in time"
        ended = {
            job_id
            for job_id, job in jobs.items()
            if any(way.action is Action.END and way.ready_s <= ask.delay_s for way in job.options)
        }
        served = serving_names(crowd.problem(ask), gone.keys() | ended)
        assert served.issuperset(each.nodes), "a node does not serve it"
    return sum(option.lost_work_node_s for option in gone.values() if option.action is not Action.END)
