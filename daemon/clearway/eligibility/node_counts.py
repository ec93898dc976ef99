"""How many nodes a waiting job takes at least, where it leaves their number open. Pure.

Of ``-n 64`` or ``--gpus=8`` Slurm tells one node as the least. The least that can hold the job follows from what its
nodes have: processors, memory and generic resources of the largest node of its partitions. The job is planned for on
so many nodes, with an even share of its tasks and GPUs on each; Slurm takes any split that fits (measured).

Cost: O(nodes), and for each waiting job the number of unlike nodes in its partitions.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil

from clearway.eligibility.node_usage import amounts_of
from clearway.model.cluster import Job, JobState, Node, Spread
from clearway.model.problem import Amounts


def with_least_nodes(jobs: Iterable[Job], nodes: Sequence[Node]) -> list[Job]:
    """The same jobs; those that wait and cannot have as few nodes as Slurm tells have the number that they can."""
    kinds: dict[str, set[Amounts]] = defaultdict(set)  # of nodes, by partition
    for node in nodes:
        for name in node.partitions:
            kinds[name].add(amounts_of(node))
    return [
        job
        if job.state is not JobState.PENDING or job.spread is None
        else _spread(job, job.spread, [has for name in job.partitions for has in kinds.get(name, ())])
        for job in jobs
    ]


def _spread(job: Job, spread: Spread, kinds: Sequence[Amounts]) -> Job:
    counts = [count for has in kinds if (count := _least(job, spread, has))]
    nodes = max(job.num_nodes, min(counts, default=0))
    if nodes == job.num_nodes:
        return job
    # Memory of each node cannot be more than a node has: else it is that of all tasks, or of all GPUs.
    memory_mib = job.memory_mib
    if memory_mib > max(has.memory_mib for has in kinds):
        memory_mib = ceil(memory_mib * job.num_nodes / nodes)
    return replace(
        job,
        num_nodes=nodes,
        memory_mib=memory_mib,
        gpus=spread.gpus_on_each(nodes),
        even_cpus=spread.cpus_on_each(nodes),
    )


def _least(job: Job, spread: Spread, has: Amounts) -> int:
    """So many nodes of this kind can hold the job; 0: no number of them can."""
    if any(has.gpus_of(name) < count for name, count in spread.gpus_per_node) or not has.cores:
        return 0
    found = ceil(job.cpus / has.cores)
    per_node = dict(spread.gpus_per_node)
    for name, count in spread.gpus_per_job:
        most = per_node.get(name, has.gpus_of(name))
        if not most:
            return 0
        found = max(found, ceil(count / most))
    # With fewer processors than tasks the job overcommits them.
    fit = [has.cores // spread.cpus_per_task] if spread.cpus_per_task and job.cpus >= spread.tasks else []
    fit += [has.gpus_of(name) // count for name, count in spread.gpus_per_task]
    if fit:
        if not min(fit):
            return 0
        found = max(found, ceil(spread.tasks / min(fit)))
    if job.memory_mib > has.memory_mib and has.memory_mib:
        found = max(found, ceil(job.memory_mib * job.num_nodes / has.memory_mib))
    return found
