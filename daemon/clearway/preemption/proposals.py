"""Proposals: plans that nothing was done for yet. Which are worth storing, and how they are kept true while they wait.

One that waits for approval stays until it does not fit the cluster any more. An operator approves what was read: when
only its time has passed, it is planned again for the same nodes, and keeps its number where the same jobs leave in the
same ways. One that is only observed has another plan put in its place. The database keeps the newest plan of each.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from clearway.config.configuration import Mode
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import UnderWay, promised_by, under_way_by
from clearway.estimates.checkpoint_load import approval_s, file_system_busy_s, latest_of
from clearway.estimates.costs import TIME_LIMIT_SLACK_S
from clearway.execution.cycle_context import UNDER_WAY, CycleContext, PlanningBasis
from clearway.execution.executor import Executor
from clearway.execution.open_operations import OpenOperations
from clearway.execution.progress import entered, planned_preemptions
from clearway.execution.restraints import UserPauses
from clearway.model.cluster import ClusterSnapshot, Job, JobState, Node
from clearway.model.operations import Eviction, EvictionState, Operation
from clearway.model.plan import NoPlan, Plan, Preemptor
from clearway.model.records import Usage
from clearway.preemption.detection import waits_since
from clearway.preemption.plan import decide
from clearway.preemption.pledges import grown_more, is_for_the_same, not_approved, pledged
from clearway.preemption.validation import after_planning, over_budget, over_limits, plan_aged, plan_misfit, waiting_now

_SLURM_HAS_ITS_TURN_S = 15.0  # with enough free nodes it starts the job itself by then
# Where it may preempt jobs by itself, by then it has looked at the whole queue. Their grace comes on top, with the time
# until Slurm sees that it is over: it looks at that when it looks at time limits.
_SLURM_PREEMPTS_S = 30.0
# After a start of slurmctld all nodes are without an answer, measured 3 s for eight of them. Slurm itself calls a node
# DOWN after SlurmdTimeout (300 s), which is longer than an urgent job may wait.
MAY_BE_SILENT = timedelta(seconds=30)
RENEWED_EVERY = timedelta(seconds=60)  # where only time has passed


class SilentNodes:
    """Nodes that slurmctld waits for, since when, as this daemon has seen it in every cycle; forgotten when it ends."""

    def __init__(self) -> None:
        self._since: dict[str, datetime] = {}

    def observe(self, nodes: Iterable[Node], now: datetime) -> None:
        self._since = {node.name: self._since.get(node.name, now) for node in nodes if node.silent}

    def lately(self, now: datetime) -> frozenset[str]:
        """Those that have not been silent for long."""
        return frozenset(name for name, since in self._since.items() if now - since < MAY_BE_SILENT)


def slurm_preempts(preemptor: Preemptor, snapshot: ClusterSnapshot) -> bool:
    """Whether Slurm may start this preemptor by preempting others by itself: in doubt yes, which costs but a wait."""
    able = (_would_be_free(node, preemptor.job, snapshot) for node in snapshot.nodes)
    return any(snapshot.preempt_priorities.preempts.values()) and sum(able) >= preemptor.nodes


def _would_be_free(node: Node, waiting: Job, snapshot: ClusterSnapshot) -> bool:
    if not node.available or set(waiting.partitions).isdisjoint(node.partitions) or node.name in waiting.excluded_nodes:
        return False
    priorities = snapshot.preempt_priorities
    jobs = [job for job in snapshot.jobs_on.get(node.name, ()) if job.state is not JobState.COMPLETING]
    taken = [priorities.takes(job, waiting) for job in jobs]
    return all(taken) or (not waiting.exclusive and any(taken))


def _slurms_turn(preemptor: Preemptor, plan: Plan, snapshot: ClusterSnapshot, now: datetime) -> str:
    """Why Slurm may start the preemptor by itself; empty where its turn is over."""
    waited_s = (now - waits_since(preemptor.job)).total_seconds()
    if waited_s < _SLURM_HAS_ITS_TURN_S:
        holders = [job for name in plan.placement_nodes for job in snapshot.jobs_on.get(name, ())]
        free = all(job.state is JobState.COMPLETING or job.job_id in plan.staying for job in holders)
        if free and not plan.leaving and not plan.components:
            return "enough nodes are free; Slurm has its turn"
        if snapshot.power_saving.hides_nodes and preemptor.job.reason == "None":
            return "Slurm, which does not show nodes of the cloud that are off, has its turn"
    grace_s = snapshot.preempt_priorities.grace_s
    turn_s = _SLURM_PREEMPTS_S + (grace_s + TIME_LIMIT_SLACK_S if grace_s else 0.0)
    if plan.leaving and waited_s < turn_s and slurm_preempts(preemptor, snapshot):
        return "Slurm preempts jobs for it by itself, and has its turn"
    return ""


@dataclass(frozen=True, slots=True)
class Proposals:
    """Looks after evictions without a placement; ``outdated`` are those that another plan is wanted for."""

    operations: OpenOperations
    executor: Executor
    pauses: UserPauses
    basis: PlanningBasis
    outdated: dict[str, tuple[Eviction, str]] = field(default_factory=dict)  # and why, by job_id of the preemptor

    def pledged(self, plan: Plan, context: CycleContext) -> Plan:
        """With what may leave for its job in all, evictions before included."""
        earlier = self.operations.newest_begun(plan.preemptor)
        goes_on = earlier is not None and is_for_the_same(earlier, plan.preemptor)
        return replace(plan, pledge=pledged(plan, earlier if goes_on else None, late_kills=context.late_kills))

    def asked_about(self, plan: Plan, usage: Usage, context: CycleContext) -> str:
        """Why a plan needs approval, half a sentence; asked again while it waits: a budget recovers, a pause ends."""
        if plan.pledge is not None and plan.pledge.asks:
            return plan.pledge.asks
        budget = over_budget(plan, usage, context.config.budget)
        if budget or plan.ordinary:
            return budget
        asked = self.pauses.asked_about(plan.preemptor.user, context.now)
        return asked or over_limits(
            plan, self.operations.takings(context.now), context.config.budget, context.snapshot.vouched
        )

    def needless(
        self,
        preemptor: Preemptor,
        plan: Plan,
        planning: PlanningContext,
        database_full: bool,
        may_answer: frozenset[str],
    ) -> str:
        """Why a plan is not worth storing; empty where it is. ``may_answer``: nodes that may take jobs in a moment."""
        snapshot = planning.snapshot
        if database_full and planning.config.daemon.mode is Mode.OBSERVE:
            return "the database is larger than daemon.database_limit_mib, so that proposals are not stored"
        if preemptor.ordinary and not plan.preemptees:
            return "enough nodes are free; Slurm starts it in its turn"
        if why := _slurms_turn(preemptor, plan, snapshot, planning.now):
            return why
        silent = {node.name for node in snapshot.nodes if node.name in may_answer and not node.available}
        if not plan.leaving or not silent:
            return ""
        nodes = tuple(replace(node, available=node.available or node.name in silent) for node in snapshot.nodes)
        under_way = under_way_by(self.operations.all(), preemptor.deadline)
        soon = replace(planning, snapshot=replace(snapshot, nodes=nodes), under_way=under_way)
        then = decide(preemptor, soon, self.basis.planner)
        fewer = isinstance(then, Plan) and len(then.leaving) < len(plan.leaving)
        return "nodes that Slurm waits for may answer in a moment; then fewer jobs leave, or none" if fewer else ""

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
        if not (why := misfit or aged or acts):
            return True
        seen = context.snapshot.job_by_id.get(e.preemptor.job_id)
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
        after = replace(e, plan=plan, preemptions=planned_preemptions(plan, context.now), revision=e.revision + 1)
        self.operations.replace_proposal(after)
        return after

    def _begin_if_allowed(self, e: Eviction, context: CycleContext) -> None:
        """In automatic mode a plan waits only as long as there is a reason to ask."""
        waits = e.state is EvictionState.AWAITING_APPROVAL and e.mode == Mode.AUTOMATIC
        may_begin = context.config.daemon.mode is Mode.AUTOMATIC and not context.paused
        if waits and may_begin and not self.asked_about(e.plan, self.operations.usage(context.now), context):
            self.operations.save(entered(e, EvictionState.PLACING, context.now, outcome="", outcome_code=None, why=""))

    def _misfit(self, e: Eviction, open_ones: Sequence[Operation], context: CycleContext) -> tuple[str, str]:
        """Why it does not fit the cluster, and why not the time left, any more; empty where it does."""
        # A proposal may count on another proposal, but nothing that is carried out on something that may never be.
        config, now, plan = context.config, context.now, e.plan
        others = [other for other in open_ones if other.eviction_id != e.eviction_id]
        acting = [other for other in others if other.state.acting]
        misfit = plan_misfit(plan, context.snapshot, promised_by(acting if e.state.acting else others), config)
        misfit = misfit or after_planning(plan, acting, self.basis.context(context, UnderWay(), counts=False))
        beside = [each for each in acting if each.subject.job_id not in (plan.preemptor.job_id, *plan.together)]
        left_s = (latest_of(e, config.execution) - now).total_seconds()
        later_s = max(0.0, file_system_busy_s(beside, context.snapshot, config, now, left_s) - plan.problem.busy_s)
        return misfit, plan_aged(plan, now, approval_s(e.mode, config.execution), later_s)

    def _fits_again(self, e: Eviction, aged: str, context: CycleContext) -> bool:
        """Plan again for the same nodes, for one that an operator approves or has just approved."""
        waits = e.state is EvictionState.AWAITING_APPROVAL
        old, time = context.now - e.plan.made_at, self.basis.time
        if (waits and old < RENEWED_EVERY) or time.left_s(UNDER_WAY) <= 0:
            return waits
        with time.spending():
            # An approval that lay while no daemon ran is one of figures that are long past.
            plan = self._same_again(e, context) if waits or old < 2 * RENEWED_EVERY else None
        if plan is None:
            self._put_aside(e, aged, context)
            return False
        # Where there is nothing to ask any more it begins now: by the next cycle it may have aged again.
        self._begin_if_allowed(self.replace_plan(e, plan, context), context)
        return True

    def _same_again(self, e: Eviction, context: CycleContext) -> Plan | None:
        """A plan in which the same jobs leave the same nodes in the same ways, or fewer of them.

        They lose no more than the time that has passed. So the number of a proposal stands for what was read.
        """
        preemptor = waiting_now(e.plan, context.snapshot, context.config)
        if preemptor is None:
            return None
        elsewhere = {node.name for node in context.snapshot.nodes} - set(e.plan.placement_nodes)
        under_way = under_way_by(self.operations.others(e), preemptor.deadline)
        under_way = replace(under_way, nodes=under_way.nodes | elsewhere)
        plan = decide(preemptor, self.basis.context(context, under_way), self.basis.planner)
        if isinstance(plan, NoPlan) or not_approved(e, plan) or grown_more(e.plan, plan):
            return None
        same = len(plan.chosen.actions) == len(e.plan.chosen.actions)
        plan = replace(plan, same_since=e.plan.same_since if same else e.revision + 1)
        leaving = {job.job_id for job in e.plan.leaving}
        verdicts = [
            told for each in (e.plan, plan) for told in each.verdicts if (told.job_id in leaving) == (each is plan)
        ]
        return self.pledged(replace(plan, verdicts=tuple(sorted(verdicts, key=lambda each: each.job_id))), context)
