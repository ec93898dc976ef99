"""Which waiting jobs are preemptors: urgent ones, and those that eternal jobs make room for. Pure.

The Slurm+DMTCP paper (section "Preemption and eternal jobs"): jobs without a meaningful end run in a queue of low
priority whenever nodes are idle, and yield to every other job. Here they run in a partition named in ``[eternal]``; the
ordinary job that Slurm would start next, did they not hold its nodes, becomes a preemptor whose only candidates they
are.

Slurm's order is kept. One that is not served yet keeps those behind it that want the same nodes from making eternal
jobs leave, unless their time limits end before it could start: EASY backfill (Lifka 1995), with the nodes of eternal
jobs counted as free. Urgent jobs that wait come before all of them. One that overtakes a job that is not planned for
(an array, say) gets no node that is idle already: Slurm may be keeping it. Time O(P (log P + H N)) for P pending jobs,
H that wait first in line (at most ``_MOST_AHEAD``) and N nodes.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from clearway.config.configuration import EternalConfig, PreemptorRule
from clearway.eligibility.constraint import alternatives
from clearway.eligibility.limits import may_be_lifted
from clearway.eligibility.node_usage import licenses_of
from clearway.eligibility.urgent import is_eternal, matching_rule, may_be_urgent, name_of, urgent_partitions
from clearway.model.claims import read_claims
from clearway.model.cluster import ClusterSnapshot, Job, JobState
from clearway.model.plan import Obstacle, ObstacleCode, Preemptor
from clearway.model.report import Attempt, unguarded
from clearway.model.site import Topology

MOST_TASKS = 256  # of an array that start by one decision; the others are planned for once these have started
MOST_COMPONENTS = 8  # of a heterogeneous job: they are planned for at once
_LIMIT_REACHED = Obstacle(ObstacleCode.ARRAY, "as many tasks of its array run as may at once")
RULE = "eternal jobs make room"
_MOST_AHEAD = 100  # unserved ordinary jobs a cycle that others are compared with
_WAITS_ITS_TURN = ("none", "priority", "resources")  # with other reasons Slurm would not start an ordinary job either
# Slurm's reasons for "it waits for nodes". With others (held, dependency, limits, begin time) no freed node helps. In a
# federation each attempt to start a job asks the sibling clusters first: the lock is over in a moment.
_WAITS_FOR_NODES = (
    "none", "priority", "resources", "reqnodenotavail", "nodesrequired", "reservation", "licenses", "fedjoblock",
)  # fmt: skip


def preemptors(
    snapshot: ClusterSnapshot,
    rules: Sequence[PreemptorRule],
    own_placements: frozenset[str] = frozenset(),
    attempt: Attempt = unguarded,
) -> tuple[Preemptor, ...]:
    """The pending jobs that some rule makes preemptors, most pressing first; ``own_placements`` are Clearway's own."""
    looks = (
        attempt(f"{job.job_id} as an urgent job", partial(preemptor_of, job, rules, own_placements, snapshot))
        # There may be many thousands that no rule can make urgent, whatever they claim.
        for job in filter(partial(may_be_urgent, rules), snapshot.pending)
    )
    found = _whole_jobs([each for each in looks if each is not None])
    return tuple(sorted(found, key=lambda preemptor: (preemptor.deadline, preemptor.job.job_id)))


def preemptor_of(
    job: Job, rules: Sequence[PreemptorRule], own_placements: frozenset[str], snapshot: ClusterSnapshot
) -> Preemptor | None:
    """A pending job as a preemptor; None where no rule makes it one."""
    rule = matching_rule(job, rules)
    if rule is None:
        return None
    max_delay_s, tasks = max_delay_of(job, rule), tasks_at_once(job, snapshot)
    found = obstacle(job, own_placements, snapshot.topology, snapshot.taken_at)
    components = () if job.het_job_id is None else snapshot.components.get(job.het_job_id, ())
    return Preemptor(
        job=job,
        rule=name_of(rule, rules.index(rule)),
        max_delay_s=max_delay_s,
        deadline=waits_since(job) + timedelta(seconds=max_delay_s),
        obstacle=found or (None if tasks else _LIMIT_REACHED),
        tasks=max(1, tasks),
        components=tuple(each.job_id for each in components),
        max_late_s=rule.max_late,
        max_kill_loss_s=rule.max_kill_loss,
        only_in=urgent_partitions(job, rule),
    )


