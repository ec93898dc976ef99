"""The rows of the table for promises, whose hold is a placement that begins at the promised time. Pure, but for plans.

placing     the placement (a Slurm reservation) is made over the chosen nodes; it begins at the promised time
preempting  until jobs have to be asked nothing is done; then the plan is made anew, and the preemptions' own table
            follows. Nodes that are lost are replaced
started     its time has come and the nodes are free; the placement stays until the promise is over
returning   the placement is gone, and preempted jobs are watched until they run again
cancelling  the same; what has left its nodes by then comes back

Where nodes are not free at the promised time, that is told, and room is made on until the promise is over.

Model of its plans: a promise is a preemptor that is known before. It asks for so many whole nodes of a partition, its
deadline is the promised time, and its time limit is how long they are promised for. So it is the eviction problem, and
the same rules say which jobs may leave. No job waits, so the cheapest point of the curve is taken, not the earliest.
Jobs that their time limits end by the promised time count as gone, as Slurm counts them for its reservations.

Jobs are asked at ``asks_at``: the promised time less what Slurm needs to empty nodes, the time of all their checkpoints
one after another, and some spare. Until then the plan only says which nodes are held; then it is made anew, as jobs
may have ended before their limits.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta

from clearway.config.configuration import Config, Mode
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.exemption import Cause, Purpose
from clearway.eligibility.under_way import UnderWay, under_way_by, under_way_for_replan
from clearway.execution.cycle_context import UNDER_WAY, CycleContext, PlanningBasis
from clearway.execution.job_lifecycle import Command, StepContext
from clearway.execution.lifecycle import E, Lifecycle, Phase, Target, call_off, close_phase, placement_phase
from clearway.model.cluster import ClusterSnapshot, Job, JobState, Reservation
from clearway.model.errors import SlurmError
from clearway.model.operations import CHECKPOINTS, Operation, Preemption, PreemptionState, Promise
from clearway.model.orders import PromiseOrder
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.model.plan import Curve, CurvePoint, NoPlan, OperationPlan, Preemptor, PromisePlan
from clearway.model.problem import EvictionProblem
from clearway.planning.base import Planner
from clearway.preemption.candidates import changes_at
from clearway.preemption.plan import plan_alone, solve_alone
from clearway.preemption.validation import over_budget

# Slurm ends jobs up to half a minute after their time limits, and then needs some time.
TOLERANCE = timedelta(minutes=1)
LATE_S = 600.0  # where it is not kept, the nodes shall be free within this
_SOON = timedelta(seconds=1)  # jobs that would be asked within this are asked at once


def first_plan(order: PromiseOrder, config: Config, now: datetime) -> PromisePlan:
    """A plan that holds nothing: long before its time nothing is done for a promise."""
    point = CurvePoint(0, feasible=True, lost_work_node_s=0.0, checkpoint_s=0, nodes_freed=0)
    return PromisePlan(
        made_at=now,
        deadline=order.at,
        nodes_needed=order.nodes,
        problem=EvictionProblem(0, 0, 1, (), order.nodes),
        curve=Curve(config.planning.planner, (point,)),
        chosen=point,
        placement_nodes=(),
        free_nodes=(),
        leaving=(),
        order=order,
        asks_at=order.at,
    )


def plan_promise(
    order: PromiseOrder, context: PlanningContext, planner: Planner, placement: str = ""
) -> PromisePlan | NoPlan:
    """The cheapest nodes and jobs; ``placement`` names its own reservation, where it has one."""
    snapshot, config, now = context.snapshot, context.config, context.now
    gone = {job.job_id for job in snapshot.holders if not in_the_way(job, order, placement)}
    under_way = replace(context.under_way, leaving=context.under_way.leaving | gone)
    # A suspended job would stay on the nodes, and no approval has to be waited for.
    candidates = config.candidates.model_copy(update={"allow_suspend": False})
    daemon = config.daemon.model_copy(update={"mode": Mode.AUTOMATIC})
    config = config.model_copy(update={"candidates": candidates, "daemon": daemon})
    # A waiting job that asks for what is promised.
    stand_in = Job(
        job_id="promise",
        user=order.users[0],
        name="promise",
        state=JobState.PENDING,
        raw_state="PENDING",
        reason="Resources",
        partitions=(order.partition,),
        num_nodes=order.nodes,
        submit_time=now,
        time_limit_s=int(order.duration_s),
        reservation=placement or None,
    )
    preemptor = Preemptor(job=stand_in, rule="", max_delay_s=LATE_S, deadline=order.at, waits=False)
    coming = tuple(each for each in context.reservations if each.end_time > order.at)
    context = replace(context, under_way=under_way, config=config, reservations=coming)
    found = solve_alone(preemptor, context, planner, whole=True)
    if isinstance(found, NoPlan):
        return found
    cheapest, plan = found.point, plan_alone(found, planner)
    saving_s = sum(each.takes_s for each in cheapest.actions if each.action in CHECKPOINTS)
    rounding_s = 2 * plan.problem.step_s
    needed_s = plan.problem.busy_s + saving_s + rounding_s + config.promises.spare + config.execution.kill_allowance
    asks_at = order.at - timedelta(seconds=needed_s)
    known = {each.name: getattr(plan, each.name) for each in fields(OperationPlan)}
    if now + _SOON < asks_at:
        known |= {"chosen": replace(cheapest, actions=()), "leaving": (), "eternal": ()}
    return PromisePlan(**known, order=order, asks_at=asks_at)


def plan_now(
    e: Promise, under_way: UnderWay, asks: object, cycle: CycleContext, basis: PlanningBasis
) -> PromisePlan | NoPlan | None:
    """A plan within the budget; None: there was none for the cluster as it is, or there is no time for one now."""
    ident = f"promise {e.eviction_id}"
    if basis.impossible.why(ident, asks, cycle.now) is not None or basis.time.left_s(UNDER_WAY) <= 0:
        return None
    with basis.time.spending():
        context = basis.context(cycle, under_way)
        plan = plan_promise(e.order, context, basis.planner, e.placement)
        if isinstance(plan, PromisePlan) and plan.leaving:
            usage = basis.operations.usage_beside(e, cycle.now)
            if why := over_budget(plan, usage, cycle.config.budget):
                return NoPlan(why)
    if isinstance(plan, NoPlan) and plan.curve is not None:
        seen = replace(context, under_way=replace(under_way, avoid=frozenset()))
        basis.impossible.remember(ident, asks, plan.why, changes_at(seen, e.order.at, LATE_S))
    return plan


def in_the_way(job: Job, order: PromiseOrder, placement: str) -> bool:
    """Whether a job on promised nodes would still be there at the promised time, and is not one that they are for."""
    if job.state is JobState.COMPLETING or (placement and job.reservation == placement):
        return False
    return job.ends_by is None or job.ends_by > order.at


def under_way_beside(order: PromiseOrder, others: Sequence[Operation]) -> UnderWay:
    """What other operations claim; promises for other times claim no nodes."""
    apart = [each for each in others if isinstance(each, Promise) and not each.order.overlaps(order)]
    under_way = under_way_by([each for each in others if each not in apart], order.at)
    return replace(under_way, own_nodes=frozenset(name for each in apart for name in each.held_nodes))


@dataclass(frozen=True)
class PromiseLifecycle(Lifecycle[Promise]):
    basis: PlanningBasis

    def next_phase(self, e: Promise, cycle: CycleContext, done: AbstractSet[Command]) -> Phase | None:
        if not e.state.acting or done:
            return None  # what has come of it is seen first
        placed = cycle.reservation(e.placement)
        if e.state.before_start:
            return _before_start(e, cycle, placed)
        if e.state is E.STARTED and cycle.now < e.order.until:
            return None
        # A job of a placement that is gone could never start, and never again once it was requeued.
        gone = (JobState.COMPLETING, JobState.ENDED)
        inside = any(job.state not in gone for job in cycle.snapshot.jobs_in.get(e.placement, ()))
        if e.placement and (placed is not None or inside):
            return Phase(e.state, Command.DELETE_PLACEMENT)
        return close_phase(e, cycle.now, cycle.config.execution.watch_return)

    def target(self, e: Promise, command: Command, snapshot: ClusterSnapshot) -> Target:  # noqa: ARG002
        """Slurm does not delete a reservation that a job is in, and a job whose reservation is gone never starts."""
        inside = snapshot.jobs_in.get(e.placement, ())
        return Target(guests=tuple(job.job_id for job in inside if job.state is not JobState.ENDED))

    def refused(self, e: Promise, command: Command, error: SlurmError) -> Phase | None:  # noqa: ARG002
        if e.state is not E.PLACING or error.retryable:
            return None
        why = f"Slurm does not reserve the nodes: {error}"
        return replace(call_off(e, Outcome(OutcomeCode.NOT_KEPT, why)), late=True)

    def cause(self, e: Promise) -> Cause:  # noqa: ARG002
        """The operator has named no jobs, so all guards of urgent jobs hold, and the budget."""
        return Cause(Purpose.PREEMPTION, budgeted=True)

    def misfits(self, e: Promise, cycle: CycleContext) -> dict[str, str]:
        snapshot, nodes = cycle.snapshot, cycle.snapshot.node_by_name
        if snapshot.unreadable:
            return {}
        names = e.plan.placement_nodes
        lost = [name for name in names if name not in nodes or not nodes[name].available]
        found = dict.fromkeys(lost, "the node is not available any more")
        if cycle.now < e.plan.asks_at:
            return found
        gone = (PreemptionState.SPARED, PreemptionState.FAILED)
        leaving = {p.job_id for p in e.preemptions if p.state not in gone}
        leaving |= {job_id for other in cycle.others for job_id in other.promised_jobs}
        there = sorted({job.job_id for name in names for job in snapshot.jobs_on.get(name, ())} - leaving)
        stay = [job_id for job_id in there if in_the_way(snapshot.job_by_id[job_id], e.order, e.placement)]
        return found | dict.fromkeys(stay, "it would not have ended")

    def step_context(self, e: Promise, p: Preemption, common: StepContext, cycle: CycleContext) -> StepContext:  # noqa: ARG002
        return replace(common, kill_when_late=cycle.late_kills and not p.eternal)

    def replan(self, e: Promise, stuck: Mapping[str, str], cycle: CycleContext) -> PromisePlan | Phase | None:
        """Where there can be no plan it waits, which is told once."""
        under_way, beside = under_way_for_replan(e, cycle.others, stuck.keys()), under_way_beside(e.order, cycle.others)
        # What only has to be planned for has not failed to leave.
        tried = {p.job_id for p in e.preemptions if p.state is not PreemptionState.SPARED}
        own_nodes, avoid = under_way.own_nodes | beside.own_nodes, under_way.avoid & tried
        under_way = replace(under_way, nodes=beside.nodes, own_nodes=own_nodes, avoid=avoid)
        plan = plan_now(e, under_way, (e.revision, frozenset(stuck)), cycle, self.basis)
        if not isinstance(plan, NoPlan):
            return plan
        if e.late:
            return None
        reasons = "; ".join(f"{what}: {why}" for what, why in sorted(stuck.items()))
        text = f"The nodes may not be free at the promised time ({reasons}), and no other plan is possible: {plan.why}."
        return Phase(e.state, event=text, late=True)


def _before_start(e: Promise, cycle: CycleContext, placed: Reservation | None) -> Phase | None:
    now, snapshot = cycle.now, cycle.snapshot
    if now >= e.order.until:
        outcome = Outcome(OutcomeCode.NOT_KEPT, "not all nodes were free before it was over")
        return Phase(E.CANCELLING, event=outcome.sentence, outcome=outcome, late=True)
    if e.state is E.PLACING and cycle.paused:
        return None
    if held := placement_phase(e, placed):
        return held
    if e.state is E.PLACING:
        return Phase(E.PREEMPTING)
    if now < e.order.at:
        return None
    jobs = (job for name in e.plan.placement_nodes for job in snapshot.jobs_on.get(name, ()))
    if not snapshot.unreadable and all(job.reservation == e.placement for job in jobs):
        late = now - e.order.at
        outcome = Outcome(OutcomeCode.KEPT, "Kept: the nodes were free at the promised time")
        if late >= TOLERANCE:
            why = f"Kept late: the nodes were free {late.total_seconds():.0f} s after the promised time"
            outcome = Outcome(OutcomeCode.KEPT_LATE, why)
        return Phase(E.STARTED, event=outcome.sentence, outcome=outcome, started_at=now)
    if now >= e.order.at + TOLERANCE and not e.late:
        return Phase(e.state, event="The nodes were not free at the promised time; room is made on.", late=True)
    return None
