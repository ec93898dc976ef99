"""The rows of the table for the eviction of a preemptor, whose hold is its placement. Pure.

placing -> preempting -> starting -> started -> returning -> completed
(before started) -> cancelling -> cancelled | failed
returning, cancelling: the placement stays over the nodes of suspended jobs until they run again
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from clearway.config.configuration import ExecutionConfig
from clearway.execution.job_lifecycle import Command, StepContext
from clearway.execution.lifecycle import E, Observed, Phase, Target, close_phase
from clearway.execution.placement import placement, placement_ends
from clearway.execution.progress import lost_nodes
from clearway.model.cluster import ClusterSnapshot, Job, JobState, Reservation
from clearway.model.errors import SlurmError
from clearway.model.operations import Eviction, Operation, Preemption, PreemptionState
from clearway.model.outcome import Outcome, OutcomeCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is seen of an eviction, from a snapshot and a list of reservations taken after its last change."""

    preemptor: Job | None
    placement: Reservation | None
    nodes_free: bool  # no job but the preemptor, and jobs suspended for it, is on the placement's nodes
    placement_ends: datetime
    extend_when_ends: datetime  # a placement that ends before this and is still needed is extended
    paused: bool = False


@dataclass(frozen=True, slots=True)
class EvictionTable:
    """The lifecycle of evictions but for plans made anew."""

    execution: ExecutionConfig

    @property
    def _grace(self) -> timedelta:
        return timedelta(seconds=self.execution.placement_grace)

    def observe(self, e: Eviction, observed: Observed, done: AbstractSet[Command], now: datetime) -> Observation:
        """What this very cycle has already done is taken as done."""
        snapshot = observed.snapshot
        preemptor = snapshot.job_by_id.get(e.preemptor.job_id)
        ours = observed.reservation(e.placement)
        if Command.DELETE_PLACEMENT in done:
            ours = None
        elif done & {Command.CREATE_PLACEMENT, Command.MOVE_PLACEMENT, Command.EXTEND_PLACEMENT}:
            ours = placement(e, now, self._grace)
        if preemptor is not None and Command.ATTACH in done:
            preemptor = replace(preemptor, reservation=e.placement)
        elif preemptor is not None and Command.DETACH in done:
            preemptor = replace(preemptor, reservation=None)
        return Observation(
            preemptor=preemptor,
            placement=ours,
            nodes_free=_nodes_free(e, snapshot),
            placement_ends=placement_ends(e, self._grace),
            extend_when_ends=now + self._grace / 2,
            paused=observed.paused,
        )

    def next_phase(self, e: Eviction, observation: Observation, now: datetime) -> Phase | None:
        return next_phase(e, observation, now, timedelta(seconds=self.execution.watch_return))

    def target(self, e: Eviction, command: Command, snapshot: ClusterSnapshot) -> Target:  # noqa: ARG002
        return Target(job_id=e.preemptor.job_id)

    def refused(self, e: Eviction, error: SlurmError) -> Phase | None:  # noqa: ARG002
        return None  # the preemptor waits; its placement's end bounds how long

    def misfits(self, e: Eviction, snapshot: ClusterSnapshot, others: Sequence[Operation]) -> dict[str, str]:
        return lost_nodes(e, snapshot, others)

    def step_context(
        self,
        e: Eviction,
        p: Preemption,
        common: StepContext,
        observed: Observed,
        refused: AbstractSet[Command],
        now: datetime,  # noqa: ARG002
    ) -> StepContext:
        return replace(
            common,
            may_resume=p.state is PreemptionState.SUSPENDED and may_resume(e, p, observed, refused),
            kill_when_late=self.execution.late_checkpoint == "kill" and not p.eternal,
        )


def _nodes_free(e: Eviction, snapshot: ClusterSnapshot) -> bool:
    suspended = {p.job_id for p in e.preemptions if p.state is PreemptionState.SUSPENDED}
    expected = {e.preemptor.job_id, *e.plan.staying}
    others = (
        job
        for name in e.plan.placement_nodes
        for job in snapshot.jobs_on.get(name, ())
        if job.job_id not in expected and not (job.job_id in suspended and job.state is JobState.SUSPENDED)
    )
    return next(others, None) is None and not snapshot.unreadable


