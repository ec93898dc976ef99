"""What earlier decisions already claim. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from clearway.model.operations import Eviction, EvictionState


@dataclass(frozen=True, slots=True)
class UnderWay:
    """What earlier decisions already claim; ``leaving`` belongs to the eviction that is planned anew, if any."""

    jobs: frozenset[str] = frozenset()  # preemptees and preemptors of other evictions: not to be touched
    nodes: frozenset[str] = frozenset()  # placements of other evictions
    leaving: frozenset[str] = frozenset()  # past their point of no return: their nodes count as free
    avoid: frozenset[str] = frozenset()  # jobs that failed to leave in time
    lasting: frozenset[str] = frozenset()  # jobs that did not end by themselves as planned: not counted on again
    promised: frozenset[str] = frozenset()  # leave for evictions due no later: nodes left over are free
    own_nodes: frozenset[str] = frozenset()  # the placement of the eviction that is planned anew, if any
    evictions: tuple[Eviction, ...] = ()  # whose checkpoints keep the file system


def promised_by(evictions: Iterable[Eviction]) -> frozenset[str]:
    """Jobs that leave for one of these evictions."""
    return frozenset(job_id for e in evictions for job_id in e.promised_jobs)


def under_way_by(evictions: Sequence[Eviction], deadline: datetime | None = None) -> UnderWay:
    """What evictions that are being carried out claim; proposals claim nothing.

    With a ``deadline``, jobs that leave for evictions due no later than that are ``promised``.
    """
    acting = [e for e in evictions if e.state.acting]
    jobs = {p.job_id for e in acting for p in e.preemptions if not p.state.terminal}
    placed = {
        name
        for e in acting
        if e.state is EvictionState.CANCELLING or e.move is not None
        for name in e.plan.placement_nodes
    }
    nodes = placed | {name for e in acting for name in e.held_nodes}
    sooner = [e for e in acting if deadline is not None and e.plan.deadline <= deadline]
    return UnderWay(
        jobs=frozenset(jobs | {e.preemptor.job_id for e in acting}),
        nodes=frozenset(nodes),
        promised=promised_by(sooner),
        evictions=tuple(acting),
    )