def _whole_jobs(found: Sequence[Preemptor]) -> Iterator[Preemptor]:
    """The components of a heterogeneous job are urgent together: by the first deadline, and none if one cannot be."""
    by_id = {each.job.job_id: each for each in found}
    for each in found:
        if not each.components:
            yield each
            continue
        group = [by_id[job_id] for job_id in each.components if job_id in by_id]
        why = _not_together(each, group)
        of_all = Obstacle(ObstacleCode.HETEROGENEOUS, why) if why else None
        yield replace(each, deadline=min(o.deadline for o in group), obstacle=each.obstacle or of_all)


def _not_together(one: Preemptor, group: Sequence[Preemptor]) -> str:
    """Why no plan can be made for all components; ``group`` are those that are urgent."""
    if [each.job.het_job_offset for each in group] != list(range(len(one.components))):
        return "not all components of its heterogeneous job wait as urgent ones"
    if len(group) > MOST_COMPONENTS:
        return f"its heterogeneous job has {len(group)} components; at most {MOST_COMPONENTS} can be planned for"
    others = ((o.job.display_id, o.obstacle) for o in group if o is not one and o.obstacle)
    return next((f"component {name}: {found.why}" for name, found in others if found), "")


def tasks_at_once(job: Job, snapshot: ClusterSnapshot) -> int:
    """How many tasks of a waiting array may start at once, were there room; 0: its limit is reached. 1: no array.

    Where tasks ask for certain nodes, for nodes that lie together or for licenses, each is planned for by itself.
    """
    if job.array_job_id is None:
        return 1
    room = len(snapshot.nodes) // max(1, job.num_nodes)
    if not job.exclusive:
        room = sum(node.cpus for node in snapshot.nodes) // max(1, job.cpus)
    tasks = min(job.pending_tasks, max(1, room), MOST_TASKS)
    apart = job.required_nodes or job.contiguous or job.switches or job.licenses or "[" in job.features
    if apart or not all(map(for_nodes, _reasons(job))):
        tasks = 1
    if job.array_limit:
        running = sum(1 for each in snapshot.jobs if each.array_job_id == job.array_job_id and each.state.holds_nodes)
        tasks = min(tasks, max(0, job.array_limit - running))
    return tasks


def max_delay_of(job: Job, rule: PreemptorRule) -> float:
    """Seconds that a job of this rule may wait: as it claims, else as the rule says."""
    claims, _ = read_claims(job)
    claimed = claims.max_delay_s if claims else None
    return rule.max_delay if claimed is None else claimed


def waits_since(job: Job) -> datetime:
    return max(job.submit_time, job.eligible_time or job.submit_time)


def obstacle(job: Job, own_placements: frozenset[str], topology: Topology, now: datetime) -> Obstacle | None:
    """Why Clearway leaves this job to Slurm; None where it does not. When in doubt, it does nothing and says why.

    A limit that other jobs may be the cause of is no obstacle yet: ``validation.before_planning`` looks at it.
    """
    of = ObstacleCode
    eligible, required = job.eligible_time or job.submit_time, len(job.required_nodes)
    begins, begins_later = f"{eligible:%Y-%m-%d %H:%M:%S} UTC", eligible > max(now, job.submit_time)
    possible = any(for_nodes(reason) or may_be_lifted(reason) for reason in _reasons(job))
    each_waits = job.pending_tasks > 1 and "aftercorr" in job.dependency
    gpus_unknown = job.gpus is None or (bool(job.gres) and not job.gpus)
    few_switches = job.switches == 1 or 1 < job.switches < job.num_nodes
    in_another = bool(job.reservation) and job.reservation not in own_placements
    one_of_several = f"it asks for one of several licenses ({job.licenses}); only certain ones can be planned for"
    unplanned = f"its constraint {job.features!r} cannot be planned for: counts of features and ! are not"
    unknown_switches = (
        f"it asks for nodes under few leaf switches, and which those are is not known: {topology.unknown}"
    )
    found = (
        (of.HELD, job.priority == 0, "it is held"),
        (of.ARRAY, each_waits, f"each of its tasks waits for another job's ({job.dependency})"),
        # For some seconds after a submission Slurm says that these two wait for nodes.
        (of.LATER, bool(job.dependency), f"it waits for other jobs ({job.dependency})"),
        (of.LATER, begins_later, f"it is not to start before {begins}"),
        (of.OTHER_REASON, not possible, f"it does not wait for nodes (reason {job.reason})"),
        (of.GRES, gpus_unknown, f"what it asks of each node cannot be told from {job.gres}"),
        (of.LICENSES, licenses_of(job.licenses) is None, one_of_several),
        (of.REQUIRED_NODES, required > job.num_nodes, f"it asks for {required} certain nodes, but for fewer in all"),
        (of.SWITCHES, bool(topology.unknown) and few_switches, unknown_switches),
        (of.CONSTRAINT, alternatives(job.features) is None, unplanned),
        (of.RESERVATION, in_another, f"it already asks for the reservation {job.reservation}"),
    )
    return next((Obstacle(code, why) for code, applies, why in found if applies), None)


