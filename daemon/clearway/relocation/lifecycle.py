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
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from clearway.config.configuration import ExecutionConfig
from clearway.eligibility.node_usage import FreeCapacity
from clearway.execution.job_lifecycle import Command, StepContext
from clearway.execution.lifecycle import E, Observed, Phase, Target, call_off, close_phase
from clearway.execution.node_hold import hold_reason, nodes_held, nodes_with_other_reasons
from clearway.model.cluster import ClusterSnapshot, JobState, Reservation
from clearway.model.errors import SlurmError
from clearway.model.operations import Operation, Preemption, PreemptionState, Relocation
from clearway.model.orders import RelocationOrder
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.slurm.parse.hostlist import compress


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is seen of a relocation, in a snapshot taken after its last change."""

    ours: tuple[str, ...]  # nodes drained by this very relocation
    foreign: tuple[str, ...]  # to be emptied, with another Reason
    misfit: str  # why what is still to be moved cannot be moved as planned; empty when it can
    empty: bool  # no job is on the nodes that were to become empty
    elsewhere: str  # a job that runs again, but not on its target; empty: there is none
    placement: Reservation | None
    paused: bool = False


@dataclass(frozen=True, slots=True)
class RelocationLifecycle:
    """The whole lifecycle of relocations: a plan that does not fit any more is called off, never made anew."""

    execution: ExecutionConfig

    @property
    def _patience(self) -> timedelta:
        return timedelta(seconds=self.execution.landing_patience)

    def observe(
        self,
        e: Relocation,
        observed: Observed,
        done: AbstractSet[Command],
        now: datetime,  # noqa: ARG002
    ) -> Observation | None:
        if done:
            return None  # what has come of it is seen first
        snapshot, nodes = observed.snapshot, e.order.nodes
        return Observation(
            ours=nodes_held(e, snapshot),
            foreign=nodes_with_other_reasons(e, snapshot),
            misfit=move_misfit(e, snapshot),
            empty=not any(snapshot.jobs_on.get(name) for name in nodes) and not snapshot.unreadable,
            elsewhere=_elsewhere(e, snapshot),
            placement=observed.reservation(e.placement),
            paused=observed.paused,
        )

    def next_phase(self, e: Relocation, observation: Observation, now: datetime) -> Phase | None:
        watch_return = timedelta(seconds=self.execution.watch_return)
        return next_phase(e, observation, now, patience=self._patience, watch_return=watch_return)

    def target(self, e: Relocation, command: Command, snapshot: ClusterSnapshot) -> Target:
        """Of its nodes those that are not so already; a moved job in a placement that is gone could never start.

        Nodes that it has emptied may be powered down. A daemon that dies between the two leaves the node on, as it was.
        """
        ours = nodes_held(e, snapshot)
        rest = tuple(name for name in e.order.nodes if name not in ours)
        return Target(
            nodes=ours if command is Command.UNDRAIN else rest,
            reason=hold_reason(e),
            power_down=e.order.power_down and e.started_at is not None,
            guests=tuple(p.job_id for p in e.preemptions),
        )

    def refused(self, e: Relocation, error: SlurmError) -> Phase | None:
        if e.state is not E.PLACING or error.retryable:
            return None
        return call_off(e, Outcome(OutcomeCode.NODES_REFUSED, f"The nodes cannot be taken: {error}"))

    def misfits(
        self,
        e: Relocation,  # noqa: ARG002
        snapshot: ClusterSnapshot,  # noqa: ARG002
        others: Sequence[Operation],  # noqa: ARG002
    ) -> dict[str, str]:
        return {}  # its own table calls it off

    def step_context(
        self,
        e: Relocation,
        p: Preemption,
        common: StepContext,
        observed: Observed,
        refused: AbstractSet[Command],  # noqa: ARG002
        now: datetime,
    ) -> StepContext:
        return replace(
            common,
            first=True,
            placement=e.placement,
            attach=may_still_arrive(p, now, self._patience),
            placed=placement_fits(e, p, observed.reservation(e.placement)),
        )

    def replan(
        self,
        e: Relocation,
        stuck: Mapping[str, str],
        observed: Observed,  # noqa: ARG002
        others: Sequence[Operation],  # noqa: ARG002
        now: datetime,  # noqa: ARG002
    ) -> Phase:
        job_id, why = min(stuck.items())
        return call_off(e, Outcome(OutcomeCode.CALLED_OFF, f"job {job_id}: {why}"))


def _elsewhere(e: Relocation, snapshot: ClusterSnapshot) -> str:
    for p in e.preemptions:
        seen = snapshot.job_by_id.get(p.job_id)
        nodes = seen.nodes if seen is not None and seen.state is JobState.RUNNING else ()
        told = e.order.nodes_after(p.job)
        if p.state is PreemptionState.RETURNED and not set(nodes) <= set(told):
            return f"job {p.job.display_id} started on {compress(nodes)} instead of {compress(told)}"
    return ""


def may_still_arrive(p: Preemption, now: datetime, patience: timedelta) -> bool:
    """Whether a job that was made to leave is still to start on its target, and not just anywhere."""
    return p.requeued_at is not None and now - p.requeued_at < patience


def placement_fits(e: Relocation, p: Preemption, placement: Reservation | None) -> bool:
    """Whether the placement is where this job shall start, and nowhere else."""
    return placement is not None and set(placement.nodes) == set(e.order.nodes_after(p.job))


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
            if not free.take(part.target, part.processors, p.job.memory_mib):
                return f"node {part.target} has no room for job {p.job.display_id} any more"
    return ""


def next_phase(
    e: Relocation, observation: Observation, now: datetime, *, patience: timedelta, watch_return: timedelta
) -> Phase | None:
    """The next row for a relocation as a whole; None: nothing to do before another snapshot."""
    if not e.state.acting:
        return None
    if e.state in (E.PLACING, E.PREEMPTING):
        return _before_end(e, observation, now, patience)
    if observation.ours:
        return Phase(e.state, Command.UNDRAIN)
    if e.between_nodes is not None and may_still_arrive(e.between_nodes, now, patience):
        return _hold(e, observation)
    if observation.placement is not None:
        return Phase(e.state, Command.DELETE_PLACEMENT)
    return close_phase(e, now, watch_return)


def _before_end(e: Relocation, observation: Observation, now: datetime, patience: timedelta) -> Phase | None:
    missing = sorted(set(e.order.nodes) - set(observation.ours))
    outcome = _why_not(e, observation, missing)
    if outcome is not None:
        return Phase(E.CANCELLING, outcome=outcome)
    if e.state is E.PLACING:
        return _placing(e, observation, missing)
    if missing:
        why = f"Node {missing[0]} was brought back outside Clearway"
        return Phase(E.CANCELLING, outcome=Outcome(OutcomeCode.NODE_TAKEN, why))
    moving = e.between_nodes
    if moving is not None and not may_still_arrive(moving, now, patience):
        why = f"Job {moving.job.display_id} did not start on its new node in time"
        return Phase(E.CANCELLING, outcome=Outcome(OutcomeCode.TOO_LATE, why))
    if all(p.state.terminal for p in e.preemptions):
        arrived = Outcome(OutcomeCode.ARRIVED, _how_they_arrived(e, observation))
        return Phase(E.STARTED, event=arrived.sentence, outcome=arrived, started_at=now)
    return _hold(e, observation)


def _why_not(e: Relocation, observation: Observation, missing: Sequence[str]) -> Outcome | None:
    taken = sorted(set(missing) & set(observation.foreign))
    if taken:
        return Outcome(OutcomeCode.NODE_TAKEN, f"Node {taken[0]} has a Reason that is not Clearway's")
    if observation.misfit:
        return Outcome(OutcomeCode.CALLED_OFF, observation.misfit)
    failed = next((p for p in e.preemptions if p.state is PreemptionState.FAILED), None)
    if failed is not None:
        return Outcome(OutcomeCode.NOT_MOVED, f"Job {failed.job.display_id}: {failed.note}")
    return None


def _placing(e: Relocation, observation: Observation, missing: Sequence[str]) -> Phase | None:
    if observation.paused:
        return None
    if missing:
        return Phase(E.PLACING, Command.DRAIN)
    return _hold(e, observation) or Phase(E.PREEMPTING)


def _hold(e: Relocation, observation: Observation) -> Phase | None:
    if observation.placement is None:
        return Phase(e.state, Command.CREATE_PLACEMENT)
    same = set(observation.placement.nodes) == set(e.held_nodes)
    return None if same else Phase(e.state, Command.MOVE_PLACEMENT)


def _how_they_arrived(e: Relocation, observation: Observation) -> str:
    count = sum(p.state is PreemptionState.RETURNED for p in e.preemptions)
    text = f"{count} of {len(e.preemptions)} job(s) moved"
    nodes = e.order.nodes
    if nodes:
        text += f"; {compress(nodes)} {'is' if len(nodes) == 1 else 'are'}{'' if observation.empty else ' not'} empty"
    return f"{text}{f'; {observation.elsewhere}' if observation.elsewhere else ''}"
