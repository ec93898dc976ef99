"""Requests to drain nodes and to bring them back: checked, and made into drains that the loop carries on.

Every process that can write to the database can write such a request. The actor's right to drain is checked all the
same, because REST and the command line write what others have asked for.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from clearway.drain.lifecycle import first_plan
from clearway.drain.request import DrainRequest, UndrainRequest, chosen_nodes, read_request
from clearway.eligibility.authorization import may_not_drain
from clearway.execution.cycle_context import CycleContext
from clearway.execution.executor import Executor
from clearway.execution.lifecycle import drain_number, hold_reason, not_ours_to_drain
from clearway.execution.open_operations import OpenOperations
from clearway.execution.progress import entered, fresh_operation
from clearway.model.cluster import ClusterSnapshot
from clearway.model.errors import DrainError
from clearway.model.operations import Drain, EmptiesNodes, EvictionState
from clearway.model.orders import DrainOrder
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.model.requests import Answer, OperatorRequest
from clearway.slurm.base import SlurmBackend
from clearway.slurm.parse.hostlist import compress
from clearway.store.repository import Store


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
        return taken or self.begin(self.checked_order(request, wish, context), context)

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
        if why := not_ours_to_drain(order.nodes, context.snapshot):
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
            if error := self.executor.bring_back(evictions[number], names, context.snapshot, context.now):
                raise DrainError(f"node {names[0]}: {error}")
            self.store.add_event(number, None, context.now, f"{request.actor} brought back {compress(names)}.")
        back = compress(name for names in held.values() for name in names)
        return Answer(sentence=f"brought back {back}" if held else "none was drained")

    def _of(self, number: int, names: Sequence[str]) -> EmptiesNodes:
        eviction = self.operations.find(number)
        if not isinstance(eviction, EmptiesNodes) or not set(names) <= set(eviction.drained_nodes):
            raise DrainError(f"node {names[0]} was not drained by this daemon")
        if eviction.state.before_start:
            raise DrainError(f"node {names[0]} is being emptied by drain {number}; cancel that instead")
        return eviction

    def _check_rights(self, actor: str, nodes: Sequence[str], context: CycleContext) -> None:
        if why := may_not_drain(actor, nodes, context.snapshot, context.config.drain, self.backend.admin_level):
            raise DrainError(why)
