"""Which jobs are urgent (the first preemptor rule that a job meets), and which are eternal. Pure."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from clearway.config.configuration import EternalConfig, PreemptorRule
from clearway.model.claims import read_claims
from clearway.model.cluster import Job


def matching_rule(job: Job, rules: Sequence[PreemptorRule]) -> PreemptorRule | None:
    """The first rule that makes this job a preemptor."""
    for rule in rules:
        if (
            _is_of(rule, job)
            and (not rule.job_name or any(fnmatchcase(job.name, pattern) for pattern in rule.job_name))
            and (not rule.comment or _claims_delay(job))
        ):
            return rule
    return None


def may_be_urgent(rules: Sequence[PreemptorRule], job: Job) -> bool:
    """Whether some rule is for jobs of its partitions, QoS, account and user."""
    return any(_is_of(rule, job) for rule in rules)


def _claims_delay(job: Job) -> bool:
    claims, _ = read_claims(job)
    return claims is not None and claims.max_delay_s is not None


def _is_of(rule: PreemptorRule, job: Job) -> bool:
    return (
        (not rule.partition or not set(job.partitions).isdisjoint(rule.partition))
        and (not rule.qos or job.qos in rule.qos)
        and (not rule.account or job.account in rule.account)
        and (not rule.user or job.user in rule.user)
    )


def urgent_partitions(job: Job, rule: PreemptorRule) -> tuple[str, ...]:
    """Where the rule makes this job urgent: those of its partitions that the rule names, or all if it names none."""
    # Slurm takes ``-p batch,urgent`` from a user whom ``urgent`` does not admit. So room is made in these alone.
    return tuple(name for name in job.partitions if not rule.partition or name in rule.partition)


def is_eternal(job: Job, settings: EternalConfig) -> bool:
    """Whether this job is in partitions for eternal jobs only."""
    return bool(settings.partitions and job.partitions) and set(job.partitions) <= set(settings.partitions)
