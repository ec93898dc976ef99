"""From the tables back to the plan: which picks, ties included.

Model: a state after items 0 .. i-1 is (rows left, columns left, value left), where the value left is what table f_i
promises for it. A pick is consistent when f_{i+1} promises exactly the rest. Every path of consistent steps is a plan
of the optimal value. Items stand in the order of their job_id, so the first consistent pick of each is the one that
ties go to: no later item can change what is decided about a job before it.

Cost: O(N) look-ups per distinct plan.
"""

from collections.abc import Mapping, Sequence

from clearway.planning.dp.suffix_tables import Cells, Step, SuffixTables
from clearway.planning.formulation.node_groups import Item, Pick

Goal = tuple[int, int, int]  # row and column of the first table, and the value there
_Choice = tuple[int, int, int, int, Pick]  # steps, nodes, tilted value; how far back in the table that follows; pick
_Station = tuple[Cells, int, int, Sequence[_Choice]]  # an item: that table, its rows and first column; its picks
_State = tuple[int, int, int]  # rows, columns and tilted value left


def walk(
    items: Sequence[Item], steps: Sequence[Sequence[Step]], tables: SuffixTables, goals: Sequence[Goal]
) -> Mapping[Goal, list[Pick]]:
    """The picks of each goal's plan; ``steps[i][j]`` is pick j of item i."""
    all_rows, tilt = tables.rows, tables.tilt
    states: list[_State] = [(row, column, value + tilt * row) for row, column, value in goals]
    taken: list[list[Pick]] = [[] for _ in goals]
    for start, block in tables.blocks():
        stations: list[_Station] = []
        for index, after in enumerate(block, start):
            choices = [
                (late, nodes, value + tilt * late, nodes * all_rows + late, pick)
                for (late, nodes, value), pick in zip(steps[index], items[index].picks, strict=True)
            ]
            stations.append((after, all_rows, tables.columns[index + 1].first, choices))
        states = [_through(state, stations, picks) for state, picks in zip(states, taken, strict=True)]
    return dict(zip(goals, taken, strict=True))


def _through(state: _State, stations: Sequence[_Station], taken: list[Pick]) -> _State:
    """The state after taking, item by item, the first pick that keeps the optimum, or else none.

    No value of a table is negative, so a pick that costs more than is left is never consistent.
    """
    rows, columns, value = state
    for table, all_rows, first, choices in stations:
        if columns <= 0:
            break
        place = (columns - first) * all_rows + rows
        for late, nodes, cost, back, pick in choices:
            if cost <= value and late <= rows and table[place - back] == value - cost:
                taken.append(pick)
                rows -= late
                columns -= nodes
                value -= cost
                break
    return rows, columns, value
