"""The Slurm reservation that keeps freed nodes for the preemptor. Pure: names and contents only.

IGNORE_JOBS lets it be made over busy nodes. FLEX lets the preemptor run on when the reservation ends: without it
Slurm kills a job with its reservation. Its end is bounded, so nothing stays behind if the daemon never returns.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from clearway.execution.records import Eviction
from clearway.model import Reservation

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


def placement(eviction: Eviction, now: datetime, grace: timedelta) -> Reservation:
    return Reservation(
        name=eviction.placement,
        nodes=eviction.plan.placement_nodes,
        start_time=now,
        end_time=placement_ends(eviction, grace),
        users=(eviction.preemptor.user,),
        flags=FLAGS,
    )
