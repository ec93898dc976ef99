"""Jobs that wait for room, urgent ones and those that eternal jobs give way to: planned for, and their plans begun."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from clearway.config.configuration import Config, Mode
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import promised_by, under_way_by
from clearway.estimates.history import Memory
from clearway.execution.executor import Executor
from clearway.execution.lifecycle import Observed
from clearway.execution.open_operations import OpenOperations
from clearway.execution.progress import fresh_operation
from clearway.model.clock import Clock
from clearway.model.cluster import ClusterSnapshot
from clearway.model.events import Emit, PlanMade
from clearway.model.operations import Eviction, EvictionState, Usage
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.model.plan import NoPlan, Plan
from clearway.model.preemptor import Preemptor
from clearway.model.problem import Action
from clearway.model.report import Waiting
from clearway.planning.base import Planner
from clearway.preemption.batch import SolveAlone, decide_batch, under_way_beside
from clearway.preemption.detection import preemptors
from clearway.preemption.opportunistic import ordinary_preemptors
from clearway.preemption.plan import Solution, decide, free_already, solve_alone
from clearway.preemption.replanning import planning_context
from clearway.preemption.suppression import left_alone, why_left_alone
from clearway.preemption.validation import over_budget, plan_misfit
from clearway.slurm.base import SlurmBackend
from clearway.store.base import Store

# With enough free nodes Slurm starts the job itself; only when it has not done so by then does Clearway step in.
_SLURM_HAS_ITS_TURN_S = 15.0


# A node that is brought back takes jobs when it has answered slurmctld's next ping. Nobody has to leave instead.
_ANSWERS_WITHIN_S = 3.0


_TOGETHER_S = 1.0  # of one cycle, to plan for several urgent jobs at once


@dataclass(frozen=True, slots=True)
class _Cycle:
    """What all decisions of one cycle go by."""

    snapshot: ClusterSnapshot
    config: Config
    now: datetime
    left_alone: Mapping[str, int]


# For whom; and what the cluster was seen to be just before, where the eviction is to be begun at once.
_Stored = tuple[Preemptor, Eviction, ClusterSnapshot | None]


@dataclass(frozen=True, slots=True)
class MakingRoom:
    """Plans evictions and begins them; the executor carries them on."""

    backend: SlurmBackend
    store: Store
    operations: OpenOperations
    executor: Executor
    planner: Planner
    clock: Clock
    emit: Emit
    memory: Memory
    actions: Mapping[str, Action]  # of the checkpointers that jobs may name

    def look(self, snapshot: ClusterSnapshot, config: Config, now: datetime, *, paused: bool) -> tuple[Waiting, ...]:
        """Everybody who waits, the first deadline first, and what was made of it."""
        cycle = _Cycle(snapshot, config, now, left_alone(self.store))
        by_preemptor = self.operations.by_preemptor()
        waiting = []
        fresh: list[Preemptor] = []
        for preemptor in preemptors(snapshot, config.preemptors, self._placements()):
            eviction = by_preemptor.get(preemptor.job.job_id)
            if eviction is not None:
                waiting.append(_served(preemptor, eviction))
                continue
            why = why_left_alone(preemptor.job, cycle.left_alone) or ("paused" if paused else None)
            if why is not None:
                waiting.append(Waiting(preemptor, None, why))
                continue
            fresh.append(preemptor)
        waiting += self._plan_for(fresh, cycle)
        if config.eternal.partitions and not paused:
            waiting += self._let_eternal_jobs_make_room(waiting, cycle)
        return tuple(sorted(waiting, key=lambda each: (each.preemptor.deadline, each.preemptor.job.job_id)))

    def usage(self, now: datetime) -> Usage:
        """What was taken from jobs in the last hour, which the budget limits."""
        return self.store.usage_since(now - timedelta(hours=1))

    def _placements(self) -> frozenset[str]:
        return frozenset(e.placement for e in self.operations.all() if e.placement)

    def _let_eternal_jobs_make_room(self, urgent: Sequence[Waiting], cycle: _Cycle) -> Iterator[Waiting]:
        """For ordinary jobs, after all urgent ones."""
        by_preemptor = self.operations.by_preemptor()
        fresh = []
        for preemptor in ordinary_preemptors(
            cycle.snapshot,
            cycle.config.eternal,
            cycle.config.preemptors,
            cycle.now,
            urgent=[each.preemptor for each in urgent if each.eviction_id is None],
            served=by_preemptor.keys(),
            left_alone=lambda job: why_left_alone(job, cycle.left_alone) is not None,
            placements=self._placements(),
        ):
            eviction = by_preemptor.get(preemptor.job.job_id)
            if eviction is None:
                fresh.append(preemptor)
            else:
                yield _served(preemptor, eviction)
        yield from self._plan_for(fresh, cycle)

    def _plan_for(self, fresh: Sequence[Preemptor], cycle: _Cycle) -> Iterator[Waiting]:
        """Plan for all of them together and begin.

        Who is planned for after others has its turn at once where nothing is carried out for those, and while there
        is time; else it waits for a cycle.
        """
        if not fresh:
            return
        ends = self.clock.monotonic() + _TOGETHER_S
        context = planning_context(cycle.snapshot, cycle.config, cycle.now, self.store, self.memory, self.actions)
        claimed: list[Plan] = []
        while fresh:
            began = self.clock.monotonic()
            decided = decide_batch(
                fresh,
                self._consideration(context, tuple(claimed)),
                cycle.snapshot,
                self.planner,
                cycle.now,
                lambda: ends - self.clock.monotonic(),
            )
            claimed += [plan for _, plan in decided.plans if isinstance(plan, Plan)]
            told, begun, changed = self._store_all(decided.plans, context, cycle)
            yield from told
            yield from self._begin(begun, cycle, began)
            fresh = decided.later
            if changed or any(e.state.acting for _, e, _ in begun) or self.clock.monotonic() >= ends:
                yield from (Waiting(preemptor, None, decided.why_later) for preemptor in fresh)
                return

    def _store_all(
        self, plans: Sequence[tuple[Preemptor, Plan | NoPlan]], context: PlanningContext, cycle: _Cycle
    ) -> tuple[list[Waiting], list[_Stored], bool]:
        """All intents, before anything is done; after a plan that does not fit any more the others wait for a cycle.

        Those who wait for something else; the evictions; and whether the cluster changed meanwhile.
        """
        told = []
        begun: list[_Stored] = []
        changed = False
        for preemptor, plan in plans:
            if isinstance(plan, NoPlan):
                told.append(Waiting(preemptor, None, plan.why))
                continue
            why = self._no_need(preemptor, plan, context, cycle)
            if why:
                told.append(Waiting(preemptor, None, why))
                continue
            stored = None if changed else self._store_plan(plan, cycle)
            if stored is None:
                changed = True
                told.append(Waiting(preemptor, None, "the cluster changed while the plan was made"))
                continue
            begun.append((preemptor, *stored))
        return told, begun, changed

    def _begin(self, begun: Sequence[_Stored], cycle: _Cycle, began: float) -> Iterator[Waiting]:
        """Who counts on another one's jobs is placed before that one lets them go.

        Slurm would start that one on any of the nodes that become free, as long as nobody's placement keeps them.
        """
        for preemptor, planned, seen in reversed(begun):
            eviction = planned
            if seen is not None:
                eviction = self.executor.advance(planned, Observed(seen, ()), cycle.now)
            self.emit(PlanMade(eviction, self.clock.monotonic() - began))
            yield _served(preemptor, eviction)

    def _no_need(self, preemptor: Preemptor, plan: Plan, context: PlanningContext, cycle: _Cycle) -> str:
        """Why a plan is not worth storing; empty where it is."""
        if preemptor.ordinary and not plan.preemptees:
            return "enough nodes are free; Slurm starts it in its turn"
        slurms_turn = (cycle.now - preemptor.job.submit_time).total_seconds() < _SLURM_HAS_ITS_TURN_S
        if slurms_turn and free_already(plan, cycle.snapshot):
            return "enough nodes are free; Slurm has its turn"
        if plan.leaving and self._nobody_need_leave(preemptor, context, cycle):
            return "a node that was just brought back is free in a moment"
        return ""

    def _nobody_need_leave(self, preemptor: Preemptor, context: PlanningContext, cycle: _Cycle) -> bool:
        """Whether nobody had to leave if the nodes took jobs that this daemon brought back within the last seconds."""
        lately = self.executor.brought_back_since(cycle.now - timedelta(seconds=_ANSWERS_WITHIN_S))
        silent = {node.name for node in cycle.snapshot.nodes if node.name in lately and not node.available}
        if not silent:
            return False
        nodes = tuple(replace(node, available=node.available or node.name in silent) for node in cycle.snapshot.nodes)
        under_way = under_way_by(self.operations.all(), preemptor.deadline)
        soon = replace(context, snapshot=replace(cycle.snapshot, nodes=nodes), under_way=under_way)
        plan = decide(preemptor, soon, self.planner)
        return isinstance(plan, Plan) and not plan.leaving

    def _consideration(self, context: PlanningContext, claimed: Sequence[Plan]) -> SolveAlone:
        """``claimed`` are plans for those who had their turn before."""

        def solve_one(preemptor: Preemptor, *, whole: bool = False, beside: Sequence[Plan] = ()) -> Solution | NoPlan:
            under_way = under_way_by(self.operations.all(), preemptor.deadline)
            under_way = under_way_beside(under_way, (*claimed, *beside), preemptor.deadline)
            return solve_alone(preemptor, replace(context, under_way=under_way), self.planner, whole=whole)

        return solve_one

    def _store_plan(self, plan: Plan, cycle: _Cycle) -> tuple[Eviction, ClusterSnapshot | None] | None:
        """Store a plan, with a fresh snapshot where it is to be begun at once; None when it does not fit any more."""
        mode = cycle.config.daemon.mode
        budget = over_budget(plan, self.usage(cycle.now), cycle.config.budget)
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
            if excluded or plan_misfit(plan, fresh, promised_by(self.operations.all())):
                return None
        eviction = self.operations.create(
            fresh_operation(
                Eviction,
                plan,
                mode.value,
                state,
                cycle.now,
                outcome=Outcome(OutcomeCode.NEEDS_APPROVAL, budget) if budget and mode is not Mode.OBSERVE else None,
            )
        )
        return eviction, fresh


def _served(preemptor: Preemptor, eviction: Eviction) -> Waiting:
    return Waiting(preemptor, eviction.eviction_id, eviction.outcome or eviction.state.value)
