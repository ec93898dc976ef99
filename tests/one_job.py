"""A backend whose changes can be given to one job, as a test or a person gives them."""

from typing import Any

from clearway.model.cluster import Job
from clearway.slurm.base import JobChange, SlurmBackend
from tests.builders import job as any_job


class OneJob:
    """In all else it is the backend. What was not done is raised."""

    def __init__(self, backend: SlurmBackend) -> None:
        object.__setattr__(self, "_backend", backend)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_backend"), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(object.__getattribute__(self, "_backend"), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(object.__getattribute__(self, "_backend"), name)

    def _change(self, change: JobChange, job: Job, signal: str = "") -> None:
        for error in self.change_jobs(change, [job], signal).values():
            raise error

    def requeue(self, job: Job) -> None:
        self._change(JobChange.REQUEUE, job)

    def run_again(self, job: Job) -> None:
        self._change(JobChange.RUN_AGAIN, job)

    def cancel(self, job: Job) -> None:
        self._change(JobChange.CANCEL, job)

    def signal(self, job: Job, signal: str, *, batch_only: bool) -> None:
        self._change(JobChange.SIGNAL_BATCH if batch_only else JobChange.SIGNAL_STEPS, job, signal)

    def suspend(self, job: Job) -> None:
        self._change(JobChange.SUSPEND, job)

    def resume(self, job: Job) -> None:
        self._change(JobChange.RESUME, job)

    def start_now(self, job_id: str) -> None:
        self._change(JobChange.START_NOW, any_job(job_id))

    def give_nice(self, job_id: str, nice: int, instead_of: int) -> None:
        for error in self.set_nice({job_id: (nice, instead_of)}).values():
            raise error
