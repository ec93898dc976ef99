"""What the daemon tells of its work, for metrics and log lines: one union, and one function that takes any of it."""

from collections.abc import Callable
from typing import NamedTuple

from clearway.model.errors import CycleEndedError
from clearway.model.explanation import Explanation
from clearway.model.operations import Operation, Preemption
from clearway.model.orders import RollingDrain
from clearway.model.records import CheckpointRecord, RestartRecord
from clearway.model.report import CycleReport, Quarantined


class PlanMade(NamedTuple):
    """An operation was planned and stored; ``seconds`` is the time that this took."""

    operation: Operation
    seconds: float = 0.0


class PlanExplained(NamedTuple):
    operation: Operation
    explanation: Explanation


class CommandGiven(NamedTuple):
    """Slurm was given a command of this kind; ``result`` is ok, refused or error."""

    kind: str
    result: str


class JobLeft(NamedTuple):
    """A job was seen to have left, by Clearway's doing; ``partition``: where it ran, empty when Slurm names none."""

    preemption: Preemption
    partition: str
    operation: Operation  # for which it leaves


class LossMeasured(NamedTuple):
    """A job that had left has said how it went on, so what it lost is known."""

    before: Preemption
    preemption: Preemption
    partition: str
    operation: Operation


class OperationFinished(NamedTuple):
    operation: Operation


class RollingProgress(NamedTuple):
    """A rolling drain went on by itself; what an operator decides about it is no progress."""

    before: RollingDrain
    after: RollingDrain


class CalendarRead(NamedTuple):
    """The calendar of promises was read; ``complaints``: one line for each thing in it that cannot be followed."""

    complaints: tuple[str, ...]


class CycleFailed(NamedTuple):
    error: BaseException


class HandlingFailed(NamedTuple):
    """A job, a request, an operation or a part of a cycle raised this error; the cycle went on without it."""

    quarantined: Quarantined
    error: BaseException


class CycleCut(NamedTuple):
    """A cycle ended before its work was done, in order: nothing was given to Slurm any more."""

    error: CycleEndedError


OperationEvent = PlanMade | PlanExplained | CommandGiven | JobLeft | LossMeasured | OperationFinished | RollingProgress
CycleEvent = CycleReport | CycleFailed | HandlingFailed | CycleCut
Event = OperationEvent | CheckpointRecord | RestartRecord | CalendarRead | CycleEvent
Emit = Callable[[Event], None]


def ignore(_: Event) -> None:
    """An ``Emit`` for work that is not watched."""


def fan_out(*listeners: Emit) -> Emit:
    def emit(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return emit
