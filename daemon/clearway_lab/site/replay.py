"""A site's recorded jobs again, on a simulated cluster with its nodes, partitions, reservations and outages.

The daemon's own cycle runs on it, with its checkpoints, budgets, guards and limits. Time jumps from one moment at which
something can change to the next: a job is submitted, ends or has saved itself, a node fails, a pause of the daemon is
over. While an urgent job waits or jobs leave for it, cycles follow each other as the daemon's would; where several have
changed nothing, the next one waits for the next event, or for up to ``LONGEST_PAUSE_S``.

The replay begins when the first recorded run ended: jobs that ran by then are on their nodes, those that waited wait.
"""

import heapq
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from statistics import fmean, median
from typing import Any

from clearway.config.configuration import Config
from clearway.eligibility.urgent import matching_rule
from clearway.estimates.costs import write_time_s
from clearway.estimates.learning import History, key_of
from clearway.model.claims import CheckpointHow, format_claims
from clearway.model.cluster import Node, Reservation
from clearway.model.records import Key
from clearway.model.report import CycleReport
from clearway.simulation.jobs import Program
from clearway_lab.simulator.measures import Spread
from clearway_lab.site.cluster import Outcome, SiteCluster
from clearway_lab.site.record import RecordedJob, Run, SiteRecord

LONGEST_PAUSE_S = 15.0
_AT_MOST = timedelta(days=1)  # that the replay goes on where nothing happens any more
_IDLE_S = 240.0  # Slurm forgets jobs 300 s after their end: each is seen once
_SAID_BY_A_RUN = ("run", "state", "asked", "last", "generation", "restart", "restart_s", "took", "size_mib")

Cycle = Callable[[], CycleReport]


class SteppedClock:
    """Stands still until it is set; the clock of replays."""

    def __init__(self, start: datetime) -> None:
        self._now = start

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._now.timestamp()

    def steady(self) -> float:
        return self.monotonic()

    def set(self, now: datetime) -> None:
        self._now = now


