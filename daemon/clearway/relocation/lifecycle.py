"""The rows of the table for relocations: jobs go, one after another, to nodes told before. Pure.

placing     nodes that shall become empty are drained, and a placement (a Slurm reservation) keeps what is free on the
            targets; then the plan has to fit what a later snapshot shows
preempting  the preemptions' own table, one job at a time. A job that has left its node is attached to the placement,
            which then covers its own nodes alone, before it may start, and detached as soon as it runs there
started     all have arrived: the placement goes, and the emptied nodes take jobs again
cancelling  the same; a job on its way still arrives, unless it takes too long: then it starts on any nodes

FLEX lets a job start outside its reservation as well, but Slurm prefers what is inside, and room there has been seen.
When in doubt the relocation is called off: a job that has not been requeued by then stays where it is.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import timedelta

from clearway.eligibility.exemption import Cause, Purpose
from clearway.eligibility.node_usage import FreeCapacity, most_memory_mib
from clearway.execution.cycle_context import CycleContext
from clearway.execution.job_lifecycle import Command, StepContext
from clearway.execution.lifecycle import (
    E,
    NodesLifecycle,
    Phase,
    Target,
    call_off,
    close_phase,
    nodes_held,
    nodes_with_other_reasons,
    placement_phase,
    undo,
)
from clearway.model.cluster import ClusterSnapshot, JobState
from clearway.model.operations import Preemption, PreemptionState, Relocation
from clearway.model.orders import RelocationOrder
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.slurm.parse.hostlist import compress


class RelocationLifecycle(NodesLifecycle[Relocation]):
    """The whole lifecycle of relocations: a plan that does not fit any more is called off, never made anew."""

    def next_phase(self, e: Relocation, cycle: CycleContext, done: AbstractSet[Command]) -> Phase | None:
        if done or not e.state.acting:
            return None  # what has come of it is seen first
        ours, placed = nodes_held(e, cycle.snapshot), cycle.reservation(e.placement)
        if e.state in (E.PLACING, E.PREEMPTING):
            return _before_end(e, cycle, sorted(set(e.order.nodes) - set(ours)))
        if ours:
            return Phase(e.state, Command.UNDRAIN)
        if e.between_nodes is not None and may_still_arrive(e.between_nodes, cycle):
            return placement_phase(e, placed)
        if placed is not None:
            return Phase(e.state, Command.DELETE_PLACEMENT)
        return close_phase(e, cycle.now, cycle.config.execution.watch_return, cycle.snapshot)

    def target(self, e: Relocation, command: Command, snapshot: ClusterSnapshot) -> Target:
        """A moved job in a placement that is gone could never start."""
        return replace(
            super().target(e, command, snapshot),
            power_down=e.order.power_down and e.started_at is not None,
            guests=tuple(p.job_id for p in e.preemptions),
        )

    def cause(self, e: Relocation) -> Cause:
        return Cause(Purpose.RELOCATION, budgeted=not e.approved_by)

    def misfits(self, e: Relocation, cycle: CycleContext) -> dict[str, str]:  # noqa: ARG002
        return {}  # its own table calls it off

    def step_context(self, e: Relocation, p: Preemption, common: StepContext, cycle: CycleContext) -> StepContext:
        placed = cycle.reservation(e.placement)
        return replace(
            super().step_context(e, p, common, cycle),
            placement=e.placement,
            attach=may_still_arrive(p, cycle),
            placed=placed is not None and set(placed.nodes) == set(e.order.nodes_after(p.job)),
        )

    def replan(self, e: Relocation, stuck: Mapping[str, str], cycle: CycleContext) -> Phase:  # noqa: ARG002
        job_id, why = min(stuck.items())
        return call_off(e, Outcome(OutcomeCode.CALLED_OFF, f"job {job_id}: {why}"))


def _before_end(e: Relocation, cycle: CycleContext, missing: Sequence[str]) -> Phase | None:
    """``missing`` are nodes to be emptied that this very relocation has not drained."""
    taken = sorted(set(missing) & set(nodes_with_other_reasons(e, cycle.snapshot)))
    if taken:
        return undo(OutcomeCode.NODE_TAKEN, f"Node {taken[0]} has a Reason that is not Clearway's")
    if misfit := move_misfit(e, cycle.snapshot):
        return undo(OutcomeCode.CALLED_OFF, misfit)
    failed = next((p for p in e.preemptions if p.state in (PreemptionState.FAILED, PreemptionState.HELD)), None)
    if failed is not None:
        return undo(OutcomeCode.NOT_MOVED, f"Job {failed.job.display_id}: {failed.note}")
    held = placement_phase(e, cycle.reservation(e.placement))
    if e.state is E.PLACING:
        if cycle.paused:
            return None
        return Phase(E.PLACING, Command.DRAIN) if missing else held or Phase(E.PREEMPTING)
    if missing:
        return undo(OutcomeCode.NODE_TAKEN, f"Node {missing[0]} was brought back outside Clearway")
    moving = e.between_nodes
    if moving is not None and not may_still_arrive(moving, cycle):
        return undo(OutcomeCode.TOO_LATE, f"Job {moving.job.display_id} did not start on its new node in time")
    if all(p.state.terminal for p in e.preemptions):
        arrived = Outcome(OutcomeCode.ARRIVED, _how_they_arrived(e, cycle.snapshot))
        return Phase(E.STARTED, event=arrived.sentence, outcome=arrived, started_at=cycle.now)
    return held


def _how_they_arrived(e: Relocation, snapshot: ClusterSnapshot) -> str:
    count = sum(p.state is PreemptionState.RETURNED for p in e.preemptions)
    text = f"{count} of {len(e.preemptions)} job(s) moved"
    nodes = e.order.nodes
    if nodes:
        empty = not any(snapshot.jobs_on.get(name) for name in nodes) and not snapshot.unreadable
        text += f"; {compress(nodes)} {'is' if len(nodes) == 1 else 'are'}{'' if empty else ' not'} empty"
    for p in e.preemptions:
        seen = snapshot.job_by_id.get(p.job_id)
        nodes = seen.nodes if seen is not None and seen.state is JobState.RUNNING else ()
        told = e.order.nodes_after(p.job)
        if p.state is PreemptionState.RETURNED and not set(nodes) <= set(told):
            return f"{text}; job {p.job.display_id} started on {compress(nodes)} instead of {compress(told)}"
    return text


def may_still_arrive(p: Preemption, cycle: CycleContext) -> bool:
    """Whether a job that was made to leave is still to start on its target, and not just anywhere."""
    patience = timedelta(seconds=cycle.config.execution.landing_patience)
    return p.requeued_at is not None and cycle.now - p.requeued_at < patience


def move_misfit(e: Relocation, snapshot: ClusterSnapshot) -> str:
    """Why the jobs that are still where they were cannot be moved as planned; empty when they can."""
    if snapshot.unreadable:
        return "not all jobs can be read"
    moved = {p.job_id for p in e.preemptions}
    for name in e.order.nodes:
        stranger = next((job for job in snapshot.jobs_on.get(name, ()) if job.job_id not in moved), None)
        if stranger is not None and stranger.state is not JobState.COMPLETING:
            return f"job {stranger.display_id} has come to node {name}"
    waiting = [p for p in e.preemptions if p.state.cancellable]
    for p in waiting:
        job = snapshot.job_by_id.get(p.job_id)
        if job is not None and job.run == p.job.run and job.state is not JobState.RUNNING and job.state.holds_nodes:
            return f"job {p.job.display_id} is {job.state.value}"
    return _no_room(waiting, e.order, snapshot)


def _no_room(waiting: list[Preemption], order: RelocationOrder, snapshot: ClusterSnapshot) -> str:
    free = FreeCapacity.of(snapshot)
    for p in waiting:
        for name in order.nodes_after(p.job):
            node = snapshot.node_by_name.get(name)
            if node is None or not node.available:
                return f"node {name} is not available any more"
        for part in order.of(p.job_id):
            if not free.take(part.target, part.processors, most_memory_mib(p.job, part.processors)):
                return f"node {part.target} has no room for job {p.job.display_id} any more"
    return ""
