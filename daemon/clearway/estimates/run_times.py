"""Which runs of jobs have ended, and how long they lasted, as far as two snapshots tell. Pure.

Model: a run is a job id and its start. One that was seen to run and then is seen no more has ended, at the snapshot
that misses it first: up to one cycle late. A job that is still known to Slurm then was requeued or suspended, and one
that is a preemptee was ended by Clearway: neither says how long the program takes. How a run left the queue does not
tell (a cancelled or failed one counts as it lasted), except that its time limit cut it: it lasted that long at least.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from clearway.estimates.learning import application
from clearway.model.claims import read_claims
from clearway.model.cluster import ClusterSnapshot, Job, JobState
from clearway.model.durations import format_duration
from clearway.walltime.remaining import Advice, RunTimes, advice

ENOUGH = 10  # jobs, to advise on


class RunKey(NamedTuple):
    """What run times are kept by; ``app`` as ``learning.application`` names it."""

    user: str
    app: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run that has ended. (job_id, started_at) is unique."""

    job_id: str
    started_at: datetime
    ended_at: datetime
    user: str
    app: str
    nodes: int
    limit_s: float | None  # None: unlimited
    cut: bool  # by its time limit

    @property
    def key(self) -> RunKey:
        return RunKey(self.user, self.app)

    @property
    def run_s(self) -> float:
        return (self.ended_at - self.started_at).total_seconds()


@dataclass(frozen=True, slots=True)
class ObservedRun:
    """A run as it was last seen on its nodes; ``leaving_at``: since when it has been COMPLETING."""

    job: Job
    leaving_at: datetime | None = None


Runs = Mapping[tuple[str, datetime], ObservedRun]


def update_runs(before: Runs, snapshot: ClusterSnapshot, preempted: Collection[str]) -> tuple[Runs, list[RunRecord]]:
    """The runs of this snapshot, to be passed in again with the next one; and those that have ended, by job id."""
    if snapshot.unreadable:
        return before, []  # a job that cannot be read has not ended
    now = _observed(before, snapshot)
    gone = {run: seen for run, seen in before.items() if run not in now and run[0] not in preempted}
    known = {job.job_id for job in snapshot.jobs if job.state is not JobState.ENDED} if gone else set()
    ended = [_record(seen, seen.leaving_at or snapshot.taken_at) for run, seen in gone.items() if run[0] not in known]
    return now, sorted(ended, key=lambda each: each.job_id)


def _observed(before: Runs, snapshot: ClusterSnapshot) -> Runs:
    """The runs of this snapshot; of those that were not seen to run before, none that is on its way out already."""
    now: dict[tuple[str, datetime], ObservedRun] = {}
    for job in snapshot.holders:
        if job.start_time is None:
            continue
        run = (job.job_id, job.start_time)
        if job.state is JobState.RUNNING:
            now[run] = ObservedRun(job)
        elif job.state is JobState.COMPLETING and run in before:
            now[run] = replace(before[run], leaving_at=before[run].leaving_at or snapshot.taken_at)
    return now


def run_key(job: Job) -> RunKey:
    """What this job's run times are kept by."""
    return RunKey(job.user, application(job, read_claims(job)[0] if "clearway:" in job.comment else None))


def times_of(runs: Collection[RunRecord]) -> RunTimes:
    """How long these lasted."""
    return RunTimes(tuple(each.run_s for each in runs if not each.cut), tuple(each.run_s for each in runs if each.cut))


def advice_on(runs: Collection[RunRecord]) -> Advice | None:
    """What these asked for and took; None when there are none."""
    return advice(times_of(runs), [each.limit_s for each in runs if each.limit_s is not None])


def sentence(of: Advice) -> str:
    """The advice as a sentence for the jobs' owner."""
    takes = f"take {format_duration(of.median_s)} (nine in ten at most {format_duration(of.most_s)})"
    if of.jobs < ENOUGH:
        return f"only {of.jobs} known: too few to advise; so far they {takes}"
    if of.asked_s is None:
        return f"jobs of this name ask for no limit and {takes}"
    said = f"jobs of this name ask for {format_duration(of.asked_s)} and {takes}"
    return f"{said}; {of.cut} of {of.jobs} were cut by their time limit" if of.cut else said


def _record(seen: ObservedRun, ended_at: datetime) -> RunRecord:
    job = seen.job
    assert job.start_time is not None  # noqa: S101 - only runs with a start are kept
    lasted_s = (ended_at - job.start_time).total_seconds()
    return RunRecord(
        job_id=job.job_id,
        started_at=job.start_time,
        ended_at=max(ended_at, job.start_time),
        **run_key(job)._asdict(),
        nodes=max(1, job.num_nodes),
        limit_s=job.time_limit_s,
        cut=job.time_limit_s is not None and lasted_s >= job.time_limit_s,
    )
