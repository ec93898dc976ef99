"""One cycle of the daemon: observe, carry on what is under way, decide, act; and the loop that repeats it.

``cycle`` never waits. ``run`` is the only place that catches every exception: a cycle that fails costs that cycle
and a metric, nothing else.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from clearway.config.configuration import Config
from clearway.drain.controller import Drains
from clearway.drain.replanning import DrainLifecycle
from clearway.drain.rolling_controller import RollingDrains
from clearway.eligibility.under_way import promised_by
from clearway.estimates.checkpoint_load import file_system_busy_s
from clearway.estimates.costs import BY_ITSELF
from clearway.estimates.deadlines import approval_s, latest_of
from clearway.estimates.history import Memory
from clearway.execution.executor import Executor
from clearway.execution.lifecycle import Lifecycle, Observed
from clearway.execution.open_operations import OpenOperations
from clearway.model.clock import Clock
from clearway.model.cluster import ClusterSnapshot
from clearway.model.events import CycleFailed, Emit, OperationFinished
from clearway.model.operations import Drain, Eviction, EvictionState, Operation, Relocation
from clearway.model.problem import Action
from clearway.model.report import CycleReport, Waiting
from clearway.model.rolling import RollingDrain
from clearway.model.transitions import superseded
from clearway.planning.base import Planner
from clearway.preemption.controller import MakingRoom
from clearway.preemption.explainer import Explainer
from clearway.preemption.replanning import EvictionLifecycle
from clearway.preemption.suppression import leave_alone
from clearway.preemption.validation import plan_aged, plan_misfit
from clearway.relocation.controller import Moves
from clearway.relocation.lifecycle import RelocationLifecycle
from clearway.service.housekeeping import Janitor
from clearway.service.requests import PAUSED, Desk
from clearway.slurm.base import SlurmBackend
from clearway.store.base import Store


@dataclass
class Loop:
    """The daemon's work. All state that matters is in the store and on the cluster; this object can be dropped."""

    backend: SlurmBackend
    store: Store
    planner: Planner
    config: Config
    clock: Clock
    emit: Emit
    owner: str = "clearway"
    checkpointers: Mapping[str, Action] = field(default_factory=lambda: BY_ITSELF)  # those that jobs may name
    report: CycleReport | None = None
    _wake: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._next_config: Config | None = None
        self.operations = OpenOperations(self.store)
        self.memory = Memory(self.store, self.emit)
        self.janitor = Janitor(self.backend, self.store, self.operations)
        self.explainer = Explainer(self.store, self.planner, self.clock, self.emit)
        self._equip(self.config)

    def reconfigure(self, config: Config) -> None:
        """Go by another configuration from the next cycle on; any thread may call this."""
        self._next_config = config
        self.wake()

    def _adopt_config(self) -> None:
        config, self._next_config = self._next_config, None
        if config is not None:
            self.config = config
            self._equip(config)

    def _equip(self, config: Config) -> None:
        self.executor = Executor(
            self.backend,
            self.store,
            self.operations,
            config.execution,
            self._lifecycles(config),
            self.emit,
            learn=self.memory.add_checkpoint,
            costs=config.costs,
        )
        self.drains = Drains(self.backend, self.store, self.operations, self.executor)
        self.room = MakingRoom(
            self.backend,
            self.store,
            self.operations,
            self.executor,
            self.planner,
            self.clock,
            self.emit,
            self.memory,
            self.checkpointers,
        )
        self.moves = Moves(
            self.backend, self.store, self.operations, self.executor, self.emit, self.memory, self.checkpointers
        )
        self.rolling = RollingDrains(self.store, self.operations, self.drains, self.executor, self.emit)
        self.desk = Desk(self.store, self.operations, self.executor, self.drains, self.moves, self.rolling, self.emit)

    def _lifecycles(self, config: Config) -> dict[type[Operation], Lifecycle[Any, Any]]:
        parts = (self.planner, self.memory, self.checkpointers)
        return {
            Eviction: EvictionLifecycle(config.execution, config, self.store, *parts),
            Drain: DrainLifecycle(config.execution, config, *parts),
            Relocation: RelocationLifecycle(config.execution),
        }

    def cycle(self) -> CycleReport:
        began = self.clock.monotonic()
        self._adopt_config()
        now = self.clock.now()
        standby = not self.store.acquire_lease(self.owner, now, 3 * self.config.daemon.stale_after)
        self.operations.refresh()
        snapshot = self.backend.snapshot()
        waiting: tuple[Waiting, ...] = ()
        rolling: tuple[RollingDrain, ...] = ()
        if standby:
            self.memory.forget()
        else:
            self.desk.answer_all(snapshot, self.config, now)
            self.drains.begin_scheduled(now)
            rolling = self.rolling.advance(snapshot, self.config, now, paused=self.paused)
            self._carry_on(snapshot, now)
            self.memory.look_for_restarts(snapshot, self.config, now)
            open_ones = self.report.open_evictions if self.report is not None else ()
            self.memory.look_for_returns(open_ones)
            self.memory.look_for_ends(snapshot, {p.job_id for e in open_ones for p in e.preemptions})
            waiting = self.room.look(snapshot, self.config, now, paused=self.paused)
            self.moves.look(snapshot, self.config, now, urgent=bool(waiting), paused=self.paused)
            self.janitor.keep_house(snapshot, self.drains, self.config.daemon.keep_history, now)
        report = CycleReport(
            at=now,
            snapshot=snapshot,
            waiting=waiting,
            open_evictions=self.operations.all(),
            rolling_drains=rolling,
            paused=self.paused,
            standby=standby,
            usage=self.room.usage(now),
            seconds=self.clock.monotonic() - began,
        )
        self.report = report
        self.emit(report)
        return report

    def run(self, stop: threading.Event, beat: Callable[[], None] = lambda: None) -> None:
        """Cycle until ``stop`` is set; ``beat`` is called after every cycle that succeeded."""
        gc.freeze()  # what is loaded by now stays: the collector's pauses within cycles shrink from 100 ms to a few
        while not stop.is_set():
            try:
                self.cycle()
                beat()
                pause_ends = self.clock.monotonic() + self._pause_s
                self.explain(pause_ends)
            except Exception as error:  # noqa: BLE001 - whatever a cycle dies of, the next one must run
                self.emit(CycleFailed(error))
                pause_ends = self.clock.monotonic() + self._pause_s
            self._wake.wait(max(0.0, pause_ends - self.clock.monotonic()))
            self._wake.clear()

    @property
    def _pause_s(self) -> float:
        acting = self.report is not None and any(e.state.acting for e in self.report.open_evictions)
        return self.config.daemon.active_interval if acting else self.config.daemon.poll_interval

    def explain(self, until: float) -> None:
        """Say of plans what else could have been decided, between two cycles; only the daemon that acts does it.

        ``until`` is a time of the clock's ``monotonic``; whoever wakes the loop ends it sooner.
        """
        if self.report is not None and not self.report.standby:
            limit_s = self.config.planning.explanation_time
            self.explainer.work(
                self.clock.now(), limit_s, lambda: self.clock.monotonic() < until and not self._wake.is_set()
            )

    def wake(self) -> None:
        """End the pause between two cycles: a request has come in, or the daemon stops."""
        self._wake.set()

    @property
    def paused(self) -> bool:
        return bool(self.store.get_value(PAUSED))

    # -- what is under way ---------------------------------------------------------------------------------

    def _carry_on(self, snapshot: ClusterSnapshot, now: datetime) -> None:
        # Without a placement nothing was done so far: proposed, just approved, or the daemon died just after planning.
        # A drain is planned when its nodes take nothing new any more, and goes by what is there then.
        open_ones = self.operations.all()
        fitting = [
            e
            for e in open_ones
            if e.placement or not isinstance(e, Eviction) or not self._outdated(e, open_ones, snapshot, now)
        ]
        acting = [eviction for eviction in fitting if eviction.state.acting]
        if acting:
            observed = Observed(snapshot, self.backend.reservations(), self.paused)
            # Placements first, the newest before those whose jobs it may count on, as when they are begun.
            placing = [e for e in acting if e.state is EvictionState.PLACING]
            for eviction in (*reversed(placing), *(e for e in acting if e not in placing)):
                after = self.executor.advance(eviction, observed, now)
                if after.state is EvictionState.FAILED and isinstance(after, Eviction):
                    leave_alone(self.store, after)

    def _outdated(
        self, eviction: Eviction, open_ones: Sequence[Operation], snapshot: ClusterSnapshot, now: datetime
    ) -> bool:
        """Put an eviction aside that does not fit the cluster, or the time left, any more; another plan is made."""
        # A proposal may count on another proposal, but nothing that is carried out on something that may never be.
        others = [e for e in open_ones if e.eviction_id != eviction.eviction_id]
        promised = promised_by([e for e in others if e.state.acting or not eviction.state.acting])
        together = (eviction.plan.preemptor.job_id, *eviction.plan.together)
        beside = [e for e in others if e.state.acting and e.subject.job_id not in together]
        left_s = (latest_of(eviction, self.config.execution) - now).total_seconds()
        busy_s = file_system_busy_s(beside, snapshot, self.config, now, left_s)
        why = plan_misfit(eviction.plan, snapshot, promised) or plan_aged(
            eviction.plan,
            now,
            approval_s(eviction.mode, self.config.execution),
            max(0.0, busy_s - eviction.plan.problem.busy_s),
        )
        if not why or eviction.state is EvictionState.CANCELLING:
            return False
        done = superseded(eviction, why, now)
        self.operations.save(done)
        self.emit(OperationFinished(done))
        return True
