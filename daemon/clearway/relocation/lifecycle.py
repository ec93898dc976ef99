"""The rows of the eviction's table for moves: jobs go, one after another, to nodes told before. Pure.

placing     nodes that shall become empty are drained, and a placement (a Slurm reservation) keeps what is free on the
            targets; then the plan has to fit what a later snapshot shows
preempting  the preemptions' own table, one job at a time. A job that has left its node is attached to the placement,
            which then covers its own nodes alone, before it may start, and detached as soon as it runs there
started     all have arrived: the placement goes, and the emptied nodes take jobs again
cancelling  the same; who is on his way still arrives, unless it takes too long: then he starts wherever he can

FLEX lets a job start outside its reservation as well, but Slurm prefers what is inside, and room there has been seen.
On any doubt the moves are called off: a job that has not been requeued by then stays where it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from clearway.eligibility.node_usage import FreeCapacity
from clearway.execution.job_lifecycle import Command
from clearway.execution.lifecycle import Phase, close_phase
from clearway.execution.node_hold import hold_reason
from clearway.model.cluster import ClusterSnapshot, JobState, Reservation
from clearway.model.operations import Eviction, EvictionState, Preemption, PreemptionState
from clearway.model.orders import DrainOrder, MoveOrder
from clearway.slurm.parse.hostlist import compress

E = EvictionState


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveSight:
    """What is seen of moves, in a snapshot taken after their last change."""

    ours: tuple[str, ...]  # nodes drained by this very eviction
    foreign: tuple[str, ...]  # to be emptied, with somebody else's Reason
    misfit: str  # why what is still to be moved cannot be moved as planned; empty when it can
    empty: bool  # nobody is on the nodes that were to become empty
    elsewhere: str  # a job that runs again, but not on its target; empty: there is none
    placement: Reservation | None
    paused: bool = False


def move_sight(
    e: Eviction, order: DrainOrder, snapshot: ClusterSnapshot, placement: Reservation | None, *, paused: bool
) -> MoveSight:
    reason = hold_reason(e.eviction_id, order)
    nodes = [snapshot.node_by_name[name] for name in order.nodes if name in snapshot.node_by_name]
    return MoveSight(
        ours=tuple(node.name for node in nodes if node.drained and node.reason == reason),
        foreign=tuple(node.name for node in nodes if node.reason and node.reason != reason),
        misfit=move_misfit(e, order, snapshot),
        empty=not any(snapshot.jobs_on.get(name) for name in order.nodes) and not snapshot.unreadable,
        elsewhere=_elsewhere(e, order.move, snapshot),
        placement=placement,
        paused=paused,
    )


def _elsewhere(e: Eviction, move: MoveOrder | None, snapshot: ClusterSnapshot) -> str:
    if move is None:
        return ""
    for p in e.preemptions:
        seen = snapshot.job_by_id.get(p.job_id)
        nodes = seen.nodes if seen is not None and seen.state is JobState.RUNNING else ()
        told = move.nodes_after(p.job)
        if p.state is PreemptionState.RETURNED and not set(nodes) <= set(told):
            return f"job {p.job.display_id} started on {compress(nodes)} instead of {compress(told)}"
    return ""


def its_turn(e: Eviction, p: Preemption) -> bool:
    """Whether nobody is to be moved before this job."""
    if e.move is None:
        return True
    return all(o.state.terminal for o in e.preemptions if (o.order, o.job_id) < (p.order, p.job_id))


def lands(p: Preemption, now: datetime, patience: timedelta) -> bool:
    """Whether a job that was made to leave is still to start on its target."""
    return p.requeued_at is not None and now - p.requeued_at < patience


def may_attach(e: Eviction, p: Preemption, placement: Reservation | None) -> bool:
    """Whether its placement is where this job shall start, and nowhere else."""
    return e.move is not None and placement is not None and set(placement.nodes) == set(e.move.nodes_after(p.job))


def move_misfit(e: Eviction, order: DrainOrder, snapshot: ClusterSnapshot) -> str:
    """Why the jobs that are still where they were cannot be moved as planned; empty when they can."""
    if snapshot.unreadable:
        return "not all jobs can be read"
    move = order.move
    assert move is not None, e.eviction_id  # noqa: S101 - only moves have these rows
    moved = {p.job_id for p in e.preemptions}
    for name in order.nodes:
        stranger = next((job for job in snapshot.jobs_on.get(name, ()) if job.job_id not in moved), None)
        if stranger is not None and stranger.state is not JobState.COMPLETING:
            return f"job {stranger.display_id} has come to node {name}"
    waiting = [p for p in e.preemptions if p.state.cancellable]
    for p in waiting:
        job = snapshot.job_by_id.get(p.job_id)
        if job is not None and job.run == p.job.run and job.state is not JobState.RUNNING and job.state.holds_nodes:
            return f"job {p.job.display_id} is {job.state.value}"
    return _no_room(waiting, move, snapshot)


def _no_room(waiting: list[Preemption], move: MoveOrder, snapshot: ClusterSnapshot) -> str:
    free = FreeCapacity.of(snapshot)
    for p in waiting:
        for name in move.nodes_after(p.job):
            node = snapshot.node_by_name.get(name)
            if node is None or not node.available:
                return f"node {name} is not available any more"
        for part in move.of(p.job_id):
            if not free.take(part.target, part.processors, p.job.memory_mib):
                return f"node {part.target} has no room for job {p.job.display_id} any more"
    return ""


def next_move_phase(
    e: Eviction, order: DrainOrder, sight: MoveSight, now: datetime, *, patience: timedelta, watch_return: timedelta
) -> Phase | None:
    """The next row for moves as a whole; None: nothing to do before another snapshot."""
    if not e.state.acting:
        return None
    if e.state in (E.PLACING, E.PREEMPTING):
        return _before_end(e, order, sight, now, patience)
    if sight.ours:
        return Phase(e.state, Command.UNDRAIN)
    if e.landing is not None and lands(e.landing, now, patience):
        return _hold(e, sight)
    if sight.placement is not None:
        return Phase(e.state, Command.DELETE_PLACEMENT)
    return close_phase(e, now, watch_return)


def _before_end(e: Eviction, order: DrainOrder, sight: MoveSight, now: datetime, patience: timedelta) -> Phase | None:
    missing = sorted(set(order.nodes) - set(sight.ours))
    taken = sorted(set(missing) & set(sight.foreign))
    failed = next((p for p in e.preemptions if p.state is PreemptionState.FAILED), None)
    why = (
        f"Node {taken[0]} has a reason of somebody else." if taken
        else f"Called off: {sight.misfit}." if sight.misfit
        else f"Job {failed.job.display_id}: {failed.note}." if failed
        else ""
    )  # fmt: skip
    if why:
        return Phase(E.CANCELLING, outcome=why)
    if e.state is E.PLACING:
        return _placing(e, sight, missing)
    if missing:
        return Phase(E.CANCELLING, outcome=f"Node {missing[0]} was brought back by somebody else.")
    if e.landing is not None and not lands(e.landing, now, patience):
        job = e.landing.job.display_id
        return Phase(E.CANCELLING, outcome=f"Job {job} did not start on its new node in time.")
    if all(p.state.terminal for p in e.preemptions):
        return Phase(E.STARTED, event=_arrived(e, order, sight), started_at=now)
    return _hold(e, sight)


def _placing(e: Eviction, sight: MoveSight, missing: list[str]) -> Phase | None:
    if sight.paused:
        return None
    if missing:
        return Phase(E.PLACING, Command.DRAIN)
    return _hold(e, sight) or Phase(E.PREEMPTING)


def _hold(e: Eviction, sight: MoveSight) -> Phase | None:
    if sight.placement is None:
        return Phase(e.state, Command.CREATE_PLACEMENT)
    return Phase(e.state, Command.MOVE_PLACEMENT) if set(sight.placement.nodes) != set(e.held_nodes) else None


def _arrived(e: Eviction, order: DrainOrder, sight: MoveSight) -> str:
    count = sum(p.state is PreemptionState.RETURNED for p in e.preemptions)
    text = f"{count} of {len(e.preemptions)} job(s) moved"
    if order.nodes:
        text += (
            f"; {compress(order.nodes)} {'is' if len(order.nodes) == 1 else 'are'}{'' if sight.empty else ' not'} empty"
        )
    return f"{text}{f'; {sight.elsewhere}' if sight.elsewhere else ''}."
