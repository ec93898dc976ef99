"""Which jobs must not be touched, and why: one table for preemptions, drains and relocations. Pure.

A guard is a code, the purposes for which it holds, and a function that returns the sentence why the job is exempt;
empty where the guard does not apply. The first guard that applies decides. Codes are stable: they are stored and shown.

No person asks that this very job be preempted or relocated: there the guards against too early and too frequent
preemption hold. An operator names the nodes of a drain: there only protection holds, and a forced drain ends that too.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from clearway.config.configuration import CandidatesConfig
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.eternal import is_eternal
from clearway.eligibility.urgent import matching_rule
from clearway.model.claims import read_claims
from clearway.model.cluster import Job, JobState
from clearway.model.durations import format_duration
from clearway.model.preemptor import Preemptor

_MOST_DOUBLINGS = 20  # of the time that a job may run undisturbed
_COMPOSITE = "|[*!("  # marks of a constraint that is more than names joined by &


class Purpose(StrEnum):
    """What a job would be taken off its nodes for."""

    PREEMPTION = "preemption"
    DRAIN = "drain"
    FORCED_DRAIN = "forced_drain"
    RELOCATION = "relocation"


class Exemption(NamedTuple):
    """Why a job must not be touched."""

    code: str
    reason: str


def exemption(
    job: Job,
    purpose: Purpose,
    context: PlanningContext,
    *,
    preemptor: Preemptor | None = None,
    nodes: Collection[str] = (),
) -> Exemption | None:
    """Why this job must not be touched for this purpose; None where it may be.

    ``preemptor`` is the job that it would leave for, ``nodes`` are those that a drain empties.
    """
    case = _Case(job, context, preemptor, nodes)
    for guard in _GUARDS_FOR[purpose]:
        reason = guard.reason(case)
        if reason:
            return Exemption(guard.code, reason)
    return None


@dataclass(frozen=True)
class _Case:
    """One job, and what its guards go by."""

    job: Job
    context: PlanningContext
    preemptor: Preemptor | None
    nodes: Collection[str]

    @property
    def rules(self) -> CandidatesConfig:
        return self.context.config.candidates

    @cached_property
    def eternal(self) -> bool:
        return is_eternal(self.job, self.context.config.eternal)

    @cached_property
    def ran_s(self) -> float:
        start = self.job.start_time
        return (self.context.now - start).total_seconds() if start else 0.0

    @cached_property
    def preemptions(self) -> int:
        """Those before; of eternal jobs, which are there to be preempted, none counts."""
        return 0 if self.eternal else self.context.preempted.get(self.job.job_id, 0)


@dataclass(frozen=True, slots=True)
class Guard:
    """One reason for which jobs are not touched."""

    code: str
    purposes: frozenset[Purpose]
    reason: Callable[[_Case], str]


def _not_running(case: _Case) -> str:
    state = case.job.state
    return f"it is {state.value}; only running jobs are preempted or moved" if state is not JobState.RUNNING else ""


def _urgent(case: _Case) -> str:
    urgent = matching_rule(case.job, case.context.config.preemptors) is not None
    return "it is an urgent job" if urgent else ""


def _under_way(case: _Case) -> str:
    concerned = case.job.job_id in case.context.under_way.jobs
    return "another eviction already concerns it" if concerned else ""


def _did_not_leave(case: _Case) -> str:
    return "it did not leave in time when it was asked to" if case.job.job_id in case.context.under_way.avoid else ""


def _not_eternal(case: _Case) -> str:
    if case.preemptor is None or not case.preemptor.only_opportunistic or case.eternal:
        return ""
    if case.preemptor.ordinary:
        return "only eternal jobs leave for an ordinary job"
    return "eternal jobs suffice for the urgent job"


def _restarting(case: _Case) -> str:
    """The job's claim is an earlier run's: a signal before the launcher is ready would end the job."""
    claims, _ = read_claims(case.job) if case.eternal else (None, "")
    if claims is None or claims.asked is None or case.job.start_time is None or claims.asked >= case.job.start_time:
        return ""
    return "what it says of its checkpoints is from an earlier run; this one has not got so far"


def _protected_partition(case: _Case) -> str:
    return "its partition is protected" if set(case.job.partitions) & set(case.rules.protected_partitions) else ""


def _protected_qos(case: _Case) -> str:
    return f"its QoS {case.job.qos} is protected" if case.job.qos in case.rules.protected_qos else ""


def _protected_account(case: _Case) -> str:
    return f"its account {case.job.account} is protected" if case.job.account in case.rules.protected_accounts else ""


def _protected_user(case: _Case) -> str:
    return f"its user {case.job.user} is protected" if case.job.user in case.rules.protected_users else ""


def _other_partition(case: _Case) -> str:
    wanted = case.rules.partitions
    if not wanted or case.eternal or set(case.job.partitions) & set(wanted):
        return ""
    return "its partition is not among those that may be preempted"


def _heterogeneous(case: _Case) -> str:
    return "it is part of a heterogeneous job" if case.job.het_job_id is not None else ""


def _not_requeueable(case: _Case) -> str:
    may_cancel = case.rules.allow_cancel and case.rules.allow_kill and not case.eternal
    if case.job.can_be_requeued or may_cancel:
        return ""
    return "it cannot be requeued, and cancelling for good is not allowed"


def _too_young(case: _Case) -> str:
    """Every preemption doubles what a job may run undisturbed: however many urgent jobs come, it gets on."""
    count = case.preemptions
    least_s = case.rules.min_runtime * 2 ** min(count, _MOST_DOUBLINGS)
    if case.eternal:
        least_s = case.context.config.eternal.min_runtime
    if case.ran_s >= least_s:
        return ""
    again = f", as it was preempted {count} time{'s' * (count != 1)} before" if count else ""
    return f"it has run for {format_duration(max(0.0, case.ran_s))}, less than {format_duration(least_s)}{again}"


def _near_end(case: _Case) -> str:
    limit_s, spare_s = case.job.time_limit_s, case.rules.spare_before_end
    ends_soon = limit_s is not None and limit_s - case.ran_s <= spare_s
    return f"it ends within {format_duration(spare_s)}" if ends_soon else ""


def _preempted_before(case: _Case) -> str:
    count, most = case.preemptions, case.rules.max_preemptions
    if case.eternal or count < most:
        return ""
    return f"it was preempted {count} times already, {most} are allowed"


def _in_reservation(case: _Case) -> str:
    return f"it runs in reservation {case.job.reservation}" if case.job.reservation is not None else ""


def _asks_for_nodes(case: _Case) -> str:
    return "it asks for nodes by name" if case.job.required_nodes else ""


def _asks_for_drained_node(case: _Case) -> str:
    asked = sorted(set(case.job.required_nodes) & set(case.nodes))
    return f"it asks for node {asked[0]}, so it could not go on elsewhere" if asked else ""


def _holds_gres(case: _Case) -> str:
    return "it holds more than processors and memory" if case.job.gres else ""


def _holds_licenses(case: _Case) -> str:
    return "it holds licenses, which others could take meanwhile" if case.job.licenses else ""


def _composite_features(case: _Case) -> str:
    features = case.job.features
    return f"what it asks of nodes is not simple: {features}" if any(mark in features for mark in _COMPOSITE) else ""


_ALWAYS = frozenset(Purpose)
_UNLESS_FORCED = _ALWAYS - {Purpose.FORCED_DRAIN}
_UNASKED = frozenset({Purpose.PREEMPTION, Purpose.RELOCATION})
_PREEMPTION = frozenset({Purpose.PREEMPTION})
_DRAIN = frozenset({Purpose.DRAIN})
_RELOCATION = frozenset({Purpose.RELOCATION})

GUARDS: tuple[Guard, ...] = (
    Guard("state", _ALWAYS, _not_running),
    Guard("preemptor", _UNLESS_FORCED, _urgent),
    Guard("under_way", _ALWAYS, _under_way),
    Guard("did_not_leave", _UNASKED, _did_not_leave),
    Guard("not_eternal", _PREEMPTION, _not_eternal),
    Guard("restarting", _UNASKED, _restarting),
    Guard("protected_partition", _UNLESS_FORCED, _protected_partition),
    Guard("protected_qos", _UNLESS_FORCED, _protected_qos),
    Guard("protected_account", _UNLESS_FORCED, _protected_account),
    Guard("protected_user", _UNLESS_FORCED, _protected_user),
    Guard("partition", _UNASKED, _other_partition),
    Guard("heterogeneous", _ALWAYS, _heterogeneous),
    Guard("not_requeueable", _UNASKED, _not_requeueable),
    Guard("too_young", _UNASKED, _too_young),
    Guard("near_end", _UNASKED, _near_end),
    Guard("preempted_before", _UNASKED, _preempted_before),
    Guard("reservation", _RELOCATION, _in_reservation),
    Guard("asks_for_nodes", _RELOCATION, _asks_for_nodes),
    Guard("asks_for_drained_node", _DRAIN, _asks_for_drained_node),
    Guard("gres", _RELOCATION, _holds_gres),
    Guard("licenses", _RELOCATION, _holds_licenses),
    Guard("features", _RELOCATION, _composite_features),
)

_GUARDS_FOR = {purpose: tuple(guard for guard in GUARDS if purpose in guard.purposes) for purpose in Purpose}
