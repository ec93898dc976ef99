"""Leaves out jobs that no optimal plan needs, before the tables or the bounds are computed.

Model: job A covers job B when it frees at least as many nodes, and for each way of B has a way that loses no more work
and takes no longer, is better in one of the two or comes first in job_id. In any plan with B and without A, A could
take B's place and improve it. Once the jobs that cover B free all the missing nodes, a plan with them needs no B. So B
is superfluous when the jobs that cover it free the missing nodes: of ten thousand small jobs some hundreds are left
when few nodes are needed. Which jobs cover B does not depend on which others are left out, so that it is enough to look
at those that were kept.

A job that waits, or ends by itself, is not there at every deadline: it covers no job, but may be covered.

Cost: O(N K) comparisons in numpy for K jobs that are kept, in blocks; not worth it below ``FEWEST_ITEMS`` items. Of
``MANY_JOBS`` or more, those that are superfluous are left out of the problem itself, which is cheaper than to make
items of them first.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from clearway.model.problem import Action, EvictionProblem
from clearway.planning.formulation.lost_units import Losses
from clearway.planning.formulation.node_groups import Item

FEWEST_ITEMS = 64
MANY_JOBS = 512
_BLOCK = 256  # jobs that are compared at once
_MOST_COMPARED = 50_000_000  # pairs of jobs; less than a second of work
_NEVER = 2**31 - 2
_LARGEST = 2**62

_Ints = npt.NDArray[np.int64]
_Ranks = npt.NDArray[np.int32]


def without_superfluous_jobs(problem: EvictionProblem, losses: Losses) -> EvictionProblem:
    """The problem without the jobs that no optimal plan needs, where there are many and none of them share nodes.

    Jobs that wait or end by themselves stay. ``losses`` are those of all its jobs: only by them are both problems'
    costs the same numbers. A problem that contradicts itself is returned as it is.
    """
    candidates, missing = problem.candidates, problem.nodes_needed
    if len(candidates) < MANY_JOBS or problem.needs is not None or missing <= 0 or problem.step_s <= 0:
        return problem
    names = {name for candidate in candidates for name in candidate.node_names}
    nodes = np.array([candidate.nodes for candidate in candidates])
    if len(names) < sum([len(candidate.node_names) for candidate in candidates]) or nodes.min() < 0:
        return problem
    if len({candidate.job_id for candidate in candidates}) < len(candidates):
        return problem
    candidates = tuple(sorted(candidates, key=attrgetter("job_id")))
    options = [option for candidate in candidates for option in candidate.options]
    checkpoint_s = np.array([option.checkpoint_s for option in options])
    if not (np.isfinite(checkpoint_s).all() and (checkpoint_s >= 0).all()):
        return problem
    lost = losses.of(options)
    if not lost or max(lost) > _LARGEST:
        return problem
    waiting = [any(o.ready_s or o.action is Action.END for o in candidate.options) for candidate in candidates]
    always = np.flatnonzero(~np.array(waiting))
    numbers = np.array([len(candidate.options) for candidate in candidates])
    in_time = -np.floor_divide(-checkpoint_s, problem.step_s)
    in_time[in_time > problem.last_step] = _NEVER
    steps, keys = _table(numbers, in_time.astype(np.int64), np.array(lost, np.int64))
    nodes = np.minimum([candidate.nodes for candidate in candidates], missing)
    left = always[_left(steps[:, always], keys[:, always], nodes[always], nodes[always], missing)]
    kept = np.array(waiting)
    kept[left] = True
    return replace(problem, candidates=tuple([candidates[place] for place in np.flatnonzero(kept).tolist()]))


def without_superfluous(items: Sequence[Item], missing: int, sometimes: Collection[int] = ()) -> list[Item]:
    """The items that an optimal plan for this many missing nodes, or fewer, may need.

    ``sometimes``: ranks of the jobs that are not there at every deadline in each of their ways.
    """
    if len(items) < max(1, FEWEST_ITEMS) or missing <= 0:
        return list(items)
    picks = [pick for item in items for pick in item.picks]
    if max(pick.lost for pick in picks) > _LARGEST:
        return list(items)
    numbers = np.array([len(item.picks) for item in items])
    ways = _table(numbers, np.array([pick.steps for pick in picks]), np.array([pick.lost for pick in picks]))
    nodes = np.array([min(item.nodes, missing) for item in items])
    covering = ~np.isin([item.rank for item in items], list(sometimes))
    left = _left(*ways, nodes, np.where(covering, nodes, 0), missing)
    return [items[place] for place in sorted(left.tolist())]


def _table(numbers: _Ints, steps: _Ints, lost: _Ints) -> tuple[_Ranks, _Ranks]:
    """Steps, and the rank of lost work with steps, by way and job, of jobs with so many ways each.

    ``_NEVER`` stands where a job has fewer ways, and for those that take so long.
    """
    owners = np.repeat(np.arange(len(numbers)), numbers)
    row = np.arange(len(owners)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    by_lost = np.lexsort((steps, lost))
    larger = (np.diff(lost[by_lost]) > 0) | (np.diff(steps[by_lost]) > 0)
    ranks = np.empty(len(lost), np.int32)
    ranks[by_lost] = np.concatenate(([0], np.cumsum(larger)))
    ranks[steps >= _NEVER] = _NEVER
    table = np.full((2, int(numbers.max(initial=0)), len(numbers)), _NEVER, np.int32)
    table[:, row, owners] = np.minimum(steps, _NEVER), ranks
    return table[0], table[1]


def _left(steps: _Ranks, keys: _Ranks, nodes: _Ints, covers: _Ints, missing: int) -> _Ints:
    """The jobs that others do not cover so often that these free all that is missing; ``covers``: nodes that count."""

    def uncovered(some: _Ints, others: _Ints) -> _Ints:
        better = nodes[others][None] >= nodes[some][:, None]
        first = others[None] < some[:, None]
        for pick_steps, pick_keys in zip(steps[:, some], keys[:, some], strict=True):
            found = (pick_keys == _NEVER)[:, None]
            for other_steps, other_keys in zip(steps[:, others], keys[:, others], strict=True):
                # at most, or less, as job_id decides
                found = found | (
                    (other_steps[None] <= pick_steps[:, None]) & (other_keys[None] < pick_keys[:, None] + first)
                )
            better &= found
        return some[better @ covers[others] < missing]

    # Those that cover many others come first.
    left = np.lexsort((keys[steps.argmin(axis=0), np.arange(len(nodes))], keys.min(axis=0)))
    kept = left[:0]
    compared = 0
    while len(left):
        block, left = left[:_BLOCK], left[_BLOCK:]
        compared += len(block) * (len(kept) + len(block))
        if compared > _MOST_COMPARED:
            return np.concatenate((kept, block, left))
        kept = np.concatenate((kept, uncovered(block, np.concatenate((kept[covers[kept] > 0], block)))))
        if len(kept) <= _BLOCK:  # they cover most of the others, which need not be compared with each other then
            compared += len(left) * len(kept)
            left = uncovered(left, kept[covers[kept] > 0])
    return kept