@dataclass
class SiteReplay:
    """``cycle`` None: Slurm alone."""

    record: SiteRecord
    nodes: Sequence[Node]
    config: Config
    tiers: Mapping[str, int] = field(default_factory=dict)
    exit_s: float = 1.0  # from the end of a job to its empty nodes
    history: History = field(default_factory=History)

    def __post_init__(self) -> None:
        ends = (run.end for job in self.record.jobs for run in job.runs if run.end)
        first = self.record.begins or min(ends, default=None)
        self.begins = first or min(job.submit for job in self.record.jobs)
        told: dict[Key, list[float]] = defaultdict(list)
        for job in self.record.jobs:
            if job.took_s and job.claims is not None:
                told[key_of(job.as_slurm(), job.claims)] += job.took_s
        # How long checkpoints of an application took in the time of the record.
        self._took_s = {key: median(times) for key, times in told.items()}
        self.clock = SteppedClock(self.begins)
        self.cluster = SiteCluster(now=self.begins, kill_wait_s=max(5.0, self.exit_s), tiers=self.tiers)
        # No outage at the beginning: what is out of service now was so since its recorded start.
        usable = (
            replace(n, available=True, raw_state="IDLE", alloc_cpus=0, alloc_memory_mib=0, reason="", reservation=None)
            for n in self.nodes
        )
        self.cluster.add_nodes(usable)
        self._script: list[tuple[datetime, int, Callable[[], None]]] = []
        self.left_out = 0
        self.submitted: dict[str, datetime] = {}  # when, of the jobs whose start the replay decides
        self.urgent: dict[str, float] = {}  # and how long the urgent ones may wait
        self._pace = _Pace(self.config, self.begins)
        self._fill()

    def _at(self, when: datetime, act: Callable[[], None]) -> None:
        heapq.heappush(self._script, (max(when, self.begins), len(self._script), act))

    def _fill(self) -> None:
        self._fill_nodes()
        known = {name for node in self.nodes for name in node.partitions}
        running: list[RecordedJob] = []
        for job in self.record.jobs:
            run = job.runs[0]
            if job.partition not in known or job.num_nodes > len(self.nodes):
                self.left_out += 1
            elif run.start >= self.begins:
                self._at(job.submit, partial(self._submit, job, None))
                self._note_urgent(job)
            elif not run.ended_by(self.begins):
                running.append(job)
        for job in running:
            self._submit(job, job.runs[0])

    def _fill_nodes(self) -> None:
        """Outages and reservations."""
        for outage in self.record.outages:
            if outage.node in self.cluster.nodes and (outage.end is None or outage.end > self.begins):
                self._at(outage.start, partial(self._fail, outage.node))
                if outage.end is not None:
                    self._at(outage.end, partial(self.cluster.bring_back, outage.node))
        for each in self.record.reservations:
            if each.end_time > self.begins:
                self.cluster.to_come.append(each)
                self._at(each.start_time, partial(self._reserve, each))
                self._at(each.end_time, lambda: None)  # its nodes are looked at again

    def _note_urgent(self, job: RecordedJob) -> None:
        if (rule := matching_rule(job.as_slurm(), self.config.preemptors)) is not None:
            told_s = None if job.claims is None else job.claims.max_delay_s
            self.urgent[str(job.job_id)] = rule.max_delay if told_s is None else told_s

    def _fail(self, node: str) -> None:
        nodes = self.cluster.nodes
        nodes[node] = replace(nodes[node], available=False, raw_state="IDLE+DRAIN", reason="as recorded")

    def _reserve(self, reservation: Reservation) -> None:
        self.cluster.to_come.remove(reservation)
        self.cluster.reservations[reservation.name] = reservation

    def _submit(self, job: RecordedJob, run: Run | None) -> None:
        """Queue it; one that is in the middle of a ``run`` has the nodes of that, if they are there still."""
        cluster = self.cluster
        cluster.next_id = job.job_id
        stands = _Standing()
        if run is not None and run.nodes and all(name in cluster.nodes for name in run.nodes):
            stands = _Standing.of(job, run, self.begins)
        part = self._part(job)
        job_id = cluster.submit(
            self._program(job),
            num_nodes=job.num_nodes,
            cpus_per_node=part.cpus,
            on=stands.nodes,
            ran_s=stands.ran_s,
            saved_s=stands.saved_s,
            user=job.user,
            account=job.account,
            qos=job.qos,
            partitions=(job.partition,),
            name=job.name,
            comment=_as_submitted(job) if stands.saved is None else _as_said(job, stands.saved),
            restart_count=len(job.earlier),
            submit_time=job.submit,
            eligible_time=job.eligible,
            time_limit_s=job.time_limit_s,
            memory_mib=part.memory_mib,
            gpus=job.gpus,
            features=job.features,
            priority=job.priority or 100,
            reservation=job.reservation or None,
        )
        if stands.saved is not None and stands.asked is not None:
            cluster.hold(job_id, stands.asked, stands.saved)
        elif stands.asked is not None:
            cluster.signalled_before(job_id, stands.asked)
        if not stands.nodes:
            self.submitted[job_id] = job.submit
        if job_id in self.urgent or self.config.eternal.partitions:
            self._pace.look_soon(max(job.eligible, self.clock.now()))

    def _part(self, job: RecordedJob) -> "_Part":
        """Where it ran tells whether it had whole nodes; a memory that is not told is its share."""
        ran_on = [self.cluster.nodes[name] for name in job.runs[-1].nodes if name in self.cluster.nodes]
        alike = ran_on or [node for node in self.nodes if job.partition in node.partitions]
        cpus = fmean(node.cpus for node in alike) if ran_on else min(node.cpus for node in alike)
        if job.cpus == 0 or job.cpus >= cpus:
            return _Part(None, job.memory_mib)
        share_mib = int(min(node.memory_mib * job.cpus / node.cpus for node in alike))
        return _Part(job.cpus, job.memory_mib or share_mib)

    def _program(self, job: RecordedJob) -> Program:
        claims = job.claims
        if claims is None or not job.saves_itself:
            return Program(work_s=job.work_s, exit_s=self.exit_s)
        costs, memory_mib = self.config.costs, self.nodes[0].memory_mib
        takes_s = self._took_s.get(key_of(job.as_slurm(), claims))
        if takes_s is None:
            takes_s = write_time_s(job.as_slurm(), claims, costs, memory_mib, self.history)
        if claims.checkpoint is CheckpointHow.INTERVAL:
            return Program(work_s=job.work_s, exit_s=self.exit_s, interval_s=claims.interval_s)
        trap_s = 1.0 if claims.run is not None else 0.0
        return Program(
            work_s=job.work_s, exit_s=self.exit_s, save_s=takes_s, trap_s=trap_s, pauses=True, requeues=claims.requeues
        )

    def run(self, cycle: Cycle | None = None, tick: Callable[[int], None] = lambda _: None) -> None:
        """Play all of it; ``tick`` is told how many jobs have ended."""
        pace = self._pace
        last = self.begins
        while self._script or self.cluster.waits_or_runs():
            event = self._next()
            last = event or last
            if event is None and (not pace.occupied or self.clock.now() > last + _AT_MOST):
                return  # what waits cannot start
            due = pace.due() if cycle is not None else event
            now = max(self.clock.now(), min(at for at in (event, due) if at is not None))
            self.clock.set(now)
            self._play(now)
            if cycle is not None and pace.due() <= now:
                report = cycle()
                pace.after(report, now, self._next())
            tick(len(self.cluster.outcomes))

    def _next(self) -> datetime | None:
        event = self.cluster.next_event()
        script = self._script[0][0] if self._script else None
        return min((at for at in (event, script) if at is not None), default=None)

    def _play(self, now: datetime) -> None:
        self.cluster.now = max(self.cluster.now, now)  # nothing is left to happen before
        while self._script and self._script[0][0] <= now:
            heapq.heappop(self._script)[2]()
        self.cluster.advance(now)


