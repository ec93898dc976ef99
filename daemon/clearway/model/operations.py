"""What is remembered of an operation while it is carried out, and afterwards. Frozen; the store keeps it."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import ClassVar, Self, TypeVar

from clearway.model.claims import Restart
from clearway.model.cluster import Job
from clearway.model.orders import DrainOrder, PromiseOrder, RelocationOrder
from clearway.model.outcome import PLANNED_ANEW, Outcome, OutcomeCode
from clearway.model.plan import DrainPlan, OperationPlan, Plan, PromisePlan, RelocationPlan
from clearway.model.problem import Action

CHECKPOINTS = (Action.APP_CHECKPOINT, Action.SYS_CHECKPOINT)


class OperationKind(StrEnum):
    EVICTION = "eviction"  # jobs leave for a preemptor
    DRAIN = "drain"  # jobs leave nodes that shall be empty
    RELOCATION = "relocation"  # jobs go on elsewhere
    PROMISE = "promise"  # nodes shall be free at a time that is known before


class PreemptionState(StrEnum):
    PLANNED = "planned"  # intent stored, nothing done
    CHECKPOINTING = "checkpointing"  # asked to save itself, or waited for
    VACATING = "vacating"  # requeued or cancelled; on its way out. The point of no return lies before this
    SUSPENDED = "suspended"  # off its processors, its memory still on its nodes; resumed when no other job has them
    VACATED = "vacated"  # off its nodes, back in the queue
    QUEUED = "queued"  # its requeue delay is lifted; waits for its turn
    HELD = "held"  # in the queue, held by its user, an administrator or Slurm: it goes on once it is released
    RETURNED = "returned"  # terminal: runs again
    ENDED = "ended"  # terminal: the job is over (by itself, by its owner, or killed for good)
    SPARED = "spared"  # terminal: the eviction no longer needed it before its point of no return
    FAILED = "failed"  # terminal: Slurm refused, or the job does not leave

    @property
    def terminal(self) -> bool:
        return self in (PreemptionState.RETURNED, PreemptionState.ENDED, PreemptionState.SPARED, PreemptionState.FAILED)

    @property
    def cancellable(self) -> bool:
        return self in (PreemptionState.PLANNED, PreemptionState.CHECKPOINTING)


class Answer(StrEnum):
    """What Slurm has said of the commands that were to make a job leave its nodes."""

    OPEN = "open"  # nothing yet, or nothing that has arrived: it may have done one of them
    TAKEN = "taken"
    REFUSED = "refused"  # all of them: whatever has become of the job, it was not done by Clearway


class EvictionState(StrEnum):
    PROPOSED = "proposed"  # observe mode: what would have been done
    AWAITING_APPROVAL = "awaiting_approval"
    SCHEDULED = "scheduled"  # a drain or a promise whose time has not come
    PLACING = "placing"  # intent stored; the placement is being made (of a drain: its nodes are being drained)
    PREEMPTING = "preempting"
    STARTING = "starting"  # all nodes are free; the preemptor has not started yet
    STARTED = "started"  # the preemptor runs; the placement is being removed (of a drain: its nodes are empty)
    RETURNING = "returning"  # waits for the preemptees to run again
    CANCELLING = "cancelling"  # being undone; what passed its point of no return is followed to its end
    COMPLETED = "completed"  # terminal
    CANCELLED = "cancelled"  # terminal
    FAILED = "failed"  # terminal: the preemptor did not start
    SUPERSEDED = "superseded"  # terminal: a proposal that no longer fits the cluster

    @property
    def terminal(self) -> bool:
        states = EvictionState
        return self in (states.COMPLETED, states.CANCELLED, states.FAILED, states.SUPERSEDED)

    @property
    def acting(self) -> bool:
        """Whether the executor works on it (the others only wait)."""
        waiting = (EvictionState.PROPOSED, EvictionState.AWAITING_APPROVAL, EvictionState.SCHEDULED)
        return not self.terminal and self not in waiting

    @property
    def undoing(self) -> bool:
        return self.terminal or self in (EvictionState.STARTED, EvictionState.RETURNING, EvictionState.CANCELLING)

    @property
    def before_start(self) -> bool:
        return self in (EvictionState.PLACING, EvictionState.PREEMPTING, EvictionState.STARTING)


STATE_GROUPS = {  # as operators ask for them
    "planned": tuple(state for state in EvictionState if not state.acting and not state.terminal),
    "active": tuple(state for state in EvictionState if state.acting),
    "past": tuple(state for state in EvictionState if state.terminal),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """One preemptee, how it leaves, and how far that has come. Times are None until they happen."""

    job: Job  # as seen when it was chosen: job.run is the run that may be preempted
    action: Action
    reason: str
    predicted_lost_node_s: float
    predicted_checkpoint_s: float
    order: int = 0  # position in the plan; checkpoints are asked for in this order
    eternal: bool = False  # an eternal job: never killed, and no budget counts it
    state: PreemptionState = PreemptionState.PLANNED
    state_since: datetime | None = None
    attempted_at: datetime | None = None  # last time the command of this state was given to Slurm
    attempts: int = 0
    asked_at: datetime | None = None  # checkpoint asked for (intent)
    checkpointed_at: datetime | None = None  # when the job says that it saved itself
    # Requeue, cancel or suspend (intent): the point of no return. None again where it did not come to that.
    requeued_at: datetime | None = None
    answer: Answer | None = None
    vacated_at: datetime | None = None
    returned_at: datetime | None = None
    # Until ``restart`` is known: what it loses if it goes on from its checkpoint. Then as measured, restart included.
    actual_lost_node_s: float | None = None
    restart: Restart | None = None  # how the job says that it went on
    restart_s: float | None = None  # how long that took
    actual_checkpoint_s: float | None = None
    waits_until: datetime | None = None  # as Slurm lets a requeued job wait, before anybody has changed that
    # The job's Nice before it was changed, and what it was changed to: it is put back while it is still that.
    nice_before: int | None = None
    nice_given: int | None = None
    note: str = ""  # why it ended as it did, or why its action was changed

    @property
    def job_id(self) -> str:
        return self.job.job_id

    @property
    def on_its_way(self) -> bool:
        return self.state in (PreemptionState.VACATING, PreemptionState.VACATED, PreemptionState.QUEUED)


@dataclass(frozen=True, slots=True)
class Subject:
    """What records and answers show as the job that an operation serves; all but evictions serve none."""

    job_id: str = "drain"  # no job of Slurm's has such an id
    display_id: str = "drain"
    user: str = ""
    account: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """All that Clearway does for one goal: the plan, its preemptees and what is held for it."""

    kind: ClassVar[OperationKind]

    eviction_id: int  # the operation's number, 0 until the store has given it one
    mode: str  # observe, approve or automatic, as it was when the operation was made
    plan: OperationPlan
    preemptions: tuple[Preemption, ...]
    state: EvictionState
    state_since: datetime
    created_at: datetime
    mark: str = ""  # random, from the store: part of its names on the cluster; "" from before there were marks
    placement: str = ""  # name of its Slurm reservation; "" until it has one
    revision: int = 0  # how often it was planned anew while under way
    approved_by: str = ""
    started_at: datetime | None = None  # preemptor seen RUNNING (its start time as Slurm says), or nodes seen empty
    finished_at: datetime | None = None
    outcome: str = ""  # in sentences for people
    outcome_code: OutcomeCode | None = None
    why: str = ""  # the outcome without what its code says, half a sentence
    late: bool = False  # an event about lateness was already recorded

    def told(self, outcome: Outcome) -> Self:
        return replace(self, outcome=outcome.sentence, outcome_code=outcome.code, why=outcome.why)

    @property
    def subject(self) -> Subject:
        return Subject()

    @property
    def drained_nodes(self) -> tuple[str, ...]:
        """Nodes that its own DRAIN state keeps while they are emptied."""
        return ()

    @property
    def suspended_nodes(self) -> tuple[str, ...]:
        """Nodes of jobs that are, or shall be, suspended: no other job may start there before they run again. Once the
        operation has started or was called off, no further job is suspended.
        """
        suspending = (PreemptionState.VACATING, PreemptionState.SUSPENDED)
        suspended = (
            p.job.nodes
            for p in self.preemptions
            if p.action is Action.SUSPEND and (p.state in suspending or self._may_still_leave(p))
        )
        return tuple(sorted({name for nodes in suspended for name in nodes}))

    def _may_still_leave(self, p: Preemption) -> bool:
        return p.state.cancellable and not self.state.undoing

    @property
    def held_nodes(self) -> tuple[str, ...]:
        """What its placement has to cover: until the preemptor has started also the nodes it is to start on."""
        wanted = self.plan.placement_nodes if self.state.before_start else ()
        return tuple(sorted({*wanted, *self.suspended_nodes}))

    @property
    def claimed_nodes(self) -> tuple[str, ...]:
        """Nodes that no other plan may count on."""
        waits = self.state is EvictionState.CANCELLING and self.outcome_code not in PLANNED_ANEW
        placed = self.plan.placement_nodes if waits else ()
        return tuple(sorted({*placed, *self.held_nodes}))

    @property
    def claimed_jobs(self) -> frozenset[str]:
        return frozenset(p.job_id for p in self.preemptions if not p.state.terminal)

    @property
    def placement_users(self) -> tuple[str, ...]:
        return ()

    @property
    def window(self) -> tuple[datetime, datetime] | None:
        """From when until when its placement keeps the nodes; None: from now on, as long as it is needed."""
        return None

    @property
    def runs_until(self) -> datetime | None:
        """When the job that it serves has ended at the latest; None: no such job, or not known."""
        return None

    def its_turn(self, p: Preemption) -> bool:  # noqa: ARG002 - of other operations it depends on the preemption
        """Whether this job may begin to leave, as far as the operation's other jobs are concerned."""
        return True

    @property
    def promised_jobs(self) -> frozenset[str]:
        """Jobs that leave, or shall leave, for it. Others may plan with what it does not need of their nodes. Without
        jobs that are suspended, whose nodes it keeps, and those that end by themselves, which all plans expect.
        """
        return frozenset(
            p.job_id
            for p in self.preemptions
            if p.action not in (Action.SUSPEND, Action.END)
            and (p.state is PreemptionState.VACATING or self._may_still_leave(p))
        )

    @property
    def predicted_lost_node_s(self) -> float:
        return sum(p.predicted_lost_node_s for p in self.preemptions if p.state is not PreemptionState.SPARED)

    @property
    def unsaved_nodes(self) -> int:
        return self.plan.unsaved_nodes

    @property
    def actual_lost_node_s(self) -> float:
        return sum(p.actual_lost_node_s or 0.0 for p in self.preemptions)


