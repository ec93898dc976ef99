"""A recorded day of a real cluster, case by case: what happened to each urgent job, and what a replay foretells.

Each case is replayed from the moment when its job was submitted (or the first of those that waited then), with all
jobs where they were. What happened is told by sacct alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any

from clearway.config.configuration import Config, parse_config
from clearway.model.cluster import Reservation
from clearway.model.operations import Eviction
from clearway_lab.site.daemon import is_urgent, past_of, replay_daemon
from clearway_lab.site.files import RESERVATIONS, Site, read_folder, read_reservations, read_site
from clearway_lab.site.record import RecordedJob, Run, SiteRecord
from clearway_lab.site.replay import SiteReplay


@dataclass(frozen=True, slots=True)
class Day:
    """``folder``: what ``clearway lab simulate --save`` has kept of it."""

    folder: Path
    delay_s: int  # that most urgent jobs might wait
    exit_s: float  # from the requeue of a job to its empty nodes: the median, which the daemon knew


HERE = Path(__file__).parent
FIRST = Day(HERE / "recorded_day", 90, 2.16)  # on this one faults of the replay were found and mended
SECOND = Day(HERE / "another_day", 90, 2.16)  # on this one as well, later
THIRD = Day(HERE / "slower_day", 150, 2.22)  # lived after that; nothing was mended on it
PACE = 'mode = "automatic"\npoll_interval = 1\nactive_interval = 0.5\n'
NEAR = 0.1
NINE_OF_TEN = 0.9
FLOOR_S = 2.0  # one second of the daemon's poll, and one of Slurm's times, which are whole seconds


def rules(delay_s: int) -> str:
    """Of the daemon of these days; ``delay_s``: how long most urgent jobs may wait."""
    return f"""\
