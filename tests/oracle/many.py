"""What is claimed of every planner, tried on one problem, and on how many problems that is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import pytest

from clearway.model.plan import Curve, CurvePoint
from clearway.model.problem import Action, EvictionProblem, Option
from clearway.planning.base import Planner
from clearway.planning.dp.eviction_dp import EvictionDP, is_program
from clearway.planning.formulation.shared_bandwidth import shares
from clearway.planning.rules import LOSS_PER_NODE_PRUNE, SLURM_DEFAULT, UJFB, YOUNGEST_FIRST, YOUNGEST_PRUNE
from clearway_lab.baselines import Backtracking, Greedy, WeightedCost
from tests.oracle.exhaustive import Answer, Sets, exhaustive, whole_steps
from tests.oracle.problems import TIMES, in_another_order, with_histories

EXACT: tuple[Planner, ...] = (EvictionDP(), Backtracking())
RULES: tuple[Planner, ...] = (
    Greedy(),
    LOSS_PER_NODE_PRUNE,
    SLURM_DEFAULT,
    UJFB,
    WeightedCost(),
    YOUNGEST_FIRST,
    YOUNGEST_PRUNE,
)
PROBLEMS = 2_000 * TIMES  # of each shape
IN_A_TEST = 200
AS_GOOD = Fraction(1, 10**6)  # of the lost work: HiGHS tells no more apart
RULES_EVERY = 4  # rules are tried on so many times fewer

Leaving = tuple[tuple[str, Action], ...]
Cost = tuple[Fraction, int, int, int]  # lost work, return, checkpoint steps, preemptees
Made = Callable[[int], EvictionProblem]


def every_block(shapes: Sequence[str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The problems of all shapes as tests of ``IN_A_TEST``: the seeds ``seeds(shapes, shape, block)`` gives."""

    def parametrized(test: Callable[..., None]) -> Callable[..., None]:
        blocks = pytest.mark.parametrize("block", range(PROBLEMS // IN_A_TEST))
        return blocks(pytest.mark.parametrize("shape", shapes)(test))

    return parametrized


def seeds(shapes: Sequence[str], shape: str, block: int, count: int = IN_A_TEST) -> range:
    assert count > 0, "a test without a problem says nothing"
    first = shapes.index(shape) + block * count * len(shapes)
    return range(first, first + count * len(shapes), len(shapes))


def check_all(made: Made, numbers: range) -> None:
    """Every claim on problems of these seeds; and some must have had something to decide."""
    planned = infeasible = followed = 0
    for turn, seed in enumerate(numbers):
        problem = with_histories(made(seed), seed)
        sets = Sets(problem)
        best = exhaustive(problem, sets)
        turned = in_another_order(problem, seed)
        for planner in EXACT[: 1 if shares(problem) else None]:  # the other writes checkpoints one after another
            check_exact(planner, problem, turned, best)
        if turn % RULES_EVERY == 0:
            followed += sum(check_rule(rule, problem, turned, best, sets) for rule in RULES)
        assert problem == with_histories(made(seed), seed), "a planner has changed its input"
        planned += any(answer is not None and answer[2] for answer in best)
        infeasible += None in best
    assert planned >= len(numbers) / 20
    assert infeasible >= len(numbers) / 50
    assert followed >= len(numbers) / RULES_EVERY


def check_exact(planner: Planner, problem: EvictionProblem, turned: EvictionProblem, best: list[Answer | None]) -> None:
    curve = planner.solve(problem)
    assert (curve.planner, curve.exact, curve.gap) == (planner.name, True, 0)
    found = answers(problem, curve)
    if planner.name == EvictionDP.name:
        check_answers(problem, found, best)
    else:
        assert told(problem, found) == told(problem, best), (planner.name, problem)
    assert planner.solve(turned) == curve, (planner.name, problem)


def check_answers(problem: EvictionProblem, found: Sequence[Answer | None], best: Sequence[Answer | None]) -> None:
    """Of equally good plans the program of shared nodes may have any."""
    if not is_program(problem):
        assert told(problem, found) == told(problem, best), problem
        return
    sets = Sets(problem)
    for step, (mine, least) in enumerate(zip(found, best, strict=True)):
        assert (mine is None) == (least is None), problem
        if mine is not None and least is not None:
            delay_s = step * problem.step_s
            own, its = (cost_in_time(problem, each[2], delay_s) for each in (mine, least))
            assert own == its or its[0] < own[0] <= its[0] * (1 + AS_GOOD), problem
            assert sets.frees_enough({job_id for job_id, _ in mine[2]} | ended(problem, delay_s)), problem


def check_decided(problem: EvictionProblem, waiting_nodes: int) -> None:
    """What is carried out is what the curve's own points say is the best of them."""
    curve, (point,) = EvictionDP().solve(problem), EvictionDP().decide(problem, waiting_nodes=waiting_nodes).points
    best = curve.choose(waiting_nodes or None)
    assert point.feasible == (best is not None), problem
    if best is None:
        assert EvictionDP().soonest_s(problem) is None, problem
        return
    actions = tuple((each.job_id, each.action) for each in point.actions)
    cost = cost_in_time(problem, actions, point.max_delay_s)
    assert Sets(problem).frees_enough({each for each, _ in actions} | ended(problem, point.max_delay_s)), problem
    assert (cost[0], cost[1]) == (Fraction(str(point.lost_work_node_s)), point.return_node_s), problem
    assert point.lost_work_node_s == best.lost_work_node_s, problem
    assert point.preemptees <= best.preemptees if not best.preemptees else point.preemptees, problem
    if any(
        option.ready_s and option.action is not Action.END for each in problem.candidates for option in each.options
    ):
        return  # when such an option begins is not weighed
    waits = [each.return_node_s + waiting_nodes * each.max_delay_s for each in (point, best)]
    assert waits[0] <= waits[1], (problem, point, best)
    assert EvictionDP().soonest_s(problem) == next(each for each in curve.points if each.feasible).max_delay_s, problem


def check_rule(
    rule: Planner, problem: EvictionProblem, turned: EvictionProblem, best: list[Answer | None], sets: Sets
) -> int:
    """How many plans it has; each can be carried out, costs what it says, and is no better than the best."""
    curve = rule.solve(problem)
    assert (curve.planner, curve.exact) == (rule.name, False)
    plans = 0
    for point, answer, least in zip(curve.points, answers(problem, curve), best, strict=True):
        if answer is None:
            continue
        cost = cost_in_time(problem, answer[2], point.max_delay_s)
        assert (cost[0], cost[2]) == answer[:2], (rule.name, problem)
        gone = {job_id for job_id, _ in answer[2]}
        if problem.needs is None:
            assert sets.frees_enough(gone)
            assert answer[3] == sets.nodes_freed(gone), (rule.name, problem)
        else:  # nodes and ends of other places are not told
            assert sets.frees_enough(gone | ended(problem, point.max_delay_s))
        assert least is not None, (rule.name, problem)
        assert cost >= cost_in_time(problem, least[2], point.max_delay_s), (rule.name, problem)
        plans += bool(answer[2])
    assert rule.solve(turned) == curve, (rule.name, problem)
    return plans


def answers(problem: EvictionProblem, curve: Curve) -> list[Answer | None]:
    """A curve in the words of the exhaustive search."""
    assert [point.max_delay_s for point in curve.points] == [
        step * problem.step_s for step in range(problem.last_step + 1)
    ]
    return [answer(problem, point) for point in curve.points]


def answer(problem: EvictionProblem, point: CurvePoint) -> Answer | None:
    if not point.feasible:
        assert point == CurvePoint(max_delay_s=point.max_delay_s, feasible=False)
        return None
    assert point.lost_work_node_s is not None
    assert point.checkpoint_s is not None
    assert point.nodes_freed is not None
    actions = tuple((planned.job_id, planned.action) for planned in point.actions)
    lost = Fraction(str(point.lost_work_node_s))
    return (lost, point.checkpoint_s // problem.step_s, actions, point.nodes_freed)


def told(problem: EvictionProblem, found: Sequence[Answer | None]) -> list[Answer | None]:
    """Where nodes must lie together a plan tells only of its own place, so nodes and ends are left out."""
    if problem.needs is None or not problem.needs.together:
        return list(found)
    return [each and (*each[:2], without_ends(each[2]), 0) for each in found]


def without_ends(actions: Leaving) -> Leaving:
    return tuple(each for each in actions if each[1] is not Action.END)


def cost_in_time(problem: EvictionProblem, actions: Leaving, deadline_s: int) -> Cost:
    """What a plan costs as its options are written, when each is there and all are complete by the deadline."""
    assert [job_id for job_id, _ in actions] == sorted({job_id for job_id, _ in actions})
    by_name = {(job.job_id, each.action): each for job in problem.candidates for each in job.options}
    assert all(by_name[each].ready_s <= deadline_s for each in actions)
    used = [by_name[each] for each in without_ends(actions)]
    whole = [_on_file_system(option, problem.step_s) for option in used]
    alone = [whole_steps(option.checkpoint_s, problem.step_s) for option in used]
    longest_rest = max((own - mine for own, mine in zip(alone, whole, strict=True)), default=0)
    others = whole_steps(problem.busy_s, problem.step_s) if any(alone) else 0
    assert (others + sum(whole) + longest_rest) * problem.step_s <= deadline_s
    lost = sum((Fraction(str(option.lost_work_node_s)) for option in used), Fraction(0))
    return lost, sum(option.return_node_s for option in used), sum(whole), len(used)


def _on_file_system(option: Option, step_s: int) -> int:
    return whole_steps(option.checkpoint_s if option.file_system_s is None else option.file_system_s, step_s)


def ended(problem: EvictionProblem, deadline_s: int) -> set[str]:
    return {
        job.job_id
        for job in problem.candidates
        if any(option.action is Action.END and option.ready_s <= deadline_s for option in job.options)
    }
