"""Of jobs that are alike in what they free and cost, the first: no optimal plan needs more of them than fit into it.

Model: jobs are alike in the picks that are left of them: each frees as many nodes, loses as much work and takes as
many steps as one of the other's. In a plan with the later job and without the earlier one, the earlier one could take
its place, and comes first in job_id. Once such jobs free all nodes that are missing, one more of them is needless; and
where each of them takes some steps, only so many have time. So the first ones stay. Bounds alone cannot tell: they
leave out what is strictly worse.

Cost: O(N log N) in numpy.
"""

import numpy as np

from clearway.planning.bounds.relaxation import Flags, Ints, Relaxation
from clearway.planning.formulation.windows import Window


def first_alike(relaxation: Relaxation, picks: Flags, part: Window) -> Ints:
    """The jobs with any of these picks, in their order, without those that other ones make needless."""
    alive = np.flatnonzero(picks)
    if not len(alive) or part.missing <= 0:
        return alive[:0]
    jobs, firsts, numbers = np.unique(relaxation.owners[alive], return_index=True, return_counts=True)
    kinds, code = relaxation.kinds[alive], numbers
    for place in range(int(numbers.max())):
        kind = kinds[firsts + np.minimum(place, numbers - 1)]
        code = np.unique(code * (len(relaxation.kinds) + 1) + kind, return_inverse=True)[1]
    quickest = np.minimum.reduceat(relaxation.steps[alive], firsts)
    most = -(-part.missing // relaxation.nodes[jobs])
    most = np.where(quickest > 0, np.minimum(most, part.last_step // np.maximum(quickest, 1)), most)
    order = np.argsort(code, kind="stable")
    new = np.flatnonzero(np.diff(code[order], prepend=-1))
    before: Ints = np.arange(len(jobs)) - np.repeat(new, np.diff(np.append(new, len(jobs))))
    return jobs[np.sort(order[before < most[order]])]
