"""One cycle under one configuration: observe, carry on what is under way, decide, act. It never waits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from threading import Event
from typing import TypeGuard

from clearway.config.configuration import Config, observing
from clearway.drain.controller import DrainController
from clearway.drain.rolling import RollingController
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.urgent import in_force, refusals
from clearway.estimates.costs import BY_ITSELF
from clearway.estimates.history import HistoryKeeper
from clearway.execution.cycle_context import CycleContext, PlanningBasis
from clearway.execution.executor import Executor
from clearway.execution.lifecycle import is_placement, placement_number
from clearway.execution.losses import LossKeeper
from clearway.execution.open_operations import OpenOperations
from clearway.execution.restraints import (
    BREAKER,
    SUPPRESSED,
    USER_PAUSES,
    Breaker,
    Gate,
    Quarantine,
    Suppression,
    UserPauses,
    told,
)
from clearway.model.clock import Clock
from clearway.model.cluster import ClusterSnapshot, Job, JobState
from clearway.model.errors import ClusterError, CycleEndedError
from clearway.model.events import CycleCut, Emit
from clearway.model.operations import Eviction, EvictionState, Operation, OperationKind
from clearway.model.orders import RollingDrain
from clearway.model.outcome import PLANNED_ANEW, Outcome, OutcomeCode
from clearway.model.problem import Action
from clearway.model.records import BACKEND, CLUSTER, HALTED, PAUSED
from clearway.model.report import CycleReport, Subject, Waiting
from clearway.model.site import ClusterIdentity
from clearway.notify.dispatch import Bell
from clearway.planning.base import Planner
from clearway.preemption.controller import PreemptionController
from clearway.preemption.proposals import RENEWED_EVERY
from clearway.preemption.validation import after_planning
from clearway.promise.calendar_controller import CalendarController
from clearway.promise.calendar_reader import CalendarReader
from clearway.promise.controller import PromiseController
from clearway.relocation.controller import RelocationController
from clearway.service.leadership import ClockWatch, Leadership
from clearway.service.requests import RequestHandler
from clearway.slurm.base import SlurmBackend
from clearway.slurm.releases import only_observed, refused
from clearway.store.cluster import identity_of, stranger
from clearway.store.cluster import stored as as_stored
from clearway.store.repository import Store
from clearway.telemetry.report import CaseKeeper

# Where not the nodes were at fault: the job is served as soon as it can start again.
_SERVED_AGAIN = (*PLANNED_ANEW, OutcomeCode.CALLED_OFF, OutcomeCode.POINTLESS)


LOOKS_AT_REQUEUED = 20  # jobs at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    backend: SlurmBackend
    store: Store
    planner: Planner
    clock: Clock
    emit: Emit
    history: HistoryKeeper
    owner: str = "clearway"  # the name on the lease, which no other process may have: see ``leadership.own_name``
    checkpointers: Mapping[str, Action] = field(default_factory=lambda: BY_ITSELF)  # those that jobs may name
    backend_why: str = ""  # why this backend, and no other
    calendar_reader: CalendarReader = field(default_factory=CalendarReader)
    bell: Bell = field(default_factory=Bell)  # rung when there is something to tell
    reload_waits: Event = field(default_factory=Event)  # a cycle that is running goes by an old configuration


@dataclass(slots=True, kw_only=True)
class Cycle:
    """The controllers, and the order in which a cycle asks them."""

    parts: Parts
    config: Config
    leadership: Leadership
    operations: OpenOperations
    suppression: Suppression
    pauses: UserPauses
    breaker: Breaker
    executor: Executor
    drains: DrainController
    rolling: RollingController
    preemption: PreemptionController
    relocation: RelocationController
    promises: PromiseController
    calendar: CalendarController
    requests: RequestHandler
    quarantine: Quarantine
    gate: Gate
    basis: PlanningBasis
    cases: CaseKeeper
    losses: LossKeeper
    in_force: Config = field(init=False)  # with those rules alone that hold on this site
    _bytes: int = 0  # of the database, as they were last asked for
    _waits_again: set[tuple[str, int]] = field(default_factory=set)  # job and restart count: looked at
    _due: dict[str, datetime] = field(default_factory=dict)  # not stored: after a start or a reload all is due at once

    def __post_init__(self) -> None:
        self.in_force = self.config

    def run(self, before: CycleReport | None, alive: Callable[[], None], watch: ClockWatch) -> CycleReport:
        """What was seen and done; ``before``: the report before; ``alive``: called between any two pieces of work. A
        cycle that has to end early reports what it saw. Raises ``LeaseLostError`` when that shows while Slurm is read.
        """
        clock = self.parts.clock
        began, now, seen = clock.monotonic(), clock.now(), clock.steady()
        leads = self.leadership.begin_cycle(self.config.daemon)
        stored = self.operations.refresh(now, PAUSED, SUPPRESSED, USER_PAUSES, HALTED, BREAKER, CLUSTER)
        self.breaker.refresh(stored.values.get(BREAKER))
        self.suppression.refresh(stored.values.get(SUPPRESSED))
        self.pauses.refresh(stored.values.get(USER_PAUSES))
        self.leadership.look()

        def between() -> None:
            alive()
            self.leadership.keep()

        paused, full = bool(stored.values.get(PAUSED)), self._bytes > self.config.daemon.database_limit_mib * 2**20
        snapshot = self.parts.backend.snapshot()
        self._keep_to_one_cluster(identity_of(stored.values.get(CLUSTER)), snapshot.cluster, leads=leads)
        snapshot = self.operations.without_strangers(snapshot)
        only_observes = only_observed(snapshot.slurm_version, self.config.slurm.act_on_release)
        self.in_force = in_force(self.config, snapshot.vouched)
        config = observing(self.in_force) if only_observes else self.in_force
        context = CycleContext(snapshot, config, now, paused, full, between, only_observes)
        self.basis.time.begin(self.config.planning.time_per_cycle, began)
        self.basis.impossible.look(self._scene(context))
        waiting: tuple[Waiting, ...] = ()
        rolling: tuple[RollingDrain, ...] = ()
        left = False  # requests wait for the next cycle
        under_way = before is not None and any(e.state.acting for e in before.open_evictions)
        doubted = watch.doubt(now, seen, snapshot, under_way=under_way)
        if not leads or self.leadership.observes or doubted:
            self._forget()
        else:
            try:
                context = replace(context, halted=told(stored.values.get(HALTED)))
                context, left = self.requests.handle(stored.requests, context)
                context = replace(context, halted=self.gate.closed_here() or context.halted)
                if watch.step_s:
                    self._call_off(f"the wall clock was set by {watch.step_s:+.0f} s while it was under way", now)
                if refused(snapshot.slurm_version, self.config.slurm.act_on_release):
                    self._call_off(only_observes, now, unplanned=True)
                waiting, rolling = self._act(context, before)
                self._keep_house(context)
            except CycleEndedError as error:
                self._forget()
                self.parts.emit(CycleCut(error))
                waiting, rolling = (before.waiting, before.rolling_drains) if before is not None else ((), ())
        self.leadership.end_cycle()
        return CycleReport(
            at=now,
            snapshot=context.snapshot,
            waiting=waiting,
            open_evictions=self.operations.all(),
            rolling_drains=rolling,
            paused=context.paused,
            halted=context.halted,
            stopped=self.breaker.stopped,
            only_observes=only_observes,
            refused_rules="; ".join(refusals(self.config.preemptors, snapshot.vouched).values()),
            standby=self.leadership.epoch is None,
            epoch=self.leadership.epoch,
            clock_doubt=doubted,
            database_bytes=self._bytes,
            user_pauses=tuple(each.left_alone for each in self.pauses.all(now)),
            quarantined=self.quarantine.all(),
            usage=self.operations.usage(now),
            seconds=clock.monotonic() - began,
            in_arrears=left or self.executor.pace.in_arrears(now),
        )

    def _keep_to_one_cluster(self, owner: ClusterIdentity | None, seen: ClusterIdentity | None, *, leads: bool) -> None:
        """Raises ``ClusterError``, and leaves the lease to a daemon of the right cluster."""
        if why := stranger(owner, seen):
            self.leadership.release()
            raise ClusterError(why)
        if leads and owner is None and seen is not None:
            self.parts.store.set_value(CLUSTER, as_stored(seen))

    def look_ahead(self, context: CycleContext, go_on: Callable[[], bool]) -> None:
        self.quarantine.attempt_part("looks ahead", lambda: self.preemption.look_ahead(context, go_on))

    def _forget(self) -> None:
        """What follows one snapshot after another has missed some, or another daemon writes."""
        self.parts.history.forget()
        self.cases.forget()
        self.losses.forget()

    def _call_off(self, why: str, now: datetime, *, unplanned: bool = False) -> None:
        for e in self.operations.all():
            early = unplanned and e.state is EvictionState.PLACING
            if e.state.before_start and (early or any(p.state.cancellable for p in e.preemptions)):
                self.executor.cancel(e, now, Outcome(OutcomeCode.CALLED_OFF, why))

    def _scene(self, context: CycleContext) -> tuple[object, ...]:
        """What a plan follows from, apart from the time and the ``Ask`` of the job that it is for."""
        seen, basis = context.snapshot, self.basis
        under_way = tuple((e.eviction_id, e.revision, e.state) for e in self.operations.all())
        cluster = (seen.holders, seen.nodes, seen.skipped, seen.licenses, seen.topology, seen.power_saving)
        config = basis.leave_times.allowed(context.config)
        return config, cluster, under_way, basis.history.history(context.config), basis.actions

    def _act(
        self, context: CycleContext, before: CycleReport | None
    ) -> tuple[tuple[Waiting, ...], tuple[RollingDrain, ...]]:
        """Each part whether or not another fails; what is under way first."""
        self._look_for_lost_nodes(context)
        if context.halted or self.breaker.stopped:
            context = replace(context, paused=True, stopped=self.breaker.stopped)
        self.preemption.silent.observe(context.snapshot.nodes, context.now)
        self.basis.leave_times.observe(self.operations.all())
        part = self.quarantine.attempt_part
        if not context.only_observes:
            part("scheduled drains", self.drains.begin_scheduled, context.now)
        part("calendar", self.calendar.follow, context)
        part("promises that are due", self.promises.begin_due, context)
        rolling = self.rolling.advance(context)
        began_s = self.parts.clock.monotonic()
        self._carry_on(replace(context, paused=True) if context.only_observes else context)
        self.basis.time.charge(self.parts.clock.monotonic() - began_s)
        part("history", self._record_history, context, before.open_evictions if before is not None else ())
        found = part("planning", self.preemption.update, context)
        waiting: tuple[Waiting, ...] = found or ()
        part("cases", self.cases.follow, context)
        urgent = found is None or bool(found)  # where that is not known, no job is moved
        part("moves", lambda: self.relocation.update(context, urgent=urgent))
        return waiting, rolling

    def _look_for_lost_nodes(self, context: CycleContext) -> None:
        """Where that stops everything, urgent jobs do not go on waiting in placements over nodes that are lost."""
        self.breaker.look(self.operations.all(), context.snapshot, context.now)
        for e in self.operations.all() if self.breaker.stopped else ():
            if isinstance(e, Eviction) and e.state.before_start and self.breaker.lost_by(e):
                self.executor.cancel(e, context.now, Outcome(OutcomeCode.NODES_LOST, self.breaker.stopped))

    def _record_history(self, context: CycleContext, followed: Sequence[Operation]) -> None:
        history, snapshot = self.parts.history, context.snapshot
        self.losses.follow(history.record_restarts(snapshot, context.config, context.now), context.now)
        history.notice_returns(followed)
        history.record_ends(snapshot, {p.job_id for e in followed for p in e.preemptions})

    def _carry_on(self, context: CycleContext) -> None:
        context = self._with_limits(context)
        acting = self._fitting(context)
        if not acting:
            return
        context = replace(context, reservations=self.parts.backend.reservations())
        # Placements first, the newest before those whose jobs it may count on, as when they are begun.
        placing = [e for e in acting if e.state is EvictionState.PLACING]
        for eviction in (*reversed(placing), *(e for e in acting if e not in placing)):
            context.alive()
            act = partial(self.executor.advance, eviction, context)
            after = self.quarantine.attempt(Subject.OPERATION, str(eviction.eviction_id), act)
            if isinstance(eviction, Eviction) and isinstance(after, Eviction):
                self.pauses.notice(eviction, after, context)
                if after.state is EvictionState.FAILED and after.outcome_code not in _SERVED_AGAIN:
                    self.suppression.suppress(after)

    def _fitting(self, context: CycleContext) -> list[Operation]:
        """What is carried on: all that is under way, but no plan that does not fit the cluster and can be put aside.
        Without a placement nothing was done so far: proposed, just approved, or the daemon died just after planning.
        """
        open_ones, misfits = self.operations.all(), set()
        for e in open_ones:
            if isinstance(e, Eviction) and not e.placement:
                fit = partial(self.preemption.proposals.fits, e, open_ones, context)
                if not self.quarantine.attempt(Subject.OPERATION, f"fit of {e.eviction_id}", fit):
                    misfits.add(e.eviction_id)
        return [e for e in self.operations.all() if e.state.acting and e.eviction_id not in misfits]

    def _with_limits(self, context: CycleContext) -> CycleContext:
        """With the limits on jobs that others are still to leave for. Where one would bind, that is called off."""
        pending = {job.job_id: job for job in context.snapshot.pending}
        early = [e for e in self._may_be_in_vain(context.now) if e.preemptor.job_id in pending]
        if not early:
            return context
        backend = self.parts.backend
        limits = backend.limits([pending[e.preemptor.job_id] for e in early])
        reservations = backend.reservations()
        context = replace(context, limits=limits, reservations=reservations)
        snapshot, config = context.snapshot, context.config
        seen = PlanningContext(
            snapshot=snapshot, config=config, now=context.now, limits=limits, reservations=reservations
        )
        for e in early:
            # Once all jobs have left, nothing is lost by waiting until what was not told is told.
            if not e.placement or (limits.unknown and not any(p.state.cancellable for p in e.preemptions)):
                continue
            # Those before it may just have been called off.
            others = [each for each in self.operations.others(e) if each.state.acting]
            if (why := after_planning(e.plan, others, seen, begun=True)) and self._still_waits(e):
                self.executor.cancel(e, context.now, Outcome(OutcomeCode.CALLED_OFF, why))
        return context

    def _still_waits(self, e: Eviction) -> bool:
        """Once it has started, what it has itself is in use: jobs, licenses and limits are not read at one moment."""
        now = self.parts.backend.look_at((e.preemptor.job_id,))[0].get(e.preemptor.job_id)
        return now is not None and now.state is JobState.PENDING

    def _may_be_in_vain(self, now: datetime) -> list[Eviction]:
        """Those whose jobs wait to start, and proposals that are about to be made anew."""
        return [
            e
            for e in self.operations.all()
            if isinstance(e, Eviction)
            and (
                e.state.before_start
                or (e.state is EvictionState.AWAITING_APPROVAL and now - e.plan.made_at >= RENEWED_EVERY)
            )
        ]

    def _keep_house(self, context: CycleContext) -> None:
        """What is done now and then: how Slurm is talked to, reservations that are left over, old history."""
        snapshot, now = context.snapshot, context.now
        store, part = self.parts.store, self.quarantine.attempt_part
        if self._is_due("backend", 86_400.0, now):
            store.set_value(BACKEND, self.parts.backend.name)
        if not context.halted and self._is_due("strays", 600.0, now):
            part("nodes left over", self.drains.remove_strays, snapshot)
            part("placements left over", self._remove_strays, snapshot)
        if not context.halted and self._is_due("requeued", 30.0, now):
            part("urgent jobs that wait again", self._let_out_again, snapshot, now)
        if self._is_due("loops", 10.0, now):
            part("loops", self.pauses.look_for_loops, now, self.config.budget)
        if self._is_due("proposals", 60.0, now):
            self._bytes = part("size of the database", store.size_bytes) or 0
            kept_s = 0.0 if context.database_full else self.config.daemon.keep_superseded
            part("retention of proposals", store.prune_superseded, now - timedelta(seconds=kept_s))
        if self._is_due("prune", 86_400.0, now):
            part("retention", store.prune, now - timedelta(seconds=self.config.daemon.keep_history))
            part("retention of notices", store.prune_notices, now - timedelta(seconds=self.config.notify.kept_s))
            self.suppression.forget_ended(snapshot)
            self.pauses.forget_ended(now)

    def _is_due(self, what: str, every_s: float, now: datetime) -> bool:
        due = now >= self._due.get(what, now)
        if due:
            self._due[what] = now + timedelta(seconds=every_s)
        return due

    def _remove_strays(self, snapshot: ClusterSnapshot) -> None:
        """Placements of evictions that this database calls finished: a restored backup, or a lost write."""
        backend = self.parts.backend
        reserved = any(node.reservation is not None for node in snapshot.nodes)
        # A snapshot does not show reservations that are still to come.
        promised = self.parts.store.evictions(kind=OperationKind.PROMISE, limit=1)
        if not reserved and not promised and not any(job.reservation for job in snapshot.jobs):
            return  # the snapshot shows no reservation at all: no need to ask for them
        for reservation in backend.reservations():
            number = placement_number(reservation.name) if is_placement(reservation) else None
            eviction = None if number is None else self.operations.find(number)
            if eviction is None or not eviction.state.terminal or eviction.placement != reservation.name:
                continue  # another Clearway's, or its database is not this one: it ends by itself
            for job in snapshot.jobs_in.get(eviction.placement, ()):
                backend.detach(job.job_id, eviction.placement)
            backend.delete_reservation(eviction.placement)
            if isinstance(eviction, Eviction) and eviction.plan.pin:
                waited_in = eviction.preemptor.partitions
                backend.set_partitions(eviction.preemptor.job_id, waited_in, instead_of=(eviction.plan.pin,))

    def _let_out_again(self, snapshot: ClusterSnapshot, now: datetime) -> None:
        """What started in one partition for Clearway's sake, and waits again, waits in all of its own.

        While the eviction lasts it sees to that itself.
        """
        waits = {
            (job.job_id, job.restart_count): job
            for job in snapshot.jobs
            if job.state is JobState.PENDING and job.restart_count and len(job.partitions) == 1 and not job.reservation
        }
        self._waits_again &= waits.keys()
        for key in sorted(waits.keys() - self._waits_again)[:LOOKS_AT_REQUEUED]:
            job, newest = waits[key], self.parts.store.evictions(kind=OperationKind.EVICTION, job=key[0], limit=1)
            if any(_was_pinned(e, job) and self.executor.let_out_again(e, now) is not None for e in newest):
                return  # Slurm says no: it is asked again
            self._waits_again.add(key)


def _was_pinned(e: Operation, job: Job) -> TypeGuard[Eviction]:
    """Whether it waits in the one partition that it was to start in, for an eviction that is over."""
    if not isinstance(e, Eviction) or not e.state.terminal or not e.plan.pin:
        return False
    its_own = e.is_for(job) and e.preemptor.submission.leads_to(job.submission)
    return its_own and job.partitions == (e.plan.pin,) != e.preemptor.partitions