[[preemptors]]
name = "urgent"
partition = ["urgent"]
max_delay = {delay_s}
[candidates]
min_runtime = 20
[costs]
checkpoint_overhead = 2
[execution]
kill_allowance = 6
concurrent_checkpoints = 8
[budget]
user_evictions_per_hour = 1000
user_jobs_per_hour = 1000
"""


@dataclass(frozen=True, slots=True)
class Told:
    """Of one case, as it happened or as foretold. ``nodes``: of the jobs that were preempted for it."""

    wait_s: float
    lost_node_s: float
    nodes: int
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DayCase:
    job_id: str
    happened: Told
    foretold: Told

    @property
    def wait_is_near(self) -> bool:
        real_s = self.happened.wait_s
        return abs(self.foretold.wait_s - real_s) <= max(FLOOR_S, NEAR * real_s)

    @property
    def loss_is_near(self) -> bool:
        """The floor is the same as that of times, on each node that had to be left."""
        real = self.happened.lost_node_s
        nodes = max(self.happened.nodes, self.foretold.nodes)
        return abs(self.foretold.lost_node_s - real) <= max(FLOOR_S * nodes, NEAR * real)


@dataclass(frozen=True, slots=True)
class Means:
    wait_s: float
    lost_node_s: float


def happened(cases: Sequence[DayCase]) -> Means:
    return Means(fmean(c.happened.wait_s for c in cases), fmean(c.happened.lost_node_s for c in cases))


def foretold(cases: Sequence[DayCase]) -> Means:
    return Means(fmean(c.foretold.wait_s for c in cases), fmean(c.foretold.lost_node_s for c in cases))


def check(
    cases: Sequence[DayCase],
    *,
    waits: float = NEAR,
    losses: float = NEAR,
    right_waits: float = NINE_OF_TEN,
    right_losses: float = NINE_OF_TEN,
) -> None:
    """How far the means may be from what happened, and which share of the cases must be right."""
    real, told = happened(cases), foretold(cases)
    assert abs(told.wait_s - real.wait_s) <= waits * real.wait_s, (real, told)
    assert abs(told.lost_node_s - real.lost_node_s) <= losses * real.lost_node_s, (real, told)
    assert sum(case.wait_is_near for case in cases) >= right_waits * len(cases), cases
    assert sum(case.loss_is_near for case in cases) >= right_losses * len(cases), cases


@cache
def recorded_cases(day: Day) -> tuple[DayCase, ...]:
    # The daemons that lived these days rounded durations up to a sixtieth of the delay, without a margin.
    lived = "[planning]\nsteps = 60\n[learning]\nmargin = 0\n"
    config = parse_config(f"[daemon]\n{PACE}{rules(day.delay_s)}{lived}", "the recorded day")
    return tuple(day_cases(day.folder, config, day.exit_s))


def cases_by_default(day: Day) -> tuple[DayCase, ...]:
    """As a daemon of today would live the day, which plans to the second and with a margin."""
    config = parse_config(f"[daemon]\n{PACE}{rules(day.delay_s)}", "the recorded day")
    return tuple(day_cases(day.folder, config, day.exit_s))


class _StartedError(Exception):
    """The case is decided."""


def day_cases(folder: Path, config: Config, exit_s: float) -> list[DayCase]:
    """Of a day that ``clearway lab simulate --save`` has kept in this folder."""
    answers = read_folder(folder)
    site, urgent = read_site(answers, "day"), partial(is_urgent, config)
    site = replace(site, record=site.record.knowing(urgent))
    placements = read_reservations(answers[RESERVATIONS].replace("clearway_", "placement_"))
    real = as_recorded(site.record, urgent, placements)
    return [DayCase(job_id, told, _replayed(site, job_id, config, exit_s)) for job_id, told in real.items()]


def as_recorded(
    record: SiteRecord, urgent: Callable[[RecordedJob], bool], placements: Sequence[Reservation]
) -> Mapping[str, Told]:
    """A run that was requeued on a node of Clearway's reservation made room for the job that this was for.

    A reservation is for the urgent job that waited when it was made, and started last before it ended.
    """
    comers = sorted(filter(urgent, record.jobs), key=lambda job: (job.submit, job.job_id))
    left: dict[int, dict[tuple[int, datetime], Run]] = {job.job_id: {} for job in comers}
    for placement in placements:
        begins, ends = placement.start_time, placement.end_time
        served = [job for job in comers if job.submit <= begins <= job.runs[0].start <= ends]
        if not served:
            continue
        comer = max(served, key=lambda job: job.runs[0].start)
        for job in record.jobs:
            for run in job.runs:
                room = run.requeued and run.end is not None and begins <= run.end <= ends
                if room and set(run.nodes) & set(placement.nodes):
                    left[comer.job_id][job.job_id, run.start] = run
    return {
        str(comer.job_id): Told(
            wait_s=(comer.runs[0].start - comer.submit).total_seconds(),
            lost_node_s=sum(_lost_node_s(run) for run in left[comer.job_id].values()),
            nodes=sum(len(run.nodes) for run in left[comer.job_id].values()),
            jobs=tuple(str(job_id) for job_id, _ in sorted(left[comer.job_id])),
        )
        for comer in comers
    }


def _lost_node_s(run: Run) -> float:
    """From its last checkpoint, or its start, until it was requeued; its nodes are empty a moment later."""
    assert run.end is not None
    told = run.claims
    since: datetime = run.start if told is None or told.last is None or told.last < run.start else told.last
    return len(run.nodes) * max(0.0, (run.end - since).total_seconds())


def _replayed(site: Site, job_id: str, config: Config, exit_s: float) -> Told:
    record = site.record.as_of(int(job_id), partial(is_urgent, config))
    replay = SiteReplay(record, site.nodes, config, site.tiers, exit_s)
    starts = replay.cluster.first_starts

    def look(_: Any) -> None:
        if job_id in starts:
            raise _StartedError

    with replay_daemon(replay, config, past_of(record)) as daemon:
        with suppress(_StartedError):
            replay.run(daemon.cycle, look)
        gone = [
            p
            for e in daemon.store.evictions()
            if isinstance(e, Eviction) and e.preemptor.job_id == job_id
            for p in e.preemptions
            if p.requeued_at is not None
        ]
    submitted = next(job.submit for job in record.jobs if str(job.job_id) == job_id)
    return Told(
        wait_s=(starts[job_id] - submitted).total_seconds(),
        lost_node_s=sum(p.actual_lost_node_s or 0.0 for p in gone),
        nodes=sum(p.job.num_nodes for p in gone),
        jobs=tuple(sorted({p.job_id for p in gone}, key=int)),
    )
