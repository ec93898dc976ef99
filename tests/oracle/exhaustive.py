"""The eviction problem by trying everything: short, and so plain that it can be trusted.

It shares no code with the planners: lost work is summed in whole units of the decimal numbers as written, nodes are
counted by name, and the rule of ``planning.base`` is kept key by key over all combinations that free enough in time.
Nothing is left out and nothing is bounded; numpy only does for all combinations at once what a loop would do for each.
``test_exhaustive`` has that loop beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from fractions import Fraction
from functools import cache, reduce
from itertools import combinations
from math import lcm

import numpy as np
import numpy.typing as npt

from clearway.model.problem import ACTION_ORDER, Action, Amounts, Candidate, EvictionProblem, NodeResources, Option

Answer = tuple[Fraction, int, tuple[tuple[str, Action], ...], int]  # lost, checkpoint steps, actions, nodes freed
Choice = Option | None  # None: the job stays
Stays = npt.NDArray[np.bool_]  # (jobs, sets): whether a job stays, for each of several sets of jobs that leave
Numbers = npt.NDArray[np.int64]


class Sets:
    """All sets of jobs that can leave, and for each whether it frees enough, and how many nodes."""

    def __init__(self, problem: EvictionProblem) -> None:
        self._bits = {job.job_id: 1 << bit for bit, job in enumerate(problem.candidates)}
        numbers = np.arange(1 << len(self._bits))
        bits = np.array(list(self._bits.values()), int).reshape(-1, 1)
        self.enough, self.freed = _enough(problem, numbers & bits == 0), _freed(problem, numbers & bits == 0)

    def frees_enough(self, gone: Collection[str]) -> bool:
        return bool(self.enough[self._number(gone)])

    def nodes_freed(self, gone: Collection[str]) -> int:
        return int(self.freed[self._number(gone)])

    def _number(self, gone: Collection[str]) -> int:
        return sum(self._bits[job_id] for job_id in gone)


def exhaustive(problem: EvictionProblem, sets: Sets | None = None) -> list[Answer | None]:
    """The best answer for every deadline, None where there is none."""
    sets = sets or Sets(problem)
    answers: list[Answer | None] = []
    tried = None
    for step in range(problem.last_step + 1):
        choices = [open_choices(job, step * problem.step_s) for job in problem.candidates]
        if tried is None or tried.choices != choices:
            tried = _Tried(problem, choices)
        answers.append((Fraction(0), 0, (), 0) if sets.enough[0] else tried.best(step, sets))
    return answers


@cache
def whole_steps(duration_s: float, step_s: int) -> int:
    steps = 0
    while steps * step_s < duration_s:
        steps += 1
    return steps


def open_choices(job: Candidate, deadline_s: int) -> list[Choice]:
    """What a job can do by a deadline: end, when it ends in time; else stay, or leave in one of its ways."""
    ready = [option for option in job.options if option.ready_s <= deadline_s]
    ends = [option for option in ready if option.action is Action.END]
    if ends:
        return [ends[0]]
    return [None, *ready]


class _Tried:
    """Every combination of what the jobs can do, one after another in flat arrays."""

    def __init__(self, problem: EvictionProblem, choices: list[list[Choice]]) -> None:
        self.choices = choices
        self._jobs, step_s = problem.candidates, problem.step_s
        lost = [Fraction(str(option.lost_work_node_s)) for job in self._jobs for option in job.options]
        self._unit = Fraction(1, lcm(*[each.denominator for each in lost]))
        self._lost = self._each(
            np.add,
            lambda option: int(Fraction(str(option.lost_work_node_s)) / self._unit),
            np.int64 if sum(lost) < 2**62 * self._unit else object,
        )
        self._return = self._each(np.add, lambda option: option.return_node_s)
        self._steps = self._each(np.add, lambda option: _on_file_system(option, step_s))
        self._count = self._each(np.add, lambda _: 1)
        rest = self._each(np.maximum, lambda option: _rest(option, problem))
        self._in_time = self._steps + rest  # all checkpoints are complete by then however the file system is shared
        leaving = [[0 if choice is None else 1 << job for choice in mine] for job, mine in enumerate(choices)]
        self._gone = _combined(np.add, leaving)

    def _each(self, join: np.ufunc, amount: Callable[[Option], int], dtype: type = np.int64) -> Numbers:
        """Amounts of all combinations; to stay costs nothing, and to end neither."""
        amounts = [
            [0 if choice is None or choice.action is Action.END else amount(choice) for choice in mine]
            for mine in self.choices
        ]
        return _combined(join, amounts, dtype)

    def best(self, step: int, sets: Sets) -> Answer | None:
        left = np.flatnonzero(sets.enough[self._gone] & (self._in_time <= step))
        if not left.size:
            return None
        for key in (self._lost, self._return, self._steps, self._count):
            left = left[key[left] == key[left].min()]
        first = min(left, key=self._names)
        actions = tuple(sorted((job_id, choice.action) for job_id, choice in self._leaving(first)))
        return int(self._lost[first]) * self._unit, int(self._steps[first]), actions, int(sets.freed[self._gone[first]])

    def _names(self, number: int) -> list[tuple[str, int]]:
        leaving = self._leaving(number)
        return sorted((id_, ACTION_ORDER[each.action]) for id_, each in leaving if each.action is not Action.END)

    def _leaving(self, number: int) -> list[tuple[str, Option]]:
        picked = np.unravel_index(number, [len(mine) for mine in self.choices])
        chosen = [(job.job_id, mine[at]) for job, mine, at in zip(self._jobs, self.choices, picked, strict=True)]
        return [(job_id, choice) for job_id, choice in chosen if choice is not None]


def _combined(join: np.ufunc, amounts: Sequence[Sequence[int]], dtype: type = np.int64) -> Numbers:
    """One amount of each job, in every combination; the last job's changes quickest."""
    columns = [np.array(mine, dtype) for mine in amounts]
    return np.ravel(reduce(join.outer, columns, np.zeros((), dtype)))


