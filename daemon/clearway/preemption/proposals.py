"""Proposals: plans that nothing was done for yet. They are kept true while they wait, and are not made anew needlessly.

One that waits for approval stays until it does not fit the cluster any more. An operator approves what was read: when
only its time has passed, it is planned again for the same nodes, and keeps its number where the same jobs leave in the
same ways. One that is only observed has another plan put in its place. The database keeps the newest plan of each.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from clearway.config.configuration import Mode
from clearway.eligibility.under_way import UnderWay, promised_by, under_way_by
from clearway.estimates.checkpoint_load import approval_s, file_system_busy_s, latest_of
from clearway.execution.cycle_context import UNDER_WAY, CycleContext, PlanningBasis
from clearway.execution.executor import Executor
from clearway.execution.open_operations import OpenOperations
from clearway.execution.progress import entered, planned_preemptions
from clearway.execution.restraints import UserPauses
from clearway.model.cluster import JobState
from clearway.model.operations import Eviction, EvictionState, Operation, Usage
from clearway.model.plan import Plan
from clearway.preemption.ask import waiting_now
from clearway.preemption.held_back import after_planning
from clearway.preemption.plan import decide
from clearway.preemption.validation import over_budget, over_limits, plan_aged, plan_misfit

RENEWED_EVERY = timedelta(seconds=60)  # where only time has passed


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


@dataclass(frozen=True, slots=True)
class Proposals:
    """Looks after evictions without a placement; ``outdated`` are those that another plan is wanted for."""

    operations: OpenOperations
    executor: Executor
    approval: ApprovalRules
    basis: PlanningBasis
    outdated: dict[str, tuple[Eviction, str]] = field(default_factory=dict)  # and why, by job_id of the preemptor

    def fits(self, e: Eviction, open_ones: Sequence[Operation], context: CycleContext) -> bool:
        """Whether it may be carried on as it is stored now; one that does not fit any more is put aside."""
        if e.state is EvictionState.CANCELLING:
            return True
        if (known := self.operations.find(e.eviction_id)) is None or known.state.terminal:
            return False  # with another component of its job
        misfit, aged = self._misfit(e, open_ones, context)
        if e.state is EvictionState.PROPOSED:
            return self._proposal_fits(e, misfit, aged, context)
        if not (misfit or aged):
            self._begin_if_allowed(e, context)
            return True
        if not misfit and (e.state is EvictionState.AWAITING_APPROVAL or e.approved_by):
            return self._fits_again(e, aged, context)
        if not misfit:  # the plan that takes its place counts on being begun as late as this one would have been
            self.basis.time.carried_out((context.now - e.plan.made_at).total_seconds())
        self._put_aside(e, misfit or aged, context)
        return False

    def _proposal_fits(self, e: Eviction, misfit: str, aged: str, context: CycleContext) -> bool:
        """One that nothing is asked about: while its job waits it stays until there is another."""
        acts = "" if context.config.daemon.mode is Mode.OBSERVE else "the daemon does not only observe any more"
        if not (misfit or aged or acts):
            return True
        seen = context.snapshot.job_by_id.get(e.preemptor.job_id)
        why = misfit or aged or acts
        if seen is None or seen.state is not JobState.PENDING or not seen.priority:
            self._put_aside(e, why, context)
            return False
        if why != aged or context.now - e.plan.made_at >= RENEWED_EVERY:
            self.outdated[seen.job_id] = e, why
        return True

    def _put_aside(self, e: Eviction, why: str, context: CycleContext) -> None:
        """With those of the other components of its job, as far as they have no placement: they have one plan."""
        for other in self.operations.others(e):
            same = isinstance(other, Eviction) and other.preemptor.job_id in e.plan.components
            if same and not other.placement and other.state is not EvictionState.CANCELLING:
                self.executor.put_aside(other, f"component {e.preemptor.display_id}: {why}", context.now)
        self.executor.put_aside(e, why, context.now)

    def replace_plan(self, e: Eviction, plan: Plan, context: CycleContext) -> Eviction:
        """The proposal with another plan, stored in place of the one before."""
        preemptions = planned_preemptions(plan, context.now)
        after = replace(e, plan=plan, preemptions=preemptions, revision=e.revision + 1)
        self.operations.replace_proposal(after)
        return after

    def put_outdated_aside(self, job_id: str, context: CycleContext) -> None:
        """There is no other plan for an outdated one."""
        e, why = self.outdated.pop(job_id)
        self.executor.put_aside(e, why, context.now)

    def _begin_if_allowed(self, e: Eviction, context: CycleContext) -> None:
        """In automatic mode a plan waits only as long as there is a reason to ask."""
        if (
            e.state is EvictionState.AWAITING_APPROVAL
            and e.mode == Mode.AUTOMATIC
            and self.approval.given(e.plan, context)
        ):
            told = {"outcome": "", "outcome_code": None, "why": ""}
            self.operations.save(entered(e, EvictionState.PLACING, context.now, **told))

    def _misfit(self, e: Eviction, open_ones: Sequence[Operation], context: CycleContext) -> tuple[str, str]:
        """Why it does not fit the cluster, and why not the time left, any more; empty where it does."""
        # A proposal may count on another proposal, but nothing that is carried out on something that may never be.
        config, now, snapshot, plan = context.config, context.now, context.snapshot, e.plan
        others = [other for other in open_ones if other.eviction_id != e.eviction_id]
        promised = promised_by([other for other in others if other.state.acting or not e.state.acting])
        together = (plan.preemptor.job_id, *plan.together)
        beside = [other for other in others if other.state.acting and other.subject.job_id not in together]
        left_s = (latest_of(e, config.execution) - now).total_seconds()
        later_s = max(0.0, file_system_busy_s(beside, snapshot, config, now, left_s) - plan.problem.busy_s)
        left_open_s = approval_s(e.mode, config.execution)
        acting = [other for other in others if other.state.acting]
        misfit = plan_misfit(plan, snapshot, promised, config)
        misfit = misfit or after_planning(
            plan, context.limits, acting, self.basis.context(context, UnderWay(), counts=False)
        )
        return misfit, plan_aged(plan, now, left_open_s, later_s)

    def _fits_again(self, e: Eviction, aged: str, context: CycleContext) -> bool:
        """Plan again for the same nodes, for one that an operator approves or has just approved."""
        waits = e.state is EvictionState.AWAITING_APPROVAL
        old, time = context.now - e.plan.made_at, self.basis.time
        if (waits and old < RENEWED_EVERY) or time.left_s(UNDER_WAY) <= 0:
            return waits
        plan = None
        # An approval that lay while no daemon ran is one of figures that are long past.
        if waits or old < 2 * RENEWED_EVERY:
            with time.spending():
                plan = self._same_again(e, context)
        if plan is None:
            self._put_aside(e, aged, context)
            return False
        # Where there is nothing to ask any more it begins now: by the next cycle it may have aged again.
        self._begin_if_allowed(self.replace_plan(e, plan, context), context)
        return True

    def _same_again(self, e: Eviction, context: CycleContext) -> Plan | None:
        """A plan in which the same jobs leave the same nodes in the same ways, or fewer of them."""
        preemptor = waiting_now(e.plan, context.snapshot, context.config)
        if preemptor is None:
            return None
        elsewhere = {node.name for node in context.snapshot.nodes} - set(e.plan.placement_nodes)
        under_way = under_way_by(self.operations.others(e), preemptor.deadline)
        under_way = replace(under_way, nodes=under_way.nodes | elsewhere)
        plan = decide(preemptor, self.basis.context(context, under_way), self.basis.planner)
        approved = {(each.job_id, each.action) for each in e.plan.chosen.actions}
        if not isinstance(plan, Plan) or not {(each.job_id, each.action) for each in plan.chosen.actions} <= approved:
            return None
        leaving = {job.job_id for job in e.plan.leaving}
        verdicts = {verdict.job_id: verdict for verdict in e.plan.verdicts if verdict.job_id not in leaving}
        verdicts |= {verdict.job_id: verdict for verdict in plan.verdicts if verdict.job_id in leaving}
        return replace(plan, verdicts=tuple(verdicts[job_id] for job_id in sorted(verdicts)))
