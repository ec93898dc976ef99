"""Who may be preempted, and how: guards, exemptions, options. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from clearway.config.configuration import Config
from clearway.eligibility.eternal import is_eternal
from clearway.eligibility.exemption import exemption_of
from clearway.eligibility.under_way import UnderWay
from clearway.estimates.checkpoint_load import file_system_busy_s, shared_bandwidth
from clearway.estimates.costs import (
    BY_ITSELF,
    NO_HISTORY,
    end_ready_s,
    preemption_options,
    suspend_option,
    why_no_checkpoint,
)
from clearway.estimates.deadlines import approval_s
from clearway.estimates.learning import History, key_of
from clearway.estimates.run_times import likely_end_s
from clearway.model.claims import read_claims
from clearway.model.cluster import ClusterSnapshot, Job, JobState, Node, wanted_features
from clearway.model.plan import Choice, Verdict
from clearway.model.preemptor import Preemptor
from clearway.model.problem import Action, Candidate, EvictionProblem, Option
from clearway.planning.partial_nodes import serving
from clearway.preemption.node_usage import good_enough, needs_of, share, with_holds


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
        busy_s=file_system_busy_s(under_way.evictions, snapshot, config, now, horizon_s),
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


def _memories(job: Job, snapshot: ClusterSnapshot) -> list[tuple[int, list[int]]]:
    """Of each of the job's nodes: its memory, and that of every job on it (those that are suspended included)."""
    return [
        (snapshot.node_by_name[name].memory_mib, [other.memory_mib for other in snapshot.jobs_on.get(name, ())])
        for name in job.nodes
    ]
