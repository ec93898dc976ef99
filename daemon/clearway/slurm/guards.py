"""What every real backend checks just before it changes something. Pure."""

import re

from clearway.model.cluster import Job, JobState
from clearway.model.errors import JobNotRunningError, SlurmRefusedError

LEAVING = (JobState.PENDING, JobState.COMPLETING)
ON_NODES = (JobState.RUNNING, JobState.SUSPENDED, JobState.CONFIGURING)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@-]*", re.ASCII)


def require_run(current: Job, decided: Job, *states: JobState) -> None:
    """Raise unless the job is in one of these states and still in the run that a decision was made for."""
    if current.state not in states:
        raise JobNotRunningError(f"job {current.job_id} is {current.raw_state}")
    if current.run != decided.run:
        raise JobNotRunningError(
            f"job {current.job_id} is in another run: restart {current.restart_count}, started {current.start_time}"
        )


def checked(name: str) -> str:
    """A name that goes into a list of names, where a comma or a bracket would make it several."""
    if not _NAME.fullmatch(name):
        raise SlurmRefusedError(f"{name[:80]!r} is not a name that Slurm takes")
    return name
