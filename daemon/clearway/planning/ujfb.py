"""The UJFB paper's choice: the job with the longest remaining run time is suspended first.

Method (section IV-B of the paper, ``selectJobs`` of its Algorithm 1): running jobs are sorted by remaining run
time, the longest first, and suspended until the urgent job fits. Nothing is pruned.

Where the paper is silent: ties go by job_id; the remaining run time is that of the time limit, and a job without
one goes first; a job that cannot be suspended in time leaves by its cheapest option that fits. The rest of UJFB,
the backfilling before any preemption, is the scheduler's: a planner is asked only when no nodes are free.

Cost: see ``in_order``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from clearway.model.plan import Curve
from clearway.model.problem import Action, Candidate, EvictionProblem
from clearway.planning.in_order import Rule
from clearway.planning.windows import Way


class Ujfb:
    """Suspends the jobs that have longest to run."""

    name = "ujfb"

    def solve(self, problem: EvictionProblem) -> Curve:
        return Rule(_longest_left, prefer=(Action.SUSPEND,)).solve(self.name, problem)


def _longest_left(candidate: Candidate, _ways: Sequence[Way]) -> float:
    return -inf if candidate.remaining_s is None else -candidate.remaining_s
