"""Leaves out jobs that no optimal plan needs, before the tables or the bounds are computed.

Model: job A covers job B when it frees at least as many nodes, and for each way of B has a way that loses no more work
and takes no longer, is better in one of the two or comes first in job_id. In any plan with B and without A, A could
take B's place and improve it. Once the jobs that cover B free all the missing nodes, a plan with them needs no B. So B
is superfluous when the jobs that cover it free the missing nodes: of ten thousand small jobs some hundreds are left
when few nodes are needed. Which jobs cover B does not depend on which others are left out, so that it is enough to look
at those that were kept.

A job that waits, or ends by itself, is not there at every deadline: it covers no job, but may be covered.

Cost: O(N K) comparisons in numpy for K jobs that are kept, in blocks; not worth it below ``FEWEST_ITEMS`` items. Groups
are left as they are.
"""

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from clearway.planning.formulation.node_groups import Item

FEWEST_ITEMS = 64
_BLOCK = 256  # jobs that are compared at once
_MOST_COMPARED = 50_000_000  # pairs of jobs; about a second of work
_LARGEST_KEY = 2**62
_NEVER = 2**63 - 2

_Ints = npt.NDArray[np.int64]


def without_superfluous(items: Sequence[Item], missing: int, sometimes: Collection[int] = ()) -> list[Item]:
    """The items that an optimal plan for this many missing nodes, or fewer, may need.

    ``sometimes``: ranks of the jobs that are not there at every deadline in each of their ways.
    """
    single = [place for place, item in enumerate(items) if item.single] if len(items) >= FEWEST_ITEMS else []
    if len(single) < max(1, FEWEST_ITEMS) or missing <= 0:
        return list(items)
    picks = [pick for place in single for pick in items[place].picks]
    base = 1 + max(pick.steps for pick in picks)
    if (1 + max(pick.lost for pick in picks)) * base > _LARGEST_KEY:
        return list(items)
    numbers = np.array([len(items[place].picks) for place in single])
    owners = np.repeat(np.arange(len(single)), numbers)
    row = np.arange(len(picks)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    steps, keys = np.full((2, int(numbers.max()), len(single)), _NEVER)  # by pick and job; _NEVER where it has fewer
    steps[row, owners] = [pick.steps for pick in picks]
    keys[row, owners] = [pick.lost * base + pick.steps for pick in picks]
    nodes = np.array([min(items[place].nodes, missing) for place in single])
    covering = ~np.isin([items[place].first_rank for place in single], list(sometimes))
    left = _left(steps, keys, nodes, np.where(covering, nodes, 0), missing)
    dropped = set(single).difference(np.array(single)[left].tolist())
    return [item for place, item in enumerate(items) if place not in dropped]


def _left(steps: _Ints, keys: _Ints, nodes: _Ints, covers: _Ints, missing: int) -> _Ints:
    """The jobs that others do not cover so often that these free all that is missing; ``covers``: nodes that count."""
    # Those that cover many others come first.
    order = np.lexsort((keys[steps.argmin(axis=0), np.arange(len(nodes))], keys.min(axis=0)))
    kept = order[:0]
    compared = 0
    for start in range(0, len(order), _BLOCK):
        block = order[start : start + _BLOCK]
        compared += len(block) * (len(kept) + len(block))
        if compared > _MOST_COMPARED:
            return np.concatenate((kept, order[start:]))
        others = np.concatenate((kept[covers[kept] > 0], block))
        better = nodes[others][None] >= nodes[block][:, None]
        first = others[None] < block[:, None]
        for pick_steps, pick_keys in zip(steps[:, block], keys[:, block], strict=True):
            found = (pick_keys == _NEVER)[:, None]
            for other_steps, other_keys in zip(steps[:, others], keys[:, others], strict=True):
                # at most, or less, as job_id decides
                found = found | (
                    (other_steps[None] <= pick_steps[:, None]) & (other_keys[None] < pick_keys[:, None] + first)
                )
            better &= found
        kept = np.concatenate((kept, block[better @ covers[others] < missing]))
    return kept
