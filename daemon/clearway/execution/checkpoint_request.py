"""Asks a running job to save itself."""

from clearway.model.claims import CheckpointHow, saves
from clearway.model.cluster import Job
from clearway.model.errors import JobNotRunningError
from clearway.slurm.base import SlurmBackend


def ask_to_save(backend: SlurmBackend, job: Job) -> None:
    """As the job says now how it is asked: a signal that it does not wait for (any more) would end it.

    Raises:
        SlurmError: Slurm refuses, does not answer, or the job is not in this run or does not wait for a signal.
    """
    seen = backend.job(job.job_id)
    claims = saves(seen) if seen is not None and seen.run == job.run else None
    if claims is None or claims.checkpoint is not CheckpointHow.SIGNAL:
        raise JobNotRunningError(f"job {job.job_id} does not say any more that a signal has it save itself")
    backend.signal(job, claims.signal, batch_only=claims.to == "batch")