def _on_file_system(option: Option, step_s: int) -> int:
    return whole_steps(option.checkpoint_s if option.file_system_s is None else option.file_system_s, step_s)


def _rest(option: Option, problem: EvictionProblem) -> int:
    """Steps that a checkpoint takes beside those with the whole file system: others come first, it goes on alone."""
    alone = whole_steps(option.checkpoint_s, problem.step_s)
    others = whole_steps(problem.busy_s, problem.step_s) if alone else 0
    return others + alone - _on_file_system(option, problem.step_s)


# -- nodes ---------------------------------------------------------------------------------------------------------


def nodes_freed(problem: EvictionProblem, gone: Collection[str]) -> int:
    return int(_freed(problem, _one_set(problem, gone))[0])


def enough_freed(problem: EvictionProblem, gone: Collection[str]) -> bool:
    """Whether the preemptor can start somewhere once these jobs have left."""
    return bool(_enough(problem, _one_set(problem, gone))[0])


def _one_set(problem: EvictionProblem, gone: Collection[str]) -> Stays:
    return np.array([job.job_id not in gone for job in problem.candidates], bool).reshape(-1, 1)


def _freed(problem: EvictionProblem, stays: Stays) -> Numbers:
    if problem.needs is not None:
        nobody_gone = np.ones((len(stays), 1), bool)
        return np.sum(_serving(problem, stays), axis=0) - np.sum(_serving(problem, nobody_gone), axis=0)
    freed = np.zeros(stays.shape[1], int)
    for name in {name for job in problem.candidates for name in job.node_names}:
        freed += ~np.any([stays[index] for index in _on(problem, name)], axis=0)
    for job, stay in zip(problem.candidates, stays, strict=True):
        if not job.node_names:
            freed += job.nodes * ~stay
    return freed


def _on(problem: EvictionProblem, name: str) -> list[int]:
    return [index for index, job in enumerate(problem.candidates) if name in job.node_names]


def _enough(problem: EvictionProblem, stays: Stays) -> npt.NDArray[np.bool_]:
    needs = problem.needs
    if needs is None:
        return _freed(problem, stays) >= problem.nodes_needed
    serves = _serving(problem, stays)
    if problem.pools or needs.switches or needs.same_feature:
        return _enough_of_each(problem, serves)
    found = np.zeros(stays.shape[1], bool)
    for place in _places(problem):
        if set(needs.required_nodes) <= {problem.nodes[index].name for index in place}:
            required = [index for index in place if problem.nodes[index].name in needs.required_nodes]
            found |= (np.sum(serves[place], axis=0) >= problem.nodes_needed) & np.all(serves[required], axis=0)
    return found


