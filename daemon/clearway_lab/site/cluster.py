"""A simulated cluster that schedules as Slurm does at a site: by priority, with backfilling, partition by partition.

The pending jobs are looked at in Slurm's order: those with a reservation first, then by the tier of the partition, by
priority, submission and id; at most ``DEPTH`` of them. What fits is started, on the nodes that Slurm would choose. For
each of the first ``PLANS`` that do not fit, nodes are held from the time on for which Slurm would plan it there
(``site_plans``); a job behind it starts on a held node only where its own limit ends before. Nodes of a reservation
that is to come are held alike. A job with a FLEX reservation may have other nodes as well.

Cost: a pass is made only where a job, a node or a reservation has changed since the last one, or a time has come that
one waited for. It looks at each node at most once for each shape of job, and once for each planned job.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np

from clearway.model.cluster import Job, JobState, Node, Reservation
from clearway.simulation.cluster import SimulatedCluster
from clearway.simulation.jobs import HOLD_S, SimulatedJob
from clearway_lab.site.plans import Mask, NodeTable, Places, Plans, Shape, Times, shape_of

DEPTH = 500  # pending jobs, as Slurm's bf_max_job_test
PLANS = 20
_NEVER = datetime.max.replace(tzinfo=UTC)
_UNLIMITED_S = 365 * 86_400.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job."""

    job: Job
    first_start: datetime
    ended_at: datetime
    lost_node_s: float
    preemptions: int


