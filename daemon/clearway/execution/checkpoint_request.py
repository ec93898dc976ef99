"""Asks running jobs to save themselves."""

from collections.abc import Sequence

from clearway.model.claims import CheckpointHow, saves
from clearway.model.cluster import Job
from clearway.model.errors import JobNotRunningError
from clearway.slurm.base import Failures, JobChange, SlurmBackend
from clearway.slurm.job_changes import not_asked


def ask_to_save(backend: SlurmBackend, jobs: Sequence[Job]) -> Failures:
    """As each job says now how it is asked: a signal that it does not wait for (any more) would end it.

    Returns:
        By job_id, why it was not asked: Slurm refuses, does not answer, or the job is not in this run or does not
        wait for a signal.
    """
    seen, unseen = backend.look_at([job.job_id for job in jobs])
    failures = not_asked(unseen)
    alike: dict[tuple[JobChange, str], list[Job]] = {}
    for job in jobs:
        if job.job_id in failures:
            continue
        now = seen.get(job.job_id)
        claims = saves(now) if now is not None and now.run == job.run else None
        if claims is None or claims.checkpoint is not CheckpointHow.SIGNAL:
            why = f"job {job.job_id} does not say any more that a signal has it save itself"
            failures[job.job_id] = JobNotRunningError(why)
        else:
            change = JobChange.SIGNAL_BATCH if claims.to == "batch" else JobChange.SIGNAL_STEPS
            alike.setdefault((change, claims.signal), []).append(job)
    for (change, signal), some in alike.items():
        failures.update(backend.change_jobs(change, some, signal))
    return failures
