"""Leaves out jobs that no optimal plan needs, before the tables are computed.

Model: job A covers job B when it frees at least as many nodes, and for each way of B has a way that loses no
more work and takes no longer, is better in one of the two or comes first in job_id. Then A could take B's place
in any plan and improve it. A plan that holds B and does not hold some A that covers it is therefore not optimal;
a plan that holds B and all that cover B is not optimal either, once those free all the missing nodes without B.
So B is superfluous when at least missing / nodes(B) jobs cover it.

On a machine full of small jobs (arrays of tasks, a thousand jobs on a thousand nodes) and an urgent job that
needs few nodes this leaves some dozens of a thousand.

Cost: O(N^2) comparisons in numpy; not worth it below ``FEWEST_ITEMS`` items. Groups are left as they are.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from clearway.planning.formulation.node_groups import Item

FEWEST_ITEMS = 64
_LARGEST_KEY = 2**62
_NEVER = 2**63 - 1


def without_superfluous(items: Sequence[Item], missing: int) -> tuple[Item, ...]:
    """The items that an optimal plan for this many missing nodes, or fewer, may need."""
    if len(items) < FEWEST_ITEMS:
        return tuple(items)
    single = [index for index, item in enumerate(items) if item.single]
    if len(single) < max(1, FEWEST_ITEMS):
        return tuple(items)
    picks = [pick for index in single for pick in items[index].picks]
    base = 1 + max(pick.steps for pick in picks)
    if (1 + max(pick.lost for pick in picks)) * base > _LARGEST_KEY:
        return tuple(items)
    nodes = np.array([min(items[index].picks[0].nodes, missing) for index in single])
    best = _best_within(items, single, base)
    places = np.arange(len(single))
    dropped: set[int] = set()
    for place, index in enumerate(single):
        covers = nodes >= nodes[place]
        before = places < place
        for pick in items[index].picks:
            key, keys = pick.lost * base + pick.steps, best[pick.steps]
            covers &= (keys < key) | ((keys == key) & before)
        covers[place] = False
        if np.count_nonzero(covers) * nodes[place] >= missing:
            dropped.add(index)
    return tuple(item for index, item in enumerate(items) if index not in dropped)


def _best_within(items: Sequence[Item], single: Sequence[int], base: int) -> dict[int, npt.NDArray[np.int64]]:
    """For each number of steps: the best (lost work, steps) of each single job within so many steps."""
    most = max(len(items[index].picks) for index in single)
    steps = np.full((most, len(single)), _NEVER)
    keys = np.full((most, len(single)), _NEVER)
    for place, index in enumerate(single):
        for number, pick in enumerate(items[index].picks):
            steps[number, place] = pick.steps
            keys[number, place] = pick.lost * base + pick.steps
    every = np.unique(steps[steps < _NEVER]).tolist()
    return {within: np.where(steps <= within, keys, _NEVER).min(axis=0) for within in every}
