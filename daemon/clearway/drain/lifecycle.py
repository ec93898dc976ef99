"""The lifecycle of drains: the rows of the table, whose hold is the DRAIN state of the nodes, and their plans.

placing     not all nodes are drained by us: drain them; all are: go on with what a later snapshot shows there
preempting  the preemptions' own table; until no job is left that has to go
started     the nodes are empty, and stay drained until they are brought back
cancelling  the nodes whose Reason is still ours go back as they were

A node that was drained outside Clearway is neither drained again nor brought back: Slurm keeps one Reason only, and
DRAIN over DRAIN would replace it.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from clearway.drain.plan import plan_drain
from clearway.eligibility.exemption import Cause, Purpose
from clearway.eligibility.under_way import UnderWay, under_way_for_replan
from clearway.execution.cycle_context import CycleContext, PlanningBasis
from clearway.execution.job_lifecycle import Command, StepContext
from clearway.execution.lifecycle import (
    E,
    NodesLifecycle,
    Phase,
    call_off,
    close_phase,
    nodes_held,
    nodes_with_other_reasons,
    undo,
    watch_is_over,
)
from clearway.execution.planning_time import UNDER_WAY
from clearway.model.cluster import ClusterSnapshot, JobState
from clearway.model.operations import Drain, Preemption, PreemptionState
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.model.plan import DrainPlan, NoPlan
from clearway.model.problem import Action


@dataclass(frozen=True)
class DrainLifecycle(NodesLifecycle[Drain]):
    """The first plan is made here as well: of the jobs seen on the nodes when nothing new can start there."""

    basis: PlanningBasis

    def next_phase(self, e: Drain, cycle: CycleContext, done: AbstractSet[Command]) -> Phase | None:
        if not e.state.acting or Command.DRAIN in done:
            return None  # which jobs are there is seen when none can come any more
        snapshot = cycle.snapshot
        ours = () if Command.UNDRAIN in done else nodes_held(e, snapshot)
        missing, foreign = set(e.order.nodes) - set(ours), set(nodes_with_other_reasons(e, snapshot))
        if e.state is E.PLACING:
            return _placing(missing, foreign, paused=cycle.paused)
        if e.state is E.PREEMPTING:
            # Another Reason keeps the node out of service as well; without any it takes jobs again.
            return _preempting(e, sorted(missing - foreign), cycle)
        if e.state is E.CANCELLING and ours:
            return Phase(e.state, Command.UNDRAIN)
        return close_phase(e, cycle.now, cycle.config.execution.watch_return, cycle.snapshot)

    def cause(self, e: Drain) -> Cause:
        return Cause(Purpose.FORCED_DRAIN if e.order.force else Purpose.DRAIN, nodes=e.order.nodes)

    def misfits(self, e: Drain, cycle: CycleContext) -> dict[str, str]:
        return have_to_go(e, cycle.snapshot)

    def step_context(self, e: Drain, p: Preemption, common: StepContext, cycle: CycleContext) -> StepContext:  # noqa: ARG002
        over = watch_is_over(e, cycle.now, cycle.config.execution.watch_return)
        return replace(common, first=not over, unwatched=over, kill_when_late=e.order.force)

    def replan(self, e: Drain, stuck: Mapping[str, str], cycle: CycleContext) -> DrainPlan | Phase | None:
        """Where there can be no plan the drain is called off."""
        if cycle.snapshot.unreadable or self.basis.time.left_s(UNDER_WAY) <= 0:
            return None
        with self.basis.time.spending():
            plan = self._plan(e, under_way_for_replan(e, cycle.others, stuck.keys()), cycle)
        return call_off(e, Outcome(OutcomeCode.NOT_POSSIBLE, plan.why)) if isinstance(plan, NoPlan) else plan

    def _plan(self, e: Drain, under_way: UnderWay, cycle: CycleContext) -> DrainPlan | NoPlan:
        failed = [p.job.display_id for p in e.preemptions if p.state is PreemptionState.FAILED]
        if failed:
            return NoPlan(f"job {failed[0]} does not leave its nodes")
        open_ones = [p for p in e.preemptions if p.state.cancellable]
        # A kill was the last resort: a job past saving is not asked once more because of another one.
        killed = {p.job_id for p in open_ones if p.action is Action.KILL}
        asked = {p.job_id for p in open_ones if p.asked_at is not None}
        under_way = replace(under_way, avoid=frozenset(killed) | (under_way.avoid & asked))
        context = self.basis.context(cycle, under_way, counts=False)
        return plan_drain(e.order, context, self.basis.planner)


def _placing(missing: set[str], foreign: set[str], *, paused: bool) -> Phase | None:
    taken = sorted(missing & foreign)
    if taken:
        return undo(OutcomeCode.NODE_TAKEN, f"Node {taken[0]} has a Reason that is not Clearway's")
    if paused:
        return None
    return Phase(E.PLACING, Command.DRAIN) if missing else Phase(E.PREEMPTING)


def _preempting(e: Drain, lost: Sequence[str], cycle: CycleContext) -> Phase | None:
    snapshot, deadline = cycle.snapshot, e.order.deadline
    if lost:
        return undo(OutcomeCode.NODE_TAKEN, f"Node {lost[0]} was brought back outside Clearway")
    if not snapshot.unreadable and not any(snapshot.jobs_on.get(name) for name in e.order.nodes):
        outcome = Outcome(OutcomeCode.EMPTY, "The nodes are empty")
        return Phase(E.STARTED, event=outcome.sentence, outcome=outcome, started_at=cycle.now)
    if deadline is not None and cycle.now > deadline and not e.late:
        return Phase(e.state, event="The nodes were not empty by the deadline.", late=True)
    return None


def have_to_go(e: Drain, snapshot: ClusterSnapshot) -> dict[str, str]:
    """The jobs on a drain's nodes that its plan does not know, or knows no more: why another plan is needed."""
    gone = (PreemptionState.SPARED, PreemptionState.FAILED)
    leaving = {p.job.run for p in e.preemptions if p.state not in gone}
    passed = {p.job_id for p in e.preemptions if p.requeued_at is not None and p.state not in gone}
    return {
        job.job_id: f"it is on node {name}"
        for name in e.order.nodes
        for job in snapshot.jobs_on.get(name, ())
        if job.run not in leaving
        and job.job_id not in passed
        and job.state is not JobState.COMPLETING
        and not e.order.leaves_alone(job)
    }
