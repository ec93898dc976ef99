"""Whether a job that a plan has chosen may still be made to leave: asked before each harmful command. Pure.

A plan is carried out over minutes, and meanwhile the configuration is reloaded, or a job is changed. So the guards are
asked again, of the job as the newest snapshot has it. Not all of them: a plan knows that time goes on, and that its own
preemption counts.
"""

from collections.abc import Collection
from dataclasses import dataclass

from clearway.eligibility.context import PlanningContext
from clearway.eligibility.exemption import Purpose, exemption
from clearway.eligibility.urgent import is_eternal, matching_rule
from clearway.model.cluster import Job
from clearway.model.operations import Preemption, PreemptionState
from clearway.model.plan import Preemptor
from clearway.model.problem import Action

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
