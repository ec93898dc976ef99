"""Jobs that Clearway plans for no more: an operator cancelled their eviction, or it failed. Slurm starts them."""

from collections.abc import Mapping

from clearway.model.cluster import ClusterSnapshot, Job
from clearway.model.operations import Eviction
from clearway.store.base import Store

SUPPRESSED = "left_alone"  # the name of the stored value, as earlier versions wrote it


class Suppression:
    """The suppressed runs of jobs, each with the eviction that ended so; every change is stored at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, int] = {}

    def refresh(self, stored: Mapping[str, int] | None) -> None:
        """Go by what is stored, under ``SUPPRESSED``."""
        self._known = dict(stored or {})

    def suppress(self, eviction: Eviction) -> None:
        """Do not plan again for this run of its preemptor."""
        self._keep(self._known | {_run_key(eviction.preemptor): eviction.eviction_id})

    def reason(self, job: Job) -> str | None:
        """Why this job is not planned for, in words; None when it may be."""
        number = self._known.get(_run_key(job))
        return None if number is None else f"left to Slurm: see eviction {number}"

    def forget_ended(self, snapshot: ClusterSnapshot) -> None:
        """Drop the runs that Slurm no longer has."""
        there = {_run_key(job) for job in snapshot.jobs}
        if not self._known.keys() <= there:
            self._keep({key: number for key, number in self._known.items() if key in there})

    def _keep(self, known: dict[str, int]) -> None:
        self._store.set_value(SUPPRESSED, known)
        self._known = known


def _run_key(job: Job) -> str:
    return f"{job.job_id}/{job.restart_count}"
