"""The report on urgent jobs: what Clearway did or would have done, beside what happened and Slurm's own rule. Pure.

What would have happened is told no further than the first plan goes: an urgent job that starts at another time changes
all that starts after it (docs/decisions/0074).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from datetime import datetime
from operator import attrgetter
from statistics import median
from typing import Any

from clearway.api.report_schemas import ReportCase, ReportHeld, ReportJob, ReportSums, ReportUser, ReportView
from clearway.model.problem import Action
from clearway.model.records import Case, CaseJob, Ending
from clearway.telemetry.report import SOON


def report(
    cases: Sequence[Case], since: datetime, until: datetime, *, more: bool = False, complete: bool = True
) -> ReportView:
    found = sorted(cases, key=lambda case: (-case.began_at.timestamp(), case.job_id))
    told = tuple(_case(case, until) for case in found)
    return ReportView(
        since=since,
        until=until,
        complete=complete,
        more=more,
        sums=_sums(told),
        held=_held(found),
        users=_users(told),
        cases=told,
    )


def part_of(case: Case, user: str) -> Case | None:
    """What this user may see where jobs are private: own jobs, and the urgent job they leave for."""
    jobs = tuple(each for each in case.jobs if each.user == user)
    if not jobs and case.user != user:
        return None
    nodes = case.nodes if case.user == user else tuple(sorted({name for each in jobs for name in each.nodes}))
    return replace(case, jobs=jobs, nodes=nodes, unlisted=0, unlisted_node_s=0.0, beside=None, outcome="")


def _case(case: Case, until: datetime) -> ReportCase:
    ending, started = _ending(case), case.started_at
    jobs = tuple(_job(each, case) for each in case.jobs)
    loss = case.unlisted_node_s + sum(each.lost_node_s or 0.0 for each in jobs if each.pays)
    would_be_sooner = ending in (Ending.SOONER, Ending.WAITS) and not case.acted
    found = {
        "ending": ending,
        "in_time": None if started is None else started <= case.deadline,
        "wait_s": None if started is None else (started - case.submitted_at).total_seconds(),
        "sooner_s": max(0.0, ((started or until) - case.expected_start).total_seconds()) if would_be_sooner else 0.0,
        "lost_node_s": loss if case.acted else 0.0,
        "would_lose_node_s": 0.0 if case.acted else loss,
        "jobs": jobs,
        **_beside(case, loss),
    }
    return ReportCase.model_validate(_fields(case) | found)


def _beside(case: Case, loss_node_s: float) -> dict[str, float | None]:
    """Both for the same moment: that of the first job that left, or by the plan would have."""
    beside = case.beside
    if beside is None or case.called_off:
        return dict.fromkeys(("plan_node_s", "slurm_node_s", "saved_node_s"))
    left = min((each.left_at for each in case.jobs if each.preempted and each.left_at is not None), default=beside.at)
    slurm_node_s = beside.slurm_node_s_at(left)
    saved_node_s = None if slurm_node_s is None else slurm_node_s - loss_node_s
    return {"plan_node_s": loss_node_s, "slurm_node_s": slurm_node_s, "saved_node_s": saved_node_s}


def _fields(record: Case | CaseJob) -> dict[str, Any]:
    return {each.name: getattr(record, each.name) for each in fields(record)}


def _ending(case: Case) -> Ending:
    if case.called_off:
        return Ending.CALLED_OFF
    if case.started_at is None:
        return Ending.GONE if case.gone_at is not None else Ending.WAITS
    if case.acted:
        return Ending.SERVED
    return Ending.SOONER if case.started_at > case.expected_start else Ending.NOT_NEEDED


def _job(job: CaseJob, case: Case) -> ReportJob:
    pays = job.preempted if case.acted else job.action is not Action.END
    lost = job.actual_lost_node_s if case.acted else job.predicted_lost_node_s
    by_itself = not job.preempted and job.action is not Action.END and job.left_at is not None
    soon = by_itself and job.left_at is not None and job.left_at <= case.expected_start + SOON
    found = {"pays": pays, "lost_node_s": lost if pays else 0.0, "ended_soon": soon}
    return ReportJob.model_validate(_fields(job) | found)


def _sums(told: Sequence[ReportCase]) -> ReportSums:
    endings = Counter(each.ending for each in told)
    beside = [(each.plan_node_s, each.slurm_node_s) for each in told if each.plan_node_s is not None]
    both = [(plan or 0.0, slurm) for plan, slurm in beside if slurm is not None]
    clearway, slurm = sum(plan for plan, _ in both), sum(rule for _, rule in both)
    added_up = ("lost_node_s", "would_lose_node_s", "sooner_s", "unlisted", "unlisted_node_s")
    return ReportSums(
        cases=len(told),
        urgent_jobs=len(set(map(attrgetter("job_id"), told))),
        by_ending={ending: endings[ending] for ending in Ending},
        in_time=sum(bool(each.in_time) for each in told),
        ended_soon=sum(job.ended_soon for each in told for job in each.jobs),
        compared=len(both),
        plan_node_s=clearway,
        slurm_node_s=slurm,
        saved_node_s=slurm - clearway,
        slurm_without_plan=len(beside) - len(both),
        not_compared=len(told) - len(beside),
        **{name: sum(getattr(each, name) for each in told) for name in added_up},
    )


def _users(told: Iterable[ReportCase]) -> tuple[ReportUser, ...]:
    """Those whose jobs paid or would have, the largest loss first."""
    paid: defaultdict[str, list[tuple[ReportJob, bool]]] = defaultdict(list)
    for each in told:
        for job in each.jobs:
            if job.pays:
                paid[job.user].append((job, each.acted))
    shares = [
        ReportUser(
            user=user,
            jobs=len(jobs),
            lost_node_s=sum(job.lost_node_s or 0.0 for job, acted in jobs if acted),
            would_lose_node_s=sum(job.lost_node_s or 0.0 for job, acted in jobs if not acted),
            ended_soon=sum(job.ended_soon for job, _ in jobs),
        )
        for user, jobs in paid.items()
    ]
    return tuple(sorted(shares, key=lambda s: (-s.lost_node_s - s.would_lose_node_s, -s.jobs, s.user)))


def _held(cases: Iterable[Case]) -> ReportHeld:
    acted = [case for case in cases if case.acted]
    jobs = [job for case in acted for job in case.jobs]
    saved = [(actual, each.predicted_checkpoint_s) for each in jobs if (actual := each.actual_checkpoint_s) is not None]
    left = [each for each in jobs if each.preempted and each.actual_lost_node_s is not None]
    return ReportHeld(
        checkpoints=len(saved),
        checkpoints_within=sum(actual <= predicted for actual, predicted in saved),
        checkpoint_ratio=_median([actual / predicted for actual, predicted in saved if predicted > 0]),
        **_starts(acted),
        losses=len(left),
        predicted_lost_node_s=sum(map(attrgetter("predicted_lost_node_s"), left)),
        actual_lost_node_s=sum(map(attrgetter("actual_lost_node_s"), left)),
    )


def _starts(acted: Iterable[Case]) -> dict[str, Any]:
    starts = [(case.started_at, case) for case in acted if case.started_at is not None and not case.called_off]
    return {
        "starts": len(starts),
        "starts_in_time": sum(started <= case.deadline for started, case in starts),
        "start_error_s": _median([(started - case.expected_start).total_seconds() for started, case in starts]),
    }


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None