def _reasons(job: Job) -> list[str]:
    """Of an array squeue tells the reasons of all its waiting tasks."""
    return job.reason.split(",") if job.pending_tasks > 1 else [job.reason]


def for_nodes(reason: str) -> bool:
    return (reason.replace("_", "").replace(" ", "").lower() or "none").startswith(_WAITS_FOR_NODES)


def imagined_job(nodes: int, partitions: tuple[str, ...], now: datetime, **asked: Any) -> Job:
    """A job that is not submitted; ``asked`` are fields of ``Job``. Without them it asks for any whole nodes."""
    defaults: dict[str, Any] = {"job_id": "what-if", "user": "", "state": JobState.PENDING, "raw_state": "PENDING"}
    defaults |= {"partitions": partitions, "num_nodes": nodes, "submit_time": now, "priority": 1}
    return Job(**(defaults | asked))


def imagined(
    nodes: int, max_delay_s: float, partitions: tuple[str, ...], now: datetime, job: Job | None = None
) -> Preemptor:
    """A preemptor that is not submitted, for questions of the form "what if"; ``job``: as ``imagined_job`` makes it."""
    job = job or imagined_job(nodes, partitions, now)
    deadline = now + timedelta(seconds=max_delay_s)
    return Preemptor(job, "what if", max_delay_s, deadline, obstacle(job, frozenset(), Topology(), now))


def usual_partition(snapshot: ClusterSnapshot, rules: Sequence[PreemptorRule]) -> str:
    """Where urgent jobs run unless told otherwise: the first partition of a rule, else the largest partition."""
    named = next((name for rule in rules for name in rule.partition), None)
    sizes = Counter(name for node in snapshot.nodes for name in node.partitions)
    return named or max(sizes, key=lambda name: (sizes[name], name), default="")


class _Queue:
    """The jobs that wait first, as far as the queue was looked at."""

    def __init__(self, snapshot: ClusterSnapshot, settings: EternalConfig, now: datetime) -> None:
        self.snapshot, self.settings, self.now = snapshot, settings, now
        # Jobs that others must not overtake: the nodes of each, and when it can start at the earliest.
        self.ahead: list[tuple[frozenset[str], datetime]] = []
        self.passed_over: list[frozenset[str]] = []
        self.never = datetime.max.replace(tzinfo=now.tzinfo)
        self._reach: dict[tuple[str, ...], frozenset[str]] = {}
        self._free_at = {node.name: self._when_free(node.name) for node in snapshot.nodes if node.available}
        eternal = (job for job in snapshot.jobs if job.state.holds_nodes and is_eternal(job, settings))
        self.held = frozenset(name for job in eternal for name in job.nodes)

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
        free_at = self.now
        for job in self.snapshot.jobs_on.get(name, ()):
            if is_eternal(job, self.settings):
                continue
            if job.ends_by is None:
                return self.never
            free_at = max(free_at, job.ends_by)
        return free_at


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
    those = _ordinary_jobs(snapshot, settings, rules)
    make = partial(ordinary, settings=settings, now=now, placements=others.placements, topology=snapshot.topology)
    # Whatever reason Slurm gives for them: attached to a placement it may be another one.
    found = [make(job) for job in those if job.job_id in others.served]
    queue = _Queue(snapshot, settings, now)
    for each in others.urgent:
        if not each.obstacle:
            queue.add(each.job)
    room = settings.at_once - len(found)
    for job in (each for each in those if each.job_id not in others.served and _waits(each, now)):
        if room <= 0 or not queue.held or len(queue.ahead) >= _MOST_AHEAD:
            break
        takes_free = queue.turn_of(job, others)
        if takes_free is not None:
            found.append(make(job, takes_free=takes_free))
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


def _ordinary_jobs(snapshot: ClusterSnapshot, settings: EternalConfig, rules: Sequence[PreemptorRule]) -> list[Job]:
    """Those that wait, in Slurm's order."""
    found = [job for job in snapshot.pending if not is_eternal(job, settings) and matching_rule(job, rules) is None]
    return sorted(found, key=lambda job: (-job.priority, job.submit_time, len(job.job_id), job.job_id))


def _waits(job: Job, now: datetime) -> bool:
    """Whether only the want of nodes keeps Slurm from starting this ordinary job."""
    its_turn = job.priority > 0 and (job.reason.lower() or "none") in _WAITS_ITS_TURN
    return its_turn and (job.eligible_time or now) <= now
