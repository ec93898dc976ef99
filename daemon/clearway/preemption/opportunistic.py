"""Eternal jobs, and the ordinary jobs that they make room for. Pure.

The Slurm+DMTCP paper (section "Preemption and eternal jobs"): jobs without a meaningful end run in a queue of low
priority whenever nodes are idle, and yield to every other job. Here an eternal job is one that runs in a partition
named in ``[eternal]``; the ordinary job that Slurm would start next, did eternal jobs not hold its nodes, becomes a
preemptor whose only candidates they are.

Slurm's order is kept. Jobs are looked at by priority. One that is not served yet keeps those behind it that want the
same nodes from making eternal jobs leave, unless their time limits end before it could start: EASY backfill (Lifka
1995), with the nodes of eternal jobs counted as free. An urgent job that waits comes before all of them. Jobs that are
not planned for (arrays, say) are passed over, and a job that overtakes them gets no node that is idle already: Slurm
may be keeping it for them. For P pending jobs, H that wait first in line (at most ``_MOST_AHEAD``) and N nodes the time
is O(P (log P + H N)), the memory O(P + H N).
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from clearway.config.configuration import EternalConfig, PreemptorRule
from clearway.eligibility.urgent import is_eternal, matching_rule
from clearway.model.cluster import ClusterSnapshot, Job, Topology
from clearway.model.plan import Preemptor
from clearway.preemption.detection import obstacle, waits_since

RULE = "eternal jobs make room"
_WAITS_ITS_TURN = ("none", "priority", "resources")  # Slurm's reasons; with others it would not start the job either
_MOST_AHEAD = 100  # unserved jobs a cycle that others are compared with


@dataclass
class _Queue:
    """The jobs that wait first, as far as the queue was looked at."""

    snapshot: ClusterSnapshot
    settings: EternalConfig
    now: datetime
    # Jobs that others must not overtake: the nodes of each, and when it can start at the earliest.
    ahead: list[tuple[frozenset[str], datetime]] = field(default_factory=list)
    passed_over: list[frozenset[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.never = datetime.max.replace(tzinfo=self.now.tzinfo)
        self._reach: dict[tuple[str, ...], frozenset[str]] = {}
        self._free_at = {node.name: self._when_free(node.name) for node in self.snapshot.nodes if node.available}
        self.held = frozenset(
            name
            for job in self.snapshot.jobs
            if job.state.holds_nodes and is_eternal(job, self.settings)
            for name in job.nodes
        )

    def reach(self, job: Job) -> frozenset[str]:
        """The nodes of the job's partitions."""
        if job.partitions not in self._reach:
            wanted = set(job.partitions)
            self._reach[job.partitions] = frozenset(n.name for n in self.snapshot.nodes if wanted & set(n.partitions))
        return self._reach[job.partitions]

    def blocked(self, job: Job) -> bool:
        """Whether a job before it could start later than without it."""
        ends = math.inf
        if job.time_limit_s is not None:
            ends = self.now.timestamp() + self.settings.max_delay + job.time_limit_s
        nodes = self.reach(job)
        return any(ends > starts.timestamp() and nodes & others for others, starts in self.ahead)

    def add(self, job: Job) -> None:
        nodes = self.reach(job)
        free_at = sorted(self._free_at[name] for name in nodes if name in self._free_at)
        starts = free_at[job.num_nodes - 1] if 0 < job.num_nodes <= len(free_at) else self.never
        self.ahead.append((nodes, starts))

    def turn_of(self, job: Job, others: "OthersThatWait") -> bool | None:
        """Whether the next in order may take idle nodes as well; None: no room is made for it now."""
        if self.blocked(job):
            return None
        nodes = self.reach(job)
        of_several = job.pending_tasks > 1 or job.het_job_id is not None  # left to Slurm, unless they are urgent
        topology = self.snapshot.topology
        if others.suppressed(job) or of_several or obstacle(job, others.placements, topology, self.now):
            self.passed_over.append(nodes)
            return None
        self.add(job)
        patient = (self.now - waits_since(job)).total_seconds() >= self.settings.patience
        if not nodes & self.held or not patient:
            return None
        return not any(nodes & passed for passed in self.passed_over)

    def _when_free(self, name: str) -> datetime:
        """When the last of its jobs that are not eternal reaches its time limit."""
        others = [job for job in self.snapshot.jobs_on.get(name, ()) if not is_eternal(job, self.settings)]
        ends = [
            self.never
            if job.time_limit_s is None or job.start_time is None
            else job.start_time + timedelta(seconds=job.time_limit_s)
            for job in others
        ]
        return max((self.now, *ends))


@dataclass(frozen=True, slots=True, kw_only=True)
class OthersThatWait:
    """What else is known of jobs that wait in this cycle."""

    urgent: Sequence[Preemptor] = ()  # those without an eviction
    served: Collection[str] = ()  # job_ids of those with an eviction already
    suppressed: Callable[[Job], bool] = lambda _: False
    placements: frozenset[str] = frozenset()  # see ``detection.preemptors``


def ordinary_preemptors(
    snapshot: ClusterSnapshot,
    settings: EternalConfig,
    rules: Sequence[PreemptorRule],
    now: datetime,
    others: OthersThatWait,
) -> tuple[Preemptor, ...]:
    """The ordinary jobs that eternal jobs make room for, in Slurm's order: those that are served, then the next."""
    if not settings.partitions:
        return ()
    known = {True: list[Job](), False: list[Job]()}
    for job in _in_order([job for job in snapshot.pending if _is_ordinary(job, settings, rules)]):
        known[job.job_id in others.served].append(job)
    # Whatever reason Slurm gives for them: attached to a placement it may be another one.
    found = [ordinary(job, settings, now, others.placements, snapshot.topology) for job in known[True]]
    queue = _Queue(snapshot, settings, now)
    for each in others.urgent:
        if not each.obstacle:
            queue.add(each.job)
    room = settings.at_once - len(found)
    for job in filter(lambda one: _waits(one, now), known[False]):
        if room <= 0 or not queue.held or len(queue.ahead) >= _MOST_AHEAD:
            break
        takes_free = queue.turn_of(job, others)
        if takes_free is not None:
            found.append(ordinary(job, settings, now, others.placements, snapshot.topology, takes_free=takes_free))
            room -= 1
    return tuple(found)


def ordinary(
    job: Job,
    settings: EternalConfig,
    now: datetime,
    placements: frozenset[str],
    topology: Topology,
    *,
    takes_free: bool = True,
) -> Preemptor:
    """An ordinary job as a preemptor. Its delay counts from now, however long it has waited before."""
    return Preemptor(
        job=job,
        rule=RULE,
        max_delay_s=settings.max_delay,
        deadline=now + timedelta(seconds=settings.max_delay),
        obstacle=obstacle(job, placements, topology, now),
        only_opportunistic=True,
        ordinary=True,
        takes_free=takes_free,
    )


def _waits(job: Job, now: datetime) -> bool:
    """Whether only the want of nodes keeps Slurm from starting this ordinary job."""
    its_turn = job.priority > 0 and (job.reason.lower() or "none") in _WAITS_ITS_TURN
    return its_turn and (job.eligible_time or now) <= now


def _is_ordinary(job: Job, settings: EternalConfig, rules: Sequence[PreemptorRule]) -> bool:
    return not is_eternal(job, settings) and matching_rule(job, rules) is None


def _in_order(jobs: Sequence[Job]) -> list[Job]:
    return sorted(jobs, key=lambda job: (-job.priority, job.submit_time, len(job.job_id), job.job_id))
