"""The daemon's planner in its default configuration, and the rules that it is judged beside.

All that the benchmarks of the problem set know of the planners' insides stands here.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import ceil, inf

from clearway.config.configuration import PlanningConfig
from clearway.model.plan import PlannedAction
from clearway.model.problem import EvictionProblem, Option
from clearway.planning.base import Planner
from clearway.planning.baselines.greedy import Greedy
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.planning.rules import SLURM_DEFAULT, YOUNGEST_PRUNE
from tests.benchmarks.best_known import asked_of

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
    curve = planner.solve(asked)
    point = curve.choose(problem.waiting_nodes)
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
    count = 0
    for node in asked_of(problem):
        given: dict[int, int] = defaultdict(int)
        for job_id, amounts in node.held.items():
            if job_id in left:
                for place, amount in enumerate(amounts):
                    given[place] += amount
        count += all(node.free[place] + given[place] >= asked for place, asked in enumerate(node.asked))
    return count
