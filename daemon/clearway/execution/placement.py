"""The Slurm reservation that keeps freed nodes for the preemptor. Pure: names and contents only.

IGNORE_JOBS lets it be made over busy nodes. FLEX lets the preemptor run on when the reservation ends: without it
Slurm kills a job with its reservation. Its end is bounded, so nothing stays behind if the daemon never returns.

Over the nodes of suspended jobs it stays until they run again (docs/decisions/0015): resuming a job over another one
silently oversubscribes the processors. It then ends with the preemptor's time limit and the grace, and is extended
while the daemon lives.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from clearway.model.cluster import Reservation
from clearway.model.operations import Eviction

PREFIX = "clearway_"
FLAGS = ("FLEX", "IGNORE_JOBS")


def placement_name(eviction_id: int) -> str:
    return f"{PREFIX}{eviction_id}"


def is_placement(reservation: Reservation) -> bool:
    """Whether a reservation is one of Clearway's: by name, and by flags that nobody sets by accident."""
    digits = reservation.name.removeprefix(PREFIX)
    return reservation.name.startswith(PREFIX) and digits.isdigit() and set(FLAGS) <= set(reservation.flags)


def placement_ends(eviction: Eviction, grace: timedelta) -> datetime:
    """After the deadline, or after the planned delay where the deadline had passed when the plan was made."""
    horizon = eviction.plan.made_at + timedelta(seconds=eviction.plan.problem.max_delay_s)
    return max(eviction.plan.deadline, horizon) + grace


def placement_until(eviction: Eviction, now: datetime, grace: timedelta) -> datetime:
    """When a placement that is made or extended now has to end."""
    if eviction.state.before_start:
        return placement_ends(eviction, grace)
    limit_s = eviction.preemptor.time_limit_s
    if eviction.started_at is None or limit_s is None:
        return now + grace
    return max(now, eviction.started_at + timedelta(seconds=limit_s)) + grace


def _users(eviction: Eviction) -> tuple[str, ...]:
    """Whose jobs start there: the preemptor's, or those that are moved."""
    if eviction.move is None:
        return (eviction.preemptor.user,)
    return tuple(sorted({p.job.user for p in eviction.preemptions}))


def placement(eviction: Eviction, now: datetime, grace: timedelta) -> Reservation:
    return Reservation(
        name=eviction.placement,
        nodes=eviction.held_nodes,
        start_time=now,
        end_time=placement_until(eviction, now, grace),
        users=_users(eviction),
        flags=FLAGS,
    )
