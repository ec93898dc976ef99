"""One cycle of the daemon: observe, carry on what is under way, decide, act; and the loop that repeats it.

``cycle`` never waits. ``run`` is the only place that catches every exception: a cycle that fails costs that cycle
and a metric, nothing else.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol

from clearway.clock import Clock
from clearway.config import Config, Mode
from clearway.costs import BY_ITSELF
from clearway.decision import Considered, NoPlan, consider, free_already, plan_alone
from clearway.desk import PAUSED, Desk
from clearway.detection import Preemptor, preemptors
from clearway.drains import Drains
from clearway.eternal import ordinary, ordinary_preemptors
from clearway.execution.executor import Executor, Observer, Sightings
from clearway.execution.progress import planned_preemptions
from clearway.execution.records import Eviction, EvictionState, RollingDrain, Usage
from clearway.explainer import Explainer
from clearway.explanation import Explanation
from clearway.janitor import Janitor
from clearway.learning import CheckpointRecord, RestartRecord
from clearway.left_alone import leave_alone, left_alone, why_left_alone
from clearway.memory import Memory
from clearway.model import Action, ClusterSnapshot, JobState, Plan
from clearway.moves import Moves
from clearway.plan_checks import over_budget, plan_aged, plan_misfit
from clearway.planning.base import Planner
from clearway.policy import Grounds, UnderWay, approval_s, promised_by, under_way_by
from clearway.rolling import RollingDrains
from clearway.slurm.base import SlurmBackend
from clearway.store.base import Store
from clearway.together import beside_plans, decide_together

# With enough free nodes Slurm starts the job itself; only when it has not done so by then does Clearway step in.
_SLURM_HAS_ITS_TURN_S = 15.0
# A node that is brought back takes jobs when it has answered slurmctld's next ping. Nobody has to leave instead.
_ANSWERS_WITHIN_S = 3.0
_TOGETHER_S = 1.0  # of one cycle, to plan for several urgent jobs at once


@dataclass(frozen=True, slots=True)
class Waiting:
    """A preemptor that waits, and what Clearway makes of it."""

    preemptor: Preemptor
    eviction_id: int | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleReport:
    """What one cycle saw and did; the REST API and the metrics read the newest."""

    at: datetime
    snapshot: ClusterSnapshot
    waiting: tuple[Waiting, ...] = ()
    open_evictions: tuple[Eviction, ...] = ()
    rolling_drains: tuple[RollingDrain, ...] = ()  # those that are open
    paused: bool = False
    standby: bool = False
    usage: Usage = field(default_factory=Usage)  # of the hour before
    seconds: float = 0.0


class CycleObserver(Observer, Protocol):
    """Hears of everything that metrics and logs tell."""

    def cycle(self, report: CycleReport) -> None: ...

    def cycle_failed(self, error: BaseException) -> None: ...

    def planned(self, eviction: Eviction, seconds: float) -> None: ...

    def explained(self, eviction: Eviction, explanation: Explanation) -> None: ...

    def checkpointed(self, record: CheckpointRecord) -> None: ...

    def restarted(self, record: RestartRecord) -> None: ...

    def rolled(self, before: RollingDrain, after: RollingDrain) -> None: ...


@dataclass
class Loop:
    """The daemon's work. All state that matters is in the store and on the cluster; this object can be dropped."""

    backend: SlurmBackend
    store: Store
    planner: Planner
    config: Config
    clock: Clock
    observer: CycleObserver
    owner: str = "clearway"
    checkpointers: Mapping[str, Action] = field(default_factory=lambda: BY_ITSELF)  # those that jobs may name
    report: CycleReport | None = None
    _wake: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._next_config: Config | None = None
        self.memory = Memory(self.store, self.observer)
        self.janitor = Janitor(self.backend, self.store)
        self.explainer = Explainer(self.store, self.planner, self.clock, self.observer.explained)
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
            config.execution,
            self._replan,
            self.observer,
            learn=self.memory.add_checkpoint,
            costs=config.costs,
        )
        self.drains = Drains(self.backend, self.store, self.executor, self.planner, self.memory, self.checkpointers)
        self.moves = Moves(self.backend, self.store, self.executor, self.observer, self.memory, self.checkpointers)
        self.rolling = RollingDrains(self.store, self.drains, self.executor, self.observer)
        self.desk = Desk(self.store, self.executor, self.drains, self.moves, self.rolling, self.observer.planned)

    def cycle(self) -> CycleReport:
        began = self.clock.monotonic()
        self._adopt_config()
        now = self.clock.now()
        standby = not self.store.acquire_lease(self.owner, now, 3 * self.config.daemon.stale_after)
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
            waiting = self._decide_all(snapshot, now)
            self.moves.look(snapshot, self.config, now, urgent=bool(waiting), paused=self.paused)
            self.janitor.keep_house(snapshot, self.drains, self.config.daemon.keep_history, now)
        report = CycleReport(
            at=now,
            snapshot=snapshot,
            waiting=waiting,
            open_evictions=self.store.open_evictions(),
            rolling_drains=rolling,
            paused=self.paused,
            standby=standby,
            usage=self._usage(now),
            seconds=self.clock.monotonic() - began,
        )
        self.report = report
        self.observer.cycle(report)
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
                self.observer.cycle_failed(error)
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
        open_ones = self.store.open_evictions()
        fitting = [e for e in open_ones if e.placement or e.drain or not self._outdated(e, open_ones, snapshot, now)]
        acting = [eviction for eviction in fitting if eviction.state.acting]
        if acting:
            sightings = Sightings(snapshot, self.backend.reservations(), self.paused)
            # Placements first, the newest before those whose jobs it may count on; see _plan_for.
            placing = [e for e in acting if e.state is EvictionState.PLACING]
            standing = {e.eviction_id: e for e in acting}
            for eviction in (*reversed(placing), *(e for e in acting if e not in placing)):
                after = self.executor.advance(eviction, sightings, now, standing.values())
                standing[after.eviction_id] = after
                if after.state is EvictionState.FAILED and after.drain is None:
                    leave_alone(self.store, after)

    def _outdated(
        self, eviction: Eviction, open_ones: Sequence[Eviction], snapshot: ClusterSnapshot, now: datetime
    ) -> bool:
        """Put an eviction aside that does not fit the cluster, or the time left, any more; another plan is made."""
        # A proposal may count on another proposal, but nothing that is carried out on something that may never be.
        others = [e for e in open_ones if e.eviction_id != eviction.eviction_id]
        promised = promised_by([e for e in others if e.state.acting or not eviction.state.acting])
        why = plan_misfit(eviction.plan, snapshot, promised) or plan_aged(
            eviction.plan, now, approval_s(eviction.mode, self.config.execution)
        )
        if not why or eviction.state is EvictionState.CANCELLING:
            return False
        done = replace(
            eviction,
            state=EvictionState.SUPERSEDED,
            state_since=now,
            finished_at=now,
            outcome=f"Not carried out: {why}.",
        )
        self.store.save_eviction(done)
        self.observer.finished(done)
        return True

    def _replan(
        self, eviction: Eviction, stuck: frozenset[str], sightings: Sightings, now: datetime
    ) -> Plan | NoPlan | None:
        """A plan for what an eviction still needs, without the jobs that did not leave; None when there is none."""
        open_ones = self.store.open_evictions()
        ends = {p.job_id for p in eviction.preemptions if p.action is Action.END}
        under_way = replace(
            under_way_by([e for e in open_ones if e.eviction_id != eviction.eviction_id], eviction.plan.deadline),
            leaving=frozenset(p.job_id for p in eviction.preemptions if p.requeued_at and not p.state.terminal) - stuck,
            avoid=stuck - ends,
            lasting=stuck & ends,
            own_nodes=frozenset(eviction.held_nodes),
        )
        if eviction.drain is not None:
            return self.drains.plan(eviction, under_way, sightings.snapshot, self.config, now)
        seen = sightings.snapshot.job_by_id.get(eviction.preemptor.job_id)
        if seen is None or seen.state is not JobState.PENDING:
            return None
        snapshot, own = sightings.snapshot, frozenset({eviction.placement})
        found = preemptors(replace(snapshot, jobs=(seen,)), self.config.preemptors, own)
        if not found and self.config.eternal.partitions:
            found = (ordinary(seen, self.config.eternal, now, own, snapshot.topology),)
        if not found:
            return None
        counts = self.store.preemption_counts(job.job_id for job in snapshot.jobs if job.state.holds_nodes)
        considered = self._consider(found[0], snapshot, under_way, counts, now)
        if isinstance(considered, NoPlan):
            return None
        plan = plan_alone(considered, snapshot, self.planner, now)
        if over_budget(plan, self._usage(now), self.config.budget):
            return None
        return plan

    # -- what is decided -----------------------------------------------------------------------------------

    def _decide_all(self, snapshot: ClusterSnapshot, now: datetime) -> tuple[Waiting, ...]:
        open_ones = list(self.store.open_evictions())
        by_preemptor = {e.preemptor.job_id: e for e in open_ones}
        known = left_alone(self.store)
        placements = frozenset(e.placement for e in open_ones if e.placement)
        waiting = []
        fresh: list[Preemptor] = []
        for preemptor in preemptors(snapshot, self.config.preemptors, placements):
            job = preemptor.job
            eviction = by_preemptor.get(job.job_id)
            if eviction is not None:
                waiting.append(Waiting(preemptor, eviction.eviction_id, eviction.outcome or eviction.state.value))
                continue
            why = why_left_alone(job, known) or ("paused" if self.paused else None)
            if why is not None:
                waiting.append(Waiting(preemptor, None, why))
                continue
            fresh.append(preemptor)
        waiting += self._plan_for(fresh, snapshot, open_ones, now)
        if self.config.eternal.partitions and not self.paused:
            waiting += self._let_eternal_jobs_make_room(waiting, snapshot, open_ones, known, now)
        return tuple(sorted(waiting, key=lambda each: (each.preemptor.deadline, each.preemptor.job.job_id)))

    def _let_eternal_jobs_make_room(
        self,
        urgent: Sequence[Waiting],
        snapshot: ClusterSnapshot,
        open_ones: list[Eviction],
        known: Mapping[str, int],
        now: datetime,
    ) -> Iterator[Waiting]:
        """For ordinary jobs, after all urgent ones."""
        by_preemptor = {e.preemptor.job_id: e for e in open_ones}
        fresh = []
        for preemptor in ordinary_preemptors(
            snapshot,
            self.config.eternal,
            self.config.preemptors,
            now,
            urgent=[each.preemptor for each in urgent if each.eviction_id is None],
            served=by_preemptor.keys(),
            left_alone=lambda job: why_left_alone(job, known) is not None,
            placements=frozenset(e.placement for e in open_ones if e.placement),
        ):
            eviction = by_preemptor.get(preemptor.job.job_id)
            if eviction is None:
                fresh.append(preemptor)
            else:
                yield Waiting(preemptor, eviction.eviction_id, eviction.outcome or eviction.state.value)
        yield from self._plan_for(fresh, snapshot, open_ones, now)

    def _plan_for(
        self,
        fresh: Sequence[Preemptor],
        snapshot: ClusterSnapshot,
        open_ones: list[Eviction],
        now: datetime,
        claimed: Sequence[Plan] = (),
        ends: float | None = None,
    ) -> Iterator[Waiting]:
        """Plan for all of them together and begin; after a plan that no longer fits the others wait for a cycle.

        All intents are stored first. Then who counts on another one's jobs is placed before that one lets them go:
        Slurm would start that one on any of the nodes that become free, as long as nobody's placement keeps them.
        Who is planned for after others has its turn at once where nothing is carried out for those; ``claimed`` are
        their plans, and ``ends`` is when this has taken long enough.
        """
        if not fresh:
            return
        began = self.clock.monotonic()
        ends = began + _TOGETHER_S if ends is None else ends
        counts = self.store.preemption_counts(job.job_id for job in snapshot.jobs if job.state.holds_nodes)

        def consider_one(
            preemptor: Preemptor, *, whole: bool = False, beside: Sequence[Plan] = ()
        ) -> Considered | NoPlan:
            under_way = under_way_by(open_ones, preemptor.deadline)
            under_way = beside_plans(under_way, (*claimed, *beside), preemptor.deadline)
            return self._consider(preemptor, snapshot, under_way, counts, now, whole=whole)

        decided = decide_together(
            fresh, consider_one, snapshot, self.planner, now, lambda: ends - self.clock.monotonic()
        )
        begun: list[tuple[Preemptor, Eviction, ClusterSnapshot | None]] = []
        plans: list[Plan] = []
        changed = False
        for preemptor, plan in decided.plans:
            if isinstance(plan, NoPlan):
                yield Waiting(preemptor, None, plan.why)
                continue
            plans.append(plan)
            if preemptor.ordinary and not plan.preemptees:
                yield Waiting(preemptor, None, "enough nodes are free; Slurm starts it in its turn")
                continue
            slurms_turn = (now - preemptor.job.submit_time).total_seconds() < _SLURM_HAS_ITS_TURN_S
            if slurms_turn and free_already(plan, snapshot):
                yield Waiting(preemptor, None, "enough nodes are free; Slurm has its turn")
                continue
            if plan.leaving and self._nobody_need_leave(preemptor, snapshot, open_ones, counts, now):
                yield Waiting(preemptor, None, "a node that was just brought back is free in a moment")
                continue
            stored = None if changed else self._store_plan(plan, open_ones, now)
            if stored is None:
                changed = True
                yield Waiting(preemptor, None, "the cluster changed while the plan was made")
                continue
            open_ones.append(stored[0])
            begun.append((preemptor, *stored))
        acting = any(eviction.state.acting for _, eviction, _ in begun)
        standing = {e.eviction_id: e for e in open_ones}
        for preemptor, planned, now_seen in reversed(begun):
            eviction = planned
            if now_seen is not None:
                eviction = self.executor.advance(planned, Sightings(now_seen, ()), now, standing.values())
                standing[eviction.eviction_id] = eviction
            self.observer.planned(eviction, self.clock.monotonic() - began)
            yield Waiting(preemptor, eviction.eviction_id, eviction.outcome or eviction.state.value)
        if acting or changed or self.clock.monotonic() >= ends:
            yield from (Waiting(preemptor, None, decided.why_later) for preemptor in decided.later)
        else:
            yield from self._plan_for(decided.later, snapshot, open_ones, now, (*claimed, *plans), ends)

    def _nobody_need_leave(
        self,
        preemptor: Preemptor,
        snapshot: ClusterSnapshot,
        open_ones: Sequence[Eviction],
        counts: Mapping[str, int],
        now: datetime,
    ) -> bool:
        """Whether nobody had to leave if the nodes took jobs that this daemon brought back within the last seconds."""
        lately = self.executor.brought_back_since(now - timedelta(seconds=_ANSWERS_WITHIN_S))
        silent = {node.name for node in snapshot.nodes if node.name in lately and not node.available}
        if not silent:
            return False
        nodes = tuple(replace(node, available=node.available or node.name in silent) for node in snapshot.nodes)
        soon = replace(snapshot, nodes=nodes)
        considered = self._consider(preemptor, soon, under_way_by(open_ones, preemptor.deadline), counts, now)
        return isinstance(considered, Considered) and not plan_alone(considered, soon, self.planner, now).leaving

    def _consider(
        self,
        preemptor: Preemptor,
        snapshot: ClusterSnapshot,
        under_way: UnderWay,
        counts: Mapping[str, int],
        now: datetime,
        *,
        whole: bool = False,
    ) -> Considered | NoPlan:
        grounds = Grounds(
            snapshot=snapshot,
            config=self.config,
            now=now,
            preempted=counts,
            under_way=under_way,
            history=self.memory.history(self.config),
            actions=self.checkpointers,
            whole=whole,
        )
        return consider(preemptor, grounds, self.planner)

    def _store_plan(
        self, plan: Plan, open_ones: Sequence[Eviction], now: datetime
    ) -> tuple[Eviction, ClusterSnapshot | None] | None:
        """Store a plan, with a fresh snapshot where it is to be begun at once; None when it does not fit any more."""
        mode = self.config.daemon.mode
        budget = over_budget(plan, self._usage(now), self.config.budget)
        state = {
            Mode.OBSERVE: EvictionState.PROPOSED,
            Mode.APPROVE: EvictionState.AWAITING_APPROVAL,
            Mode.AUTOMATIC: EvictionState.AWAITING_APPROVAL if budget else EvictionState.PLACING,
        }[mode]
        fresh = None
        if state is EvictionState.PLACING:
            fresh = self.backend.snapshot()  # the plan aged while it was made
            preemptor = self.backend.job(plan.preemptor.job_id)  # a snapshot may know its excluded nodes from earlier
            excluded = preemptor is None or set(preemptor.excluded_nodes) & set(plan.placement_nodes)
            if excluded or plan_misfit(plan, fresh, promised_by(open_ones)):
                return None
        eviction = self.store.create_eviction(
            Eviction(
                eviction_id=0,
                mode=mode.value,
                plan=plan,
                preemptions=planned_preemptions(plan, now),
                state=state,
                state_since=now,
                created_at=now,
                outcome=f"Needs approval: {budget}." if budget and mode is not Mode.OBSERVE else "",
            )
        )
        return eviction, fresh

    def _usage(self, now: datetime) -> Usage:
        return self.store.usage_since(now - timedelta(hours=1))