@dataclass
class SiteCluster(SimulatedCluster):
    """``outcomes``: of the jobs that have ended; ``to_come``: reservations whose time is later."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    tiers: Mapping[str, int] = field(default_factory=dict)  # of partitions, before all priorities
    first_starts: dict[str, datetime] = field(default_factory=dict)
    to_come: list[Reservation] = field(default_factory=list)
    _seen: tuple[list[Job], list[Node], dict[str, Reservation]] | None = None
    _look_at: datetime = _NEVER  # when something may start though nothing has changed
    _table: NodeTable | None = None

    def next_event(self) -> datetime | None:
        at = min(self._look_at, self._events[0][0] if self._events else _NEVER)
        return None if at == _NEVER else at

    def waits_or_runs(self) -> bool:
        return any(entry.job.state is not JobState.ENDED for entry in self.jobs.values())

    def _start(self, entry: SimulatedJob, nodes: tuple[str, ...], at: datetime) -> None:
        super()._start(entry, nodes, at)
        self.first_starts.setdefault(entry.job.job_id, at)

    def hold(self, job_id: str, asked: datetime, saved: datetime) -> None:
        """It stood since it was asked to save itself, and had done so then; its launcher has held it, or does still."""
        entry = self.jobs[job_id]
        until = saved + timedelta(seconds=HOLD_S)
        entry.pause(asked)  # all that it ran may be more than it computes
        entry.base_s += max(0.0, (self.now - until).total_seconds())
        entry.held = True
        self._foresee_limit(entry)
        self._at(max(self.now, until), "held", entry)

    def signalled_before(self, job_id: str, asked: datetime) -> None:
        """It was asked to save itself then, and does so still."""
        entry = self.jobs[job_id]
        entry.pause(asked)
        self._foresee_limit(entry)
        entry.claim(state="saving", asked=int(asked.timestamp()))
        self._at(max(self.now, asked + timedelta(seconds=entry.program.save_s or 0.0)), "saved", entry)

    def _on_saved(self, entry: SimulatedJob) -> None:
        super()._on_saved(entry)
        if _has_launcher(entry) and entry.held:
            entry.claim(took=f"{entry.program.save_s:g}")  # so that the daemon knows it before the job is requeued

    def _on_trapped(self, entry: SimulatedJob) -> None:
        entry.forget_claims(*(("took",) if _has_launcher(entry) else ()))

    def leave_nodes(self, entry: SimulatedJob, raw_state: str) -> None:
        super().leave_nodes(entry, raw_state)
        job = entry.job
        self.outcomes[job.job_id] = Outcome(
            job, self.first_starts[job.job_id], self.now, entry.lost_s * job.num_nodes, job.restart_count
        )

    def schedule(self) -> None:
        if self._events and self._events[0][0] <= self.now:
            return  # what happens at one moment happens before the queue is looked at
        self.reservations = {n: r for n, r in self.reservations.items() if r.end_time > self.now}
        while not self._is_same():
            self._seen = ([e.job for e in self.jobs.values()], list(self.nodes.values()), dict(self.reservations))
            _Pass(self).run()

    def _is_same(self) -> bool:
        if self._seen is None or self.now >= self._look_at:
            self._look_at = _NEVER
            return False
        jobs, nodes, reservations = self._seen
        return (
            jobs == [e.job for e in self.jobs.values()]
            and nodes == list(self.nodes.values())
            and reservations == self.reservations
        )

    def look_again(self, at: datetime) -> None:
        self._look_at = min(self._look_at, at)

    def table(self) -> NodeTable:
        if self._table is None:
            self._table = NodeTable(self.nodes)
        self._table.look(self.nodes)
        return self._table

    def may_start(self, job: Job) -> bool:
        return self._may_start(job)

    def begin(self, entry: SimulatedJob, nodes: tuple[str, ...]) -> None:
        self._start(entry, nodes, self.now)


class _Pass:
    """One look at the queue. Times are Unix times."""

    def __init__(self, cluster: SiteCluster) -> None:
        self._cluster, self._nodes = cluster, cluster.table()
        self._now = cluster.now.timestamp()
        names = self._nodes.names
        free = cluster.free.cpus
        self._free = np.array([free[name] for name in names])
        reserved = (name for reservation in cluster.reservations.values() for name in reservation.nodes)
        self._open = self._nodes.available & ~self._nodes.mask(reserved)
        self._plans = Plans(self._now, self._nodes)
        for each in cluster.to_come:
            begins, ends = each.start_time.timestamp(), each.end_time.timestamp()
            self._plans.add(begins, ends, self._nodes.mask(each.nodes))
        self._too_large: dict[Shape, list[tuple[int, float]]] = {}  # what did not fit: nodes and time limits
        self._free_from: dict[int, Times] = {}  # when so many processors of a node are free, by the limits
        self._memory_mib = self._nodes.memory_mib.copy()
        for entry in cluster.jobs.values():
            if entry.job.nodes and entry.job.state.holds_nodes and not entry.job.exclusive:
                self._memory_mib[[self._nodes.at[name] for name in entry.job.nodes]] -= entry.job.memory_mib

    def run(self) -> None:
        planned = 0
        for number, entry in enumerate(self._waiting()):
            if number >= DEPTH or not (self._free > 0).any():
                return
            if self._begin(entry):
                continue
            if planned < PLANS and not entry.job.reservation:
                self._hold(entry)
                planned += 1

    def _waiting(self) -> Iterable[SimulatedJob]:
        waiting = []
        for entry in self._cluster.jobs.values():
            job = entry.job
            if job.state is not JobState.PENDING:
                continue
            if job.eligible_time is not None and job.eligible_time > self._cluster.now:
                self._cluster.look_again(job.eligible_time)
            elif self._cluster.may_start(job):
                waiting.append(entry)
        return sorted(waiting, key=self._rank)

    def _rank(self, entry: SimulatedJob) -> tuple[object, ...]:
        job, tiers = entry.job, self._cluster.tiers
        tier = max((tiers.get(name, 1) for name in job.partitions), default=1)
        return not job.reservation, -tier, -job.priority, job.submit_time, int(job.job_id)

    def _begin(self, entry: SimulatedJob) -> bool:
        job, limit_s, shape = entry.job, _limit_s(entry.job), shape_of(entry)
        if any(job.num_nodes >= nodes and limit_s >= other for nodes, other in self._too_large.get(shape, ())):
            return False
        where, inside = self._where(job, limit_s)
        found = self._fitting(entry, where)
        if len(found) < job.num_nodes:
            self._too_large.setdefault(shape, []).append((job.num_nodes, limit_s))
            return False
        if inside is None:
            found = self._nodes.choose(found, job.num_nodes)
        else:
            found = found[np.argsort(~inside[found], kind="stable")][: job.num_nodes]
        self._cluster.begin(entry, tuple(self._nodes.names[at] for at in found))
        self._free[found] -= self._nodes.cpus[found] if job.exclusive else entry.cpus_per_node
        if not job.exclusive:
            self._memory_mib[found] -= job.memory_mib
        self._free_from.clear()
        return True

    def _where(self, job: Job, limit_s: float) -> tuple[Mask, Mask | None]:
        """The nodes that are open to it for so long, and those of its reservation, where it has one."""
        where: Mask = self._open & (self._plans.first >= self._now + limit_s)
        if not job.reservation:
            return where, None
        reservation = self._cluster.reservations[job.reservation]
        inside: Mask = self._nodes.available & self._nodes.mask(reservation.nodes)
        # FLEX: its nodes first, and others as well.
        return (inside | where if "FLEX" in reservation.flags else inside), inside

    def _fitting(self, entry: SimulatedJob, where: Mask) -> Places:
        """Of these nodes those on which it fits now."""
        job = entry.job
        where = where & self._nodes.able(entry)
        if job.exclusive:
            found = np.flatnonzero(where & (self._free >= self._nodes.cpus))
        else:
            enough = (self._free >= entry.cpus_per_node) & (self._memory_mib >= job.memory_mib)
            found = np.flatnonzero(where & enough)
        if job.gpus:
            fits, nodes, names = self._cluster.free.fits, self._cluster.nodes, self._nodes.names
            found = np.array([at for at in found if fits(entry, nodes[names[at]], 0)], dtype=int)
        return found

    def _hold(self, entry: SimulatedJob) -> None:
        """Nodes on which Slurm would plan it."""
        job = entry.job
        able = self._open & self._nodes.able(entry)
        self._plans.place(able, self._from(entry), job.num_nodes, _limit_s(job))

    def _from(self, entry: SimulatedJob) -> Times:
        wanted = 0 if entry.job.exclusive else entry.cpus_per_node
        known = self._free_from.get(wanted)
        if known is None:
            known = self._free_from[wanted] = self._ends(wanted)
        return known

    def _ends(self, wanted: int) -> Times:
        """``wanted`` 0: all processors of a node."""
        found = np.full(len(self._nodes.names), self._now)
        shared: dict[int, list[tuple[float, int]]] = defaultdict(list)
        for entry in self._cluster.jobs.values():
            job = entry.job
            if not job.state.holds_nodes or not job.nodes:
                continue
            end = self._now if job.start_time is None else max(self._now, job.start_time.timestamp() + _limit_s(job))
            where = [self._nodes.at[name] for name in job.nodes]
            if wanted == 0 or job.exclusive:
                found[where] = np.maximum(found[where], end)
            else:
                for at in where:
                    shared[at].append((end, entry.cpus_per_node))
        for at, ends in shared.items():
            free = self._free[at]
            for end, cpus in sorted(ends):
                if free >= wanted:
                    break
                free += cpus
                found[at] = max(found[at], end)
        return found


def _has_launcher(entry: SimulatedJob) -> bool:
    return entry.program.trap_s > 0


def _limit_s(job: Job) -> float:
    return _UNLIMITED_S if job.time_limit_s is None else job.time_limit_s
