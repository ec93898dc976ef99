"""The rows of the table for the eviction of a preemptor, whose hold is its placement. Pure.

placing -> preempting -> starting -> started -> returning -> completed
(before started) -> cancelling -> cancelled | failed
returning, cancelling: the placement stays over the nodes of suspended jobs until they run again
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from clearway.execution.job_lifecycle import Command
from clearway.execution.lifecycle import E, Phase, close_phase
from clearway.model.cluster import Job, JobState, Reservation
from clearway.model.operations import Eviction


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What is seen of an eviction, from a snapshot and a list of reservations taken after its last change."""

    preemptor: Job | None
    placement: Reservation | None
    nodes_free: bool  # no job but the preemptor, and jobs suspended for it, is on the placement's nodes
    placement_ends: datetime
    extend_when_ends: datetime  # a placement that ends before this and is still needed is extended
    paused: bool = False


def next_phase(e: Eviction, sight: Sight, now: datetime, watch_return: timedelta) -> Phase | None:
    """The next row for the eviction as a whole; None: nothing to do before another snapshot."""
    if not e.state.acting:
        return None
    if e.state in (E.PLACING, E.PREEMPTING, E.STARTING):
        return _before_start(e, sight, now)
    cleaning = _keep_placement(e, sight) if e.suspended_nodes else _remove_placement(e, sight)
    if cleaning is not None:
        return cleaning
    return close_phase(e, now, watch_return)


def _before_start(e: Eviction, sight: Sight, now: datetime) -> Phase | None:
    job = sight.preemptor
    pointless = _pointless(e, job)
    if job is None or pointless:
        return Phase(E.CANCELLING, outcome=pointless)
    if job.state is not JobState.PENDING:
        return Phase(E.STARTED, event=_start_event(e, job), started_at=job.start_time or now)
    if now >= sight.placement_ends:
        return Phase(E.CANCELLING, outcome=f"The {e.plan.called} did not start before its placement ended.", late=True)
    if sight.paused and e.state is E.PLACING:
        return None
    if sight.placement is None:
        return Phase(e.state, Command.CREATE_PLACEMENT)
    if set(sight.placement.nodes) != set(e.held_nodes):
        return Phase(e.state, Command.MOVE_PLACEMENT)
    if job.reservation != e.placement:
        return Phase(e.state, Command.ATTACH)
    if e.state is E.PLACING:
        return Phase(E.PREEMPTING)
    if e.state is E.PREEMPTING and sight.nodes_free:
        return Phase(E.STARTING)
    if not e.late and now > e.plan.deadline:
        return Phase(e.state, event=f"The {e.plan.called} did not start by its deadline; it waits on.", late=True)
    return None


def _pointless(e: Eviction, job: Job | None) -> str:
    """Why the preemptor has no use for this eviction any more; empty while it has."""
    if job is None or job.state is JobState.ENDED:
        return f"The {e.plan.called} is gone."
    if job.state is not JobState.PENDING:
        return ""
    if job.priority == 0:
        return f"The {e.plan.called} is held."
    changed = job.num_nodes > e.plan.nodes_needed or job.partitions != e.preemptor.partitions
    return f"The {e.plan.called} was changed." if changed else ""


def _start_event(e: Eviction, job: Job) -> str:
    start = job.start_time
    if start is None:
        return f"The {e.plan.called} started."
    margin_s = (e.plan.deadline - start).total_seconds()
    return f"The {e.plan.called} started {abs(margin_s):.1f} s {'before' if margin_s >= 0 else 'after'} its deadline."


def _keep_placement(e: Eviction, sight: Sight) -> Phase | None:
    """Over the nodes of suspended jobs, and only there, without the preemptor in it: it could start there again."""
    job = sight.preemptor
    if job is not None and job.state is not JobState.ENDED and e.placement and job.reservation == e.placement:
        return Phase(e.state, Command.DETACH)
    if sight.placement is None:
        return Phase(e.state, Command.CREATE_PLACEMENT)
    if set(sight.placement.nodes) != set(e.held_nodes):
        return Phase(e.state, Command.MOVE_PLACEMENT)
    if sight.placement.end_time < sight.extend_when_ends:
        return Phase(e.state, Command.EXTEND_PLACEMENT)
    return None


def _remove_placement(e: Eviction, sight: Sight) -> Phase | None:
    """Detach first: Slurm refuses to delete a reservation in use, and a running job survives the detaching."""
    job = sight.preemptor
    if job is not None and job.state is not JobState.ENDED and e.placement and job.reservation == e.placement:
        return Phase(e.state, Command.DETACH)
    if sight.placement is not None:
        return Phase(e.state, Command.DELETE_PLACEMENT)
    return None
