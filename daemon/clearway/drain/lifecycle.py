"""The rows of the table for a drain, whose hold is the DRAIN state of its nodes. Pure.

placing     not all nodes are drained by us: drain them; all are: go on with what a later snapshot shows there
preempting  the preemptions' own table; until no job is left that has to go
started     the nodes are empty, and stay drained until they are brought back
cancelling  the nodes whose Reason is still ours go back as they were

A node that was drained outside Clearway is neither drained again nor brought back: Slurm keeps one Reason only, and
DRAIN over DRAIN would replace it.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from clearway.config.configuration import ExecutionConfig
from clearway.execution.job_lifecycle import Command, StepContext
from clearway.execution.lifecycle import E, Observed, Phase, Target, call_off, close_phase
from clearway.execution.node_hold import hold_reason, nodes_held, nodes_with_other_reasons
from clearway.model.cluster import ClusterSnapshot, JobState
from clearway.model.errors import SlurmError
from clearway.model.operations import Drain, Operation, Preemption, PreemptionState
from clearway.model.outcome import Outcome, OutcomeCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is seen of a drain's nodes, in a snapshot taken after its last change."""

    ours: tuple[str, ...]  # drained by this very drain
    foreign: tuple[str, ...]  # with another Reason
    free: bool  # no job that has to go is on any of them
    paused: bool = False


@dataclass(frozen=True, slots=True)
class DrainTable:
    """The lifecycle of drains but for their plans."""

    execution: ExecutionConfig

    def observe(self, e: Drain, observed: Observed, done: AbstractSet[Command], now: datetime) -> Observation | None:  # noqa: ARG002
        if Command.DRAIN in done:
            return None  # which jobs are there is seen when none can come any more
        snapshot = observed.snapshot
        return Observation(
            ours=() if Command.UNDRAIN in done else nodes_held(e, snapshot),
            foreign=nodes_with_other_reasons(e, snapshot),
            free=not any(snapshot.jobs_on.get(name) for name in e.order.nodes) and not snapshot.unreadable,
            paused=observed.paused,
        )

    def next_phase(self, e: Drain, observation: Observation, now: datetime) -> Phase | None:
        return next_phase(e, observation, now, timedelta(seconds=self.execution.watch_return))

    def target(self, e: Drain, command: Command, snapshot: ClusterSnapshot) -> Target:
        """Of its nodes those that are not so already."""
        ours = nodes_held(e, snapshot)
        rest = tuple(name for name in e.order.nodes if name not in ours)
        return Target(nodes=ours if command is Command.UNDRAIN else rest, reason=hold_reason(e))

    def refused(self, e: Drain, error: SlurmError) -> Phase | None:
        if e.state is not E.PLACING or error.retryable:
            return None
        return call_off(e, Outcome(OutcomeCode.NODES_REFUSED, f"The nodes cannot be taken: {error}"))

    def misfits(self, e: Drain, snapshot: ClusterSnapshot, others: Sequence[Operation]) -> dict[str, str]:  # noqa: ARG002
        return have_to_go(e, snapshot)

    def step_context(
        self,
        e: Drain,
        p: Preemption,  # noqa: ARG002
        common: StepContext,
        observed: Observed,  # noqa: ARG002
        refused: AbstractSet[Command],  # noqa: ARG002
        now: datetime,  # noqa: ARG002
    ) -> StepContext:
        return replace(common, first=True, kill_when_late=e.order.force)


def next_phase(e: Drain, observation: Observation, now: datetime, watch_return: timedelta) -> Phase | None:
    """The next row for a drain as a whole; None: nothing to do before another snapshot."""
    if not e.state.acting:
        return None
    missing = set(e.order.nodes) - set(observation.ours)
    if e.state is E.PLACING:
        taken = sorted(missing & set(observation.foreign))
        if taken:
            why = f"Node {taken[0]} has a Reason that is not Clearway's"
            return Phase(E.CANCELLING, outcome=Outcome(OutcomeCode.NODE_TAKEN, why))
        if observation.paused:
            return None
        return Phase(E.PLACING, Command.DRAIN) if missing else Phase(E.PREEMPTING)
    if e.state is E.PREEMPTING:
        # Another Reason keeps the node out of service as well; without any it takes jobs again.
        lost = sorted(missing - set(observation.foreign))
        if lost:
            why = f"Node {lost[0]} was brought back outside Clearway"
            return Phase(E.CANCELLING, outcome=Outcome(OutcomeCode.NODE_TAKEN, why))
        if observation.free:
            outcome = Outcome(OutcomeCode.EMPTY, "The nodes are empty")
            return Phase(E.STARTED, event=outcome.sentence, outcome=outcome, started_at=now)
        if e.order.deadline is not None and now > e.order.deadline and not e.late:
            return Phase(e.state, event="The nodes were not empty by the deadline.", late=True)
        return None
    if e.state is E.CANCELLING and observation.ours:
        return Phase(e.state, Command.UNDRAIN)
    return close_phase(e, now, watch_return)


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
