"""What an operation is to the executor: the protocol that each slice implements, and the rows that all share. Pure."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from clearway.execution.job_lifecycle import Command, S, StepContext
from clearway.model.cluster import ClusterSnapshot, Reservation
from clearway.model.errors import SlurmError
from clearway.model.operations import EvictionState, Operation, Preemption
from clearway.model.outcome import Outcome
from clearway.model.plan import OperationPlan

E = EvictionState
O_contra = TypeVar("O_contra", bound=Operation, contravariant=True)
V = TypeVar("V")  # what is observed of such an operation


@dataclass(frozen=True, slots=True)
class Observed:
    """What one cycle saw; ``reservations`` are empty when nothing under way needed them."""

    snapshot: ClusterSnapshot
    reservations: tuple[Reservation, ...]
    paused: bool = False

    def reservation(self, name: str) -> Reservation | None:
        return next((each for each in self.reservations if each.name == name), None)


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
    """What a command of an operation as a whole is about."""

    job_id: str = ""  # that is attached or detached
    nodes: tuple[str, ...] = ()  # that are drained or brought back
    reason: str = ""  # of these nodes
    power_down: bool = False  # these nodes, when they are brought back
    guests: tuple[str, ...] = ()  # job_ids that may still be in a placement that is deleted


class Lifecycle(Protocol[O_contra, V]):
    """How operations of one type are carried out. Only ``replan`` may do more than think."""

    def observe(self, e: O_contra, observed: Observed, done: AbstractSet[Command], now: datetime) -> V | None:
        """What is seen of an operation, with the commands ``done`` in this cycle; None: look again in the next one."""
        ...

    def next_phase(self, e: O_contra, observation: V, now: datetime) -> Phase | None:
        """The next row for the operation as a whole; None: nothing to do before another snapshot."""
        ...

    def target(self, e: O_contra, command: Command, snapshot: ClusterSnapshot) -> Target:
        """What this command is about."""
        ...

    def refused(self, e: O_contra, error: SlurmError) -> Phase | None:
        """What comes next where Slurm did not carry out a command for the operation as a whole; None: try again."""
        ...

    def misfits(self, e: O_contra, snapshot: ClusterSnapshot, others: Sequence[Operation]) -> dict[str, str]:
        """What makes another plan necessary while jobs leave, by job or node; ``others`` are under way as well."""
        ...

    def step_context(
        self,
        e: O_contra,
        p: Preemption,
        common: StepContext,
        observed: Observed,
        refused: AbstractSet[Command],
        now: datetime,
    ) -> StepContext:
        """``common`` with what depends on the type; ``refused``: commands that have just failed for the operation."""
        ...

    def replan(
        self, e: O_contra, stuck: Mapping[str, str], observed: Observed, others: Sequence[Operation], now: datetime
    ) -> OperationPlan | Phase | None:
        """A plan for the rest when these jobs or nodes are ``stuck``, and why; a row instead; None: it waits."""
        ...


def call_off(e: Operation, outcome: Outcome) -> Phase:
    """Undo what can be undone; jobs past their point of no return are followed to their end."""
    return Phase(E.CANCELLING if e.state.acting else E.CANCELLED, event=outcome.sentence, outcome=outcome)


def close_phase(e: Operation, now: datetime, watch_return: timedelta) -> Phase | None:
    """The rows of an operation with nothing of its own left on the cluster: its preemptees return."""
    if e.state is E.STARTED:
        return Phase(E.RETURNING)
    open_ones = [p for p in e.preemptions if not p.state.terminal]
    suspended = any(p.state is S.SUSPENDED for p in open_ones)  # only the operation that did it will resume it
    if open_ones and (suspended or now - e.state_since < watch_return):
        return None
    final = E.COMPLETED
    if e.state is E.CANCELLING:
        final = E.FAILED if e.started_at is None and e.late else E.CANCELLED
    left = f"{len(open_ones)} preempted job(s) had not returned when watching ended."
    return Phase(final, remark=left if open_ones else "")
