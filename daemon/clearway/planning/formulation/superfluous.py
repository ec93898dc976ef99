"""Leaves out jobs that no optimal plan needs, before the tables are computed.

Model: job A covers job B when it frees at least as many nodes, and for each way of B has a way that loses no more work
and takes no longer, is better in one of the two or comes first in job_id. In any plan with B and without A, A could
take B's place and improve it. Once the jobs that cover B free all the missing nodes, a plan with them needs no B. So B
is superfluous when at least missing / nodes(B) jobs cover it: of a thousand small jobs some dozens are left when few
nodes are needed.

Cost: O(N^2) comparisons in numpy; not worth it below ``FEWEST_ITEMS`` items. Groups are left as they are.
"""

from collections.abc import Sequence
from itertools import islice

import numpy as np

from clearway.planning.formulation.node_groups import Item

FEWEST_ITEMS = 64
_LARGEST_KEY = 2**62
_NEVER = 2**63 - 1


def without_superfluous(items: Sequence[Item], missing: int) -> tuple[Item, ...]:
    """The items that an optimal plan for this many missing nodes, or fewer, may need."""
    single = [item for item in items if item.single] if len(items) >= FEWEST_ITEMS else []
    if len(single) < max(1, FEWEST_ITEMS):
        return tuple(items)
    picks = [pick for item in single for pick in item.picks]
    base = 1 + max(pick.steps for pick in picks)
    if (1 + max(pick.lost for pick in picks)) * base > _LARGEST_KEY:
        return tuple(items)
    keys = np.array([pick.lost * base + pick.steps for pick in picks])
    places = np.arange(len(single))
    owners = np.repeat(places, [len(item.picks) for item in single])
    durations, rows = np.unique([pick.steps for pick in picks], return_inverse=True)
    best = np.full((len(durations), len(single)), _NEVER)  # by duration: the best key of each job within it
    np.minimum.at(best, (rows, owners), keys)
    np.minimum.accumulate(best, out=best)
    nodes = np.array([min(item.picks[0].nodes, missing) for item in single])
    dropped: set[int] = set()
    by_pick = zip(keys.tolist(), [best[row] for row in rows.tolist()], strict=True)
    for place, item in enumerate(single):
        covers, before = nodes >= nodes[place], places < place
        for key, others in islice(by_pick, len(item.picks)):
            covers &= (others < key) | ((others == key) & before)
        covers[place] = False
        if np.count_nonzero(covers) * nodes[place] >= missing:
            dropped.add(item.first_rank)
    return tuple(item for item in items if item.first_rank not in dropped)
