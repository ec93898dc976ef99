"""Requests to drain nodes and to bring them back: checked, and made into drains that the loop carries on.

Every process that can write to the database can write such a request. The actor's right to drain is checked all the
same, because REST and the command line write what others have asked for.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from clearway.config.configuration import Mode
from clearway.drain.lifecycle import first_plan
from clearway.drain.request import DrainRequest, UndrainRequest, chosen_nodes, read_request
from clearway.drain.rolling import (
    busy_nodes,
    finish,
    left_out,
    mark_started,
    next_nodes,
    not_begun,
    progressed,
    recover,
    skipped,
    update,
)
from clearway.eligibility.authorization import may_not_drain
from clearway.execution.cycle_context import CycleContext
from clearway.execution.executor import Executor
from clearway.execution.lifecycle import drain_number, hold_reason, not_ours_to_drain
from clearway.execution.open_operations import OpenOperations
from clearway.execution.progress import entered, fresh_operation
from clearway.execution.restraints import Quarantine
from clearway.model.cluster import ClusterSnapshot
from clearway.model.errors import DrainError, RequestError, SlurmError
from clearway.model.events import Emit, RollingProgress
from clearway.model.operations import Drain, EmptiesNodes, EvictionState, Operation
from clearway.model.orders import DrainOrder, RollingDrain, RollingState, Turn, TurnState
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.model.report import Subject
from clearway.model.requests import Answer, OperatorRequest
from clearway.slurm.base import SlurmBackend
from clearway.slurm.parse.hostlist import compress
from clearway.store.base import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainController:
    """Takes requests about nodes. Every one may be taken again: the daemon may die between act and answer."""

    backend: SlurmBackend
    store: Store
    operations: OpenOperations
    executor: Executor

    def drain(self, request: OperatorRequest, wish: DrainRequest, context: CycleContext) -> Drain:
        """The drain that will empty the nodes, stored and not begun. Raises ``DrainError``."""
        taken = self.operations.of_request(Drain, request.request_id)
        if taken is not None:
            return taken
        return self.begin(self.checked_order(request, wish, context), context)

    def checked_order(self, request: OperatorRequest, wish: DrainRequest, context: CycleContext) -> DrainOrder:
        """What the request asks for; raises ``DrainError`` where it makes no sense, or the actor may not."""
        wish.check_times(request.created_at)
        order = wish.order(chosen_nodes(wish.nodes, context.snapshot), request.actor, request.request_id)
        self.check(order, context)
        return order

    def check(self, order: DrainOrder, context: CycleContext) -> None:
        if why := context.nothing_begun:
            raise DrainError(why)
        self._check_rights(order.actor, order.nodes, context)

    def begin(self, order: DrainOrder, context: CycleContext) -> Drain:
        """The drain for a checked order, stored and not begun. Raises ``DrainError``."""
        for eviction in self.operations.all():
            both = sorted(set(order.nodes) & set(eviction.drained_nodes))
            # Of one whose nodes are empty, or that is called off, only the return of jobs is left; its Reason tells.
            if both and eviction.started_at is None and eviction.state is not EvictionState.CANCELLING:
                raise DrainError(f"node {both[0]} already belongs to drain {eviction.eviction_id}")
        why = not_ours_to_drain(order.nodes, context.snapshot)
        if why:
            raise DrainError(why)
        if order.deadline is not None and order.deadline <= context.now:
            raise DrainError("its deadline has passed")
        config, now, state, outcome = context.config, context.now, EvictionState.PLACING, None
        if order.begin_at is not None and order.begin_at > now:
            state = EvictionState.SCHEDULED
            outcome = Outcome(OutcomeCode.SCHEDULED, f"Begins at {order.begin_at:%Y-%m-%d %H:%M:%S} UTC")
        plan = first_plan(order, config, now)
        return self.operations.create(
            fresh_operation(Drain, plan, config.daemon.mode.value, state, now, outcome=outcome)
        )

    def begin_scheduled(self, now: datetime) -> None:
        for e in self.operations.all():
            if isinstance(e, Drain) and e.state is EvictionState.SCHEDULED and (e.order.begin_at or now) <= now:
                begun = entered(e, EvictionState.PLACING, now, outcome="", outcome_code=None, why="")
                self.operations.save(begun)

    def remove_strays(self, snapshot: ClusterSnapshot) -> None:
        """Bring back what a drain holds that this database calls off: a restored backup, or a lost write.

        Nodes that were emptied by a relocation are not held at all once those are over. A Reason of ours on a node that
        takes jobs is over, too, whoever brought the node back: some Slurms keep it.
        """
        for node in snapshot.nodes:
            number = drain_number(node.reason)
            eviction = None if number is None else self.operations.find(number)  # it may be another Clearway's
            if not isinstance(eviction, EmptiesNodes):
                continue
            stays = node.drained and eviction.state is EvictionState.COMPLETED and isinstance(eviction, Drain)
            if eviction.state.terminal and not stays and node.reason == hold_reason(eviction):
                self.backend.undrain(node.name, node.reason)

    def undrain(self, request: OperatorRequest, context: CycleContext) -> Answer:
        """Bring nodes back that a drain of this database holds. Raises ``DrainError``: none was."""
        nodes = chosen_nodes(read_request(UndrainRequest, request.document).nodes, context.snapshot)
        self._check_rights(request.actor, nodes, context)
        held: defaultdict[int, list[str]] = defaultdict(list)
        for name in nodes:
            node = context.snapshot.node_by_name[name]
            if not node.drained:
                continue
            number = drain_number(node.reason)
            if number is None:
                raise DrainError(f"node {name} was not drained by Clearway: {node.reason[:120]}")
            held[number].append(name)
        evictions = {number: self._of(number, names) for number, names in held.items()}
        for number, names in sorted(held.items()):
            error = self.executor.bring_back(evictions[number], names, context.snapshot, context.now)
            if error is not None:
                raise DrainError(f"node {names[0]}: {error}")
            text = f"{request.actor} brought back {compress(names)}."
            self.store.add_event(number, None, context.now, text)
        back = compress(name for names in held.values() for name in names)
        return Answer(sentence=f"brought back {back}" if held else "none was drained")

    def _of(self, number: int, names: Sequence[str]) -> EmptiesNodes:
        eviction = self.operations.find(number)
        if not isinstance(eviction, EmptiesNodes) or not set(names) <= set(eviction.order.nodes):
            raise DrainError(f"node {names[0]} was not drained by this daemon")
        if eviction.state.before_start:
            raise DrainError(f"node {names[0]} is being emptied by drain {number}; cancel that instead")
        return eviction

    def _check_rights(self, actor: str, nodes: Sequence[str], context: CycleContext) -> None:
        why = may_not_drain(actor, nodes, context.snapshot, context.config.drain, self.backend.admin_level)
        if why:
            raise DrainError(why)


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
        if rolling is not None and isinstance(drain, Drain) and not rolling.state.terminal:
            rolling = recover(rolling, {drain.eviction_id: drain})
            self.operations.save_rolling_drain(left_out(rolling, drain.order.nodes, why))

    def advance(self, context: CycleContext) -> tuple[RollingDrain, ...]:
        """The orders open then. Before drains are carried on, so that both see the same."""
        found = self.operations.rolling_drains()
        if not context.snapshot.unreadable:
            found = tuple(self._turn(rolling, context) for rolling in found)
        return tuple(rolling for rolling in found if not rolling.state.terminal)

    def _turn(self, rolling: RollingDrain, context: CycleContext) -> RollingDrain:
        ident = f"rolling drain {rolling.rolling_id}"
        after = self.quarantine.attempt(Subject.OPERATION, ident, lambda: self._advance(rolling, context))
        return rolling if after is None else after

    def _advance(self, rolling: RollingDrain, context: CycleContext) -> RollingDrain:
        snapshot, now = context.snapshot, context.now
        open_ones = self.operations.all()
        drains = [e for e in open_ones if isinstance(e, Drain)]
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
        numbers = {turn.drain_id for turn in rolling.turns if turn.state is TurnState.EMPTYING}
        ended = {number: self.operations.find(number) for number in numbers - own.keys()}
        return own | {number: each for number, each in ended.items() if isinstance(each, Drain)}

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
    failed = {
        new.drain_id: new.note
        for old, new in zip(before.turns, after.turns, strict=True)
        if old.state is TurnState.EMPTYING and new.state in (TurnState.WAITING, TurnState.SKIPPED)
    }
    for number in [turn.drain_id for turn in after.turns if not_ours_to_drain([turn.node], snapshot)]:
        failed.pop(number, None)  # it is that node's own trouble
    for number, note in sorted(failed.items()):
        if number in drains and drains[number].outcome_code is OutcomeCode.NODES_REFUSED:
            return f"Stopped: {note}"
    return ""
