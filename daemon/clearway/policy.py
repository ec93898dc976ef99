"""Who may be preempted, and how: guards, exemptions, options. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from clearway.config import Config
from clearway.costs import BY_ITSELF, NO_HISTORY, end_ready_s, preemption_options, suspend_option, why_no_checkpoint
from clearway.detection import Preemptor, matching_rule, read_claims, wanted_features
from clearway.durations import format_duration
from clearway.eternal import is_eternal
from clearway.execution.due import approval_s
from clearway.execution.records import Eviction, EvictionState
from clearway.execution.writes import busy_s, write_of, writes_of
from clearway.learning import History, application, key_of
from clearway.model import (
    Action,
    Candidate,
    Choice,
    ClusterSnapshot,
    EvictionProblem,
    Job,
    JobState,
    Node,
    Option,
    Verdict,
)
from clearway.planning.formulation.partial_nodes import serving
from clearway.resources import good_enough, needs_of, share, with_holds

_MOST_DOUBLINGS = 20  # of the time that a job may run undisturbed


@dataclass(frozen=True, slots=True)
class UnderWay:
    """What earlier decisions already claim; ``leaving`` belongs to the eviction that is planned anew, if any."""

    jobs: frozenset[str] = frozenset()  # preemptees and preemptors of other evictions: not to be touched
    nodes: frozenset[str] = frozenset()  # placements of other evictions
    leaving: frozenset[str] = frozenset()  # past their point of no return: their nodes count as free
    avoid: frozenset[str] = frozenset()  # jobs that failed to leave in time
    lasting: frozenset[str] = frozenset()  # jobs that were to end by themselves and did not: not counted on again
    promised: frozenset[str] = frozenset()  # leave for other evictions in time for this one: what is left over is free
    own_nodes: frozenset[str] = frozenset()  # the placement of the eviction that is planned anew, if any
    evictions: tuple[Eviction, ...] = ()  # whose checkpoints keep the file system


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """All that a decision is made on, apart from who it is for and who plans it.

    ``preempted`` counts earlier preemptions by job_id; ``actions`` are those of the checkpointers that jobs may name.
    """

    snapshot: ClusterSnapshot
    config: Config
    now: datetime
    preempted: Mapping[str, int]
    under_way: UnderWay
    history: History = NO_HISTORY
    actions: Mapping[str, Action] = field(default_factory=lambda: BY_ITSELF)
    whole: bool = False  # a preemptor that asks for no GPUs shall have whole nodes


def promised_by(evictions: Iterable[Eviction]) -> frozenset[str]:
    """Jobs that leave for one of these evictions."""
    return frozenset(job_id for e in evictions for job_id in e.promised_jobs)


def under_way_by(evictions: Sequence[Eviction], deadline: datetime | None = None) -> UnderWay:
    """What evictions that are being carried out claim; proposals claim nothing.

    What their jobs leave over counts as free for whoever has a ``deadline`` that is no earlier than theirs.
    """
    acting = [e for e in evictions if e.state.acting]
    jobs = {p.job_id for e in acting for p in e.preemptions if not p.state.terminal}
    placed = {
        name
        for e in acting
        if e.state is EvictionState.CANCELLING or e.move is not None
        for name in e.plan.placement_nodes
    }
    nodes = placed | {name for e in acting for name in e.held_nodes}
    sooner = [e for e in acting if deadline is not None and e.plan.deadline <= deadline]
    return UnderWay(
        jobs=frozenset(jobs | {e.preemptor.job_id for e in acting}),
        nodes=frozenset(nodes),
        promised=promised_by(sooner),
        evictions=tuple(acting),
    )


@dataclass(frozen=True, slots=True)
class Situation:
    """One preemptor's eviction problem, and what else the plan needs to be explained and placed."""

    preemptor: Preemptor
    problem: EvictionProblem
    free_nodes: tuple[str, ...]
    verdicts: tuple[Verdict, ...] = field(default=())  # of the jobs that policy does not let go
    unsaved: Mapping[str, str] = field(default_factory=dict)  # of the others: why one cannot be checkpointed
    leaving: frozenset[str] = frozenset()  # jobs that leave anyway
    likely: frozenset[str] = frozenset()  # jobs whose ``end`` is expected from earlier ones, not from a time limit
    eternal: frozenset[str] = frozenset()  # candidates that are eternal jobs