@dataclass(frozen=True, slots=True)
class _Part:
    """What a job has of each of its nodes. ``cpus`` None: the whole node."""

    cpus: int | None
    memory_mib: int


@dataclass(frozen=True, slots=True)
class _Standing:
    """Where a job stands when the replay begins; as it is here, it waits. ``asked``: when it began to save itself."""

    nodes: tuple[str, ...] = ()
    ran_s: float = 0.0
    asked: datetime | None = None
    saved: datetime | None = None
    saved_s: float = 0.0

    @classmethod
    def of(cls, job: RecordedJob, run: Run, now: datetime) -> "_Standing":
        ran_s, saved = (now - run.start).total_seconds(), job.saved_by(now)
        if saved is None:
            return cls(run.nodes, ran_s, asked=job.saves_at(now))
        asked = run.asked_first
        return cls(run.nodes, ran_s, asked, saved, saved_s=((asked or saved) - run.start).total_seconds())


class _Pace:
    """When the next cycle is due."""

    def __init__(self, config: Config, begins: datetime) -> None:
        self._poll_s, self._active_s = config.daemon.poll_interval, config.daemon.active_interval
        self._due = begins + timedelta(
            seconds=self._poll_s / 2
        )  # as after a submission: it begins with one, or with an end
        self._quiet_s = self._poll_s
        self._before: tuple[object, ...] = ()
        self._occupied = False

    def due(self) -> datetime:
        return self._due

    @property
    def occupied(self) -> bool:
        """Whether an urgent job waits, or jobs leave for one."""
        return self._occupied

    def look_soon(self, at: datetime) -> None:
        """Something has come up between two cycles: half a pause before the next one, in the mean."""
        self._due = min(self._due, at + timedelta(seconds=self._poll_s / 2))

    def after(self, report: CycleReport, now: datetime, event: datetime | None) -> None:
        acting = any(e.state.acting for e in report.open_evictions)
        self._occupied = acting or bool(report.waiting)
        if not self._occupied:
            self._due, self._before = now + timedelta(seconds=_IDLE_S), ()
            return
        pause_s = self._active_s if acting else self._poll_s
        seen = (tuple((e.eviction_id, e.revision, e.state) for e in report.open_evictions), report.snapshot.jobs)
        self._quiet_s = min(2 * self._quiet_s, LONGEST_PAUSE_S) if seen == self._before else pause_s
        self._before = seen
        self._due = now + timedelta(seconds=max(pause_s, self._quiet_s))
        if event is not None and event < self._due:
            self._due = max(now + timedelta(seconds=pause_s), event + timedelta(seconds=pause_s / 2))


def _as_said(job: RecordedJob, saved: datetime) -> str:
    """The Comment of a run that has saved itself."""
    at, took_s = int(saved.timestamp()), job.runs[0].claims and job.runs[0].claims.took_s
    told = {} if took_s is None else {"took": f"{took_s:g}"}
    return format_claims(_as_submitted(job), state="saved", asked=at, last=at, **told)


def _as_submitted(job: RecordedJob) -> str:
    """The Comment, without what a run has said of itself; of a launcher's job that it says so in its first run."""
    claims = job.claims
    if claims is None or claims.run is None:
        return job.comment
    words = job.comment
    for key in _SAID_BY_A_RUN:
        words = re.sub(rf"(?<=[:,]){key}=[^,\s]*,?", "", words)
    words = re.sub(r",(?=\s|$)", "", words)
    return format_claims(words, run=len(job.earlier))


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
