"""The state machines as data: which state may follow which, and why. Every state is entered through here.

The lifecycles decide when; a step that no table has is refused, so a state that nothing expects is never stored. The
diagrams of docs/explanation/architecture.md are made from these tables.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from clearway.model.errors import TransitionError
from clearway.model.operations import EvictionState as E
from clearway.model.operations import Operation, OperationKind, Preemption
from clearway.model.operations import PreemptionState as P
from clearway.model.outcome import Outcome, OutcomeCode

O = TypeVar("O", bound=Operation)  # noqa: E741
S = TypeVar("S", bound=StrEnum)
Table = Mapping[S, Mapping[S, str]]  # from, to, why

_MISFIT = {E.SUPERSEDED: "does not fit the cluster any more", E.CANCELLED: "cancelled"}
_OLD = {E.SUPERSEDED: "does not fit the cluster any more, or too old", E.CANCELLED: "cancelled"}

OPERATIONS: Mapping[OperationKind, Table[E]] = {
    OperationKind.EVICTION: {
        E.PROPOSED: _MISFIT,
        E.AWAITING_APPROVAL: {E.PLACING: "approved, or within the budget again"} | _MISFIT,
        E.PLACING: {
            E.PREEMPTING: "the placement stands, the preemptor is attached",
            E.STARTED: "the preemptor runs",
            E.SUPERSEDED: "does not fit the cluster any more",
            E.CANCELLING: "cancelled, or pointless",
        },
        E.PREEMPTING: {
            E.STARTING: "all nodes are free",
            E.STARTED: "the preemptor runs",
            E.CANCELLING: "cancelled, pointless, misused, or too late",
        },
        E.STARTING: {
            E.PREEMPTING: "planned anew: a node was lost, or the job was changed",
            E.STARTED: "the preemptor runs",
            E.CANCELLING: "cancelled, pointless, or too late",
        },
        E.STARTED: {E.RETURNING: "the placement is gone"},
        E.RETURNING: {E.COMPLETED: "the preemptees run again, or were watched long enough"},
        E.CANCELLING: {E.CANCELLED: "undone", E.FAILED: "undone, and the preemptor did not start in time"},
    },
    OperationKind.DRAIN: {
        E.SCHEDULED: {E.PLACING: "its time has come", E.CANCELLED: "cancelled"},
        E.PLACING: {E.PREEMPTING: "all nodes are drained by us", E.CANCELLING: "cancelled, or a node cannot be taken"},
        E.PREEMPTING: {
            E.STARTED: "the nodes are empty",
            E.CANCELLING: "cancelled, a job cannot leave, or a node was brought back",
        },
        E.STARTED: {E.RETURNING: "nothing is left to do on the nodes"},
        E.RETURNING: {E.COMPLETED: "the preemptees run again, or were watched long enough"},
        E.CANCELLING: {E.CANCELLED: "the nodes take jobs again", E.FAILED: "the same, after the deadline had passed"},
    },
    OperationKind.RELOCATION: {
        E.PROPOSED: _OLD,
        E.AWAITING_APPROVAL: {E.PLACING: "approved"} | _OLD,
        E.PLACING: {E.PREEMPTING: "nodes and targets are held", E.CANCELLING: "cancelled, or called off"},
        E.PREEMPTING: {E.STARTED: "all jobs have arrived", E.CANCELLING: "cancelled, or called off"},
        E.STARTED: {E.RETURNING: "nothing is held any more"},
        E.RETURNING: {E.COMPLETED: "no job is on its way"},
        E.CANCELLING: {E.CANCELLED: "nothing is held any more"},
    },
    OperationKind.PROMISE: {
        E.SCHEDULED: {
            E.PLACING: "its nodes are chosen, some time before",
            E.CANCELLED: "cancelled",
            E.FAILED: "it is over, and no nodes could be had",
        },
        E.PLACING: {E.PREEMPTING: "the placement stands", E.CANCELLING: "cancelled, refused, or over and not kept"},
        E.PREEMPTING: {
            E.STARTED: "its time has come, and its nodes are free",
            E.CANCELLING: "cancelled, or over and not kept",
        },
        E.STARTED: {E.RETURNING: "it is over", E.CANCELLING: "cancelled"},
        E.RETURNING: {E.COMPLETED: "the preemptees run again, or were watched long enough"},
        E.CANCELLING: {E.CANCELLED: "nothing is held any more", E.FAILED: "the same, and it was not kept"},
    },
}

PREEMPTIONS: Table[P] = {
    P.PLANNED: {
        P.CHECKPOINTING: "asked to save itself, or waited for",
        P.VACATING: "requeued, cancelled or suspended",
        P.VACATED: "requeued by another hand",
        P.RETURNED: "runs again: requeued by another hand",
        P.ENDED: "over by itself",
        P.SPARED: "not needed any more",
    },
    P.CHECKPOINTING: {
        P.PLANNED: "planned anew with another action",
        P.VACATING: "saved: requeued, or has requeued itself",
        P.VACATED: "requeued by another hand",
        P.RETURNED: "runs again: requeued by another hand",
        P.ENDED: "over by itself",
        P.SPARED: "not needed any more",
    },
    P.VACATING: {
        P.SUSPENDED: "seen suspended",
        P.VACATED: "seen in the queue",
        P.RETURNED: "seen running again",
        P.ENDED: "cancelled, or over",
        P.SPARED: "was not suspended, and need not be any more",
        P.FAILED: "does not leave",
    },
    P.SUSPENDED: {P.VACATED: "requeued by another hand", P.RETURNED: "resumed", P.ENDED: "over by itself"},
    P.VACATED: {P.QUEUED: "may start again", P.RETURNED: "runs again", P.ENDED: "over", P.FAILED: "held in the queue"},
    P.QUEUED: {P.RETURNED: "runs again", P.ENDED: "over", P.FAILED: "held in the queue"},
    P.SPARED: {P.PLANNED: "planned anew: needed after all"},
}


def _check(what: str, table: Table[S], before: S, after: S) -> None:
    if after is not before and after not in table.get(before, {}):
        raise TransitionError(f"{what} cannot go from {before.value} to {after.value}")


def entered(operation: O, state: E, now: datetime, **changes: Any) -> O:
    """The operation in another state; raises ``TransitionError`` where its table has no such step."""
    _check(f"{operation.kind.value} {operation.eviction_id}", OPERATIONS[operation.kind], operation.state, state)
    return replace(operation, state=state, state_since=now, **changes)


def superseded(operation: O, why: str, now: datetime) -> O:
    """As an operation ends that was never carried out: ``why``, half a sentence."""
    ended = entered(operation, E.SUPERSEDED, now, finished_at=now)
    return ended.told(Outcome(OutcomeCode.SUPERSEDED, why))


def preemption_entered(before: Preemption, state: P, now: datetime, **changes: Any) -> Preemption:
    """The preemption in another state; raises ``TransitionError`` where the table has no such step."""
    _check(f"job {before.job_id}", PREEMPTIONS, before.state, state)
    return replace(before, state=state, state_since=now, **changes)


def planned_again(before: Preemption, after: Preemption) -> Preemption:
    """``after``, the same job's part in another plan; raises ``TransitionError`` where it cannot be planned again."""
    _check(f"job {before.job_id}", PREEMPTIONS, before.state, after.state)
    return after
