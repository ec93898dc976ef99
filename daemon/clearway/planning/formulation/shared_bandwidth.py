"""Checkpoints that are written at the same time and share the file system's bandwidth, whatever way it is shared.

Model: checkpoint j writes s_j MiB, no faster than its nodes can (b_j), not before r_j (the wait for an application that
saves itself at its own pace), on a file system of B >= b_j MiB/s. Alone it takes a_j = r_j + s_j / b_j seconds
(``Option.checkpoint_s``), and with the whole file system w_j = s_j / B (``Option.file_system_s``); e_j = a_j - w_j is
the rest. All begin at once. How the file system is shared is not known; it only does not idle: at any moment every
checkpoint that is being written runs at its own rate, or B MiB/s are written in all.

Then all are complete within

    sum of w_j  +  max of e_j

seconds. Proof: let j be written for x seconds at its own rate. In all other moments from r_j on until it is complete B
MiB/s are written, which are not more than all data but these b_j x MiB: (S - b_j x) / B seconds with S = B sum w_i.
Together r_j + x + (S - b_j x) / B, most for the longest x possible, s_j / b_j: r_j + s_j / b_j + S / B - s_j / B. (The
argument of Graham's bound for list scheduling, 1966.) A schedule that sets every rate at every moment would need at
least the larger of the two terms and no less than a_j for each j: the bound is at most twice that.

A checkpoint without ``file_system_s`` has w_j = a_j, e_j = 0: all of them together are the CoSim paper's serial model,
the sum of a_j. As w_i <= a_i, what is in time one after another is in time here as well.

Checkpoints of other plans are complete within busy_s seconds (``EvictionProblem.busy_s``, by the same bound), if need
be before these begin: then all are complete within busy_s and the above, as if every e_j were longer by busy_s.

Method: whole steps W_j = ceil(w_j), E_j = ceil(a_j) - W_j, which rounds each a_j up and no sum down. For each value E
of the E_j, a problem of the serial kind: the options with E_j <= E, times W_j, delays less by E. Each plan belongs to
one E at least, so the best plan of all E for a deadline is the best of all: every planner is as exact here as it is
there.

Cost: one solution for each value of E_j within the longest delay; one in the serial model. With more than
``FEW_CANDIDATES`` these are ``FEW_RESTS`` values at most, the largest of equally many each: the plan is in time all the
same, and the curve says that it is not proven to be the best.

Source: the CoSim paper (section III-B) names concurrent checkpoints of small jobs as a refinement of its model.
"""

from collections.abc import Callable
from dataclasses import replace
from math import ceil

from clearway.model.plan import Curve, CurvePoint, PlannedAction
from clearway.model.problem import ACTION_ORDER, Action, EvictionProblem, Option

FEW_CANDIDATES = 100  # with so many, 60 solutions take 0.2 s
FEW_RESTS = 8


def with_options(problem: EvictionProblem, change: Callable[[Option], Option | None]) -> EvictionProblem:
    """The problem with every option changed; None leaves it out."""
    candidates = [
        replace(each, options=tuple([new for option in each.options if (new := change(option)) is not None]))
        for each in problem.candidates
    ]
    return replace(problem, candidates=tuple(candidates))


def overlaps(problem: EvictionProblem) -> bool:
    """Whether any checkpoint leaves room for others beside it, or has to wait for others."""
    return problem.busy_s > 0 or any(
        option.file_system_s is not None for candidate in problem.candidates for option in candidate.options
    )


def one_after_another(problem: EvictionProblem) -> EvictionProblem:
    """The same problem in the serial model: its plans are in time here too."""
    if not overlaps(problem):
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

    return _sooner(with_options(problem, left), gone_s)


def _sooner(problem: EvictionProblem, gone_s: int) -> EvictionProblem:
    """A serial problem when so much of its time is gone."""
    first_s = max(0, problem.first_delay_s - gone_s)
    return replace(problem, max_delay_s=problem.max_delay_s - gone_s, first_delay_s=first_s, busy_s=0)


def side_by_side(problem: EvictionProblem, solve: Callable[[EvictionProblem], Curve]) -> Curve:
    """The curve of a problem, where ``solve`` knows the serial model alone."""
    if not overlaps(problem):
        return solve(problem)
    rests, every = _rests(problem)
    curves = {rest: solve(_within(problem, rest)) for rest in rests}
    step_s = problem.step_s
    by_rest = {rest: {each.max_delay_s // step_s: each for each in c.points} for rest, c in curves.items()}
    options = {(each.job_id, option.action): option for each in problem.candidates for option in each.options}
    points = []
    for step in range(problem.first_step, problem.last_step + 1):
        best = min([points[step - rest] for rest, points in by_rest.items() if step - rest in points], key=plan_rank)
        actions = [_as_planned(each, options[each.job_id, each.action], problem.step_s) for each in best.actions]
        points.append(replace(best, max_delay_s=step * problem.step_s, actions=tuple(actions)))
    return replace(
        curves[0],
        points=tuple(points),
        exact=every and all(curve.exact for curve in curves.values()),
        gap=max(curve.gap for curve in curves.values()) if every else 0.0,
    )


def plan_rank(point: CurvePoint) -> tuple[object, ...]:
    """Smaller is better, as ``planning.base`` defines it; nothing is worse than no plan."""
    if not point.feasible:
        return (True,)
    gone = [(each.job_id, ACTION_ORDER[each.action]) for each in point.actions if each.action is not Action.END]
    return (False, point.cost, sorted(gone))


def _rests(problem: EvictionProblem) -> tuple[list[int], bool]:
    """The values of E to solve for, 0 among them, and whether they are all there are."""
    steps = [_steps(option, problem) for each in problem.candidates for option in each.options]
    every = sorted({own for whole, own in steps if own and whole + own <= problem.last_step})
    if len(problem.candidates) <= FEW_CANDIDATES or len(every) <= FEW_RESTS:
        return [0, *every], True
    return [0, *(every[(place + 1) * len(every) // FEW_RESTS - 1] for place in range(FEW_RESTS))], False


def _as_planned(action: PlannedAction, option: Option, step_s: int) -> PlannedAction:
    return replace(
        action,
        checkpoint_s=ceil(option.checkpoint_s / step_s) * step_s,
        ready_s=ceil(option.ready_s),
        file_system_s=option.file_system_s,
    )


def _steps(option: Option, problem: EvictionProblem) -> tuple[int, int]:
    """W and E of an option, in whole steps."""
    step_s = problem.step_s
    alone = ceil(option.checkpoint_s / step_s)
    wait = ceil(problem.busy_s / step_s) if alone else 0
    if option.file_system_s is None:
        return alone, wait
    if not 0 <= option.file_system_s <= option.checkpoint_s:
        raise ValueError("file_system_s must be a number of seconds between 0 and checkpoint_s")
    whole = ceil(option.file_system_s / step_s)
    return whole, alone - whole + wait


def _within(problem: EvictionProblem, rest: int) -> EvictionProblem:
    """The serial problem of the options whose rest is no longer than this many steps, all of which are gone."""
    gone_s = rest * problem.step_s

    def left(option: Option) -> Option | None:
        whole, own = _steps(option, problem)
        if own > rest:
            return None
        ready_s = max(0.0, option.ready_s - gone_s)
        return replace(option, checkpoint_s=whole * problem.step_s, file_system_s=None, ready_s=ready_s)

    return _sooner(with_options(problem, left), gone_s)
