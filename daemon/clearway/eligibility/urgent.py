"""Which jobs are urgent (the first preemptor rule that a job meets), and which are eternal. Pure."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from clearway.config.configuration import Config, EternalConfig, PreemptorRule
from clearway.model.claims import read_claims
from clearway.model.cluster import Job
from clearway.model.site import Vouched


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


def refusals(rules: Sequence[PreemptorRule], vouched: Vouched) -> dict[int, str]:
    """The rules that do not hold on this site, by place: a sentence each, with what to do. No job is urgent by them.

    Whoever may use a partition is Slurm's word, and a user is whom Slurm knows. An account or a QoS that Slurm does not
    check is the job's own word, also beside a partition: it is there to narrow the rule. A user may narrow it alone.
    """
    found = {}
    for place, rule in enumerate(rules):
        if rests := "" if rule.user or rule.anybody else _own_word(rule, vouched):
            enforce = "associations,qos" if "QoS" in rests or "Qos" in rests else "associations"
            named = f"rule {rule.name}" if rule.name else name_of(rule, place)
            found[place] = (
                f"{named} makes no job urgent: Slurm does not check {rests} on this site; set "
                f"AccountingStorageEnforce={enforce} (with slurmdbd), or name users, or a partition with AllowGroups; "
                "anybody = true lets every user have it"
            )
    return found


def _own_word(rule: PreemptorRule, vouched: Vouched) -> str:
    """What the rule rests on and a job may say as it likes; empty: nothing."""
    if rule.account and not vouched.accounts:
        return "the account"
    if rule.qos and not vouched.qos:
        return "the QoS"
    closed = next((name for name in rule.partition if name in vouched.partitions), None)
    return "" if closed is None else f"{vouched.partitions[closed]} of partition {closed}"


def name_of(rule: PreemptorRule, place: int) -> str:
    return rule.name or f"rule {place + 1}"


def in_force(config: Config, vouched: Vouched) -> Config:
    """The same configuration with those rules alone that hold on this site; none changes its name."""
    refused = refusals(config.preemptors, vouched)
    if not refused:
        return config
    kept = [
        rule.model_copy(update={"name": name_of(rule, place)})
        for place, rule in enumerate(config.preemptors)
        if place not in refused
    ]
    return config.model_copy(update={"preemptors": tuple(kept)})


def urgent_partitions(job: Job, rule: PreemptorRule) -> tuple[str, ...]:
    """Where the rule makes this job urgent: those of its partitions that the rule names, or all if it names none."""
    # Slurm takes ``-p batch,urgent`` from a user whom ``urgent`` does not admit. So room is made in these alone.
    return tuple(name for name in job.partitions if not rule.partition or name in rule.partition)


def is_eternal(job: Job, settings: EternalConfig) -> bool:
    """Whether this job is in partitions for eternal jobs only."""
    return bool(settings.partitions and job.partitions) and set(job.partitions) <= set(settings.partitions)
