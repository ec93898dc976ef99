"""Rolling drains: a list of nodes, a few at a time. Pure.

Every node has its turn: it waits, is emptied by an ordinary drain, is away while the site works on it, and its turn is
over when it takes jobs again, also where Clearway did not bring it back. At most ``at_once`` nodes are away. Nodes
whose turn begins in the same cycle share one drain, so that a job that runs on several of them moves once. A drain that
is not possible tells only that something was in the way: its nodes are tried once more, each by itself, and those that
cannot be emptied even so are skipped.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from clearway.eligibility.under_way import under_way_by
from clearway.execution.lifecycle import drain_number, not_ours_to_drain
from clearway.model.cluster import ClusterSnapshot, Node
from clearway.model.operations import Drain, EvictionState, Operation, Relocation
from clearway.model.orders import DrainOrder, RollingDrain, RollingState, Turn, TurnState
from clearway.model.plan import DrainPlan, NoPlan
from clearway.slurm.parse.hostlist import compress

T = TurnState
_NAMED_SKIPS = 5  # in one sentence


def recover(rolling: RollingDrain, drains: Mapping[int, Drain]) -> RollingDrain:
    """Take up drains that were stored for it when the daemon died before it could write down whose turn it is."""
    started = {name: number for number, e in sorted(drains.items()) for name in e.order.nodes}
    begun = {
        turn.node for turn in rolling.turns if turn.state is T.WAITING and started.get(turn.node, 0) > turn.drain_id
    }
    return _with(rolling, begun, lambda turn: replace(turn, state=T.EMPTYING, drain_id=started[turn.node]))


def update(rolling: RollingDrain, drains: Mapping[int, Drain], snapshot: ClusterSnapshot) -> RollingDrain:
    """Where each turn stands now; ``drains`` are this order's own, by number."""
    nodes = snapshot.node_by_name
    turns = tuple(_updated(turn, drains.get(turn.drain_id), nodes.get(turn.node)) for turn in rolling.turns)
    return rolling if turns == rolling.turns else replace(rolling, turns=turns)


def _updated(turn: Turn, drain: Drain | None, node: Node | None) -> Turn:
    if turn.state is T.EMPTYING:
        if drain is None:
            return replace(turn, state=T.SKIPPED, note="its drain is not known any more")
        if drain.started_at is not None:
            turn = replace(turn, state=T.AWAY)
        elif drain.state.undoing:
            return set_back(turn, drain.why, together=len(drain.order.nodes) > 1)
        elif drain.state is EvictionState.PREEMPTING and node is not None and not _held(turn, node) and not node.reason:
            # The drain is called off for it: the others on it go on, this one was not to be drained.
            return replace(
                turn, state=T.SKIPPED, note="it was brought back outside Clearway while it was being emptied"
            )
    if turn.state is T.AWAY:
        if node is None:
            return replace(turn, state=T.OVER, note="it does not belong to the cluster any more")
        if node.available and not _held(turn, node):
            return replace(turn, state=T.OVER)
    return turn


def set_back(turn: Turn, why: str, *, together: bool) -> Turn:
    """A node whose drain is not possible: tried once more by itself if it was not alone, else skipped."""
    return replace(turn, state=T.WAITING if together else T.SKIPPED, alone=True, note=why)


def not_begun(rolling: RollingDrain, names: Collection[str], why: str) -> RollingDrain:
    """These nodes' drain was refused."""
    return _with(rolling, names, lambda turn: set_back(turn, why, together=len(names) > 1))


def skipped(rolling: RollingDrain, reasons: Mapping[str, str]) -> RollingDrain:
    """These nodes cannot be drained, by name and why."""
    return _with(rolling, reasons, lambda turn: replace(turn, state=T.SKIPPED, note=reasons[turn.node]))


def mark_started(rolling: RollingDrain, names: Collection[str], drain_id: int) -> RollingDrain:
    begun = set(names).intersection(rolling.nodes(T.WAITING, T.EMPTYING, T.AWAY))
    return _with(rolling, begun, lambda turn: replace(turn, state=T.EMPTYING, drain_id=drain_id, note=""))