def eviction_situation(preemptor: Preemptor, partition: str, grounds: Grounds) -> Situation:
    """The eviction problem of one preemptor on the nodes of one partition.

    A node counts as freed only when all its jobs leave.
    """
    snapshot, config, now, under_way = grounds.snapshot, grounds.config, grounds.now, grounds.under_way
    eternals = _eternal(snapshot, config)
    eligible = {
        node.name
        for node in snapshot.nodes
        if node.name not in under_way.nodes
        and (preemptor.takes_free or not eternals.isdisjoint(j.job_id for j in snapshot.jobs_on.get(node.name, ())))
        and _suits(node, preemptor.job, partition, reserved=node.name not in under_way.own_nodes)
    }
    leaving = _leaving(snapshot, under_way)
    holders = snapshot.jobs_on
    empty = [
        name
        for name in eligible
        if all(job.job_id in leaving for job in holders.get(name, ()))
        and (name in holders or snapshot.node_by_name[name].alloc_cpus == 0)
    ]
    # The surest first: of nodes that are only promised none is taken needlessly.
    free = tuple(sorted(empty, key=lambda name: (_counts_on(name, holders, under_way.promised), name)))
    needed = max(0, preemptor.job.num_nodes - len(free))
    needs = needs_of(preemptor.job, snapshot, eligible, whole=grounds.whole)
    horizon_s = horizon(preemptor, config, now)
    step_s = max(1, math.ceil(horizon_s / config.planning.steps))

    options: dict[str, tuple[Option, ...]] = {}
    verdicts: list[Verdict] = []
    unsaved: dict[str, str] = {}
    for job in sorted(snapshot.jobs, key=lambda job: job.job_id):
        if not job.state.holds_nodes or job.job_id in leaving:
            continue
        eternal = job.job_id in eternals
        exemption = exemption_of(job, config, now, grounds.preempted, under_way, preemptor.others_stay)
        ways = _ways(
            job,
            grounds,
            horizon_s,
            may_end=job.state is JobState.RUNNING and job.job_id not in under_way.lasting and not preemptor.ordinary,
            may_kill=config.candidates.allow_kill and not eternal,
            exempt=exemption is not None,
        )
        # A job that stands suspended keeps what it has of a node, GPUs among it.
        may_suspend = config.candidates.allow_suspend and not eternal and needs is None and not preemptor.job.gpus
        if exemption is None and may_suspend and eligible.issuperset(job.nodes):
            ways += suspend_option(job, _memories(job, snapshot), preemptor.job.memory_mib)
        if exemption is None:
            unsaved[job.job_id] = why_no_checkpoint(read_claims(job)[0], grounds.actions)
        if exemption is not None and not ways:
            verdicts.append(Verdict(job.job_id, Choice.EXEMPT, *exemption))
        elif not ways:
            cannot = unsaved[job.job_id] or _cannot_be_saved(job, grounds.history, now)
            verdicts.append(_without_option(job, cannot, eternal=eternal))
        else:
            options[job.job_id] = ways

    candidates = []
    sharing = share(needs, eligible, snapshot, leaving, options.keys()) if needs is not None else None
    freeable = sharing.holds if sharing is not None else _freeable(eligible, leaving, options.keys(), snapshot)
    for job_id, ways in options.items():
        job = snapshot.job_by_id[job_id]
        names = tuple(sorted(freeable.get(job_id, ())))
        if names:
            candidate = _candidate(job, names, ways, snapshot.preempt_priorities.of(job), now)
            candidates.append(with_holds(candidate, sharing.holds[job_id]) if sharing is not None else candidate)
        else:
            verdicts.append(_of_no_use(job, eligible, preemptor))
    last_s = int(horizon_s // step_s) * step_s
    problem = EvictionProblem(
        needed,
        last_s,
        step_s,
        tuple(candidates),
        preemptor.job.num_nodes,
        busy_s=file_system_busy_s(under_way, snapshot, config, now, horizon_s),
    )
    if sharing is not None:
        problem = replace(problem, nodes_needed=preemptor.job.num_nodes, needs=needs, nodes=sharing.nodes)
        serve = {node.name for node in serving(problem, ())}
        free = tuple(sorted(serve, key=lambda name: (_counts_on(name, holders, under_way.promised), name)))
    by_job = tuple(sorted(verdicts, key=lambda verdict: verdict.job_id))
    likely = {job_id for job_id in options if _ends_before_its_limit(snapshot.job_by_id[job_id], options[job_id], now)}
    return Situation(preemptor, problem, free, by_job, unsaved, frozenset(leaving), frozenset(likely), eternals)


def _leaving(snapshot: ClusterSnapshot, under_way: UnderWay) -> set[str]:
    """Jobs that will not hold their nodes for long, whatever is decided."""
    going = under_way.leaving | under_way.promised
    return {
        job.job_id
        for job in snapshot.jobs
        if job.state is JobState.COMPLETING or (job.job_id in going and job.state.holds_nodes)
    }


def _eternal(snapshot: ClusterSnapshot, config: Config) -> frozenset[str]:
    """The eternal jobs that hold nodes."""
    return frozenset(j.job_id for j in snapshot.jobs if j.state.holds_nodes and is_eternal(j, config.eternal))


def _freeable(
    eligible: Collection[str], leaving: Collection[str], may_leave: Collection[str], snapshot: ClusterSnapshot
) -> dict[str, list[str]]:
    """Job to the nodes that are free once it and all others on them have left."""
    found: dict[str, list[str]] = {}
    for name in eligible:
        jobs = [job.job_id for job in snapshot.jobs_on.get(name, ()) if job.job_id not in leaving]
        if all(job_id in may_leave for job_id in jobs):
            for job_id in jobs:
                found.setdefault(job_id, []).append(name)
    return found


def _without_option(job: Job, cannot: str, *, eternal: bool) -> Verdict:
    why = "eternal jobs are never killed" if eternal else "killing is not allowed"
    return Verdict(job.job_id, Choice.EXEMPT, "no_option", f"{cannot}, and {why}")


def _of_no_use(job: Job, eligible: Collection[str], preemptor: Preemptor) -> Verdict:
    if any(name in eligible for name in job.nodes):
        why = "it shares its nodes with jobs that may not be preempted, so nothing would be freed"
        return Verdict(job.job_id, Choice.EXEMPT, "shared_with_exempt", why)
    return Verdict(job.job_id, Choice.EXEMPT, "elsewhere", f"none of its nodes can serve the {preemptor.called}")


def _counts_on(name: str, holders: Mapping[str, tuple[Job, ...]], promised: frozenset[str]) -> bool:
    """Whether jobs on this node only leave because others need it."""
    return any(job.job_id in promised for job in holders.get(name, ()))


def _ends_before_its_limit(job: Job, ways: tuple[Option, ...], now: datetime) -> bool:
    limit_s = end_ready_s(job, now, 0.0)
    ready_s = next((way.ready_s for way in ways if way.action is Action.END), None)
    return ready_s is not None and (limit_s is None or ready_s < round(limit_s, 3))


def _candidate(
    job: Job, names: tuple[str, ...], ways: tuple[Option, ...], preempt_priority: int, now: datetime
) -> Candidate:
    start = job.start_time or now
    ran_s = max(0.0, (now - start).total_seconds())
    return Candidate(
        job_id=job.job_id,
        nodes=len(names),
        options=ways,
        node_names=names,
        ran_s=round(ran_s, 3),
        remaining_s=None if job.time_limit_s is None else round(max(0.0, job.time_limit_s - ran_s), 3),
        waited_s=round(max(0.0, (start - job.submit_time).total_seconds()), 3),
        preempt_priority=preempt_priority,
        job_nodes=len(job.nodes),
    )


def horizon(preemptor: Preemptor, config: Config, now: datetime) -> float:
    """Seconds within which nodes must begin to empty.

    What Slurm needs to end jobs and start the preemptor is taken off. A preemptor whose deadline has passed
    gets its max delay once more: it is still urgent, and a horizon of zero would only allow kills.
    """
    remaining_s = (preemptor.deadline - now).total_seconds()
    if remaining_s <= 0:
        remaining_s = preemptor.max_delay_s
    return max(0.0, remaining_s - config.execution.kill_allowance - approval_s(config.daemon.mode, config.execution))


def _suits(node: Node, job: Job, partition: str, *, reserved: bool) -> bool:
    """Whether the preemptor could run on this node, were it empty; ``reserved`` counts reservations against it."""
    return (
        node.available
        and partition in node.partitions
        and not (reserved and node.reservation is not None)
        and node.name not in job.excluded_nodes
        and good_enough(node, job)
        and wanted_features(job) <= set(node.features)
    )


def _cannot_be_saved(job: Job, history: History, now: datetime) -> str:
    claims, _ = read_claims(job)
    if claims is None or history.trusted(*key_of(job, claims), now):
        return "it cannot save itself"
    return f"its last {history.failures_in_a_row(*key_of(job, claims))} checkpoints failed"


def _ways(
    job: Job, grounds: Grounds, horizon_s: float, *, may_end: bool, may_kill: bool, exempt: bool
) -> tuple[Option, ...]:
    """All options of a job; one that policy exempts can still end by itself in time."""
    snapshot, config, now, history = grounds.snapshot, grounds.config, grounds.now, grounds.history
    ways: list[Option] = []
    if may_end:
        known = [end_ready_s(job, now, 0.0), likely_end_s(job, history, config, now)]
        ready_s = min((each for each in known if each is not None), default=math.inf)
        if ready_s <= horizon_s:
            ways.append(Option(Action.END, ready_s=round(ready_s, 3)))
    if not exempt:
        claims, _ = read_claims(job)
        memory_mib = max(
            (snapshot.node_by_name[n].memory_mib for n in job.nodes if n in snapshot.node_by_name), default=0
        )
        requeueable = job.requeueable and job.batch
        ways += preemption_options(
            job,
            claims,
            now,
            config.costs,
            memory_mib,
            kill=may_kill,
            requeueable=requeueable,
            history=history,
            actions=grounds.actions,
            shared_mib_s=shared_bandwidth(config),
        )
    return tuple(ways)


def shared_bandwidth(config: Config) -> float | None:
    """MiB/s that the checkpoints of a plan share; None where they are written one after another."""
    if config.planning.checkpoints == "serial":
        return None
    return config.execution.checkpoint_bandwidth_mib_s or config.costs.file_system_mib_s


def file_system_busy_s(
    under_way: UnderWay, snapshot: ClusterSnapshot, config: Config, now: datetime, horizon_s: float
) -> int:
    """Seconds that checkpoints of others keep the file system from a plan that has so much time; see ``writes``.

    0 where checkpoints are planned one after another.
    """
    if shared_bandwidth(config) is None:
        return 0
    writes = writes_of(
        under_way.evictions,
        lambda e, p: write_of(e, p, snapshot, config.costs, config.execution),
        lambda e, _: e.move is None,  # moves that have not begun are called off
        lambda _: False,
        now,
    )
    return busy_s(writes, now, horizon_s)


def likely_end_s(job: Job, history: History, config: Config, now: datetime) -> float | None:
    """Seconds until the job has ended, as surely as the configuration wants; None where that is not known."""
    confidence = config.planning.end_confidence
    if confidence is None or job.start_time is None:
        return None
    ran_s = max(0.0, (now - job.start_time).total_seconds())
    claims, _ = read_claims(job)
    return history.run_times(job.user, application(job, claims)).likely_end_s(ran_s, confidence)


def _memories(job: Job, snapshot: ClusterSnapshot) -> list[tuple[int, list[int]]]:
    """Of each of the job's nodes: its memory, and that of every job on it (those that are suspended included)."""
    return [
        (snapshot.node_by_name[name].memory_mib, [other.memory_mib for other in snapshot.jobs_on.get(name, ())])
        for name in job.nodes
    ]


def exemption_of(
    job: Job,
    config: Config,
    now: datetime,
    preempted: Mapping[str, int],
    under_way: UnderWay,
    others_stay: str = "",
) -> tuple[str, str] | None:
    """Code and reason why this job may not be preempted; None when it may.

    ``others_stay``: see ``Preemptor``.
    """
    rules = config.candidates
    eternal = is_eternal(job, config.eternal)
    ran_s = (now - job.start_time).total_seconds() if job.start_time else 0.0
    left_s = None if job.time_limit_s is None else job.time_limit_s - ran_s
    count = 0 if eternal else preempted.get(job.job_id, 0)  # eternal jobs are there to be preempted
    # Every preemption doubles what a job may run undisturbed: however many urgent jobs come, it gets on.
    least_s = config.eternal.min_runtime if eternal else rules.min_runtime * 2 ** min(count, _MOST_DOUBLINGS)
    again = f", as it was preempted {count} time{'s' * (count != 1)} before" if count else ""
    guards: tuple[tuple[bool, str, str], ...] = (
        (
            job.state is not JobState.RUNNING,
            "state",
            f"it is {job.state.value}; only running jobs are preempted",
        ),
        (job.job_id in under_way.jobs, "under_way", "another eviction already concerns it"),
        (job.job_id in under_way.avoid, "did_not_leave", "it did not leave in time when it was asked to"),
        (matching_rule(job, config.preemptors) is not None, "preemptor", "it is itself an urgent job"),
        (bool(others_stay) and not eternal, "not_eternal", others_stay),
        (
            eternal and _says_nothing_yet(job),
            "restarting",
            "what it says of its checkpoints is from an earlier run; this one has not got so far",
        ),
        (
            bool(set(job.partitions) & set(rules.protected_partitions)),
            "protected_partition",
            "its partition is protected",
        ),
        (job.qos in rules.protected_qos, "protected_qos", f"its QoS {job.qos} is protected"),
        (
            job.account in rules.protected_accounts,
            "protected_account",
            f"its account {job.account} is protected",
        ),
        (job.user in rules.protected_users, "protected_user", f"its user {job.user} is protected"),
        (
            bool(rules.partitions) and not eternal and not set(job.partitions) & set(rules.partitions),
            "partition",
            "its partition is not among those that may be preempted",
        ),
        (job.het_job_id is not None, "heterogeneous", "it is part of a heterogeneous job"),
        (
            not (job.requeueable and job.batch) and (eternal or not (rules.allow_cancel and rules.allow_kill)),
            "not_requeueable",
            "it cannot be requeued, and cancelling for good is not allowed",
        ),
        (
            ran_s < least_s,
            "too_young",
            f"it has run for {format_duration(max(0.0, ran_s))}, less than {format_duration(least_s)}{again}",
        ),
        (
            left_s is not None and left_s <= rules.spare_before_end,
            "near_end",
            f"it ends within {format_duration(rules.spare_before_end)}",
        ),
        (
            count >= rules.max_preemptions and not eternal,
            "preempted_before",
            f"it was preempted {count} times already, {rules.max_preemptions} are allowed",
        ),
    )
    return next(((code, reason) for applies, code, reason in guards if applies), None)


def _says_nothing_yet(job: Job) -> bool:
    """Whether the job's claim is an earlier run's: a signal before the launcher is ready would end the job."""
    claims, _ = read_claims(job)
    if claims is None or claims.asked is None or job.start_time is None:
        return False
    return claims.asked < job.start_time
