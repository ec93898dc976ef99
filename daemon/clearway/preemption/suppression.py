"""Jobs that Clearway plans for no more: somebody decided against it, or it did not help. They are left to Slurm."""

from __future__ import annotations

from collections.abc import Mapping

from clearway.model.cluster import ClusterSnapshot, Job
from clearway.model.operations import Eviction
from clearway.store.base import Store

LEFT_ALONE = "left_alone"


def leave_alone(store: Store, eviction: Eviction) -> None:
    """Do not plan again for this run of its preemptor."""
    known = store.get_value(LEFT_ALONE) or {}
    known[_run_key(eviction.preemptor.job_id, eviction.preemptor.restart_count)] = eviction.eviction_id
    store.set_value(LEFT_ALONE, known)


def left_alone(store: Store) -> Mapping[str, int]:
    """The evictions that ended so, for ``why_left_alone``."""
    return store.get_value(LEFT_ALONE) or {}


def why_left_alone(job: Job, known: Mapping[str, int]) -> str | None:
    """Why this job is not planned for, in words, or None when it may be."""
    number = known.get(_run_key(job.job_id, job.restart_count))
    return None if number is None else f"left to Slurm: see eviction {number}"


def forget_ended(store: Store, snapshot: ClusterSnapshot) -> None:
    """Keep what is known of jobs that Slurm still has."""
    known = store.get_value(LEFT_ALONE) or {}
    there = {_run_key(job.job_id, job.restart_count) for job in snapshot.jobs}
    store.set_value(LEFT_ALONE, {key: value for key, value in known.items() if key in there})


def _run_key(job_id: str, restart_count: int) -> str:
    return f"{job_id}/{restart_count}"
