"""Which jobs are in the placement of an eviction, or on its nodes, and what follows from that. Pure."""

from collections.abc import Iterator

from clearway.execution.cycle_context import CycleContext
from clearway.execution.job_lifecycle import Command
from clearway.model.cluster import ClusterSnapshot, Job, JobState
from clearway.model.operations import Eviction, Preemption, PreemptionState


def strangers(e: Eviction, snapshot: ClusterSnapshot) -> Iterator[Job]:
    """Slurm admits the preemptor's user to the placement, with every job that asks for it by name."""
    jobs = snapshot.jobs_in.get(e.placement, ()) if e.placement else ()
    return (job for job in jobs if not e.is_for(job) and job.state is not JobState.ENDED)


def tasks_inside(e: Eviction, snapshot: ClusterSnapshot) -> Iterator[Job]:
    """Tasks of an array that run in the placement."""
    if e.preemptor.pending_tasks > 1:
        yield from (
            job for job in snapshot.jobs_in.get(e.placement, ()) if job.state.holds_nodes and is_attached(e, job)
        )


def fewer_tasks(e: Eviction, snapshot: ClusterSnapshot) -> dict[str, str]:
    """What makes another plan necessary where fewer tasks of an array wait than room is made for."""
    seen = snapshot.job_by_id.get(e.preemptor.job_id)
    if seen is None or seen.state is not JobState.PENDING or e.plan.tasks == 1:
        return {}
    left = seen.pending_tasks + sum(1 for _ in tasks_inside(e, snapshot))
    return {seen.job_id: f"only {left} of its tasks are left"} if left < e.plan.tasks else {}


def nodes_free(e: Eviction, snapshot: ClusterSnapshot) -> bool:
    expected = {e.preemptor.job_id, *e.plan.staying, *(job.job_id for job in tasks_inside(e, snapshot))}
    suspended = {p.job_id for p in e.preemptions if p.state is PreemptionState.SUSPENDED}
    jobs = (job for name in e.plan.placement_nodes for job in snapshot.jobs_on.get(name, ()))
    asleep = (job.state is JobState.SUSPENDED and job.job_id in suspended for job in jobs if job.job_id not in expected)
    return all(asleep) and not snapshot.unreadable


def may_resume(e: Eviction, p: Preemption, cycle: CycleContext) -> bool:
    """Whether no other job has, or can get, the processors of a suspended job before it is resumed.

    The snapshot must have seen the preemptor out of the placement, in which it alone could start at any moment. Where
    Slurm refuses us the placement, the snapshot alone has to do.
    """
    snapshot = cycle.snapshot
    ours = cycle.reservation(e.placement)
    covered = ours is not None and set(p.job.nodes) <= set(ours.nodes)
    refused = cycle.refused & {Command.CREATE_PLACEMENT, Command.MOVE_PLACEMENT}
    could_start = any(is_attached(e, job) for job in snapshot.jobs_in.get(e.placement, ()))
    if e.state.before_start or snapshot.unreadable or could_start or p.requeued_at is None or not (covered or refused):
        return False
    # A job that was there before the suspension has other processors: both ran at once. Slurm tells whole seconds: one
    # that started in the second of the suspension may have these very processors.
    before = p.requeued_at.replace(microsecond=0)
    others = (o for name in p.job.nodes for o in snapshot.jobs_on.get(name, ()) if o.job_id != p.job_id)
    return not any(e.is_for(o) or (o.start_time or before) >= before for o in others)


def is_attached(e: Eviction, job: Job | None) -> bool:
    """Whether this is the preemptor, or a task of its array, and could start in the placement, or runs there."""
    return job is not None and e.is_for(job) and job.state is not JobState.ENDED and job.reservation == e.placement
