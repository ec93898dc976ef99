"""The lifecycle of evictions: the pure table, joined with the plan that is made when one does not hold any more."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from clearway.config.configuration import Config
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import UnderWay, under_way_for_replan
from clearway.estimates.history import HistoryKeeper
from clearway.execution.lifecycle import Observed, Phase
from clearway.execution.open_operations import OpenOperations
from clearway.model.cluster import ClusterSnapshot, JobState
from clearway.model.operations import Eviction, Operation
from clearway.model.plan import NoPlan, Plan
from clearway.model.problem import Action
from clearway.planning.base import Planner
from clearway.preemption.detection import preemptors
from clearway.preemption.lifecycle import EvictionTable
from clearway.preemption.opportunistic import ordinary
from clearway.preemption.plan import decide
from clearway.preemption.validation import over_budget


@dataclass(frozen=True, slots=True)
class EvictionLifecycle(EvictionTable):
    """``actions``: of the checkpointers that jobs may name."""

    config: Config
    operations: OpenOperations
    planner: Planner
    history: HistoryKeeper
    actions: Mapping[str, Action]

    def replan(
        self, e: Eviction, stuck: Mapping[str, str], observed: Observed, others: Sequence[Operation], now: datetime
    ) -> Plan | Phase | None:
        """A plan for what an eviction still needs; without one the preemptor waits, which is told once."""
        plan = self._plan(e, under_way_for_replan(e, others, stuck.keys()), observed.snapshot, now)
        if plan is not None or e.late:
            return plan
        reasons = "; ".join(f"{what}: {why}" for what, why in sorted(stuck.items()))
        text = f"Not all nodes will be free in time ({reasons}), and no other plan is possible: it waits."
        return Phase(e.state, event=text, late=True)

    def _plan(self, e: Eviction, under_way: UnderWay, snapshot: ClusterSnapshot, now: datetime) -> Plan | None:
        seen = snapshot.job_by_id.get(e.preemptor.job_id)
        if seen is None or seen.state is not JobState.PENDING:
            return None
        config, own = self.config, frozenset({e.placement})
        found = preemptors(replace(snapshot, jobs=(seen,)), config.preemptors, own)
        if not found and config.eternal.partitions:
            found = (ordinary(seen, config.eternal, now, own, snapshot.topology),)
        if not found:
            return None
        known = planning_context(snapshot, config, now, self.operations, self.history, self.actions)
        plan = decide(found[0], replace(known, under_way=under_way), self.planner)
        usage = self.operations.usage(now)
        return None if isinstance(plan, NoPlan) or over_budget(plan, usage, config.budget) else plan


def planning_context(
    snapshot: ClusterSnapshot,
    config: Config,
    now: datetime,
    operations: OpenOperations,
    history: HistoryKeeper,
    actions: Mapping[str, Action],
) -> PlanningContext:
    """What every decision of a cycle goes by, with nothing under way."""
    return PlanningContext(
        snapshot=snapshot,
        config=config,
        now=now,
        preempted=operations.preemption_counts(snapshot),
        under_way=UnderWay(),
        history=history.history(config),
        actions=actions,
    )
