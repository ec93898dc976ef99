"""Which jobs may not be preempted, and why. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from clearway.config.configuration import Config
from clearway.eligibility.eternal import is_eternal
from clearway.eligibility.under_way import UnderWay
from clearway.eligibility.urgent import matching_rule
from clearway.model.claims import read_claims
from clearway.model.cluster import Job, JobState
from clearway.model.durations import format_duration

_MOST_DOUBLINGS = 20  # of the time that a job may run undisturbed


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
