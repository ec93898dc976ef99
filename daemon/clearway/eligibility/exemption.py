"""Which jobs must not be touched, and why: one table for preemptions, drains and relocations. Pure.

A guard is a code, the purposes for which it holds, and a function that says whether the job is exempt; each code has a
sentence why. The first guard that applies decides. Codes are stable: they are stored and shown.

No person asks that this very job be preempted or relocated: there the guards against too early and too frequent
preemption hold. An operator names the nodes of a drain: there only protection holds, and a forced drain ends that too.

A plan is carried out over minutes, and meanwhile the configuration is reloaded, or a job is changed. So guards are
asked again before each harmful command (``why_not_now``), but for those that the plan itself has settled.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from clearway.config.configuration import CandidatesConfig
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.returning import past_deadline, why_no_return
from clearway.eligibility.urgent import is_eternal, matching_rule
from clearway.model.claims import of_another_run
from clearway.model.cluster import Job, JobState
from clearway.model.durations import format_duration
from clearway.model.operations import Preemption, PreemptionState
from clearway.model.plan import Preemptor
from clearway.model.problem import Action

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
    settled: Collection[str] = (),
) -> Exemption | None:
    """Why this job must not be touched for this purpose; None where it may be.

    ``preemptor`` is the job that it would leave for, ``nodes`` are those that a drain empties. Guards of the codes in
    ``settled`` are not asked.
    """
    ran_s = job.ran_s(context.now)
    case = _Case(job, context, purpose, preemptor, nodes, is_eternal(job, context.config.eternal), ran_s)
    for guard in _GUARDS_FOR[purpose]:
        if guard.code in settled:
            continue
        if found := guard.found(case):
            sentence = _SENTENCES.get(guard.code, "{found}")
            return Exemption(guard.code, sentence.format(it=case, job=job, found=found))
    return None


@dataclass(frozen=True, slots=True)
class _Case:
    """One job, and what its guards go by."""

    job: Job
    context: PlanningContext
    purpose: Purpose
    preemptor: Preemptor | None
    nodes: Collection[str]
    eternal: bool
    ran_s: float

    @property
    def rules(self) -> CandidatesConfig:
        return self.context.config.candidates

    @property
    def preemptions(self) -> int:
        """Those before; of eternal jobs, which are there to be preempted, none counts."""
        return 0 if self.eternal else self.context.preempted.get(self.job.job_id, 0)

    def is_in(self, partitions: Collection[str]) -> bool:
        return not set(self.job.partitions).isdisjoint(partitions)


@dataclass(frozen=True, slots=True)
class Guard:
    """One reason for which jobs are not touched; ``found`` is what keeps this one, nothing where it may go."""

    code: str
    purposes: frozenset[Purpose]
    found: Callable[[_Case], object]


def _not_eternal(case: _Case) -> str:
    if case.preemptor is None or not case.preemptor.only_opportunistic or case.eternal:
        return ""
    if case.preemptor.ordinary:
        return "only eternal jobs leave for an ordinary job"
    return "eternal jobs suffice for the urgent job"


def _restarting(case: _Case) -> bool:
    """The job's claim is an earlier run's: a signal before the launcher is ready would end the job."""
    return case.eternal and of_another_run(case.job)


def _not_requeueable(case: _Case) -> bool:
    return not (case.job.can_be_requeued or _may_be_lost(case))


def _may_be_lost(case: _Case) -> bool:
    """Whether a job may go that does not come back."""
    forced = case.purpose is Purpose.FORCED_DRAIN
    return case.rules.allow_cancel and (case.rules.allow_kill or forced) and not case.eternal


def _deadline(case: _Case) -> str:
    return "" if _may_be_lost(case) else past_deadline(case.job, case.context, case.preemptor)


def _would_not_return(case: _Case) -> str:
    return "" if _may_be_lost(case) else why_no_return(case.job, case.context, case.preemptor)


def least_runtime_s(job: Job, context: PlanningContext) -> float:
    """How long this job runs undisturbed: every preemption doubles it, so that it gets on however many come."""
    if is_eternal(job, context.config.eternal):
        return context.config.eternal.min_runtime
    count = context.preempted.get(job.job_id, 0)
    return context.config.candidates.min_runtime * 2.0 ** min(count, _MOST_DOUBLINGS)


def _too_young(case: _Case) -> str:
    count, least_s = case.preemptions, least_runtime_s(case.job, case.context)
    if case.ran_s >= least_s:
        return ""
    again = f", as it was preempted {count} time{'s' * (count != 1)} before" if count else ""
    return f"it has run for {format_duration(max(0.0, case.ran_s))}, less than {format_duration(least_s)}{again}"


def _near_end(case: _Case) -> str:
    end, spare_s = case.job.ends_by, case.rules.spare_before_end
    ends_soon = end is not None and (end - case.context.now).total_seconds() <= spare_s
    return f"it ends within {format_duration(spare_s)}" if ends_soon else ""


_ALWAYS = frozenset(Purpose)
_UNLESS_FORCED = _ALWAYS - {Purpose.FORCED_DRAIN}
_UNASKED = frozenset({Purpose.PREEMPTION, Purpose.RELOCATION})
_PREEMPTION = frozenset({Purpose.PREEMPTION})
_DRAIN = frozenset({Purpose.DRAIN})
_RELOCATION = frozenset({Purpose.RELOCATION})

GUARDS: tuple[Guard, ...] = (
    Guard("state", _ALWAYS, lambda it: it.job.state is not JobState.RUNNING),
    Guard("preemptor", _UNLESS_FORCED, lambda it: matching_rule(it.job, it.context.config.preemptors)),
    Guard("under_way", _ALWAYS, lambda it: it.job.job_id in it.context.under_way.jobs),
    Guard("did_not_leave", _UNASKED, lambda it: it.job.job_id in it.context.under_way.avoid),
    Guard("not_eternal", _PREEMPTION, _not_eternal),
    Guard("restarting", _UNASKED, _restarting),
    Guard("protected_partition", _UNLESS_FORCED, lambda it: it.is_in(it.rules.protected_partitions)),
    Guard("protected_qos", _UNLESS_FORCED, lambda it: it.job.qos in it.rules.protected_qos),
    Guard("protected_account", _UNLESS_FORCED, lambda it: it.job.account in it.rules.protected_accounts),
    Guard("protected_user", _UNLESS_FORCED, lambda it: it.job.user in it.rules.protected_users),
    Guard("partition", _UNASKED, lambda it: it.rules.partitions and not (it.eternal or it.is_in(it.rules.partitions))),
    Guard("heterogeneous", _ALWAYS, lambda it: it.job.het_job_id is not None),
    Guard("not_requeueable", _UNASKED, _not_requeueable),
    Guard("deadline", _ALWAYS, _deadline),
    Guard("too_young", _UNASKED, _too_young),
    Guard("near_end", _UNASKED, _near_end),
    Guard("preempted_before", _UNASKED, lambda it: not it.eternal and it.preemptions >= it.rules.max_preemptions),
    Guard("reservation", _RELOCATION, lambda it: it.job.reservation is not None),
    Guard("asks_for_nodes", _RELOCATION, lambda it: it.job.required_nodes),
    Guard("asks_for_drained_node", _DRAIN, lambda it: min(set(it.job.required_nodes) & set(it.nodes), default="")),
    Guard("gres", _RELOCATION, lambda it: it.job.gres),
    Guard("licenses", _RELOCATION, lambda it: it.job.licenses),
    Guard("features", _RELOCATION, lambda it: any(mark in it.job.features for mark in _COMPOSITE)),
    Guard("would_not_return", _UNASKED, _would_not_return),
)

# What is said of a job; of one that has no line here, what its guard has found.
_SENTENCES = {
    "state": "it is {job.state}; only running jobs are preempted or moved",
    "preemptor": "it is an urgent job",
    "under_way": "another eviction already concerns it",
    "did_not_leave": "it did not leave in time when it was asked to",
    "restarting": "what it says of its checkpoints is from an earlier run; this one has not got so far",
    "protected_partition": "its partition is protected",
    "protected_qos": "its QoS {job.qos} is protected",
    "protected_account": "its account {job.account} is protected",
    "protected_user": "its user {job.user} is protected",
    "partition": "its partition is not among those that may be preempted",
    "heterogeneous": "it is part of a heterogeneous job",
    "not_requeueable": "it cannot be requeued, and cancelling for good is not allowed",
    "preempted_before": "it was preempted {it.preemptions} times already, {it.rules.max_preemptions} are allowed",
    "reservation": "it runs in reservation {job.reservation}",
    "asks_for_nodes": "it asks for nodes by name",
    "asks_for_drained_node": "it asks for node {found}, so it could not go on elsewhere",
    "gres": "it holds more than processors and memory",
    "licenses": "it holds licenses, which others could take meanwhile",
    "features": "what it asks of nodes is not simple: {job.features}",
}

_GUARDS_FOR = {purpose: tuple(guard for guard in GUARDS if purpose in guard.purposes) for purpose in Purpose}


# What a plan has settled: other plans know of its jobs, and it has reckoned with their ends.
_BY_PLAN = frozenset({"under_way", "did_not_leave", "near_end"})
# How soon and how often a job may be preempted is settled by the first step.
_BY_FIRST_STEP = _BY_PLAN | {"restarting", "too_young", "preempted_before"}


@dataclass(frozen=True, slots=True)
class Cause:
    """What the jobs of an operation leave for."""

    purpose: Purpose
    preemptor: Preemptor | None = None
    nodes: Collection[str] = ()  # that a drain empties
    budgeted: bool = False  # the budget holds for it: no person has asked for it, or approved it


def why_not_now(p: Preemption, seen: Job, cause: Cause, context: PlanningContext) -> str:
    """Why this job, which is still in its run, must not be made to leave now; empty where it may."""
    settled = _BY_PLAN if p.state is PreemptionState.PLANNED else _BY_FIRST_STEP
    exempt = exemption(seen, cause.purpose, context, preemptor=cause.preemptor, nodes=cause.nodes, settled=settled)
    if exempt is not None:
        return exempt.reason
    if seen.nodes != p.job.nodes and cause.purpose in _UNASKED:
        return "it runs on other nodes than when that was planned"
    return _why_not_this_way(p, seen, cause, context) or _why_not_for(cause.preemptor, context)


def _why_not_this_way(p: Preemption, seen: Job, cause: Cause, context: PlanningContext) -> str:
    rules, asked_for = context.config.candidates, cause.purpose is Purpose.FORCED_DRAIN
    if p.action is Action.SUSPEND:
        return "" if rules.allow_suspend else "suspending jobs is not allowed any more (candidates.allow_suspend)"
    if p.action is Action.KILL and not asked_for:
        if not rules.allow_kill:
            return "a requeue without a checkpoint is not allowed any more (candidates.allow_kill)"
        if is_eternal(seen, context.config.eternal):
            return "it is an eternal job now, which is never requeued without a checkpoint"
    if not seen.can_be_requeued and (p.job.can_be_requeued or not rules.allow_cancel):
        return "it cannot be requeued" + (" any more" if p.job.can_be_requeued else "")
    return ""


def _why_not_for(preemptor: Preemptor | None, context: PlanningContext) -> str:
    if preemptor is None or preemptor.ordinary:
        return ""
    job = context.snapshot.job_by_id.get(preemptor.job.job_id, preemptor.job)
    return "" if matching_rule(job, context.config.preemptors) else f"job {job.display_id} is not urgent any more"
