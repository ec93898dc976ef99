"""The Slurm reservation that keeps freed nodes for the preemptor, or targets for jobs that move. Pure.

It holds the preemptor's licenses too, so that no other job takes those that leaving jobs give back.
IGNORE_JOBS lets it be made over busy nodes. FLEX lets the preemptor run on when the reservation ends: without it
Slurm kills a job with its reservation. Its end is bounded, so nothing stays behind if the daemon never returns.

Over the nodes of suspended jobs it stays until they run again (docs/decisions/0015): resuming a job over another one
silently oversubscribes the processors. It then ends with the preemptor's time limit and the grace, and is extended
while the daemon lives.

That of a promise begins at the promised time and ends with it. Slurm starts no job on its nodes that, by its limit,
would have to leave then.
"""

import re
from datetime import datetime, timedelta

from clearway.model.cluster import Reservation
from clearway.model.operations import Eviction, Operation

PREFIX = "clearway_"
FLAGS = ("FLEX", "IGNORE_JOBS")
_NAME = re.compile(PREFIX + r"(\d+)(?:_[0-9a-f]+)?", re.ASCII)


def placement_name(operation: Operation) -> str:
    """With its mark: no other database gives the same name, and no user can guess it beforehand."""
    return f"{PREFIX}{operation.eviction_id}" + (f"_{operation.mark}" if operation.mark else "")


def is_placement(reservation: Reservation) -> bool:
    """Whether a reservation is one of Clearway's: by name, and by flags that are never set by accident."""
    return placement_number(reservation.name) is not None and set(FLAGS) <= set(reservation.flags)


def placement_number(name: str) -> int | None:
    """The operation that a placement of this name is for, in the database that made it; None for other names."""
    found = _NAME.fullmatch(name)
    return None if found is None else int(found[1])


def placement_ends(operation: Operation, grace: timedelta) -> datetime:
    """After the deadline, or after the planned delay where the deadline had passed when the plan was made."""
    return operation.plan.due + grace


def placement_until(operation: Operation, now: datetime, grace: timedelta) -> datetime:
    """When a placement that is made or extended now has to end."""
    if operation.window is not None:
        return operation.window[1]
    if operation.state.before_start:
        return placement_ends(operation, grace)
    return max(now, operation.runs_until or now) + grace


def placement(operation: Operation, now: datetime, grace: timedelta) -> Reservation:
    return Reservation(
        name=operation.placement,
        nodes=operation.held_nodes,
        start_time=now if operation.window is None else max(now, operation.window[0]),
        end_time=placement_until(operation, now, grace),
        users=operation.placement_users,
        flags=FLAGS,
        licenses=operation.plan.preemptor.licenses if isinstance(operation, Eviction) else "",
    )
