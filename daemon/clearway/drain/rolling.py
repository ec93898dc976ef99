"""Rolling drains: a list of nodes, a few at a time.

Every node has its turn: it waits, is emptied by an ordinary drain, is away while the site works on it, and its turn is
over when it takes jobs again, also where Clearway did not bring it back. At most ``at_once`` nodes are away. Nodes
whose turn begins in the same cycle share one drain, so that a job that runs on several of them moves once. A drain that
is not possible tells only that something was in the way: its nodes are tried once more, each by itself, and those that
cannot be emptied even so are skipped.

An order is stored before its first drain, a drain before its nodes' turns are written down; whatever the daemon dies
between, the next cycle takes up what it finds.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from clearway.config.configuration import Mode
from clearway.drain.controller import DrainController
from clearway.drain.request import DrainRequest
from clearway.eligibility.under_way import under_way_by
from clearway.execution.cycle_context import CycleContext
from clearway.execution.executor import Executor
from clearway.execution.lifecycle import drain_number, not_ours_to_drain
from clearway.execution.open_operations import OpenOperations
from clearway.execution.restraints import Quarantine
from clearway.model.cluster import ClusterSnapshot, Node
from clearway.model.errors import DrainError, RequestError, SlurmError
from clearway.model.events import Emit, RollingProgress
from clearway.model.operations import Drain, EvictionState, Operation, Relocation
from clearway.model.orders import DrainOrder, RollingDrain, RollingState, Turn
from clearway.model.orders import TurnState as T
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.model.plan import DrainPlan, NoPlan
from clearway.model.report import Subject
from clearway.model.requests import Answer, OperatorRequest
from clearway.slurm.parse.hostlist import compress
from clearway.store.repository import Store

_NAMED_SKIPS = 5  # in one sentence


def recover(rolling: RollingDrain, drains: Mapping[int, Drain]) -> RollingDrain:
    """Take up drains that were stored for it when the daemon died before it could write down whose turn it is."""
    started = {name: number for number, e in sorted(drains.items()) for name in e.order.nodes}
    waiting = [turn for turn in rolling.turns if turn.state is T.WAITING]
    begun = {turn.node for turn in waiting if started.get(turn.node, 0) > turn.drain_id}
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
            why = "it was brought back outside Clearway while it was being emptied"
            return replace(turn, state=T.SKIPPED, note=why)
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
    return _with(rolling, names, lambda turn: set_back(turn, why, together=len(names) > 1))


def skipped(rolling: RollingDrain, reasons: Mapping[str, str]) -> RollingDrain:
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
    left = [turn for turn in rolling.turns if turn.state is T.WAITING and turn.node not in busy]
    waiting = [turn for turn in left if not is_away(turn, snapshot)]
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
    notes = {}
    for turn in rolling.turns:
        if not turn.state.terminal:
            node = snapshot.node_by_name.get(turn.node)
            if turn.state is not T.AWAY or node is None or _held(turn, node) or not node.reason:
                return rolling
            notes[turn.node] = f"kept by others: {node.reason}"  # it is not waited for any more
    rolling = _with(rolling, notes, lambda turn: replace(turn, state=T.OVER, note=notes[turn.node]))
    return replace(rolling, state=RollingState.COMPLETED, finished_at=now, outcome=_how_it_ended(rolling))


def _held(turn: Turn, node: Node) -> bool:
    return node.drained and turn.drain_id > 0 and drain_number(node.reason) == turn.drain_id


def _how_it_ended(rolling: RollingDrain) -> str:
    missed = [turn for turn in rolling.turns if turn.state is T.SKIPPED]
    text = f"{len(rolling.nodes(T.OVER))} node(s) were emptied."
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
    missed = {name: why for name in order.nodes if (why := not_ours_to_drain([name], snapshot))}

    def next_together(waiting: list[str]) -> tuple[tuple[str, ...], list[str]]:
        """The nodes that would be emptied next, and those that wait still."""
        found: tuple[str, ...] = ()
        while waiting and len(found) < at_once:
            some, waiting = waiting[: at_once - len(found)], waiting[at_once - len(found) :]
            if isinstance(plan(replace(order, nodes=(*found, *some))), NoPlan):
                answers = {name: plan(replace(order, nodes=(name,))) for name in some}
                missed.update({name: answer.why for name, answer in answers.items() if isinstance(answer, NoPlan)})
            found = (*found, *(name for name in some if name not in missed))
        return found, waiting

    waiting, batches = [name for name in order.nodes if name not in missed], []
    while waiting:
        nodes, waiting = next_together(waiting)
        together = plan(replace(order, nodes=nodes)) if nodes else None
        if isinstance(together, DrainPlan):
            batches.append(Batch(nodes, len(together.leaving), float(together.chosen.checkpoint_s or 0.0)))
        elif together is not None:
            missed |= dict.fromkeys(nodes, together.why)
    return Preview(tuple(batches), tuple(sorted(missed.items())))


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
    both = zip(before.turns, after.turns, strict=True)
    return tuple(new for old, new in both if new.state is T.SKIPPED and old.state is not T.SKIPPED)


def _with(rolling: RollingDrain, names: Collection[str], change: Callable[[Turn], Turn]) -> RollingDrain:
    return replace(rolling, turns=tuple(change(turn) if turn.node in names else turn for turn in rolling.turns))


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingController:
    """Takes such orders and carries them on. Every step may be taken again."""

    store: Store
    operations: OpenOperations
    drains: DrainController
    executor: Executor
    quarantine: Quarantine
    emit: Emit

    def order(self, request: OperatorRequest, wish: DrainRequest, context: CycleContext) -> RollingDrain:
        open_ones = self.operations.rolling_drains()
        taken = [each for each in open_ones if each.order.request_id == request.request_id]
        if taken:
            return taken[0]
        order = self.drains.checked_order(request, wish, context)
        for each in open_ones:
            both = sorted({turn.node for turn in each.turns if not turn.state.terminal} & set(order.nodes))
            if both:
                raise DrainError(f"node {both[0]} already belongs to rolling drain {each.rolling_id}")
        turns = tuple(Turn(name) for name in order.nodes)
        made = RollingDrain(rolling_id=0, order=order, at_once=wish.rolling or 1, turns=turns, created_at=context.now)
        return self.operations.create_rolling_drain(made)

    def cancel(self, request: OperatorRequest, _: CycleContext) -> Answer:
        """Call off what is not empty yet; empty nodes stay drained. Raises ``RequestError``."""
        rolling = None if request.rolling_id is None else self.store.rolling_drain(request.rolling_id)
        if rolling is None:
            raise RequestError("it names no rolling drain")
        if rolling.state is not RollingState.UNDER_WAY:
            raise RequestError(f"rolling drain {rolling.rolling_id} is {rolling.state.value}")
        self._stop(rolling, f"Cancelled by {request.actor}")
        return Answer(sentence="cancelled")

    def leave_out(self, drain: Operation, why: str) -> None:
        """An operator cancels one of its drains: its nodes are not tried once more."""
        rolling = self.store.rolling_drain(drain.order.rolling_id) if isinstance(drain, Drain) else None
        if isinstance(drain, Drain) and rolling is not None and not rolling.state.terminal:
            rolling = recover(rolling, {drain.eviction_id: drain})
            self.operations.save_rolling_drain(left_out(rolling, drain.order.nodes, why))

    def advance(self, context: CycleContext) -> tuple[RollingDrain, ...]:
        """The orders open then. Before drains are carried on, so that both see the same."""
        found: list[RollingDrain] = []
        for rolling in self.operations.rolling_drains():
            act, ident = partial(self._advance, rolling, context), f"rolling drain {rolling.rolling_id}"
            after = None if context.snapshot.unreadable else self.quarantine.attempt(Subject.OPERATION, ident, act)
            found.append(after or rolling)
        return tuple(rolling for rolling in found if not rolling.state.terminal)

    def _advance(self, rolling: RollingDrain, context: CycleContext) -> RollingDrain:
        snapshot, now = context.snapshot, context.now
        drains = [e for e in self.operations.all() if isinstance(e, Drain)]
        own = {e.eviction_id: e for e in drains if e.order.rolling_id == rolling.rolling_id}
        after = recover(rolling, own)
        known = self._drains_of(after, own)
        after = update(after, known, snapshot)
        refused = _refused_by_slurm(rolling, after, known, snapshot)
        if refused and after.state is RollingState.UNDER_WAY:
            after = self._stop(after, refused)
        if after.state is RollingState.CANCELLING:
            after = left_out(after, after.order.nodes, after.why)
            own = {number: self._call_off(each, now, after.why) for number, each in own.items()}
        elif (
            not context.paused
            and context.config.daemon.mode is not Mode.OBSERVE
            and (after.order.begin_at or now) <= now
        ):
            after = self._begin(after, context)
        after = progressed(rolling, finish(after, own.values(), snapshot, now), now)
        if after != rolling:
            self.operations.save_rolling_drain(after)
            self.emit(RollingProgress(rolling, after))
        return after

    def _begin(self, rolling: RollingDrain, context: CycleContext) -> RollingDrain:
        snapshot = context.snapshot
        busy = busy_nodes(self.operations.all(), snapshot)
        while names := next_nodes(rolling, busy, snapshot):
            taken = {name: why for name in names if (why := not_ours_to_drain([name], snapshot))}
            if taken:
                rolling = skipped(rolling, taken)
                continue
            order = replace(rolling.order, nodes=names, rolling_id=rolling.rolling_id, request_id=0, begin_at=None)
            try:
                self.drains.check(order, context)
            except DrainError as error:
                if not context.config.drain.owners:  # then it is the same for every node
                    return self._stop(rolling, f"Stopped: {error}")
                return not_begun(rolling, names, str(error))
            except SlurmError:
                return rolling  # it did not say what the user may do: asked again in the next cycle
            try:
                drain = self.drains.begin(order, context)
            except DrainError as error:
                return not_begun(rolling, names, str(error))
            rolling = mark_started(rolling, names, drain.eviction_id)
            busy = busy_nodes(self.operations.all(), snapshot)
        return rolling

    def _drains_of(self, rolling: RollingDrain, own: dict[int, Drain]) -> dict[int, Drain]:
        """Those that turns wait for, the ended ones included."""
        waited_for = {turn.drain_id for turn in rolling.turns if turn.state is T.EMPTYING}
        ended = [self.operations.find(number) for number in waited_for - own.keys()]
        return own | {each.eviction_id: each for each in ended if isinstance(each, Drain)}

    def _stop(self, rolling: RollingDrain, why: str) -> RollingDrain:
        stopped = left_out(rolling, rolling.order.nodes, why)
        stopped = replace(stopped, state=RollingState.CANCELLING, outcome=f"{why}.", why=why)
        self.operations.save_rolling_drain(stopped)
        return stopped

    def _call_off(self, eviction: Drain, now: datetime, why: str) -> Drain:
        if eviction.started_at is not None or eviction.state.undoing:
            return eviction
        return self.executor.cancel(eviction, now, Outcome(OutcomeCode.CANCELLED, why))


def _refused_by_slurm(
    before: RollingDrain, after: RollingDrain, drains: Mapping[int, Drain], snapshot: ClusterSnapshot
) -> str:
    """What it said when it did not let us drain: it would say so of every node."""
    both = [(old, new) for old, new in zip(before.turns, after.turns, strict=True) if old.state is T.EMPTYING]
    failed = {new.drain_id: new.note for _, new in both if new.state in (T.WAITING, T.SKIPPED)}
    own_trouble = {turn.drain_id for turn in after.turns if not_ours_to_drain([turn.node], snapshot)}
    for number, note in sorted(failed.items()):
        if number in drains.keys() - own_trouble and drains[number].outcome_code is OutcomeCode.NODES_REFUSED:
            return f"Stopped: {note}"
    return ""
