"""From the tables back to the plan: which picks, ties included.

Model: a state after items 0 .. i-1 is (rows left, columns left, value left), where the value left is what table f_i
promises for it. A pick is consistent when f_{i+1} promises exactly the rest. Every path of consistent steps is a plan
of the optimal value; the rule for ties chooses among them.

Items stand in the order of their first job_id: no later item can change what is decided about jobs before its own
first. After each item only those states stay that are the best in the bits of preference of these jobs. With single
jobs that is one state, reached by the first consistent pick. Groups can leave several, which differ only in later jobs;
of states that agree in rows and columns left the preferred one stays.

Cost: O(N) look-ups per distinct plan, times the states that ties between overlapping groups keep alive.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from clearway.planning.dp.suffix_tables import Cells, Step, SuffixTables
from clearway.planning.formulation.group_sweep import Pick
from clearway.planning.formulation.node_groups import Item

Goal = tuple[int, int, int]  # row and column of the first table, and the value there
_Choice = tuple[int, int, int, int, Pick]  # steps, nodes, tilted value; how far back in the table that follows; pick
_Station = tuple[Cells, int, int, Sequence[_Choice]]  # an item: that table, its rows and first column; its picks
_State = tuple[int, int, int, tuple[Pick, ...], int]  # rows, columns, tilted value left; picks, their preference


def walk(
    items: Sequence[Item], steps: Sequence[Sequence[Step]], tables: SuffixTables, goals: Sequence[Goal]
) -> Mapping[Goal, tuple[Pick, ...]]:
    """The picks of each goal's plan; ``steps[i][j]`` is pick j of item i."""
    all_rows, tilt = tables.rows, tables.tilt
    layers: list[Sequence[_State]] = [[(row, column, value + tilt * row, (), 0)] for row, column, value in goals]
    open_bits = [*(item.bits for item in items[1:]), 0]
    for start, block in tables.blocks():
        stations: list[_Station] = []
        for index, after in enumerate(block, start):
            choices = [
                (late, nodes, value + tilt * late, nodes * all_rows + late, pick)
                for (late, nodes, value), pick in zip(steps[index], items[index].picks, strict=True)
            ]
            stations.append((after, all_rows, tables.columns[index + 1].first, choices))
        end = start
        for single, run in groupby(items[start : start + len(stations)], key=attrgetter("single")):
            begin, end = end, end + len(list(run))
            at_once = stations[begin - start : end - start]
            layers = [_through(layer, at_once, open_bits[begin:end], single=single) for layer in layers]
    return {goal: layer[0][3] for goal, layer in zip(goals, layers, strict=True)}


def _through(
    layer: Sequence[_State], stations: Sequence[_Station], open_bits: Sequence[int], *, single: bool
) -> Sequence[_State]:
    """The states after these items; ``single``: each is one job, so one state leads to one."""
    for place, station in enumerate(stations):
        if single and len(layer) == 1:
            return [_first_consistent(layer[0], stations[place:] if place else stations)]
        layer = _every_consistent(layer, station, open_bits[place])
    return layer


def _first_consistent(state: _State, stations: Sequence[_Station]) -> _State:
    """The state after taking, item by item, the first pick that keeps the optimum, or else none.

    The only state of its layer: its preference is compared with no other's, and stays as it is. No value of a table is
    negative, so a pick that costs more than is left is never consistent.
    """
    rows, columns, value, picks, preference = state
    if columns <= 0:
        return state
    taken = list(picks)
    for table, all_rows, first, choices in stations:
        place = (columns - first) * all_rows + rows
        for late, nodes, cost, back, pick in choices:
            if cost <= value and late <= rows and table[place - back] == value - cost:
                taken.append(pick)
                rows -= late
                columns -= nodes
                value -= cost
                break
        else:
            continue
        if columns <= 0:
            break
    return rows, columns, value, tuple(taken), preference


def _every_consistent(layer: Sequence[_State], station: _Station, open_bits: int) -> list[_State]:
    """The states that can follow and are the best in what is decided for good."""
    reached: dict[tuple[int, int], _State] = {}
    for state in layer:
        for following in _following(state, station):
            rows, columns, _, _, preference = following
            place = (rows, columns) if columns > 0 else (0, 0)
            if place not in reached or reached[place][4] < preference:
                reached[place] = following
    best = max(state[4] >> open_bits for state in reached.values())
    return [state for state in reached.values() if state[4] >> open_bits == best]


def _following(state: _State, station: _Station) -> Iterator[_State]:
    """The states after leaving the item out, and after each of its picks, where that keeps the optimum."""
    rows, columns, value, picks, preference = state
    if columns <= 0:
        yield state
        return
    table, all_rows, first, choices = station
    place = (columns - first) * all_rows + rows
    if table[place] == value:
        yield state
    for late, nodes, cost, back, pick in choices:
        if late <= rows and table[place - back] == value - cost:
            yield rows - late, columns - nodes, value - cost, (*picks, pick), preference + pick.preference
