"""How an operation stands or has ended: a code for programs, and why, for people. Frozen data."""

from dataclasses import dataclass
from enum import StrEnum


class OutcomeCode(StrEnum):
    SCHEDULED = "scheduled"  # begins later
    NEEDS_APPROVAL = "needs_approval"
    STARTED = "started"  # the preemptor runs
    EMPTY = "empty"  # the nodes of a drain are empty
    KEPT = "kept"  # the nodes of a promise were free at its time
    KEPT_LATE = "kept_late"  # ... later than that
    NOT_KEPT = "not_kept"  # ... were not all free before it was over
    ARRIVED = "arrived"  # the jobs of a relocation run on their targets, or have ended
    POINTLESS = "pointless"  # the preemptor has no use for the nodes any more
    MISUSED = "misused"  # another job of the preemptor's user was in the placement
    TOO_LATE = "too_late"  # it did not come to its end in the time there was
    NODE_TAKEN = "node_taken"  # a node has a Reason that is not ours, or was brought back
    NODES_REFUSED = "nodes_refused"  # Slurm does not let us have the nodes
    NOT_POSSIBLE = "not_possible"  # jobs cannot leave
    NOT_MOVED = "not_moved"  # a job did not leave, or cannot come back by itself
    CALLED_OFF = "called_off"  # the cluster is not as planned any more, or something more urgent came
    COSTS_MORE = "costs_more"  # more would have to leave than was planned, or approved
    NODES_LOST = "nodes_lost"  # nodes took no jobs any more once others had left them, and everything was stopped
    CANCELLED = "cancelled"  # by an operator
    WITHDRAWN = "withdrawn"  # the event of a promise has left the calendar
    SUPERSEDED = "superseded"  # it was never carried out


PLANNED_ANEW = (OutcomeCode.COSTS_MORE, OutcomeCode.NODES_LOST)  # as soon as that is allowed again


_BEGINNINGS = {
    OutcomeCode.NEEDS_APPROVAL: "Needs approval: ",
    OutcomeCode.NOT_POSSIBLE: "Not drained: ",
    OutcomeCode.NOT_KEPT: "Not kept: ",
    OutcomeCode.CALLED_OFF: "Called off: ",
    OutcomeCode.COSTS_MORE: "Called off: ",
    OutcomeCode.NODES_LOST: "Called off: ",
    OutcomeCode.SUPERSEDED: "Not carried out: ",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """``why`` is without the full stop, and without what its code says."""

    code: OutcomeCode
    why: str

    @property
    def sentence(self) -> str:
        return f"{_BEGINNINGS.get(self.code, '')}{self.why}."
