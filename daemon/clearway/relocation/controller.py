"""Compaction and promotion in the daemon: asked for, or of its own accord, planned and made into evictions.

Only one such eviction is under way at a time, and none while a preemptor waits: making room for it comes first. What
has not begun then is called off, and a job that is on its way arrives.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from clearway.config.configuration import Config
from clearway.eligibility.authorization import may_not_move
from clearway.eligibility.under_way import under_way_by
from clearway.execution.cycle_context import CycleContext, PlanningBasis
from clearway.execution.executor import Executor
from clearway.execution.open_operations import OpenOperations
from clearway.execution.progress import FIRST_STATE, fresh_operation
from clearway.model.cluster import ClusterSnapshot
from clearway.model.errors import DrainError
from clearway.model.events import Emit, PlanMade
from clearway.model.operations import EvictionState, Relocation
from clearway.model.orders import MoveKind
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.model.plan import NoPlan, RelocationPlan
from clearway.model.requests import Answer, OperatorRequest, RequestKind
from clearway.relocation.lifecycle import move_misfit
from clearway.relocation.plan import moves_config, plan_moves
from clearway.slurm.base import SlurmBackend
from clearway.slurm.parse.hostlist import short
from clearway.store.repository import Store

REQUESTS = {RequestKind.COMPACT: MoveKind.COMPACTION, RequestKind.PROMOTE: MoveKind.PROMOTION}
DAEMON = "clearway"  # the actor of relocations that no operator asked for
_HOUR = timedelta(hours=1)
_ROOM_IS_MADE = Outcome(OutcomeCode.CALLED_OFF, "a job waits that room is made for")
_PROPOSAL_LASTS = timedelta(minutes=10)  # while it waits for approval; then it is made anew


@dataclass(frozen=True, slots=True, kw_only=True)
class RelocationController:
    backend: SlurmBackend
    store: Store
    operations: OpenOperations
    executor: Executor
    emit: Emit
    basis: PlanningBasis
    _due: dict[MoveKind, datetime] = field(default_factory=dict)  # a restart looks at once; the limits are stored

    def handle(self, request: OperatorRequest, context: CycleContext) -> Answer:
        """The relocation is stored, not begun. Raises ``DrainError``: it is refused, or there is nothing to move."""
        kind = REQUESTS[RequestKind(request.kind)]
        taken = self.operations.of_request(Relocation, request.request_id)
        if taken is not None:
            return _handled(request, taken)
        moves = [e for e in self.operations.all() if isinstance(e, Relocation)]
        if why := context.nothing_begun or may_not_move(request.actor, context.config.drain, self.backend.admin_level):
            raise DrainError(why)
        if busy := next((e for e in moves if e.state.acting), None):
            raise DrainError(f"eviction {busy.eviction_id} is still moving jobs")
        plan = self._plan(kind, request.actor, request.request_id, context)
        if isinstance(plan, NoPlan):
            raise DrainError(plan.why)
        for proposal in moves:  # none of them acts
            self.executor.put_aside(proposal, f"{request.actor} asked for another", context.now)
        return _handled(request, self._create(plan, EvictionState.PLACING, context))

    def update(self, context: CycleContext, *, urgent: bool) -> None:
        """Call off what is in the way of preemptors, and plan when it is time; ``urgent``: one waits."""
        snapshot, config, now = context.snapshot, context.config, context.now
        busy = False
        for eviction in self.operations.all():
            if not isinstance(eviction, Relocation):
                busy |= eviction.state.before_start  # its jobs and nodes are about to change
                continue
            busy |= not self._old(eviction, snapshot, now)
            if urgent and eviction.state.before_start:
                self.executor.cancel(eviction, now, _ROOM_IS_MADE)
        if busy or urgent or context.paused:
            return
        for kind in MoveKind:
            settings = moves_config(kind, config)
            if not settings.enabled or now < self._due.get(kind, now) or self.basis.time.left_s() <= 0:
                continue
            self._due[kind] = now + timedelta(seconds=settings.period)
            plan = self._plan(kind, DAEMON, 0, context)
            if isinstance(plan, RelocationPlan):
                self._create(plan, FIRST_STATE[config.daemon.mode], context)
                return

    def _plan(self, kind: MoveKind, actor: str, request_id: int, context: CycleContext) -> RelocationPlan | NoPlan:
        planning = self.basis.context(context, under_way_by(self.operations.all()))
        jobs = jobs_left(kind, self.store, context.config, context.now)
        return plan_moves(kind, planning, jobs=jobs, actor=actor, request_id=request_id)

    def _create(self, plan: RelocationPlan, state: EvictionState, context: CycleContext) -> Relocation:
        made = fresh_operation(Relocation, plan, context.config.daemon.mode.value, state, context.now)
        created = self.operations.create(made)
        self.emit(PlanMade(created))
        return created

    def _old(self, eviction: Relocation, snapshot: ClusterSnapshot, now: datetime) -> bool:
        """Put a proposal aside that does not fit any more, or that has waited for long."""
        if eviction.state not in (EvictionState.PROPOSED, EvictionState.AWAITING_APPROVAL):
            return False
        why = move_misfit(eviction, snapshot)
        if not why and now - eviction.created_at >= _PROPOSAL_LASTS:
            why = "too much time has passed since the plan was made"
        if why:
            self.executor.put_aside(eviction, why, now)
        return bool(why)


def _handled(request: OperatorRequest, eviction: Relocation) -> Answer:
    sources = short({move.source for move in eviction.order.moves})
    begins = f"moving {len(eviction.plan.preemptees)} job(s) off {sources}"
    result = f"{request.kind} {eviction.eviction_id}: {eviction.outcome or begins}"
    return Answer(sentence=result, eviction_id=eviction.eviction_id)


def jobs_left(kind: MoveKind, store: Store, config: Config, now: datetime) -> int:
    """How many jobs may still be moved for this within the hour; the budget of all preemptions counts as well."""
    left = moves_config(kind, config).jobs_per_hour - store.moved_since(kind, now - _HOUR)
    budget = config.budget.jobs_per_hour
    if budget is not None:
        usage = store.usage_since(now - _HOUR)
        left = min(left, budget - usage.jobs - usage.intended_jobs)
    return max(0, left)
