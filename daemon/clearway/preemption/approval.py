"""Why a plan has to wait for an operator although the daemon is automatic: what it would cost, and who it is for."""

from collections.abc import Sequence
from dataclasses import dataclass

from clearway.config.budget import BudgetConfig
from clearway.config.configuration import Mode
from clearway.execution.cycle_context import CycleContext
from clearway.execution.open_operations import OpenOperations
from clearway.model.operations import Usage
from clearway.model.plan import Plan
from clearway.model.records import Taking
from clearway.preemption.user_pauses import UserPauses
from clearway.preemption.validation import over_budget


@dataclass(frozen=True, slots=True)
class ApprovalRules:
    """Asked when a plan is stored, and again while it waits: a budget recovers, and a pause ends."""

    operations: OpenOperations
    pauses: UserPauses

    def why(self, plan: Plan, usage: Usage, context: CycleContext) -> str:
        """Half a sentence; empty where the plan may be carried out without being asked about."""
        budget = over_budget(plan, usage, context.config.budget)
        if budget or plan.ordinary:
            return budget
        asked = self.pauses.asked_about(plan.preemptor.user, context.now)
        return asked or over_limits(plan, self.operations.takings(context.now), context.config.budget)

    def given(self, plan: Plan, context: CycleContext) -> bool:
        """Whether a plan that waits for approval may be carried out by now without any."""
        if context.config.daemon.mode is not Mode.AUTOMATIC or context.paused:
            return False
        return not self.why(plan, self.operations.usage(context.now), context)


def over_limits(plan: Plan, takings: Sequence[Taking], budget: BudgetConfig) -> str:
    """Why this plan would exceed what may be taken in an hour for its user, account or rule; empty otherwise."""
    jobs = sum(job.job_id not in plan.eternal for job in plan.preemptees)
    lost_node_s = plan.chosen.lost_work_node_s or 0.0
    who = {"user": plan.preemptor.user, "account": plan.preemptor.account, "rule": plan.rule}
    for kind, name in who.items():
        same = [each for each in takings if name and getattr(each, kind) == name]
        sums: dict[str, float] = {
            "evictions": len(same) + 1,
            "jobs": sum(each.jobs for each in same) + jobs,
            "lost_node_hours": (sum(each.lost_node_s for each in same) + lost_node_s) / 3_600,
        }
        for what, amount in sums.items():
            limit = getattr(budget, f"{kind}_{what}_per_hour")
            if name and jobs and limit is not None and amount > limit:
                called = what.replace("lost_node_hours", "lost node-hours")
                return f"{amount:.4g} {called} within an hour would be for {kind} {name}, {limit:g} are allowed"
    return ""
