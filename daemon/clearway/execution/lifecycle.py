"""What an operation is to the executor: the base that each slice builds on, and the rows that all share. Pure."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from clearway.eligibility.exemption import Cause
from clearway.execution.cycle_context import CycleContext
from clearway.execution.job_lifecycle import Command, S, StepContext, still_first
from clearway.model.cluster import ClusterSnapshot, Job, Reservation
from clearway.model.errors import SlurmError
from clearway.model.operations import EmptiesNodes, Eviction, EvictionState, Operation, Preemption
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.model.plan import OperationPlan

E = EvictionState
O_contra = TypeVar("O_contra", bound=Operation, contravariant=True)


@dataclass(frozen=True, slots=True)
class Phase:
    """One row of an operation's table; ``event`` is written down for people."""

    state: EvictionState
    command: Command | None = None
    event: str = ""
    outcome: Outcome | None = None
    remark: str = ""  # a sentence to be added to the outcome
    late: bool = False
    started_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    job_ids: tuple[str, ...] = ()  # that are attached or detached
    nodes: tuple[str, ...] = ()  # that are drained or brought back
    reason: str = ""  # of these nodes
    power_down: bool = False  # these nodes, when they are brought back
    guests: tuple[str, ...] = ()  # job_ids that may still be in a placement that is deleted


class Lifecycle(ABC, Generic[O_contra]):
    """How operations of one type are carried out. Only ``replan`` and ``replan_early`` may do more than think."""

    @abstractmethod
    def next_phase(self, e: O_contra, cycle: CycleContext, done: AbstractSet[Command]) -> Phase | None:
        """The next row for the operation as a whole; ``done``: commands of this cycle. None: wait for a snapshot."""

    @abstractmethod
    def target(self, e: O_contra, command: Command, snapshot: ClusterSnapshot) -> Target: ...

    def refused(self, e: O_contra, command: Command, error: SlurmError) -> Phase | None:
        """What comes next where Slurm did not carry out a command for the operation as a whole; None: try again."""

    @abstractmethod
    def cause(self, e: O_contra) -> Cause:
        """What its jobs leave for: the guards that protect jobs depend on it."""

    def looked_at_again(self, e: O_contra) -> tuple[str, ...]:  # noqa: ARG002
        """Job ids beside those that leave that are looked at immediately before each harmful command."""
        return ()

    def in_vain(self, e: O_contra, cycle: CycleContext) -> str:  # noqa: ARG002
        """By that look: why no job should leave any more, half a sentence; empty where they should."""
        return ""

    def too_much(self, e: O_contra, p: Preemption, seen: Job, command: Command, cycle: CycleContext) -> str:  # noqa: ARG002
        """Why this command would cost more than may be; empty where it may be given."""
        return ""

    @abstractmethod
    def misfits(self, e: O_contra, cycle: CycleContext) -> dict[str, str]:
        """What makes another plan necessary while jobs leave, by job or node."""

    @abstractmethod
    def step_context(self, e: O_contra, p: Preemption, common: StepContext, cycle: CycleContext) -> StepContext: ...

    @abstractmethod
    def replan(self, e: O_contra, stuck: Mapping[str, str], cycle: CycleContext) -> OperationPlan | Phase | None:
        """A plan for the rest when these jobs or nodes are ``stuck``, and why; a row instead; None: it waits."""

    def replan_early(self, e: O_contra, cycle: CycleContext) -> tuple[OperationPlan | None, Mapping[str, str]]:  # noqa: ARG002
        """A plan for the rest though nothing is stuck yet, and what it is made for; None: none is needed now."""
        return None, {}


def call_off(e: Operation, outcome: Outcome) -> Phase:
    return Phase(E.CANCELLING if e.state.acting else E.CANCELLED, event=outcome.sentence, outcome=outcome)


def undo(code: OutcomeCode, why: str) -> Phase:
    return Phase(E.CANCELLING, outcome=Outcome(code, why))


def placement_phase(e: Operation, placement: Reservation | None) -> Phase | None:
    """The row that makes its placement, or moves it; None where it covers what it has to."""
    if placement is None:
        return Phase(e.state, Command.CREATE_PLACEMENT)
    covers = set(placement.nodes) == set(e.held_nodes)
    return None if covers else Phase(e.state, Command.MOVE_PLACEMENT)


def watch_is_over(e: Operation, now: datetime, watch_return_s: float) -> bool:
    return e.state in (E.RETURNING, E.CANCELLING) and now - e.state_since >= timedelta(seconds=watch_return_s)


def close_phase(
    e: Operation, now: datetime, watch_return_s: float, snapshot: ClusterSnapshot | None = None
) -> Phase | None:
    """Of an operation that holds nothing any more: its preemptees return. ``snapshot``: where it gives first places."""
    if e.state is E.STARTED:
        return Phase(E.RETURNING)
    open_ones = [p for p in e.preemptions if not p.state.terminal]
    waits = not watch_is_over(e, now, watch_return_s) or any(_has_to_be_undone(p, snapshot) for p in open_ones)
    if open_ones and waits:
        return None
    final = E.COMPLETED
    if e.state is E.CANCELLING:
        final = E.FAILED if e.started_at is None and e.late else E.CANCELLED
    left = f"{len(open_ones)} preempted job(s) had not returned when watching ended."
    return Phase(final, remark=left if open_ones else "")


