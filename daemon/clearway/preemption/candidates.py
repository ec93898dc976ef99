"""What each running job can do for a preemptor: its options, or the verdict why it has none. Pure."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from clearway.eligibility.context import PlanningContext
from clearway.eligibility.exemption import Purpose, exemption
from clearway.eligibility.options import expected_end_s, may_kill, options_for, why_not_saved
from clearway.estimates.checkpoint_load import approval_s
from clearway.estimates.costs import end_ready_s, suspend_option, why_no_checkpoint
from clearway.model.claims import read_claims
from clearway.model.cluster import ClusterSnapshot, Job, JobState
from clearway.model.plan import Choice, Preemptor, Verdict
from clearway.model.problem import Action, Candidate, Option


@dataclass(frozen=True, slots=True)
class JobOptions:
    """By job_id, in its order: in which ways each running job can leave, and what is said of those that cannot."""

    options: Mapping[str, tuple[Option, ...]]
    verdicts: tuple[Verdict, ...]  # of jobs without any option
    unsaved: Mapping[str, str]  # of jobs that may be preempted: why one cannot be checkpointed; empty where it can


def job_options(
    preemptor: Preemptor,
    context: PlanningContext,
    horizon_s: float,
    *,
    leaving: Collection[str],
    eternal: Collection[str],
    suspend_on: frozenset[str],
) -> JobOptions:
    """The options of all jobs that hold nodes, but for those that are ``leaving`` anyway.

    Jobs whose nodes are all in ``suspend_on`` may be suspended in memory.
    """
    options: dict[str, tuple[Option, ...]] = {}
    verdicts: list[Verdict] = []
    unsaved: dict[str, str] = {}
    for job in sorted(context.snapshot.holders, key=lambda job: job.job_id):
        if job.job_id in leaving:
            continue
        is_eternal = job.job_id in eternal
        look = partial(_ways, job, preemptor, context, horizon_s, is_eternal=is_eternal, suspend_on=suspend_on)
        found = context.attempt(f"{job.job_id} as a candidate", look)
        if found is None:
            why = "Clearway failed at its record; see the log"
            verdicts.append(Verdict(job.job_id, Choice.EXEMPT, "not_understood", why))
        elif isinstance(found, Verdict):
            verdicts.append(found)
        else:
            options[job.job_id], why_unsaved = found
            if why_unsaved is not None:
                unsaved[job.job_id] = why_unsaved
    return JobOptions(options, tuple(verdicts), unsaved)


def _ways(
    job: Job,
    preemptor: Preemptor,
    context: PlanningContext,
    horizon_s: float,
    *,
    is_eternal: bool,
    suspend_on: frozenset[str],
) -> tuple[tuple[Option, ...], str | None] | Verdict:
    """The ways in which one job can leave, and why it cannot be checkpointed (None: it may only end); or a verdict."""
    exempt = exemption(job, Purpose.PREEMPTION, context, preemptor=preemptor)
    # One that must not be preempted can still end by itself in time.
    ways = _end(job, preemptor, context, horizon_s)
    unsaved = None
    if exempt is None:
        later_s = 0.0 if preemptor.ordinary else approval_s(context.config.daemon.mode, context.config.execution)
        kill = may_kill(job, context, preemptor.max_kill_loss_s)
        ways += options_for(job, context, kill=kill, shared=True, later_s=later_s)
        if not is_eternal and suspend_on.issuperset(job.nodes):
            ways += suspend_option(job, _memories(job, context.snapshot), preemptor.job.memory_mib)
        unsaved = why_no_checkpoint(read_claims(job)[0], context.actions)
    if ways:
        return ways, unsaved
    if exempt is not None:
        return Verdict(job.job_id, Choice.EXEMPT, *exempt)
    no_kill = "killing is not allowed"
    if is_eternal:
        no_kill = "eternal jobs are never killed"
    elif context.config.candidates.allow_kill:
        no_kill = f"killing it would lose more than max_kill_loss of rule {preemptor.rule} allows"
    return Verdict(job.job_id, Choice.EXEMPT, "no_option", f"{why_not_saved(job, context)}, and {no_kill}")


def candidate_of(job: Job, nodes: tuple[str, ...], options: tuple[Option, ...], context: PlanningContext) -> Candidate:
    """The job as the planner sees it; ``nodes`` are those that can be free once it has left."""
    start = job.start_time or context.now
    ran_s = max(0.0, (context.now - start).total_seconds())
    return Candidate(
        job_id=job.job_id,
        nodes=len(nodes),
        options=options,
        node_names=nodes,
        ran_s=round(ran_s, 3),
        remaining_s=None if job.time_limit_s is None else round(max(0.0, job.time_limit_s - ran_s), 3),
        waited_s=round(max(0.0, (start - job.submit_time).total_seconds()), 3),
        preempt_priority=context.snapshot.preempt_priorities.of(job),
        job_nodes=len(job.nodes),
    )


def no_use(job: Job, eligible: Collection[str], preemptor: Preemptor) -> Verdict:
    """The verdict on a job that could leave, but would free no node that serves the preemptor."""
    if any(name in eligible for name in job.nodes):
        why = "it shares its nodes with jobs that may not be preempted, so nothing would be freed"
        return Verdict(job.job_id, Choice.EXEMPT, "shared_with_exempt", why)
    return Verdict(job.job_id, Choice.EXEMPT, "elsewhere", f"none of its nodes can serve the {preemptor.called}")


def ends_before_its_limit(job: Job, options: tuple[Option, ...], now: datetime) -> bool:
    """Whether its ``end`` is expected from earlier runs, sooner than its time limit."""
    limit_s = end_ready_s(job, now, 0.0)
    ready_s = next((option.ready_s for option in options if option.action is Action.END), None)
    return ready_s is not None and (limit_s is None or ready_s < round(limit_s, 3))


def _end(job: Job, preemptor: Preemptor, context: PlanningContext, horizon_s: float) -> tuple[Option, ...]:
    """Its own end as an option, where that comes in time and can be counted on."""
    if job.state is not JobState.RUNNING or job.job_id in context.under_way.lasting or preemptor.ordinary:
        return ()
    ends_s = expected_end_s(job, context)
    ready_s = math.inf if ends_s is None else ends_s
    return (Option(Action.END, ready_s=round(ready_s, 3)),) if ready_s <= horizon_s else ()


def _memories(job: Job, snapshot: ClusterSnapshot) -> list[tuple[int, list[int]]]:
    """Of each of the job's nodes: its memory, and that of every job on it (those that are suspended included)."""
    return [
        (snapshot.node_by_name[name].memory_mib, [other.memory_mib for other in snapshot.jobs_on.get(name, ())])
        for name in job.nodes
    ]
