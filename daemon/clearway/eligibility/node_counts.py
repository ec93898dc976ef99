"""How many nodes a waiting job takes at least, where it leaves their number open. Pure.

Of ``-n 64`` or ``--gpus=8`` Slurm tells one node as the least. The least that can hold the job follows from what its
nodes have: processors, memory and generic resources of the largest node of its partitions. The job is planned for on
so many nodes, with an even share of its tasks and GPUs on each; Slurm takes any split that fits (measured).

Cost: O(nodes), and for each waiting job the number of unlike nodes in its partitions.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil

from clearway.eligibility.node_usage import amounts_of
from clearway.model.cluster import Job, JobState, Node, Spread, only_gpus
from clearway.model.problem import Amounts


def with_least_nodes(jobs: Iterable[Job], nodes: Sequence[Node]) -> list[Job]:
    """The same jobs; those that wait and cannot have as few nodes as Slurm tells have the number that they can."""
    kinds = node_kinds(nodes)
    return [job_with_least_nodes(job, kinds) for job in jobs]


NodeKinds = Mapping[str, tuple[Amounts, ...]]  # what the unlike nodes of a partition have, by its name


def node_kinds(nodes: Iterable[Node]) -> NodeKinds:
    """The same for the same nodes in any order."""
    alike = {(node.partitions, node.cpus, node.memory_mib, node.gpus): node for node in nodes}
    kinds: dict[str, set[Amounts]] = defaultdict(set)
    for node in alike.values():
        for name in node.partitions:
            kinds[name].add(amounts_of(node))
    return {
        name: tuple(sorted(found, key=lambda has: (has.cores, has.memory_mib, has.gpus)))
        for name, found in kinds.items()
    }


def job_with_least_nodes(job: Job, kinds: NodeKinds) -> Job:
    """See ``with_least_nodes``."""
    if job.state is not JobState.PENDING or job.spread is None:
        return job
    return _spread(job, job.spread, [has for name in job.partitions for has in kinds.get(name, ())])


def _spread(job: Job, spread: Spread, kinds: Sequence[Amounts]) -> Job:
    counts = [count for has in kinds if (count := _least(job, spread, has))]
    nodes = max(job.num_nodes, min(counts, default=0))
    if nodes == job.num_nodes and not (nodes and spread.cpus_per_gpu):
        return job
    return replace(
        job,
        num_nodes=nodes,
        cpus=max(job.cpus, spread.cpus_for_gpus(nodes)),
        memory_mib=_memory_mib(job, spread, nodes, max((has.memory_mib for has in kinds), default=0)),
        gpus=spread.gpus_on_each(nodes),
        even_cpus=spread.cpus_on_each(nodes),
    )


def _memory_mib(job: Job, spread: Spread, nodes: int, most: int) -> int:
    """Memory on each node, of which one has ``most``."""
    if spread.memory_per_gpu_mib and not spread.per_socket:
        return spread.memory_on_each(nodes)
    told = job.memory_mib
    if told > most:  # no node has it, so it is that of all tasks
        told = ceil(told * job.num_nodes / nodes)
    # Slurm 22.05 does not count processors of GPUs, nor the memory that comes with each. Whether it is memory of
    # processors or of nodes is not told.
    cpus = spread.cpus_for_gpus(nodes)
    return told if cpus <= job.cpus else max(told, min(most, ceil(told * cpus / max(job.cpus, 1))))


def _least(job: Job, spread: Spread, has: Amounts) -> int:
    """So many nodes of this kind can hold the job; 0: no number of them can."""
    if any(has.gpus_of(name) < count for name, count in spread.gpus_per_node) or not has.cores:
        return 0
    # What is asked for in all, and what one node has of it.
    needs = [(max(job.cpus, spread.cpus_for_gpus(job.num_nodes)), has.cores)]
    per_node = dict(spread.gpus_per_node)
    needs += [(count, per_node.get(name, has.gpus_of(name))) for name, count in spread.gpus_per_job]
    # With fewer processors than tasks the job overcommits them.
    fit = [has.cores // spread.cpus_per_task] if spread.cpus_per_task and job.cpus >= spread.tasks else []
    fit += [has.gpus_of(name) // count for name, count in spread.gpus_per_task]
    if spread.cpus_per_gpu:
        gpus = has.cores // spread.cpus_per_gpu  # that have their processors
        of_node, of_job, of_task = map(only_gpus, (spread.gpus_per_node, spread.gpus_per_job, spread.gpus_per_task))
        if gpus < max(of_node, of_task, min(of_job, 1)):
            return 0
        needs += [(of_job, gpus)] if of_job else []
        fit += [gpus // of_task] if of_task else []
    needs += [(spread.tasks, min(fit))] if fit else []
    if job.memory_mib > has.memory_mib > 0:
        needs.append((job.memory_mib * job.num_nodes, has.memory_mib))
    return _enough(needs)


def _enough(needs: Iterable[tuple[int, int]]) -> int:
    """Nodes that have all that is asked for, by what one of them has; 0 where one has nothing of something."""
    known = list(needs)
    return max(ceil(asked / has) for asked, has in known) if all(has for _, has in known) else 0
