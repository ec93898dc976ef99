"""What earlier decisions already claim. Pure."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from clearway.model.operations import Operation
from clearway.model.problem import Action


@dataclass(frozen=True, slots=True)
class UnderWay:
    """What earlier decisions already claim; ``leaving`` belongs to the eviction that is planned anew, if any."""

    jobs: frozenset[str] = frozenset()  # preemptees and preemptors of other evictions: not to be touched
    nodes: frozenset[str] = frozenset()  # placements of other evictions
    leaving: frozenset[str] = frozenset()  # past their point of no return: their nodes count as free
    avoid: frozenset[str] = frozenset()  # jobs that failed to leave in time
    unsaved: frozenset[str] = frozenset()  # did not save themselves when asked: they can only leave without
    lasting: frozenset[str] = frozenset()  # jobs that did not end by themselves as planned: not counted on again
    promised: frozenset[str] = frozenset()  # leave for operations due no later: nodes left over are free
    own_nodes: frozenset[str] = frozenset()  # the placement of the eviction that is planned anew, if any
    evictions: tuple[Operation, ...] = ()  # whose checkpoints keep the file system


def promised_by(evictions: Iterable[Operation]) -> frozenset[str]:
    """Jobs that leave for one of these operations."""
    return frozenset(job_id for e in evictions for job_id in e.promised_jobs)


def under_way_by(evictions: Sequence[Operation], deadline: datetime | None = None) -> UnderWay:
    """What operations that are being carried out claim; proposals claim nothing.

    With a ``deadline``, jobs that leave for operations due no later than that are ``promised``.
    """
    acting = [e for e in evictions if e.state.acting]
    sooner = [e for e in acting if deadline is not None and e.plan.due <= deadline]
    return UnderWay(
        jobs=frozenset(job_id for e in acting for job_id in e.claimed_jobs),
        nodes=frozenset(name for e in acting for name in e.claimed_nodes),
        promised=promised_by(sooner),
        evictions=tuple(acting),
    )


def at_own_cost(under_way: UnderWay, late: Collection[str]) -> UnderWay:
    """The same where those whose checkpoint is ``late`` may leave without it."""
    return replace(under_way, avoid=under_way.avoid - frozenset(late), unsaved=frozenset(late))


def under_way_for_replan(e: Operation, others: Sequence[Operation], stuck: Collection[str]) -> UnderWay:
    """What another plan for the rest of an operation goes by; ``stuck``: jobs and nodes that did not go as planned."""
    ends = {p.job_id for p in e.preemptions if p.action is Action.END}
    failed = frozenset(stuck)
    return replace(
        under_way_by(others, e.plan.due),
        leaving=frozenset(p.job_id for p in e.preemptions if p.requeued_at and not p.state.terminal) - failed,
        avoid=failed - ends,
        lasting=failed & ends,
        own_nodes=frozenset(e.held_nodes),
    )
