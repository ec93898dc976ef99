"""The report on urgent jobs: what Clearway did or would have done, beside what happened and Slurm's own rule. Pure.

What would have happened is told no further than the first plan goes: when the urgent job would have started, and what
the jobs of that plan would have lost. An urgent job that starts at another time changes all that starts after it; of
this nothing is said (docs/decisions/0074).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from statistics import median

from clearway.model.problem import Action
from clearway.model.urgent_report import Case, CaseJob, CaseOutcome, Ending, Held, JobOutcome, Report, Sums, UserShare
from clearway.preemption.cases import SOON


def report(cases: Sequence[Case], since: datetime, until: datetime, *, more: bool = False) -> Report:
    outcomes = tuple(outcome(case, until) for case in sorted(cases, key=lambda c: (-c.began_at.timestamp(), c.job_id)))
    return Report(
        since=since,
        until=until,
        more=more,
        sums=_sums(outcomes),
        held=_held(outcomes),
        users=_users(outcomes),
        cases=outcomes,
    )


def part_of(case: Case, user: str) -> Case | None:
    """What this user may see where jobs are private: own jobs, and the urgent job they leave for."""
    jobs = tuple(each for each in case.jobs if each.user == user)
    if not jobs and case.user != user:
        return None
    nodes = case.nodes if case.user == user else tuple(sorted({name for each in jobs for name in each.nodes}))
    return replace(case, jobs=jobs, nodes=nodes, unlisted=0, unlisted_node_s=0.0, beside=None, outcome="")


def outcome(case: Case, until: datetime) -> CaseOutcome:
    ending, started = _ending(case), case.started_at
    jobs = tuple(_job(each, case) for each in case.jobs)
    loss = case.unlisted_node_s + sum(each.lost_node_s or 0.0 for each in jobs if each.pays)
    sooner_s = 0.0
    if ending in (Ending.SOONER, Ending.WAITS) and not case.acted:
        sooner_s = max(0.0, ((started or until) - case.expected_start).total_seconds())
    beside = case.beside
    compared = beside is not None and beside.slurm_node_s is not None
    return CaseOutcome(
        case=case,
        ending=ending,
        in_time=None if started is None else started <= case.deadline,
        wait_s=None if started is None else (started - case.submitted_at).total_seconds(),
        sooner_s=sooner_s,
        lost_node_s=loss if case.acted else 0.0,
        would_lose_node_s=0.0 if case.acted else loss,
        saved_node_s=beside.slurm_node_s - beside.plan_node_s
        if compared and beside is not None and beside.slurm_node_s is not None
        else None,
        jobs=jobs,
    )


def _ending(case: Case) -> Ending:
    if case.called_off:
        return Ending.CALLED_OFF
    if case.started_at is None:
        return Ending.GONE if case.gone_at is not None else Ending.WAITS
    if case.acted:
        return Ending.SERVED
    return Ending.SOONER if case.started_at > case.expected_start else Ending.NOT_NEEDED


def _job(job: CaseJob, case: Case) -> JobOutcome:
    pays = job.preempted if case.acted else job.action is not Action.END
    lost = job.actual_lost_node_s if case.acted else job.predicted_lost_node_s
    by_itself = not job.preempted and job.action is not Action.END and job.left_at is not None
    soon = by_itself and job.left_at is not None and job.left_at <= case.expected_start + SOON
    return JobOutcome(job, pays, lost if pays else 0.0, soon)


def _sums(outcomes: Iterable[CaseOutcome]) -> Sums:
    every = tuple(outcomes)
    beside = [each.case.beside for each in every if each.case.beside is not None]
    both = [(each.plan_node_s, each.slurm_node_s) for each in beside if each.slurm_node_s is not None]
    clearway, slurm = sum(a for a, _ in both), sum(b for _, b in both)
    return Sums(
        cases=len(every),
        urgent_jobs=len({each.case.job_id for each in every}),
        by_ending={ending.value: sum(1 for each in every if each.ending is ending) for ending in Ending},
        in_time=sum(1 for each in every if each.in_time),
        lost_node_s=sum(each.lost_node_s for each in every),
        would_lose_node_s=sum(each.would_lose_node_s for each in every),
        sooner_s=sum(each.sooner_s for each in every),
        compared=len(both),
        plan_node_s=clearway,
        slurm_node_s=slurm,
        saved_node_s=slurm - clearway,
        slurm_without_plan=len(beside) - len(both),
        not_compared=len(every) - len(beside),
        unlisted=sum(each.case.unlisted for each in every),
        unlisted_node_s=sum(each.case.unlisted_node_s for each in every),
        ended_soon=sum(1 for each in every for job in each.jobs if job.ended_soon),
    )


def _users(outcomes: Iterable[CaseOutcome]) -> tuple[UserShare, ...]:
    shares: dict[str, UserShare] = {}
    for each in outcomes:
        for one in each.jobs:
            if not one.pays:
                continue
            had = shares.get(one.job.user, UserShare(one.job.user, 0, 0.0, 0.0, 0))
            lost = one.lost_node_s or 0.0
            shares[one.job.user] = UserShare(
                had.user,
                had.jobs + 1,
                had.lost_node_s + (lost if each.case.acted else 0.0),
                had.would_lose_node_s + (0.0 if each.case.acted else lost),
                had.ended_soon + one.ended_soon,
            )
    return tuple(sorted(shares.values(), key=lambda s: (-s.lost_node_s - s.would_lose_node_s, -s.jobs, s.user)))


def _held(outcomes: Iterable[CaseOutcome]) -> Held:
    acted = [each.case for each in outcomes if each.case.acted]
    jobs = [job for case in acted for job in case.jobs]
    times = [
        (job.actual_checkpoint_s, job.predicted_checkpoint_s) for job in jobs if job.actual_checkpoint_s is not None
    ]
    carried_out = (case for case in acted if not case.called_off)
    starts = [(case.started_at, case) for case in carried_out if case.started_at is not None]
    measured = [job for job in jobs if job.preempted and job.actual_lost_node_s is not None]
    ratios = [actual / predicted for actual, predicted in times if predicted > 0]
    return Held(
        checkpoints=len(times),
        checkpoints_within=sum(1 for actual, predicted in times if actual <= predicted),
        checkpoint_ratio=median(ratios) if ratios else None,
        starts=len(starts),
        starts_in_time=sum(1 for started, case in starts if started <= case.deadline),
        start_error_s=median([(at - case.expected_start).total_seconds() for at, case in starts]) if starts else None,
        losses=len(measured),
        predicted_lost_node_s=sum(job.predicted_lost_node_s for job in measured),
        actual_lost_node_s=sum(job.actual_lost_node_s or 0.0 for job in measured),
    )
