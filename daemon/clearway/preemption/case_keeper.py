"""Keeps the cases of the report in step with operations and snapshots: written only where one has changed.

What is in memory may be lost: the open cases are read again, and what was planned meanwhile begins a case then.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from clearway.execution.cycle_context import CycleContext
from clearway.execution.open_operations import OpenOperations
from clearway.model.operations import Eviction
from clearway.model.urgent_report import Beside, Case
from clearway.planning.rules import SLURM_DEFAULT
from clearway.preemption.cases import acted, case_of, followed
from clearway.store.base import Store

MOST_OPEN = 1_000  # cases that are followed at a time; beyond them none is begun
_ASKED_EVERY = timedelta(seconds=10)
_EXPLAINED_WITHIN = timedelta(hours=2)  # of older plans no explanation is to come


@dataclass(slots=True)
class CaseKeeper:
    store: Store
    operations: OpenOperations
    _open: dict[str, Case] | None = field(default=None, init=False)  # by job id; None: to be read
    _asked_at: datetime | None = field(default=None, init=False)

    def forget(self) -> None:
        """Another daemon may write now."""
        self._open = None

    def follow(self, context: CycleContext) -> None:
        if self._open is None:
            self._open = {case.job_id: case for case in self.store.open_cases()}
        now = context.now
        ask = self._asked_at is None or not timedelta(0) <= now - self._asked_at < _ASKED_EVERY
        if ask:
            self._asked_at = now
        for e in self.operations.all():
            if isinstance(e, Eviction) and not e.plan.ordinary and e.preemptor.job_id not in self._open:
                if context.database_full or len(self._open) >= MOST_OPEN:
                    break
                self._keep(case_of(e))
        evictions = self.operations.by_preemptor()
        after: list[tuple[Case, Case]] = []
        for before in tuple(self._open.values()):
            newest = evictions.get(before.job_id)
            if before.acted and before.over and newest is not None and newest.eviction_id != before.eviction_id:
                self._keep(replace(before, closed_at=now))  # the next cycle begins another one, beside its losses
                continue
            case = self._planned(before, newest)
            case = followed(case, context.snapshot, now, planned=newest is not None)
            after.append((before, case))
        due = (case for _, case in after if case.closed_at or (ask and now - case.planned_at < _EXPLAINED_WITHIN))
        besides = self._besides(case for case in due if case.beside is None)
        for before, case in after:
            compared = replace(case, beside=case.beside or besides.get(case.eviction_id))
            if compared != before:
                self._keep(compared)

    def _planned(self, case: Case, newest: Eviction | None) -> Case:
        """With what is carried out for it."""
        if newest is not None and acted(newest):
            return case_of(newest, case)
        if case.acted and not case.over:
            known = self.operations.find(case.eviction_id)
            if isinstance(known, Eviction):
                return case_of(known, case)
            return replace(case, over=True)
        return case

    def _besides(self, cases: Iterable[Case]) -> dict[int, Beside]:
        """By eviction. Both costs are of one problem: that of the plan that was explained."""
        wanted = {case.eviction_id for case in cases}
        explained = self.store.explanations(wanted) if wanted else {}
        return {
            eviction_id: Beside(found.cost.lost_work_node_s, None if rule.cost is None else rule.cost.lost_work_node_s)
            for eviction_id, found in explained.items()
            for rule in found.rules
            if rule.rule == SLURM_DEFAULT.name
        }

    def _keep(self, case: Case) -> None:
        assert self._open is not None  # noqa: S101 - read before
        self.store.keep_case(case)
        if case.closed_at is None:
            self._open[case.job_id] = case
        else:
            self._open.pop(case.job_id, None)
