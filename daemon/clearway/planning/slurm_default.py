"""What Slurm does by itself: lowest priority first, then the job with the fewest nodes, and each is requeued.

Method: Slurm (preempt/qos, preempt/partition_prio) sorts the jobs that it may preempt by the priority of their
QoS or the tier of their partition, then by their number of nodes, both ascending, and lets them go with
PreemptMode=REQUEUE until the urgent job fits. Then it tries to do with fewer jobs: the one with which it fitted
goes first, then the others, most nodes first, and the search begins again; after two such repetitions (its default,
reorder_count=1) what was taken is preempted. It looks at no lost work, remaining time or checkpoint.

Where Slurm has no answer: ties go by job_id; a job that must not be killed leaves by its cheapest option. Which of
the freed nodes the urgent job gets is not decided here; Slurm spares a job that holds none of those.

Source: Slurm's slurm.conf manual, PreemptType and PreemptParameters, and what Slurm 22.05 did (tests/slurm).

Cost: see ``in_order``.
"""

from __future__ import annotations

from collections.abc import Sequence

from clearway.model.plan import Curve
from clearway.model.problem import Action, Candidate, EvictionProblem
from clearway.planning.in_order import Rule
from clearway.planning.windows import Way

REPETITIONS = 2


class SlurmDefault:
    """Requeues the least important and smallest jobs."""

    name = "slurm-default"

    def solve(self, problem: EvictionProblem) -> Curve:
        return Rule(_lowest_and_smallest, prefer=(Action.KILL,), again=REPETITIONS).solve(self.name, problem)


def _lowest_and_smallest(candidate: Candidate, _ways: Sequence[Way]) -> tuple[float, float]:
    return (candidate.preempt_priority, candidate.job_nodes or candidate.nodes)
