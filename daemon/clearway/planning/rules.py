"""The rules of today's schedulers and of a paper, as one table: which job goes first, and how it goes.

A row holds the key by which jobs are sorted (the least goes first, ties by job_id), the actions that the rule prefers,
and whether it spares jobs that turn out not to be needed. A job that offers none of the preferred actions leaves by its
cheapest option that fits into the deadline; see ``priority_rule``.

slurm-default: what Slurm does by itself (preempt/qos, preempt/partition_prio). The jobs of the lowest priority (of
their QoS or partition) go first, of these the smallest, and each is requeued. Then Slurm tries to do with fewer jobs:
the job with which the urgent job fitted goes first, then the others, most nodes first. After two such repetitions
(reorder_count=1) the jobs that were taken are preempted. Slurm spares a job that holds none of the nodes that the
urgent job gets; which these are is not decided here. Source: Slurm's slurm.conf manual, PreemptType and
PreemptParameters, and what Slurm 22.05 did (tests/slurm).

youngest-first: Slurm with PreemptParameters=youngest_first. The time since the start is the only key.

youngest-prune: what OpenPBS does (preempt_sort = min_time_since_start). The youngest go first until the urgent job
fits, and a backward pass spares those without which it fits as well. A job is suspended, else checkpointed, else
requeued: the default of its preempt_order, SCR.

loss-per-node-prune: the density rule for knapsack problems. The jobs go first whose cheapest option in time loses least
per node, then takes least time per node; a backward pass spares what is not needed. No scheduler does this: it is the
strongest simple rule, which an exact planner must be compared with.

ujfb: the UJFB paper's choice (section IV-B, ``selectJobs`` of its Algorithm 1). The job with the longest remaining run
time (of its time limit; a job without one goes first) is suspended first; nothing is pruned. The backfilling before any
preemption is the scheduler's: a planner is asked only when no nodes are free.
"""

from collections.abc import Sequence
from functools import partial
from math import inf

from clearway.model.problem import Action, Candidate
from clearway.planning.formulation.windows import Way
from clearway.planning.priority_rule import Rule, by_cost

_REPETITIONS = 2  # of Slurm's search
_PBS_ORDER = (Action.SUSPEND, Action.SYS_CHECKPOINT, Action.APP_CHECKPOINT, Action.KILL)


def _lowest_and_smallest(candidate: Candidate, _ways: Sequence[Way]) -> tuple[float, float]:
    return (candidate.preempt_priority, candidate.job_nodes or candidate.nodes)


def _youngest(candidate: Candidate, _ways: Sequence[Way]) -> float:
    return candidate.ran_s


def _loss_per_node(candidate: Candidate, ways: Sequence[Way]) -> tuple[float, float]:
    cheapest = min(ways, key=by_cost)
    nodes = max(1, candidate.nodes)
    return (cheapest.lost / nodes, cheapest.steps / nodes)


def _longest_left(candidate: Candidate, _ways: Sequence[Way]) -> float:
    return -inf if candidate.remaining_s is None else -candidate.remaining_s


SLURM_DEFAULT = Rule("slurm-default", _lowest_and_smallest, prefer=(Action.KILL,), again=_REPETITIONS)
YOUNGEST_FIRST = Rule("youngest-first", _youngest, prefer=(Action.KILL,), again=_REPETITIONS)
YOUNGEST_PRUNE = Rule("youngest-prune", _youngest, prefer=_PBS_ORDER, prune=True)
LOSS_PER_NODE_PRUNE = Rule("loss-per-node-prune", _loss_per_node, prune=True)
UJFB = Rule("ujfb", _longest_left, prefer=(Action.SUSPEND,))

RULES = {rule.name: rule for rule in (SLURM_DEFAULT, YOUNGEST_FIRST, YOUNGEST_PRUNE, LOSS_PER_NODE_PRUNE, UJFB)}

# What the entry points name: called, each returns its rule.
slurm_default = partial(RULES.__getitem__, "slurm-default")
youngest_first = partial(RULES.__getitem__, "youngest-first")
youngest_prune = partial(RULES.__getitem__, "youngest-prune")
loss_per_node_prune = partial(RULES.__getitem__, "loss-per-node-prune")
ujfb = partial(RULES.__getitem__, "ujfb")
