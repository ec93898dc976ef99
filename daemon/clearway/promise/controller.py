"""Requests for promised nodes: checked, kept until some time before, and then begun."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from clearway.config.configuration import Mode
from clearway.drain.request import read_request
from clearway.eligibility.authorization import may_not_move
from clearway.execution.cycle_context import CycleContext, PlanningBasis
from clearway.execution.open_operations import OpenOperations
from clearway.execution.planning_time import UNDER_WAY
from clearway.execution.progress import entered, fresh_operation, planned_preemptions
from clearway.execution.quarantine import Quarantine
from clearway.model.cluster import ClusterSnapshot
from clearway.model.errors import RequestError
from clearway.model.events import Emit, OperationFinished, PlanMade
from clearway.model.operations import EvictionState, Promise
from clearway.model.orders import PromiseOrder
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.model.plan import NoPlan, PromisePlan
from clearway.model.report import Subject
from clearway.model.requests import Answer, OperatorRequest
from clearway.preemption.candidates import changes_at
from clearway.preemption.validation import over_budget
from clearway.promise.lifecycle import LATE_S, TOLERANCE, first_plan, plan_promise, under_way_beside
from clearway.promise.request import PromiseRequest
from clearway.slurm.base import SlurmBackend
from clearway.store.repository import Store

ENDING = (EvictionState.RETURNING, EvictionState.CANCELLING)  # it holds nothing any more, or is about to


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseController:
    """Takes requests, and begins what is due. Every one may be taken again: the daemon may die at any point."""

    backend: SlurmBackend
    store: Store
    operations: OpenOperations
    basis: PlanningBasis
    quarantine: Quarantine
    emit: Emit

    def handle(self, request: OperatorRequest, context: CycleContext) -> Answer:
        """Answer a request for promised nodes. Raises ``RequestError`` where it is refused; nothing was done then."""
        made = self.promise(request, read_request(PromiseRequest, request.document), context)
        return Answer(sentence=f"promise {made.eviction_id}: {made.outcome}", eviction_id=made.eviction_id)

    def promise(self, request: OperatorRequest, wish: PromiseRequest, context: CycleContext) -> Promise:
        """The promise, stored; nothing is done for it yet. Raises ``RequestError``: it is refused; nothing was done."""
        taken = self.operations.of_request(Promise, request.request_id)
        if taken is not None:
            return taken
        wish.check_times(request.created_at)
        why = context.nothing_begun or may_not_move(request.actor, context.config.drain, self.backend.admin_level)
        if why:
            raise RequestError(why)
        order = wish.order(partition_of(wish, context.snapshot), request.actor, request.request_id)
        return self.make(order, context)

    def make(self, order: PromiseOrder, context: CycleContext) -> Promise:
        """The promise, stored. Raises ``RequestError`` where there is no room for it."""
        self._check_room(order, context.snapshot)
        made = fresh_operation(
            Promise,
            first_plan(order, context.config, context.now),
            Mode.AUTOMATIC.value,  # an operator has asked for it: no approval is waited for
            EvictionState.SCHEDULED,
            context.now,
            outcome=_scheduled(order, context),
        )
        created = self.operations.create(made)
        self.emit(PlanMade(created))
        return created

    def change(self, e: Promise, order: PromiseOrder, context: CycleContext) -> None:
        """Promise this instead, while nothing has been done for it. Raises ``RequestError`` where there is no room."""
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
        """Choose nodes for promises whose time has nearly come, and let them begin; the earliest first."""
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
            self._end(e, now)
            return
        why = context.nothing_begun or context.waits_why
        plan = NoPlan(why) if why else self._plan(e, context)
        if not isinstance(plan, PromisePlan):
            told = e if plan is None else e.told(_waits(plan))
            told = replace(told, late=e.late or now >= e.order.at + TOLERANCE)
            if told != e:
                self.operations.save(told)
            return
        begun = replace(e, plan=plan, preemptions=planned_preemptions(plan, now), revision=e.revision + 1)
        begun = entered(begun, EvictionState.PLACING, now, outcome="", outcome_code=None, why="")
        self.operations.save(begun)

    def _plan(self, e: Promise, context: CycleContext) -> PromisePlan | NoPlan | None:
        """None: there was none for the cluster as it is, or there is no time for one now."""
        time, impossible, ident = self.basis.time, self.basis.impossible, f"promise {e.eviction_id}"
        if impossible.why(ident, e.revision, context.now) is not None or time.left_s(UNDER_WAY) <= 0:
            return None
        with time.spending():
            planning = self.basis.context(context, under_way_beside(e.order, self.operations.others(e)))
            plan = plan_promise(e.order, planning, self.basis.planner)
            if isinstance(plan, PromisePlan) and plan.leaving:
                usage = self.operations.usage_beside(e, context.now)
                why = over_budget(plan, usage, context.config.budget)
                plan = NoPlan(why) if why else plan
        if isinstance(plan, NoPlan) and plan.curve is not None:
            impossible.remember(ident, e.revision, plan.why, changes_at(planning, e.order.at, LATE_S))
        return plan

    def _end(self, e: Promise, now: datetime) -> None:
        ended = entered(e, EvictionState.FAILED, now, finished_at=now, late=True)
        why = e.why.removesuffix(".") or "no nodes could be held"
        self.operations.save(ended.told(Outcome(OutcomeCode.NOT_KEPT, why)))
        self.emit(OperationFinished(ended))


def _waits(plan: NoPlan) -> Outcome:
    return Outcome(OutcomeCode.SCHEDULED, f"No nodes are held yet: {plan.why}")


def _scheduled(order: PromiseOrder, context: CycleContext) -> Outcome:
    begins = order.at - timedelta(seconds=context.config.promises.hold)
    return Outcome(OutcomeCode.SCHEDULED, f"Its nodes are chosen at {begins:%Y-%m-%d %H:%M:%S} UTC")


def partition_of(wish: PromiseRequest, snapshot: ClusterSnapshot) -> str:
    """Raises ``RequestError`` where it names none, or one that is not there."""
    name = wish.partition
    known = snapshot.partition_sizes
    if name in known:
        return name
    if name:
        raise RequestError(f"partition: there is no partition {name}")
    if len(known) != 1:
        raise RequestError("partition: it has to be named, as there are several")
    return next(iter(known))
