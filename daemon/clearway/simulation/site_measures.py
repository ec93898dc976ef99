"""What a replay of a site shows, beside what was recorded. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from clearway.simulation.measures import Spread
from clearway.simulation.site_cluster import Outcome
from clearway.simulation.site_replay import SiteReplay


@dataclass(frozen=True, slots=True)
class SiteFigures:
    """Of the jobs that were submitted, or waited, in the time of the replay. ``late``: longer than may be waited."""

    name: str
    urgent_jobs: int
    urgent_wait_s: Spread | None
    late: int
    other_wait_s: Spread | None
    lost_node_h: float | None  # None: the record does not say it
    preempted_jobs: int
    preemptions: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def recorded(replay: SiteReplay) -> SiteFigures:
    """As it was."""
    jobs = [job for job in replay.record.jobs if str(job.job_id) in replay.submitted]
    waits = {str(job.job_id): (job.runs[0].start - job.submit).total_seconds() for job in jobs}
    again = [len(job.runs) - 1 for job in replay.record.jobs]
    return _figures("recorded", waits, replay.urgent, None, again)


def replayed(name: str, replay: SiteReplay) -> SiteFigures:
    waits = {
        job_id: (replay.cluster.first_starts[job_id] - submit).total_seconds()
        for job_id, submit in replay.submitted.items()
        if job_id in replay.cluster.first_starts
    }
    outcomes: Mapping[str, Outcome] = replay.cluster.outcomes
    lost = sum(outcome.lost_node_s for outcome in outcomes.values()) / 3_600
    return _figures(name, waits, replay.urgent, lost, [outcome.preemptions for outcome in outcomes.values()])


def waits(alone: SiteReplay, with_clearway: SiteReplay) -> list[dict[str, Any]]:
    """Of each urgent job: how long it waited, and waits in the replays; None where it does not start."""
    found: list[dict[str, Any]] = []
    for job in with_clearway.record.jobs:
        job_id = str(job.job_id)
        if job_id in with_clearway.urgent:
            starts = (replay.cluster.first_starts.get(job_id) for replay in (alone, with_clearway))
            told = (None if at is None else (at - job.submit).total_seconds() for at in starts)
            recorded_s = (job.runs[0].start - job.submit).total_seconds()
            names = ("recorded_wait_s", "alone_wait_s", "wait_s")
            found.append({"job_id": job_id, **dict(zip(names, (recorded_s, *told), strict=True))})
    return found


def _figures(
    name: str, waits: Mapping[str, float], urgent: Mapping[str, float], lost_node_h: float | None, again: list[int]
) -> SiteFigures:
    theirs = {job_id: waits[job_id] for job_id in urgent if job_id in waits}
    others = [wait_s for job_id, wait_s in waits.items() if job_id not in urgent]
    return SiteFigures(
        name=name,
        urgent_jobs=len(theirs),
        urgent_wait_s=Spread.of(list(theirs.values())) if theirs else None,
        late=sum(wait_s > urgent[job_id] for job_id, wait_s in theirs.items()),
        other_wait_s=Spread.of(others) if others else None,
        lost_node_h=lost_node_h,
        preempted_jobs=sum(count > 0 for count in again),
        preemptions=sum(again),
    )
