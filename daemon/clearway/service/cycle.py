"""One cycle under one configuration: observe, carry on what is under way, decide, act. It never waits.

``clearway.bootstrap.assemble`` makes it, and makes another one for another configuration. All state that matters is
in the store and on the cluster: what these objects keep may be lost.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from clearway.config.configuration import Config
from clearway.drain.controller import DrainController
from clearway.drain.rolling_controller import RollingController
from clearway.eligibility.under_way import promised_by
from clearway.estimates.checkpoint_load import approval_s, file_system_busy_s, latest_of
from clearway.estimates.costs import BY_ITSELF
from clearway.estimates.history import HistoryKeeper
from clearway.execution.cycle_context import CycleContext, PlanningBasis
from clearway.execution.executor import Executor
from clearway.execution.open_operations import OpenOperations
from clearway.execution.placement import is_placement
from clearway.execution.quarantine import Quarantine
from clearway.model.clock import Clock
from clearway.model.cluster import ClusterSnapshot
from clearway.model.events import Emit
from clearway.model.operations import Eviction, EvictionState, Operation
from clearway.model.problem import Action
from clearway.model.quarantine import Subject, T
from clearway.model.report import CycleReport, Waiting
from clearway.model.rolling import RollingDrain
from clearway.planning.base import Planner
from clearway.preemption.controller import PreemptionController
from clearway.preemption.suppression import SUPPRESSED, Suppression
from clearway.preemption.validation import plan_aged, plan_misfit
from clearway.relocation.controller import RelocationController
from clearway.service.requests import HEARTBEAT, PAUSED, RequestHandler
from clearway.slurm.base import SlurmBackend
from clearway.store.base import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a daemon keeps whatever its configuration becomes."""

    backend: SlurmBackend
    store: Store
    planner: Planner
    clock: Clock
    emit: Emit
    history: HistoryKeeper
    owner: str = "clearway"  # the name on the lease: one daemon acts on a database at a time
    checkpointers: Mapping[str, Action] = field(default_factory=lambda: BY_ITSELF)  # those that jobs may name