def left_out(rolling: RollingDrain, names: Collection[str], why: str) -> RollingDrain:
    """It was decided against these nodes' turns, as far as they have not been emptied."""
    return skipped(rolling, {name: why for name in rolling.nodes(T.WAITING, T.EMPTYING) if name in names})


def next_nodes(rolling: RollingDrain, busy: Collection[str], snapshot: ClusterSnapshot) -> tuple[str, ...]:
    """The nodes of the next drain, in the order of turns; empty: none now. ``busy`` ones wait."""
    free = rolling.at_once - sum(is_away(turn, snapshot) for turn in rolling.turns)
    waiting = [
        turn
        for turn in rolling.turns
        if turn.state is T.WAITING and turn.node not in busy and not is_away(turn, snapshot)
    ]
    if free <= 0 or not waiting:
        return ()
    together = [turn.node for turn in waiting if not turn.alone][:free]
    return tuple(together) or (waiting[0].node,)


def is_away(turn: Turn, snapshot: ClusterSnapshot) -> bool:
    """Whether the cluster lacks this node because of its turn; a drain that is called off holds it a little longer."""
    node = snapshot.node_by_name.get(turn.node)
    return turn.state in (T.EMPTYING, T.AWAY) or (node is not None and _held(turn, node))


def busy_nodes(open_ones: Collection[Operation], snapshot: ClusterSnapshot) -> frozenset[str]:
    """One of whose jobs leaves for an eviction, or is about to; or that a move concerns."""
    under_way = [e for e in open_ones if e.started_at is None and not e.state.undoing]
    emptying = {name for e in under_way for name in e.drained_nodes}
    moving = {job.job_id for name in emptying for job in snapshot.jobs_on.get(name, ())}
    moving |= under_way_by(tuple(open_ones)).jobs
    busy = {name for job in snapshot.jobs if job.job_id in moving for name in job.nodes}
    return frozenset(busy | _held_by_moves(open_ones, emptying, snapshot))


def _held_by_moves(open_ones: Collection[Operation], emptying: set[str], snapshot: ClusterSnapshot) -> set[str]:
    moves = {e.eviction_id: e for e in open_ones if isinstance(e, Relocation)}
    named = {name for e in moves.values() for name in emptying.intersection(e.order.nodes)}
    return named | {node.name for node in snapshot.nodes if drain_number(node.reason) in moves}


def finish(rolling: RollingDrain, drains: Collection[Drain], snapshot: ClusterSnapshot, now: datetime) -> RollingDrain:
    """The order as it has ended, or as it is while there is something left of it."""
    if rolling.state is RollingState.CANCELLING:
        if any(e.started_at is None and not e.state.undoing for e in drains):
            return rolling
        away = rolling.nodes(T.AWAY)
        stay = f" {compress(away)} stay drained until they are brought back." if away else ""
        return replace(rolling, state=RollingState.CANCELLED, finished_at=now, outcome=rolling.outcome + stay)
    rest = [turn for turn in rolling.turns if not turn.state.terminal]
    # A node with another Reason is not waited for any more.
    reasons = {turn.node: _taken_over(turn, snapshot) for turn in rest}
    if not all(reasons.values()):
        return rolling
    notes = {name: f"kept by others: {why}" for name, why in reasons.items()}
    rolling = _with(rolling, notes, lambda turn: replace(turn, state=T.OVER, note=notes[turn.node]))
    return replace(rolling, state=RollingState.COMPLETED, finished_at=now, outcome=_how_it_ended(rolling))


def _taken_over(turn: Turn, snapshot: ClusterSnapshot) -> str:
    """A Reason on an empty node that is not ours; empty when the turn goes on."""
    node = snapshot.node_by_name.get(turn.node)
    return node.reason if turn.state is T.AWAY and node is not None and not _held(turn, node) else ""


def _held(turn: Turn, node: Node) -> bool:
    return node.drained and turn.drain_id > 0 and drain_number(node.reason) == turn.drain_id


