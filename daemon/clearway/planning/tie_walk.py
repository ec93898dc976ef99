"""From the tables back to the plan: which picks, ties included.

Model: a state after items 0 .. i-1 is (rows left, columns left, value left), where the value left is what
table f_i promises for it. A pick is consistent when f_{i+1} promises exactly the rest. Every path of
consistent steps is a plan of the optimal value; the rule for ties chooses among them.

Items stand in the order of their first job_id, so no later item can change what is decided about jobs before
its own first. After each item only those states stay whose preference is the best in the bits of the jobs that
are decided for good. With single jobs that is one state, reached by the first consistent pick. Groups can leave
several, which differ only in jobs that come after the first job of the next item; of states that agree in rows
and columns left the preferred one stays.

Cost: O(N) look-ups per distinct plan, times the states that ties between overlapping groups keep alive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from clearway.planning.node_groups import Item, Pick
from clearway.planning.suffix_tables import Step, SuffixTables

Goal = tuple[int, int, int]  # row and column of the first table, and the value there
_Choice = tuple[int, int, int, Pick]  # steps, nodes and value, as the tables count them
_Read = Callable[[int, int], int]  # a cell of the table that follows
_State = tuple[int, int, int, tuple[Pick, ...], int]  # rows, columns, value left; picks, their preference


def walk(
    items: Sequence[Item],
    steps: Sequence[Sequence[Step]],
    tables: SuffixTables,
    goals: Sequence[Goal],
) -> Mapping[Goal, tuple[Pick, ...]]:
    """The picks of each goal's plan; ``steps[i][j]`` is pick j of item i."""
    layers: list[list[_State]] = [[(*goal, (), 0)] for goal in goals]
    open_bits = [*(item.bits for item in items[1:]), 0]
    for start, block in tables.blocks():
        for index, after in enumerate(block, start):
            choices = [
                (step.steps, step.nodes, step.value, pick)
                for step, pick in zip(steps[index], items[index].picks, strict=True)
            ]
            low, single = tables.low[index + 1], items[index].single
            for layer in layers:
                if single and len(layer) == 1:
                    if layer[0][1]:
                        layer[0] = _first_consistent(layer[0], choices, after.item, low)
                else:
                    layer[:] = _every_consistent(layer, choices, after.item, low, open_bits[index])
    return {goal: layer[0][3] for goal, layer in zip(goals, layers, strict=True)}


def _first_consistent(state: _State, choices: Sequence[_Choice], read: _Read, low: int) -> _State:
    """The state after the first pick that keeps the optimum; the same state when the item is left out."""
    rows, columns, value, picks, preference = state
    for steps, nodes, cost, pick in choices:
        if steps <= rows and cost <= value:
            if columns <= nodes:
                if cost == value:
                    return rows, 0, 0, (*picks, pick), preference + pick.preference
            elif read(rows - steps, columns - nodes - low) == value - cost:
                left = rows - steps, columns - nodes, value - cost
                return *left, (*picks, pick), preference + pick.preference
    return state


def _every_consistent(
    layer: Sequence[_State], choices: Sequence[_Choice], read: _Read, low: int, open_bits: int
) -> list[_State]:
    """The states that can follow and are the best in what is decided for good."""
    reached: dict[tuple[int, int], _State] = {}
    for state in layer:
        for following in _following(state, choices, read, low):
            rows, columns, _, _, preference = following
            place = (rows, columns) if columns else (0, 0)
            if place not in reached or reached[place][4] < preference:
                reached[place] = following
    best = max(state[4] >> open_bits for state in reached.values())
    return [state for state in reached.values() if state[4] >> open_bits == best]


def _following(state: _State, choices: Sequence[_Choice], read: _Read, low: int) -> Iterator[_State]:
    rows, columns, value, _, _ = state
    if not columns or read(rows, columns - low) == value:
        yield state
    if columns:
        for choice in choices:
            following = _first_consistent(state, [choice], read, low)
            if following is not state:
                yield following