def _enough_of_each(problem: EvictionProblem, serves: Stays) -> npt.NDArray[np.bool_]:
    """Every set of as many nodes as are needed is tried; pools have to serve in any case."""
    needs, nodes = problem.needs, problem.nodes
    assert needs is not None
    pools = [index for index, node in enumerate(nodes) if node.pool is not None]
    plain = [index for index, node in enumerate(nodes) if node.pool is None]
    names = {node.name for node in nodes}
    found = np.zeros(serves.shape[1], bool)
    if not set(needs.required_nodes) <= names:
        return found
    size = problem.nodes_needed - len(pools)
    for taken in combinations(plain, max(0, size)):
        at = [plain.index(index) for index in taken]
        in_a_row = not at or at[-1] - at[0] + 1 == len(at)
        switches = {nodes[index].switch for index in taken}
        together = (in_a_row or not needs.contiguous) and (
            not needs.one_switch or (len(switches) == 1 and "" not in switches)
        )
        has_required = set(needs.required_nodes) <= {nodes[index].name for index in (*taken, *pools)}
        if together and has_required and _lies_together(problem, taken):
            found |= np.all(serves[[*taken, *pools]], axis=0)
    return found


def _places(problem: EvictionProblem) -> Iterator[list[int]]:
    """Sets of nodes that the preemptor may lie in."""
    needs, nodes = problem.needs, problem.nodes
    assert needs is not None
    places = [list(range(len(nodes)))]
    if needs.contiguous:
        size = max(1, problem.nodes_needed)
        places = [list(range(first, first + size)) for first in range(len(nodes) - size + 1)]
    if not needs.one_switch:
        yield from places
        return
    for place in places:
        for switch in {node.switch for node in nodes} - {""}:
            there = [index for index in place if nodes[index].switch == switch]
            if there == place or not needs.contiguous:
                yield there


def _lies_together(problem: EvictionProblem, place: Collection[int]) -> bool:
    """Whether these very nodes may be taken together, as far as switches and features go."""
    needs = problem.needs
    assert needs is not None
    nodes = [problem.nodes[index] for index in place]
    few = not needs.switches or ("" not in (used := {node.switch for node in nodes}) and len(used) <= needs.switches)
    alike = not needs.same_feature or any(all(name in node.features for node in nodes) for name in needs.same_feature)
    return few and alike


def _serving(problem: EvictionProblem, stays: Stays) -> npt.NDArray[np.bool_]:
    """(nodes, sets): whether what is free on a node once these jobs have left meets the need."""
    return np.array([_serves(problem, node, stays) for node in problem.nodes], bool).reshape(-1, stays.shape[1])


def _serves(problem: EvictionProblem, node: NodeResources, stays: Stays) -> npt.NDArray[np.bool_]:
    needs = problem.needs
    assert needs is not None
    suits = node.pool is not None or (
        node.name not in needs.excluded_nodes
        and set(needs.features) <= set(node.features)
        and needs.partition in ("", *node.partitions)
    )
    wants = _wants(needs.per_node if node.pool is None else node.pool)
    found = np.full(stays.shape[1], suits)
    on = _on(problem, node.name)
    if not wants:  # nobody else may be there
        return found & (node.held == Amounts()) & ~np.any(stays[on], axis=0)
    for of, count in wants:
        free = np.full(stays.shape[1], of(node.has) - of(node.held))
        for index in on:
            job = problem.candidates[index]
            free -= stays[index] * of(job.holds[job.node_names.index(node.name)] if job.holds else node.has)
        found &= free >= count
    return found


def _wants(per_node: Amounts) -> list[tuple[Callable[[Amounts], int], int]]:
    """How to read an amount off what is there, and how much of it is needed; what is not needed is left out."""

    def gpus_of(wanted: str) -> Callable[[Amounts], int]:
        def of(amounts: Amounts) -> int:
            named = [(name.split(":"), number) for name, number in amounts.gpus]
            kind = wanted.split(":")
            alike = [(parts, number) for parts, number in named if len(parts) == len(kind)]
            if len(kind) == 2:
                alike = [(parts[1:], number) for parts, number in alike if parts[0] == kind[0]]
            return sum(number for parts, number in alike if kind[-1] in ("", parts[0]))

        return of

    wants: list[tuple[Callable[[Amounts], int], int]] = [
        (lambda amounts: amounts.cores, per_node.cores),
        (lambda amounts: amounts.memory_mib, per_node.memory_mib),
        *[(gpus_of(wanted), count) for wanted, count in per_node.gpus],
    ]
    return [(of, count) for of, count in wants if count]
