"""Why a plan has to wait for an operator although the daemon is automatic: what it would cost, and who it is for."""

from dataclasses import dataclass

from clearway.config.configuration import Mode
from clearway.execution.cycle_context import CycleContext
from clearway.execution.open_operations import OpenOperations
from clearway.model.operations import Usage
from clearway.model.plan import Plan
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
        return self.pauses.asked_about(plan.preemptor.user, context.now)

    def given(self, plan: Plan, context: CycleContext) -> bool:
        """Whether a plan that waits for approval may be carried out by now without any."""
        if context.config.daemon.mode is not Mode.AUTOMATIC or context.paused:
            return False
        return not self.why(plan, self.operations.usage(context.now), context)
