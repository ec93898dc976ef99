"""Requests for promised nodes: checked, kept until some time before, and then begun."""

from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from clearway.config.configuration import Mode
from clearway.drain.request import read_request
from clearway.eligibility.authorization import may_not_move
from clearway.execution.cycle_context import CycleContext, PlanningBasis
from clearway.execution.open_operations import OpenOperations
from clearway.execution.progress import entered, fresh_operation, planned_preemptions
from clearway.execution.restraints import Quarantine
from clearway.model.cluster import ClusterSnapshot
from clearway.model.errors import RequestError
from clearway.model.events import Emit, OperationFinished, PlanMade
from clearway.model.operations import EvictionState, Promise
from clearway.model.orders import PromiseOrder
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.model.plan import NoPlan, PromisePlan
from clearway.model.report import Subject
from clearway.model.requests import Answer, OperatorRequest
from clearway.promise.lifecycle import TOLERANCE, first_plan, plan_now, under_way_beside
from clearway.promise.request import PromiseRequest
from clearway.slurm.base import SlurmBackend

ENDING = (EvictionState.RETURNING, EvictionState.CANCELLING)  # it holds nothing any more, or is about to


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseController:
    """Takes requests, and begins what is due. Every one may be taken again: the daemon may die at any point."""

    backend: SlurmBackend
    operations: OpenOperations
    basis: PlanningBasis
    quarantine: Quarantine
    emit: Emit

    def handle(self, request: OperatorRequest, context: CycleContext) -> Answer:
        """Store the promise, and say so. Raises ``RequestError``: it is refused; nothing was done."""
        wish = read_request(PromiseRequest, request.document)
        made = self.operations.of_request(Promise, request.request_id)
        if made is None:
            wish.check_times(request.created_at)
            actor, drain = request.actor, context.config.drain
            if why := context.nothing_begun or may_not_move(actor, drain, self.backend.admin_level):
                raise RequestError(why)
            made = self.make(wish.order(partition_of(wish, context.snapshot), actor, request.request_id), context)
        return Answer(sentence=f"promise {made.eviction_id}: {made.outcome}", eviction_id=made.eviction_id)

    def make(self, order: PromiseOrder, context: CycleContext) -> Promise:
        self._check_room(order, context.snapshot)
        plan, outcome = first_plan(order, context.config, context.now), _scheduled(order, context)
        mode, state = Mode.AUTOMATIC.value, EvictionState.SCHEDULED  # asked for by an operator: no approval is needed
        created = self.operations.create(fresh_operation(Promise, plan, mode, state, context.now, outcome=outcome))
        self.emit(PlanMade(created))
        return created

    def change(self, e: Promise, order: PromiseOrder, context: CycleContext) -> None:
        self._check_room(order, context.snapshot, without=e.eviction_id)
        plan = first_plan(order, context.config, context.now)
        changed = replace(e, plan=plan, revision=e.revision + 1, late=False)
        self.operations.save(changed.told(_scheduled(order, context)))

    def _check_room(self, order: PromiseOrder, snapshot: ClusterSnapshot, without: int | None = None) -> None:
        """Raises ``RequestError`` where more nodes of the partition would be promised at a time than it has."""
        total = snapshot.partition_sizes.get(order.partition, 0)
        if order.nodes > total:
            raise RequestError(f"nodes: partition {order.partition} has {total}, not {order.nodes}")
        promises = (e for e in self.operations.all() if isinstance(e, Promise) and e.eviction_id != without)
        others = [e.order for e in promises if e.state is EvictionState.STARTED or not e.state.undoing]
        beside = [each for each in others if each.partition == order.partition and each.overlaps(order)]
        promised = sum(each.nodes for each in beside)
        if order.nodes + promised > total:
            why = f"{promised} of the {total} nodes of partition {order.partition} are promised for that time already"
            raise RequestError(f"nodes: {why}")

    def begin_due(self, context: CycleContext) -> None:
        hold = timedelta(seconds=context.config.promises.hold)
        open_ones = [e for e in self.operations.all() if isinstance(e, Promise)]
        due = [e for e in open_ones if e.state is EvictionState.SCHEDULED and e.order.at - hold <= context.now]
        if not due:
            return
        if not context.reservations:
            context = replace(context, reservations=self.backend.reservations())
        for e in sorted(due, key=lambda each: (each.order.at, each.eviction_id)):
            self.quarantine.attempt(Subject.OPERATION, str(e.eviction_id), partial(self._begin, e, context))

    def _begin(self, e: Promise, context: CycleContext) -> None:
        now = context.now
        if now >= e.order.until:
            ended = entered(e, EvictionState.FAILED, now, finished_at=now, late=True)
            why = e.why.removesuffix(".") or "no nodes could be held"
            self.operations.save(ended.told(Outcome(OutcomeCode.NOT_KEPT, why)))
            self.emit(OperationFinished(ended))
            return
        if why := context.nothing_begun or context.waits_why:
            plan: PromisePlan | NoPlan | None = NoPlan(why)
        else:
            under_way = under_way_beside(e.order, self.operations.others(e))
            plan = plan_now(e, under_way, e.revision, context, self.basis)
        if not isinstance(plan, PromisePlan):
            waits = plan and e.told(Outcome(OutcomeCode.SCHEDULED, f"No nodes are held yet: {plan.why}"))
            waits = replace(waits or e, late=e.late or now >= e.order.at + TOLERANCE)
            if waits != e:
                self.operations.save(waits)
            return
        begun = replace(e, plan=plan, preemptions=planned_preemptions(plan, now), revision=e.revision + 1)
        begun = entered(begun, EvictionState.PLACING, now, outcome="", outcome_code=None, why="")
        self.operations.save(begun)


def _scheduled(order: PromiseOrder, context: CycleContext) -> Outcome:
    begins = order.at - timedelta(seconds=context.config.promises.hold)
    return Outcome(OutcomeCode.SCHEDULED, f"Its nodes are chosen at {begins:%Y-%m-%d %H:%M:%S} UTC")


def partition_of(wish: PromiseRequest, snapshot: ClusterSnapshot) -> str:
    name = wish.partition
    known = snapshot.partition_sizes
    if name in known:
        return name
    if name:
        raise RequestError(f"partition: there is no partition {name}")
    if len(known) != 1:
        raise RequestError("partition: it has to be named, as there are several")
    return next(iter(known))