@dataclass(frozen=True, slots=True)
class Cycle:
    """The controllers, and the order in which a cycle asks them."""

    parts: Parts
    config: Config
    operations: OpenOperations
    suppression: Suppression
    executor: Executor
    drains: DrainController
    rolling: RollingController
    preemption: PreemptionController
    relocation: RelocationController
    requests: RequestHandler
    quarantine: Quarantine
    basis: PlanningBasis
    _due: dict[str, datetime] = field(default_factory=dict)  # not stored: after a start or a reload all is due at once

    def run(self, before: CycleReport | None, alive: Callable[[], None] = lambda: None) -> CycleReport:
        """What was seen and done; ``before`` is the report of the cycle before this one, if there was any.

        ``alive`` is called between any two pieces of work.
        """
        parts, clock = self.parts, self.parts.clock
        began, now = clock.monotonic(), clock.now()
        standby = not parts.store.acquire_lease(parts.owner, now, 3 * self.config.daemon.stale_after)
        stored = self.operations.refresh(now, PAUSED, SUPPRESSED)
        self.suppression.refresh(stored.values.get(SUPPRESSED))
        paused = bool(stored.values.get(PAUSED))
        context = CycleContext(self.parts.backend.snapshot(), self.config, now, paused, alive)
        self.basis.time.begin(self.config.planning.time_per_cycle)
        self.basis.impossible.look(self._scene(context.snapshot))
        waiting: tuple[Waiting, ...] = ()
        rolling: tuple[RollingDrain, ...] = ()
        if standby:
            self.parts.history.forget()
        else:
            context = self.requests.handle(stored.requests, context)
            waiting, rolling = self._act(context, before)
        return CycleReport(
            at=now,
            snapshot=context.snapshot,
            waiting=waiting,
            open_evictions=self.operations.all(),
            rolling_drains=rolling,
            paused=context.paused,
            standby=standby,
            quarantined=self.quarantine.all(),
            usage=self.operations.usage(now),
            seconds=clock.monotonic() - began,
        )

    def _scene(self, snapshot: ClusterSnapshot) -> tuple[object, ...]:
        """What a plan depends on, apart from the time and the job that it is for."""
        holders = tuple(job for job in snapshot.jobs if job.state.holds_nodes)
        under_way = tuple((e.eviction_id, e.revision, e.state) for e in self.operations.all())
        return self.config, holders, snapshot.nodes, snapshot.skipped, under_way

    def _act(
        self, context: CycleContext, before: CycleReport | None
    ) -> tuple[tuple[Waiting, ...], tuple[RollingDrain, ...]]:
        """Each part whether or not another one fails; those that carry on what is under way come first."""
        part = self.quarantine.attempt_part
        part("scheduled drains", self.drains.begin_scheduled, context.now)
        rolling = self.rolling.advance(context)
        self._carry_on(context)
        part("history", self._record_history, context, before.open_evictions if before is not None else ())
        found = part("planning", self.preemption.update, context)
        waiting: tuple[Waiting, ...] = found or ()
        urgent = found is None or bool(found)  # where that is not known, no job is moved
        part("moves", lambda: self.relocation.update(context, urgent=urgent))
        self._keep_house(context.snapshot, context.now)
        return waiting, rolling

    def _record_history(self, context: CycleContext, followed: Sequence[Operation]) -> None:
        history, snapshot = self.parts.history, context.snapshot
        history.record_restarts(snapshot, context.config, context.now)
        history.notice_returns(followed)
        history.record_ends(snapshot, {p.job_id for e in followed for p in e.preemptions})

    def _carry_on(self, context: CycleContext) -> None:
        # Without a placement nothing was done so far: proposed, just approved, or the daemon died just after planning.
        # A drain is planned when its nodes take nothing new any more, and goes by what is there then.
        open_ones = self.operations.all()
        fitting = [
            e
            for e in open_ones
            if e.placement
            or not isinstance(e, Eviction)
            or self._turn(f"fit of {e.eviction_id}", partial(self._outdated, e, open_ones, context)) is False
        ]
        acting = [eviction for eviction in fitting if eviction.state.acting]
        if not acting:
            return
        context = replace(context, reservations=self.parts.backend.reservations())
        # Placements first, the newest before those whose jobs it may count on, as when they are begun.
        placing = [e for e in acting if e.state is EvictionState.PLACING]
        for eviction in (*reversed(placing), *(e for e in acting if e not in placing)):
            context.alive()
            after = self._turn(str(eviction.eviction_id), partial(self.executor.advance, eviction, context))
            if after is None:
                continue
            if after.state is EvictionState.FAILED and isinstance(after, Eviction):
                self.suppression.suppress(after)

    def _turn(self, ident: str, act: Callable[[], T]) -> T | None:
        """One operation's; None where its last turn has just failed, or this one does."""
        return self.quarantine.attempt(Subject.OPERATION, ident, act)

    def _outdated(self, eviction: Eviction, open_ones: Sequence[Operation], context: CycleContext) -> bool:
        """Put an eviction aside that does not fit the cluster, or the time left, any more; another plan is made."""
        # A proposal may count on another proposal, but nothing that is carried out on something that may never be.
        config, now, snapshot, plan = context.config, context.now, context.snapshot, eviction.plan
        others = [e for e in open_ones if e.eviction_id != eviction.eviction_id]
        promised = promised_by([e for e in others if e.state.acting or not eviction.state.acting])
        together = (plan.preemptor.job_id, *plan.together)
        beside = [e for e in others if e.state.acting and e.subject.job_id not in together]
        left_s = (latest_of(eviction, config.execution) - now).total_seconds()
        later_s = max(0.0, file_system_busy_s(beside, snapshot, config, now, left_s) - plan.problem.busy_s)
        left_open_s = approval_s(eviction.mode, config.execution)
        why = plan_misfit(plan, snapshot, promised) or plan_aged(plan, now, left_open_s, later_s)
        if not why or eviction.state is EvictionState.CANCELLING:
            return False
        self.executor.put_aside(eviction, why, now)
        return True

    def _keep_house(self, snapshot: ClusterSnapshot, now: datetime) -> None:
        """What is done now and then: a sign of life, reservations that are left over, old history."""
        store, part = self.parts.store, self.quarantine.attempt_part
        if self._is_due("heartbeat", 10.0, now):
            store.set_value(HEARTBEAT, {"at": now.isoformat(), "backend": self.parts.backend.name})
        if self._is_due("strays", 600.0, now):
            part("nodes left over", self.drains.remove_strays, snapshot)
            part("placements left over", self._remove_strays, snapshot)
        if self._is_due("prune", 86_400.0, now):
            part("retention", store.prune, now - timedelta(seconds=self.config.daemon.keep_history))
            self.suppression.forget_ended(snapshot)

    def _is_due(self, what: str, every_s: float, now: datetime) -> bool:
        if what in self._due and now < self._due[what]:
            return False
        self._due[what] = now + timedelta(seconds=every_s)
        return True

    def _remove_strays(self, snapshot: ClusterSnapshot) -> None:
        """Placements of evictions that this database calls finished: a restored backup, or a lost write."""
        backend = self.parts.backend
        reserved = any(node.reservation is not None for node in snapshot.nodes)
        if not reserved and not any(job.reservation for job in snapshot.jobs):
            return  # the snapshot shows no reservation at all: no need to ask for them
        for reservation in backend.reservations():
            if not is_placement(reservation):
                continue
            eviction = self.operations.find(int(reservation.name.rpartition("_")[2]))
            if eviction is None or not eviction.state.terminal:
                continue  # another Clearway's, or its database is not this one: it ends by itself
            for job in snapshot.jobs:
                if job.reservation == reservation.name:
                    backend.detach(job.job_id)
            backend.delete_reservation(reservation.name)
