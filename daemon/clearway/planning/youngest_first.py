"""Slurm with PreemptParameters=youngest_first: the job that started last is requeued first.

Method: as ``slurm_default`` with its repetitions, and the time since the start as the only key. The youngest job has
computed least, which is also the least lost work when nobody has a checkpoint.

Cost: see ``in_order``.
"""

from __future__ import annotations

from collections.abc import Sequence

from clearway.model.plan import Curve
from clearway.model.problem import Action, Candidate, EvictionProblem
from clearway.planning.in_order import Rule
from clearway.planning.slurm_default import REPETITIONS
from clearway.planning.windows import Way


class YoungestFirst:
    """Requeues the jobs that have run for the shortest time."""

    name = "youngest-first"

    def solve(self, problem: EvictionProblem) -> Curve:
        return Rule(youngest, prefer=(Action.KILL,), again=REPETITIONS).solve(self.name, problem)


def youngest(candidate: Candidate, _ways: Sequence[Way]) -> float:
    return candidate.ran_s
