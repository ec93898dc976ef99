"""Exhaustive search for all combinations at once, beside a loop that tries one after another."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from clearway.model.problem import ACTION_ORDER, Action, Amounts, EvictionProblem, Option
from tests.oracle.exhaustive import Answer, exhaustive, open_choices, whole_steps
from tests.oracle.problems import beside_others, random_problem, side_by_side, with_returns
from tests.oracle.typed_problems import typed_problem

MADE: dict[str, Callable[[int], EvictionProblem]] = {
    "whole nodes": random_problem,
    "returns": lambda seed: with_returns(random_problem(seed), seed),
    "side by side": lambda seed: side_by_side(random_problem(seed), seed),
    "beside others": lambda seed: beside_others(random_problem(seed), seed),
    "side by side, beside others": lambda seed: beside_others(side_by_side(random_problem(seed), seed), seed),
    "parts of nodes": typed_problem,
    "no job": lambda seed: random_problem(seed, jobs=0),
    "no job, parts of nodes": lambda seed: typed_problem(seed, jobs=0),
    "huge": lambda seed: huge(random_problem(seed)),
}


def huge(problem: EvictionProblem) -> EvictionProblem:
    """Lost work that no machine word holds."""

    def times(option: Option) -> Option:
        return replace(option, lost_work_node_s=round(option.lost_work_node_s * 1_000) * 10**18)

    jobs = [replace(job, options=tuple(times(option) for option in job.options)) for job in problem.candidates]
    return replace(problem, candidates=tuple(jobs))


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("block", range(10))
def test_it_finds_what_trying_one_after_another_finds(made: str, block: int) -> None:
    planned = 0
    for seed in range(24 * block, 24 * (block + 1)):
        problem = MADE[made](seed)
        expected = one_by_one(problem)
        assert exhaustive(problem) == expected, problem
        planned += any(answer is not None and answer[2] for answer in expected)
    assert planned > 3 or not problem.candidates


def one_by_one(problem: EvictionProblem) -> list[Answer | None]:
    """The best answer for every deadline, None where there is none."""
    ids = [job.job_id for job in problem.candidates]
    freed = {
        frozenset(gone): _nodes_freed(problem, set(gone))
        for size in range(len(ids) + 1)
        for gone in itertools.combinations(ids, size)
        if _enough_freed(problem, set(gone))
    }
    return [_best(problem, freed, step) for step in range(problem.last_step + 1)]


def _nodes_freed(problem: EvictionProblem, gone: set[str]) -> int:
    if problem.needs is not None:
        return sum(_serving(problem, gone)) - sum(_serving(problem, set()))
    staying = {name for job in problem.candidates if job.job_id not in gone for name in job.node_names}
    leaving = [job for job in problem.candidates if job.job_id in gone]
    named = {name for job in leaving for name in job.node_names}
    return len(named - staying) + sum(job.nodes for job in leaving if not job.node_names)


def _enough_freed(problem: EvictionProblem, gone: set[str]) -> bool:
    """Whether the preemptor can start somewhere once these jobs have left."""
    needs = problem.needs
    if needs is None:
        return _nodes_freed(problem, gone) >= problem.nodes_needed
    nodes, serves = problem.nodes, _serving(problem, gone)
    pools = [index for index, node in enumerate(nodes) if node.pool is not None]
    if pools or needs.switches or needs.same_feature:
        able = [index for index, node in enumerate(nodes) if serves[index] and node.pool is None]
        return all(serves[index] for index in pools) and any(
            set(needs.required_nodes) <= {nodes[index].name for index in (*taken, *pools)}
            and (not needs.switches or 0 < len({nodes[index].switch for index in taken}) <= needs.switches or not taken)
            and (not needs.switches or all(nodes[index].switch for index in taken))
            and (
                not needs.same_feature
                or any(all(each in nodes[index].features for index in taken) for each in needs.same_feature)
            )
            for taken in itertools.combinations(able, problem.nodes_needed - len(pools))
        )
    if needs.contiguous:
        size = max(1, problem.nodes_needed)
        places = [range(first, first + size) for first in range(len(nodes) - size + 1)]
    else:
        places = [range(len(nodes))]
    if needs.one_switch:
        switches = sorted({node.switch for node in nodes} - {""})
        places = [
            [index for index in place if nodes[index].switch == switch]
            for place in places
            for switch in switches
            if not needs.contiguous or all(nodes[index].switch == switch for index in place)
        ]
    return any(
        sum(serves[index] for index in place) >= problem.nodes_needed
        and set(needs.required_nodes) <= {nodes[index].name for index in place if serves[index]}
        for place in places
    )


def _serving(problem: EvictionProblem, gone: set[str]) -> list[bool]:
    """Of each node, whether what is free on it once these jobs have left meets the need."""
    needs = problem.needs
    assert needs is not None
    found = []
    for node in problem.nodes:
        staying = [job for job in problem.candidates if job.job_id not in gone and node.name in job.node_names]
        held = [job.holds[job.node_names.index(node.name)] if job.holds else node.has for job in staying]
        held.insert(0, node.held)
        asked = node.pool or needs.per_node
        of_each = [
            (node.has.cores, asked.cores, [amounts.cores for amounts in held]),
            (node.has.memory_mib, asked.memory_mib, [amounts.memory_mib for amounts in held]),
        ]
        for wanted, count in asked.gpus:
            totals = [
                sum(number for name, number in amounts.gpus if not wanted or name == wanted)
                for amounts in (node.has, *held)
            ]
            of_each.append((totals[0], count, totals[1:]))
        asks_nothing = not any(needed for _, needed, _ in of_each)
        found.append(
            node.name not in needs.excluded_nodes
            and set(needs.features) <= set(node.features)
            and needs.partition in ("", *node.partitions)
            and (len(held) == 1 and held[0] == Amounts() if asks_nothing else True)
            and all(total - sum(taken) >= needed or not needed for total, needed, taken in of_each)
        )
    return found


def _best(problem: EvictionProblem, freed: Mapping[frozenset[str], int], step: int) -> Answer | None:
    """``freed`` has the nodes by the jobs that leave, where these are enough."""
    if frozenset() in freed:
        return (Fraction(0), 0, (), 0)
    deadline_s = step * problem.step_s
    choices = [[(job, option) for option in open_choices(job, deadline_s)] for job in problem.candidates]
    best: tuple[object, Answer] | None = None
    for picked in itertools.product(*choices):
        taken = [(job, option) for job, option in picked if option is not None]
        gone = frozenset(job.job_id for job, _ in taken)
        if gone not in freed:
            continue
        used = [(job, option) for job, option in taken if option.action is not Action.END]
        steps, needed = _file_system([option for _, option in used], problem)
        if needed > step:
            continue
        lost = sum((Fraction(str(option.lost_work_node_s)) for _, option in used), Fraction(0))
        key = (
            lost,
            sum(option.return_node_s for _, option in used),
            steps,
            len(used),
            sorted((job.job_id, ACTION_ORDER[option.action]) for job, option in used),
        )
        if best is None or key < best[0]:
            actions = tuple(sorted((job.job_id, option.action) for job, option in taken))
            best = (key, (lost, steps, actions, freed[gone]))
    return None if best is None else best[1]


def _file_system(used: Sequence[Option], problem: EvictionProblem) -> tuple[int, int]:
    """Steps of the whole file system, and within how many steps all checkpoints are complete however it is shared."""
    step_s = problem.step_s
    alone = [whole_steps(option.checkpoint_s, step_s) for option in used]
    whole = [
        own if option.file_system_s is None else whole_steps(option.file_system_s, step_s)
        for own, option in zip(alone, used, strict=True)
    ]
    others = whole_steps(problem.busy_s, step_s) if any(alone) else 0
    return sum(whole), others + sum(whole) + max(
        (own - mine for own, mine in zip(alone, whole, strict=True)), default=0
    )
