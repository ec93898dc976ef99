"""The lifecycle of drains: the pure table, joined with the plan that is made of the jobs seen on the nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from clearway.config.configuration import Config
from clearway.drain.lifecycle import DrainTable
from clearway.drain.plan import plan_drain
from clearway.eligibility.under_way import UnderWay, under_way_for_replan
from clearway.estimates.history import HistoryKeeper
from clearway.execution.lifecycle import Observed, Phase, call_off
from clearway.model.cluster import ClusterSnapshot
from clearway.model.operations import Drain, Operation, PreemptionState
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.model.plan import DrainPlan, NoPlan
from clearway.model.problem import Action
from clearway.planning.base import Planner


@dataclass(frozen=True, slots=True)
class DrainLifecycle(DrainTable):
    """``actions``: of the checkpointers that jobs may name."""

    config: Config
    planner: Planner
    history: HistoryKeeper
    actions: Mapping[str, Action]

    def replan(
        self, e: Drain, stuck: Mapping[str, str], observed: Observed, others: Sequence[Operation], now: datetime
    ) -> DrainPlan | Phase | None:
        """The first plan is made here as well, and where there can be none the drain is called off."""
        if observed.snapshot.unreadable:
            return None
        plan = self._plan(e, under_way_for_replan(e, others, stuck.keys()), observed.snapshot, now)
        return call_off(e, Outcome(OutcomeCode.NOT_POSSIBLE, plan.why)) if isinstance(plan, NoPlan) else plan

    def _plan(self, e: Drain, under_way: UnderWay, snapshot: ClusterSnapshot, now: datetime) -> DrainPlan | NoPlan:
        failed = [p.job.display_id for p in e.preemptions if p.state is PreemptionState.FAILED]
        if failed:
            return NoPlan(f"job {failed[0]} does not leave its nodes")
        open_ones = [p for p in e.preemptions if p.state.cancellable]
        # A kill was the last resort: a job past saving is not asked once more because of another one.
        killed = {p.job_id for p in open_ones if p.action is Action.KILL}
        asked = {p.job_id for p in open_ones if p.asked_at is not None}
        return plan_drain(
            e.order,
            snapshot,
            self.config,
            self.planner,
            now,
            under_way=replace(under_way, avoid=frozenset(killed) | (under_way.avoid & asked)),
            history=self.history.history(self.config),
            actions=self.actions,
        )
