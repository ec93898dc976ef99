"""Checkpoints that are written at the same time and share the file system's bandwidth, whatever way it is shared.

Model: checkpoint j writes s_j MiB, no faster than its nodes can (b_j), not before r_j (the wait for an application that
saves itself at its own pace), on a file system of B >= b_j MiB/s. Alone it takes a_j = r_j + s_j / b_j seconds
(``Option.checkpoint_s``), and with the whole file system w_j = s_j / B (``Option.file_system_s``); e_j = a_j - w_j is
the rest. All begin at once. How the file system is shared is not known; it only does not idle: at any moment every
checkpoint that is being written runs at its own rate, or B MiB/s are written in all.

Then all are complete within (sum of w_j) + (max of e_j) seconds. Proof: let j be written for x seconds at its own rate.
In all other moments from r_j on until it is complete B MiB/s are written, which are not more than all data but these
b_j x MiB: (S - b_j x) / B seconds with S = B sum w_i. Together r_j + x + (S - b_j x) / B, most for the longest x
possible, s_j / b_j: r_j + s_j / b_j + S / B - s_j / B. (The argument of Graham's bound for list scheduling, 1966.) A
schedule that sets every rate at every moment needs at least half of that.

A checkpoint without ``file_system_s`` has w_j = a_j, e_j = 0: the CoSim paper's serial model. As w_i <= a_i, what is in
time one after another is in time here as well.

Checkpoints of other plans are complete within busy_s seconds (``EvictionProblem.busy_s``, by the same bound), if need
be before these begin: then all are complete within busy_s and the above, as if every e_j were longer by busy_s.

In whole steps w_j and a_j are each rounded up. The program (``joint.program``) plans by the bound, rules by the serial
model (``base.PlainPlanner``).

Source: the CoSim paper (section III-B) names concurrent checkpoints of small jobs as a refinement of its model.
"""

from collections.abc import Callable
from dataclasses import replace
from math import ceil

from clearway.model.plan import CurvePoint, PlannedAction
from clearway.model.problem import ACTION_ORDER, Action, EvictionProblem, Option


def with_options(problem: EvictionProblem, change: Callable[[Option], Option | None]) -> EvictionProblem:
    """The problem with every option changed; None leaves it out."""
    candidates = [
        replace(each, options=tuple([new for option in each.options if (new := change(option)) is not None]))
        for each in problem.candidates
    ]
    return replace(problem, candidates=tuple(candidates))


def shares(problem: EvictionProblem) -> bool:
    """Whether any checkpoint leaves room for others beside it."""
    return any(option.file_system_s is not None for each in problem.candidates for option in each.options)


def one_after_another(problem: EvictionProblem) -> EvictionProblem:
    """The same problem in the serial model: its plans are in time here too."""
    if not shares(problem):
        return problem
    return with_options(problem, lambda option: replace(option, file_system_s=None))


def after_others(problem: EvictionProblem, busy_s: int) -> EvictionProblem:
    """A serial problem once the file system has been kept by others for so long; jobs go on ending meanwhile.

    What is in time there is in time, and takes ``busy_s`` longer. Where no time is left only checkpoints are late.
    """
    if not busy_s:
        return problem
    gone_s = min(ceil(busy_s / problem.step_s), problem.last_step) * problem.step_s

    def left(option: Option) -> Option | None:
        late = option.checkpoint_s and busy_s > gone_s
        return None if late else replace(option, ready_s=max(0.0, option.ready_s - gone_s))

    first_s, last_s = max(0, problem.first_delay_s - gone_s), problem.max_delay_s - gone_s
    return replace(with_options(problem, left), max_delay_s=last_s, first_delay_s=first_s, busy_s=0)


def planned_action(job_id: str, option: Option, step_s: int) -> PlannedAction:
    ready_s = ceil(option.ready_s)
    if option.action is Action.END:
        return PlannedAction(job_id, option.action, 0.0, 0, ready_s)
    written_s = ceil(option.checkpoint_s / step_s) * step_s
    lost, back = option.lost_work_node_s, option.return_node_s
    return PlannedAction(job_id, option.action, lost, written_s, ready_s, back, option.file_system_s)


def as_asked(point: CurvePoint, problem: EvictionProblem, gone_s: int) -> CurvePoint:
    """The point of a problem of which so many seconds were gone, with its options as they are in this one."""
    options = {(each.job_id, option.action): option for each in problem.candidates for option in each.options}
    step_s = problem.step_s
    actions = [planned_action(each.job_id, options[each.job_id, each.action], step_s) for each in point.actions]
    written_s = [each.checkpoint_s if each.file_system_s is None else each.file_system_s for each in actions]
    return replace(
        point,
        max_delay_s=point.max_delay_s + gone_s,
        actions=tuple(actions),
        checkpoint_s=sum(ceil(each / step_s) * step_s for each in written_s) if point.feasible else None,
        return_node_s=sum(each.return_node_s for each in actions),
    )


def plan_rank(point: CurvePoint) -> tuple[object, ...]:
    """Smaller is better, as ``planning.base`` defines it; nothing is worse than no plan."""
    if not point.feasible:
        return (True,)
    gone = [(each.job_id, ACTION_ORDER[each.action]) for each in point.actions if each.action is not Action.END]
    return (False, point.cost, sorted(gone))
