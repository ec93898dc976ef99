"""Rolling drains, as the loop carries them: which drain is begun next, and what becomes of an order.

An order is stored before its first drain, a drain before its nodes' turns are written down; whatever the daemon dies
between, the next cycle takes up what it finds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from clearway.config.configuration import Mode
from clearway.drain.controller import DrainController
from clearway.drain.request import DrainRequest
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
from clearway.execution.cycle_context import CycleContext
from clearway.execution.executor import Executor
from clearway.execution.lifecycle import not_ours_to_drain
from clearway.execution.open_operations import OpenOperations
from clearway.execution.quarantine import Quarantine
from clearway.model.cluster import ClusterSnapshot
from clearway.model.errors import DrainError, RequestError, SlurmError
from clearway.model.events import Emit, RollingProgress
from clearway.model.operations import Drain, Operation
from clearway.model.orders import RollingDrain, RollingState, Turn, TurnState
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.model.report import Subject
from clearway.model.requests import Answer, OperatorRequest
from clearway.store.repository import Store


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
        """The order, stored and not begun. Raises ``DrainError``: it is refused; nothing was done."""
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
        """Begin nothing more, and call off what is not empty yet. Nodes that are empty stay drained.

        Raises ``RequestError``: it is refused; nothing was done.
        """
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
        """As far as this snapshot allows; the orders that are open then.

        Before drains are carried on, so that both see the same.
        """
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
        """Those that turns wait for, the ended ones included."""
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
