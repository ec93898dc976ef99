"""What Slurm does by itself: lowest priority first, then the job with the fewest nodes, and each is requeued.

Method: Slurm (preempt/qos, preempt/partition_prio) sorts the jobs that it may preempt by the priority of their
QoS or the tier of their partition, then by their number of nodes, both ascending, and lets them go with
PreemptMode=REQUEUE until the urgent job fits. It looks at no lost work, remaining time or checkpoint, and keeps
jobs in its list that turn out not to be needed.

Where Slurm has no answer: ties go by job_id; a job that must not be killed leaves by its cheapest option.

Cost: see ``in_order``.
"""

from __future__ import annotations

from collections.abc import Sequence

from clearway.model import Action, Candidate, Curve, EvictionProblem
from clearway.planning.in_order import Rule
from clearway.planning.windows import Way


class SlurmDefault:
    """Requeues the least important and smallest jobs."""

    name = "slurm-default"

    def solve(self, problem: EvictionProblem) -> Curve:
        return Rule(_lowest_and_smallest, prefer=(Action.KILL,)).solve(self.name, problem)


def _lowest_and_smallest(candidate: Candidate, _ways: Sequence[Way]) -> tuple[float, float]:
    return (candidate.priority, candidate.job_nodes or candidate.nodes)