O = TypeVar("O", bound=Operation)  # noqa: E741


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction(Operation):
    """Jobs leave so that a preemptor can start on their nodes."""

    kind: ClassVar[OperationKind] = OperationKind.EVICTION

    plan: Plan

    @property
    def preemptor(self) -> Job:
        return self.plan.preemptor

    @property
    def subject(self) -> Subject:
        job = self.preemptor
        return Subject(job.job_id, job.display_id, job.user, job.account)

    @property
    def claimed_jobs(self) -> frozenset[str]:
        return frozenset({self.preemptor.job_id, *(p.job_id for p in self.preemptions if not p.state.terminal)})

    @property
    def placement_users(self) -> tuple[str, ...]:
        return (self.preemptor.user,)

    def is_for(self, job: Job) -> bool:
        array = self.preemptor.array_job_id
        return job.job_id == self.preemptor.job_id or (array is not None and job.array_job_id == array)

    @property
    def runs_until(self) -> datetime | None:
        limit_s = self.preemptor.time_limit_s
        return None if self.started_at is None or limit_s is None else self.started_at + timedelta(seconds=limit_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptiesNodes(Operation):
    """One that holds nodes by the DRAIN state."""

    plan: DrainPlan | RelocationPlan

    @property
    def subject(self) -> Subject:
        return Subject(user=self.plan.order.actor)

    @property
    def drained_nodes(self) -> tuple[str, ...]:
        return self.plan.order.nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain(EmptiesNodes):
    """Jobs leave so that nodes are empty, which stay so until they are brought back."""

    kind: ClassVar[OperationKind] = OperationKind.DRAIN

    plan: DrainPlan

    @property
    def order(self) -> DrainOrder:
        return self.plan.order


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocation(EmptiesNodes):
    """Jobs go on elsewhere, one after another, on nodes told before."""

    kind: ClassVar[OperationKind] = OperationKind.RELOCATION

    plan: RelocationPlan

    @property
    def order(self) -> RelocationOrder:
        return self.plan.order

    @property
    def between_nodes(self) -> Preemption | None:
        """The job that is between its old nodes and its new ones: one at a time."""
        return next((p for p in self.preemptions if p.on_its_way), None)

    @property
    def held_nodes(self) -> tuple[str, ...]:
        """While a job is between its nodes, its targets alone, so that it starts there. Otherwise the nodes where all
        jobs that still have to move go on, those that they keep included: another job could take the room there.
        """
        moving = self.between_nodes
        if moving is not None:
            return self.order.nodes_after(moving.job)
        if self.state.undoing:
            return ()
        waiting = [p.job for p in self.preemptions if not p.state.terminal]
        return tuple(sorted({name for job in waiting for name in self.order.nodes_after(job)}))

    @property
    def claimed_nodes(self) -> tuple[str, ...]:
        return tuple(sorted({*self.plan.placement_nodes, *self.held_nodes}))

    @property
    def placement_users(self) -> tuple[str, ...]:
        return tuple(sorted({p.job.user for p in self.preemptions}))

    def its_turn(self, p: Preemption) -> bool:
        return all(o.state.terminal for o in self.preemptions if (o.order, o.job_id) < (p.order, p.job_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise(Operation):
    """Jobs leave in time, so that nodes are free for some users from a promised time on. Its deadline is that time. It
    has started once the nodes are free then, and holds them until the promise is over.
    """

    kind: ClassVar[OperationKind] = OperationKind.PROMISE

    plan: PromisePlan

    @property
    def order(self) -> PromiseOrder:
        return self.plan.order

    @property
    def subject(self) -> Subject:
        return Subject("promise", "promise", self.order.actor)

    @property
    def held_nodes(self) -> tuple[str, ...]:
        holds = self.state.before_start or self.state is EvictionState.STARTED
        return self.plan.placement_nodes if holds else ()

    @property
    def placement_users(self) -> tuple[str, ...]:
        return self.order.users

    @property
    def window(self) -> tuple[datetime, datetime] | None:
        return self.order.at, self.order.until