def _how_it_ended(rolling: RollingDrain) -> str:
    over = [turn for turn in rolling.turns if turn.state is T.OVER]
    missed = [turn for turn in rolling.turns if turn.state is T.SKIPPED]
    text = f"{len(over)} node(s) were emptied."
    if missed:
        named = "; ".join(f"{turn.node}: {turn.note}" for turn in missed[:_NAMED_SKIPS])
        more = f"; and {len(missed) - _NAMED_SKIPS} more" if len(missed) > _NAMED_SKIPS else ""
        text += f" {len(missed)} skipped: {named}{more}."
    return text


@dataclass(frozen=True, slots=True)
class Batch:
    nodes: tuple[str, ...]
    jobs: int  # that would leave
    checkpoint_s: float  # that saving them would take, one after another


@dataclass(frozen=True, slots=True)
class Preview:
    """What a rolling drain would do if nothing changed; ``skipped`` tells why, by node."""

    batches: tuple[Batch, ...]
    skipped: tuple[tuple[str, str], ...]


def preview(
    order: DrainOrder, at_once: int, snapshot: ClusterSnapshot, plan: Callable[[DrainOrder], DrainPlan | NoPlan]
) -> Preview:
    """``plan`` says how the jobs leave the nodes of one drain."""
    reasons = {name: not_ours_to_drain([name], snapshot) for name in order.nodes}
    missed = {name: why for name, why in reasons.items() if why}
    waiting = [name for name in order.nodes if name not in missed]
    batches = []
    while waiting:
        nodes, waiting = _next_together(order, waiting, at_once, plan, missed)
        together = plan(replace(order, nodes=nodes)) if nodes else None
        if isinstance(together, DrainPlan):
            batches.append(Batch(nodes, len(together.leaving), float(together.chosen.checkpoint_s or 0.0)))
        elif together is not None:
            missed |= dict.fromkeys(nodes, together.why)
    return Preview(tuple(batches), tuple(sorted(missed.items())))


def _next_together(
    order: DrainOrder,
    waiting: list[str],
    at_once: int,
    plan: Callable[[DrainOrder], DrainPlan | NoPlan],
    missed: dict[str, str],
) -> tuple[tuple[str, ...], list[str]]:
    """The nodes that would be emptied next, and those that wait still; ``missed`` gets those that cannot be emptied."""
    found: tuple[str, ...] = ()
    while waiting and len(found) < at_once:
        some, waiting = waiting[: at_once - len(found)], waiting[at_once - len(found) :]
        if isinstance(plan(replace(order, nodes=(*found, *some))), NoPlan):
            answers = {name: plan(replace(order, nodes=(name,))) for name in some}
            missed |= {name: answer.why for name, answer in answers.items() if isinstance(answer, NoPlan)}
        found = (*found, *(name for name in some if name not in missed))
    return found, waiting


def progress(rolling: RollingDrain) -> str:
    counts = Counter(turn.state for turn in rolling.turns)
    return ", ".join(f"{counts[state]} {state.value}" for state in T if counts[state])


def progressed(before: RollingDrain, after: RollingDrain, now: datetime) -> RollingDrain:
    """``after``, with the time of its last progress: the state of some turn has changed."""
    same = [turn.state for turn in before.turns] == [turn.state for turn in after.turns]
    return after if same else replace(after, progressed_at=now)


def standstill_s(rolling: RollingDrain, now: datetime) -> float:
    """Seconds since it last made progress, or since it was to begin; 0 before."""
    since = max(rolling.progressed_at or rolling.created_at, rolling.order.begin_at or rolling.created_at)
    return max(0.0, (now - since).total_seconds())


def newly_skipped(before: RollingDrain, after: RollingDrain) -> tuple[Turn, ...]:
    """Turns that ended without their node having been emptied."""
    return tuple(
        new
        for old, new in zip(before.turns, after.turns, strict=True)
        if new.state is T.SKIPPED and old.state is not T.SKIPPED
    )


def _with(rolling: RollingDrain, names: Collection[str], change: Callable[[Turn], Turn]) -> RollingDrain:
    return replace(rolling, turns=tuple(change(turn) if turn.node in names else turn for turn in rolling.turns))
