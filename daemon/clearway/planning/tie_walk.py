"""From the tables back to the plan: which picks, ties included.

Model: a state after items 0 .. i-1 is (rows left, columns left, value left), where the value left is what
table f_i promises for it. A pick is consistent when f_{i+1} promises exactly the rest. Every path of
consistent steps is a plan of the optimal value; the rule for ties chooses among them.

Items stand in the order of their first job_id. When all jobs of the items so far come before all jobs of the
items to come (a closed place), the state with the largest preference is the only one to keep, since no later
job can outweigh an earlier one; between closed places all states are kept, of equal ones the preferred. With
single jobs every place is closed, and the first consistent pick is the right one.

Cost: O(N) look-ups per distinct plan; between closed places up to one state for each reachable (row, column).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from operator import itemgetter

from clearway.planning.node_groups import Item, Pick
from clearway.planning.suffix_tables import Step, SuffixTables, Table

Goal = tuple[int, int, int]  # row and column of the first table, and the value there
_Choice = tuple[int, int, int, Pick]  # steps, nodes and value, as the tables count them
_State = tuple[int, int, int, tuple[Pick, ...], int]  # rows, columns, value left; picks, their preference


def walk(
    items: Sequence[Item],
    steps: Sequence[Sequence[Step]],
    tables: SuffixTables,
    goals: Sequence[Goal],
) -> Mapping[Goal, tuple[Pick, ...]]:
    """The picks of each goal's plan; ``steps[i][j]`` is pick j of item i."""
    layers: list[list[_State]] = [[(*goal, (), 0)] for goal in goals]
    closed = _closed(items)
    for start, block in tables.blocks():
        for index, after in enumerate(block, start):
            choices = [
                (step.steps, step.nodes, step.value, pick)
                for step, pick in zip(steps[index], items[index].picks, strict=True)
            ]
            low = tables.low[index + 1]
            for layer in layers:
                if not closed[index] or len(layer) > 1:
                    layer[:] = _every_consistent(layer, choices, after, low, closed=closed[index])
                elif layer[0][1]:
                    layer[0] = _first_consistent(layer[0], choices, after, low)
    return {goal: layer[0][3] for goal, layer in zip(goals, layers, strict=True)}


def _closed(items: Sequence[Item]) -> list[bool]:
    """After which items all jobs so far come before all jobs to come."""
    last = accumulate((item.last_rank for item in items[:-1]), max)
    following = (item.first_rank for item in items[1:])
    return [*(before < after for before, after in zip(last, following, strict=True)), True]


def _first_consistent(state: _State, choices: Sequence[_Choice], after: Table, low: int) -> _State:
    """The state after the first pick that keeps the optimum; the same state when the item is left out."""
    rows, columns, value, picks, preference = state
    for steps, nodes, cost, pick in choices:
        if steps <= rows and cost <= value:
            if columns <= nodes:
                if cost == value:
                    return rows, 0, 0, (*picks, pick), preference + pick.preference
            elif after.item(rows - steps, columns - nodes - low) == value - cost:
                left = rows - steps, columns - nodes, value - cost
                return *left, (*picks, pick), preference + pick.preference
    return state


def _every_consistent(
    layer: Sequence[_State], choices: Sequence[_Choice], after: Table, low: int, *, closed: bool
) -> list[_State]:
    """All states that can follow; of those that differ in nothing but their picks, the preferred one."""
    reached: dict[tuple[int, int], _State] = {}
    for state in layer:
        for following in _following(state, choices, after, low):
            rows, columns, _, _, preference = following
            place = (rows, columns) if columns else (0, 0)
            if place not in reached or reached[place][4] < preference:
                reached[place] = following
    states = list(reached.values())
    return [max(states, key=itemgetter(4))] if closed else states


def _following(state: _State, choices: Sequence[_Choice], after: Table, low: int) -> Iterator[_State]:
    rows, columns, value, _, _ = state
    if not columns or after.item(rows, columns - low) == value:
        yield state
    if columns:
        for choice in choices:
            following = _first_consistent(state, [choice], after, low)
            if following is not state:
                yield following