def may_resume(e: Eviction, p: Preemption, observed: Observed, refused: AbstractSet[Command]) -> bool:
    """Whether no other job has, or can get, the processors of a suspended job before it is resumed.

    A job that was on a node before the suspension has other processors: both ran at once. The snapshot must have seen
    the preemptor out of the placement, in which it alone could start at any moment. Where Slurm refuses us the
    placement, the snapshot alone has to do.
    """
    snapshot = observed.snapshot
    preemptor = snapshot.job_by_id.get(e.preemptor.job_id)
    if e.state.before_start or snapshot.unreadable or p.requeued_at is None:
        return False
    if _attached(e, preemptor):
        return False
    covered = any(r.name == e.placement and set(p.job.nodes) <= set(r.nodes) for r in observed.reservations)
    if not covered and not refused & {Command.CREATE_PLACEMENT, Command.MOVE_PLACEMENT}:
        return False
    others = [o for name in p.job.nodes for o in snapshot.jobs_on.get(name, ()) if o.job_id != p.job_id]
    # Slurm tells whole seconds: a job that started in the second of the suspension may have these very processors.
    suspended = p.requeued_at.replace(microsecond=0)
    return all(o.job_id != e.preemptor.job_id and o.start_time is not None and o.start_time < suspended for o in others)


def _attached(e: Eviction, preemptor: Job | None) -> bool:
    """Whether the preemptor could start in the placement, or runs there."""
    return preemptor is not None and preemptor.state is not JobState.ENDED and preemptor.reservation == e.placement


def next_phase(e: Eviction, observation: Observation, now: datetime, watch_return: timedelta) -> Phase | None:
    """The next row for the eviction as a whole; None: nothing to do before another snapshot."""
    if not e.state.acting:
        return None
    if e.state in (E.PLACING, E.PREEMPTING, E.STARTING):
        return _before_start(e, observation, now)
    cleaning = _keep_placement(e, observation) if e.suspended_nodes else _remove_placement(e, observation)
    if cleaning is not None:
        return cleaning
    return close_phase(e, now, watch_return)


def _before_start(e: Eviction, observation: Observation, now: datetime) -> Phase | None:
    job = observation.preemptor
    pointless = _pointless(e, job)
    if job is None or pointless:
        return Phase(E.CANCELLING, outcome=Outcome(OutcomeCode.POINTLESS, pointless))
    if job.state is not JobState.PENDING:
        outcome = Outcome(OutcomeCode.STARTED, _how_it_started(e, job))
        return Phase(E.STARTED, event=outcome.sentence, outcome=outcome, started_at=job.start_time or now)
    if now >= observation.placement_ends:
        why = f"The {e.plan.called} did not start before its placement ended"
        return Phase(E.CANCELLING, outcome=Outcome(OutcomeCode.TOO_LATE, why), late=True)
    if observation.paused and e.state is E.PLACING:
        return None
    if observation.placement is None:
        return Phase(e.state, Command.CREATE_PLACEMENT)
    if set(observation.placement.nodes) != set(e.held_nodes):
        return Phase(e.state, Command.MOVE_PLACEMENT)
    if job.reservation != e.placement:
        return Phase(e.state, Command.ATTACH)
    if e.state is E.PLACING:
        return Phase(E.PREEMPTING)
    if e.state is E.PREEMPTING and observation.nodes_free:
        return Phase(E.STARTING)
    if not e.late and now > e.plan.deadline:
        return Phase(e.state, event=f"The {e.plan.called} did not start by its deadline; it waits on.", late=True)
    return None


def _pointless(e: Eviction, job: Job | None) -> str:
    """Why the preemptor has no use for this eviction any more; empty while it has."""
    if job is None or job.state is JobState.ENDED:
        return f"The {e.plan.called} is gone"
    if job.state is not JobState.PENDING:
        return ""
    if job.priority == 0:
        return f"The {e.plan.called} is held"
    changed = job.num_nodes > e.plan.nodes_needed or job.partitions != e.preemptor.partitions
    return f"The {e.plan.called} was changed" if changed else ""


def _how_it_started(e: Eviction, job: Job) -> str:
    start = job.start_time
    if start is None:
        return f"The {e.plan.called} started"
    margin_s = (e.plan.deadline - start).total_seconds()
    return f"The {e.plan.called} started {abs(margin_s):.1f} s {'before' if margin_s >= 0 else 'after'} its deadline"


def _keep_placement(e: Eviction, observation: Observation) -> Phase | None:
    """Over the nodes of suspended jobs, and only there, without the preemptor in it: it could start there again."""
    if e.placement and _attached(e, observation.preemptor):
        return Phase(e.state, Command.DETACH)
    if observation.placement is None:
        return Phase(e.state, Command.CREATE_PLACEMENT)
    if set(observation.placement.nodes) != set(e.held_nodes):
        return Phase(e.state, Command.MOVE_PLACEMENT)
    if observation.placement.end_time < observation.extend_when_ends:
        return Phase(e.state, Command.EXTEND_PLACEMENT)
    return None


def _remove_placement(e: Eviction, observation: Observation) -> Phase | None:
    """Detach first: Slurm refuses to delete a reservation in use, and a running job survives the detaching."""
    if e.placement and _attached(e, observation.preemptor):
        return Phase(e.state, Command.DETACH)
    if observation.placement is not None:
        return Phase(e.state, Command.DELETE_PLACEMENT)
    return None
