"""Slurm's own preemption beside Clearway's: who leaves for an urgent job is decided by one of the two. Pure."""

from clearway.model.cluster import ClusterSnapshot, Job, JobState, Node
from clearway.model.plan import Preemptor


def slurm_preempts(preemptor: Preemptor, snapshot: ClusterSnapshot) -> bool:
    """Whether Slurm may start this preemptor by preempting others by itself, as far as the snapshot tells.

    On nodes without other jobs than those that Slurm would take, or where one of them suffices for a part of a node.
    That it could not after all costs a wait; not to see that it could costs a second job.
    """
    if not any(snapshot.preempt_priorities.preempts.values()):
        return False
    able = sum(_would_be_free(node, preemptor.job, snapshot) for node in snapshot.nodes)
    return able >= preemptor.nodes


def _would_be_free(node: Node, waiting: Job, snapshot: ClusterSnapshot) -> bool:
    if not node.available or set(waiting.partitions).isdisjoint(node.partitions) or node.name in waiting.excluded_nodes:
        return False
    priorities = snapshot.preempt_priorities
    jobs = [job for job in snapshot.jobs_on.get(node.name, ()) if job.state is not JobState.COMPLETING]
    taken = [priorities.takes(job, waiting) for job in jobs]
    return all(taken) or (not waiting.exclusive and any(taken))
