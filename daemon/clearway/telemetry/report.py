"""The report on urgent jobs: what Clearway did or would have done, beside what happened and Slurm's own rule. Pure.

What would have happened is told no further than the first plan goes: when the urgent job would have started, and what
the jobs of that plan would have lost. An urgent job that starts at another time changes all that starts after it; of
this nothing is said (docs/decisions/0074).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from statistics import median
from typing import Any

from clearway.model.problem import Action
from clearway.model.urgent_report import Case, CaseJob, CaseOutcome, Ending, Held, JobOutcome, Report, Sums, UserShare
from clearway.telemetry.cases import SOON


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
    ending, started, beside = _ending(case), case.started_at, case.beside
    jobs = tuple(_job(each, case) for each in case.jobs)
    loss = case.unlisted_node_s + sum(each.lost_node_s or 0.0 for each in jobs if each.pays)
    would_be_sooner = ending in (Ending.SOONER, Ending.WAITS) and not case.acted
    slurm_node_s = None if beside is None else beside.slurm_node_s
    return CaseOutcome(
        case=case,
        ending=ending,
        in_time=None if started is None else started <= case.deadline,
        wait_s=None if started is None else (started - case.submitted_at).total_seconds(),
        sooner_s=max(0.0, ((started or until) - case.expected_start).total_seconds()) if would_be_sooner else 0.0,
        lost_node_s=loss if case.acted else 0.0,
        would_lose_node_s=0.0 if case.acted else loss,
        saved_node_s=None if beside is None or slurm_node_s is None else slurm_node_s - beside.plan_node_s,
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


def _sums(every: Sequence[CaseOutcome]) -> Sums:
    cases, endings = [each.case for each in every], Counter(each.ending for each in every)
    return Sums(
        cases=len(every),
        urgent_jobs=len({case.job_id for case in cases}),
        by_ending={ending.value: endings[ending] for ending in Ending},
        in_time=sum(bool(each.in_time) for each in every),
        lost_node_s=sum(each.lost_node_s for each in every),
        would_lose_node_s=sum(each.would_lose_node_s for each in every),
        sooner_s=sum(each.sooner_s for each in every),
        unlisted=sum(case.unlisted for case in cases),
        unlisted_node_s=sum(case.unlisted_node_s for case in cases),
        ended_soon=sum(job.ended_soon for each in every for job in each.jobs),
        **_beside_slurm(cases),
    )


def _beside_slurm(cases: Sequence[Case]) -> dict[str, Any]:
    beside = [case.beside for case in cases if case.beside is not None]
    both = [(each.plan_node_s, each.slurm_node_s) for each in beside if each.slurm_node_s is not None]
    clearway, slurm = sum(plan for plan, _ in both), sum(rule for _, rule in both)
    return {
        "compared": len(both),
        "plan_node_s": clearway,
        "slurm_node_s": slurm,
        "saved_node_s": slurm - clearway,
        "slurm_without_plan": len(beside) - len(both),
        "not_compared": len(cases) - len(beside),
    }


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
    return Held(**_checkpoints(jobs), **_starts(acted), **_losses(jobs))


def _checkpoints(jobs: Iterable[CaseJob]) -> dict[str, Any]:
    times = [(j.actual_checkpoint_s, j.predicted_checkpoint_s) for j in jobs if j.actual_checkpoint_s is not None]
    return {
        "checkpoints": len(times),
        "checkpoints_within": sum(actual <= predicted for actual, predicted in times),
        "checkpoint_ratio": _median([actual / predicted for actual, predicted in times if predicted > 0]),
    }


def _starts(acted: Iterable[Case]) -> dict[str, Any]:
    starts = [(case.started_at, case) for case in acted if case.started_at is not None and not case.called_off]
    return {
        "starts": len(starts),
        "starts_in_time": sum(started <= case.deadline for started, case in starts),
        "start_error_s": _median([(started - case.expected_start).total_seconds() for started, case in starts]),
    }


def _losses(jobs: Iterable[CaseJob]) -> dict[str, Any]:
    preempted = [(j.predicted_lost_node_s, j.actual_lost_node_s) for j in jobs if j.preempted]
    known = [(predicted, actual) for predicted, actual in preempted if actual is not None]
    return {
        "losses": len(known),
        "predicted_lost_node_s": sum(predicted for predicted, _ in known),
        "actual_lost_node_s": sum(actual for _, actual in known),
    }


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None