def _has_to_be_undone(p: Preemption, snapshot: ClusterSnapshot | None) -> bool:
    """Only the operation that suspended a job resumes it; and what became of one that is to leave is not known yet."""
    if p.state in (S.SUSPENDED, S.VACATING):
        return True
    seen = snapshot.job_by_id.get(p.job_id) if snapshot else None
    return seen is not None and still_first(p, seen)


_HOLD = "clearway drain"
_REASON = re.compile(_HOLD + r" (\d+)(?: [0-9a-f]+)?(?::|$)", re.ASCII)

N_contra = TypeVar("N_contra", bound=EmptiesNodes, contravariant=True)


def hold_reason(e: EmptiesNodes) -> str:
    """What a drained node's Reason says; by it the hold is known to be ours, and whose."""
    number = f"{e.eviction_id} {e.mark}" if e.mark else str(e.eviction_id)
    return f"{_HOLD} {number}" + (f": {e.plan.order.reason}" if e.plan.order.reason else "")


def drain_number(reason: str) -> int | None:
    found = _REASON.match(reason)
    return None if found is None else int(found[1])


def nodes_held(e: EmptiesNodes, snapshot: ClusterSnapshot) -> tuple[str, ...]:
    reason = hold_reason(e)
    nodes = [snapshot.node_by_name[name] for name in e.drained_nodes if name in snapshot.node_by_name]
    return tuple(node.name for node in nodes if node.drained and node.reason == reason)


def nodes_with_other_reasons(e: EmptiesNodes, snapshot: ClusterSnapshot) -> tuple[str, ...]:
    reasons = {name: snapshot.node_by_name[name].reason for name in e.drained_nodes if name in snapshot.node_by_name}
    return tuple(name for name, reason in reasons.items() if reason and reason != hold_reason(e))


def not_ours_to_drain(nodes: Iterable[str], snapshot: ClusterSnapshot) -> str:
    """Why one of these nodes is left alone: Slurm keeps one Reason only, and ours would replace it. Else empty."""
    reasons = {name: snapshot.node_by_name[name].reason for name in nodes}
    return next((f"node {name} already has a reason: {why[:120]}" for name, why in sorted(reasons.items()) if why), "")


class NodesLifecycle(Lifecycle[N_contra]):
    def target(self, e: N_contra, command: Command, snapshot: ClusterSnapshot) -> Target:
        ours = nodes_held(e, snapshot)
        missing = tuple(name for name in e.drained_nodes if name not in ours)
        return Target(nodes=ours if command is Command.UNDRAIN else missing, reason=hold_reason(e))

    def step_context(self, e: N_contra, p: Preemption, common: StepContext, cycle: CycleContext) -> StepContext:  # noqa: ARG002
        """Jobs go to the head of the queue until they run again."""
        over = watch_is_over(e, cycle.now, cycle.config.execution.watch_return)
        return replace(common, first=not over, unwatched=over)

    def refused(self, e: N_contra, command: Command, error: SlurmError) -> Phase | None:  # noqa: ARG002
        if e.state is not E.PLACING or error.retryable:
            return None
        return call_off(e, Outcome(OutcomeCode.NODES_REFUSED, f"The nodes cannot be taken: {error}"))


PREFIX = "clearway_"
FLAGS = ("FLEX", "IGNORE_JOBS")
_NAME = re.compile(PREFIX + r"(\d+)(?:_[0-9a-f]+)?", re.ASCII)


def placement_name(operation: Operation) -> str:
    """With its mark: no other database gives the same name, and no user can guess it beforehand."""
    return f"{PREFIX}{operation.eviction_id}" + (f"_{operation.mark}" if operation.mark else "")


def is_placement(reservation: Reservation) -> bool:
    """By name, and by flags that are never set by accident."""
    return placement_number(reservation.name) is not None and set(FLAGS) <= set(reservation.flags)


def placement_number(name: str) -> int | None:
    """The operation that a placement of this name is for, in the database that made it; None for other names."""
    found = _NAME.fullmatch(name)
    return None if found is None else int(found[1])


def placement_ends(operation: Operation, grace: timedelta) -> datetime:
    """After the deadline, or after the planned delay where the deadline had passed when the plan was made."""
    return operation.plan.due + grace


def placement_until(operation: Operation, now: datetime, grace: timedelta) -> datetime:
    if operation.window is not None:
        return operation.window[1]
    if operation.state.before_start:
        return placement_ends(operation, grace)
    return max(now, operation.runs_until or now) + grace


def placement(operation: Operation, now: datetime, grace: timedelta) -> Reservation:
    """The Slurm reservation that keeps freed nodes for the preemptor (and its licenses), or targets for jobs that move.
    IGNORE_JOBS lets it be made over busy nodes. FLEX lets the preemptor run on when it ends: without it Slurm kills a
    job with its reservation. Its end is bounded, so nothing stays behind if the daemon never returns. Over the nodes of
    suspended jobs it stays until they run again (docs/decisions/0015), and is extended while the daemon lives.
    """
    return Reservation(
        name=operation.placement,
        nodes=operation.held_nodes,
        start_time=now if operation.window is None else max(now, operation.window[0]),
        end_time=placement_until(operation, now, grace),
        users=operation.placement_users,
        flags=FLAGS,
        licenses=operation.plan.preemptor.licenses if isinstance(operation, Eviction) else "",
    )
