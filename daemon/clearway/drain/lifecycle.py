"""The rows of the eviction's table for a drain, whose hold is the DRAIN state of its nodes. Pure.

placing     not all nodes are drained by us: drain them; all are: go on with what a later snapshot shows there
preempting  the preemptions' own table; until no job is left that has to go
started     the nodes are empty, and stay drained until somebody brings them back
cancelling  the nodes whose Reason is still ours go back as they were

A node that somebody else has drained is neither drained again nor brought back: Slurm keeps one Reason only, and DRAIN
over DRAIN would replace it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from clearway.execution.job_lifecycle import Command
from clearway.execution.lifecycle import Phase, close_phase
from clearway.execution.node_hold import hold_reason
from clearway.model.cluster import ClusterSnapshot, JobState
from clearway.model.operations import Eviction, EvictionState, PreemptionState
from clearway.model.orders import DrainOrder

E = EvictionState


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainSight:
    """What is seen of a drain's nodes, in a snapshot taken after its last change."""

    ours: tuple[str, ...]  # drained by this very eviction
    foreign: tuple[str, ...]  # with somebody else's Reason
    free: bool  # no job that has to go is on any of them
    paused: bool = False


def drain_sight(e: Eviction, order: DrainOrder, snapshot: ClusterSnapshot, *, paused: bool) -> DrainSight:
    reason = hold_reason(e.eviction_id, order)
    nodes = [snapshot.node_by_name[name] for name in order.nodes if name in snapshot.node_by_name]
    staying = [job for name in order.nodes for job in snapshot.jobs_on.get(name, ())]
    return DrainSight(
        ours=tuple(node.name for node in nodes if node.drained and node.reason == reason),
        foreign=tuple(node.name for node in nodes if node.reason and node.reason != reason),
        free=not staying and not snapshot.unreadable,
        paused=paused,
    )


def next_drain_phase(
    e: Eviction, order: DrainOrder, sight: DrainSight, now: datetime, watch_return: timedelta
) -> Phase | None:
    """The next row for a drain as a whole; None: nothing to do before another snapshot."""
    if not e.state.acting:
        return None
    missing = set(order.nodes) - set(sight.ours)
    if e.state is E.PLACING:
        taken = sorted(missing & set(sight.foreign))
        if taken:
            return Phase(E.CANCELLING, outcome=f"Node {taken[0]} has a reason of somebody else.")
        if sight.paused:
            return None
        return Phase(E.PLACING, Command.DRAIN) if missing else Phase(E.PREEMPTING)
    if e.state is E.PREEMPTING:
        # A Reason of somebody else's keeps the node out of service as well; without any it takes jobs again.
        lost = sorted(missing - set(sight.foreign))
        if lost:
            return Phase(E.CANCELLING, outcome=f"Node {lost[0]} was brought back by somebody else.")
        if sight.free:
            return Phase(E.STARTED, event="The nodes are empty.", started_at=now)
        if order.deadline is not None and now > order.deadline and not e.late:
            return Phase(e.state, event="The nodes were not empty by the deadline.", late=True)
        return None
    if e.state is E.CANCELLING and sight.ours:
        return Phase(e.state, Command.UNDRAIN)
    return close_phase(e, now, watch_return)


def have_to_go(e: Eviction, order: DrainOrder, snapshot: ClusterSnapshot) -> dict[str, str]:
    """The jobs on a drain's nodes that its plan does not know, or knows no more: why another plan is needed."""
    gone = (PreemptionState.SPARED, PreemptionState.FAILED)
    leaving = {p.job.run for p in e.preemptions if p.state not in gone}
    passed = {p.job_id for p in e.preemptions if p.requeued_at is not None and p.state not in gone}
    return {
        job.job_id: f"it is on node {name}"
        for name in order.nodes
        for job in snapshot.jobs_on.get(name, ())
        if job.run not in leaving
        and job.job_id not in passed
        and job.state is not JobState.COMPLETING
        and not order.leaves_alone(job)
    }
