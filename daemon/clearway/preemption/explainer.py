"""Explains evictions in the pauses between cycles, so that no cycle waits for an explanation.

Level-triggered like everything else: what has no explanation in the database is worked on, the oldest first, one
solution at a time, until the pause is over, the loop is woken, or the plan has had its share of time; then what was
found is stored. A restart begins anew. A plan whose explanation fails is not tried again before the next start.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from clearway.model.clock import Clock
from clearway.model.events import Emit, PlanExplained
from clearway.model.operations import Operation
from clearway.planning.base import Planner
from clearway.preemption.explanation import Explaining
from clearway.store.base import Store

_LOOKS_BACK = timedelta(hours=1)  # older plans are history: no explanation of them is expected

PlanKey = tuple[int, int]  # eviction id, revision


class Explainer:
    """Holds the explanation in the making; everything else is in the store. ``emit`` is told of each that is stored."""

    def __init__(self, store: Store, planner: Planner, clock: Clock, emit: Emit) -> None:
        self._store, self._planner, self._clock, self._emit = store, planner, clock, emit
        self._at: tuple[Operation, Explaining] | None = None
        self._spent_s = 0.0
        self._begun: set[PlanKey] = set()

    def work(self, now: datetime, limit_s: float, go_on: Callable[[], bool]) -> None:
        """Explain while ``go_on`` says so; ``limit_s`` is what one plan may take altogether (0: none is explained)."""
        while limit_s > 0 and go_on():
            if self._at is None and not self._begin(now):
                return
            assert self._at is not None  # noqa: S101 - just begun
            eviction, explaining = self._at
            began = self._clock.monotonic()
            try:
                more = explaining.step()
            except BaseException:
                self._at = None
                raise
            self._spent_s += self._clock.monotonic() - began
            if not more or self._spent_s >= limit_s:
                self._at = None
                explanation = explaining.result()
                self._store.explain_plan(eviction.eviction_id, eviction.revision, explanation)
                self._emit(PlanExplained(eviction, explanation))

    def unexplained(self, now: datetime) -> tuple[int, ...]:
        """Evictions whose plans have no explanation yet, by whichever daemon."""
        return self._store.unexplained(now - _LOOKS_BACK)

    def _begin(self, now: datetime) -> bool:
        for eviction_id in self.unexplained(now):
            eviction = self._store.eviction(eviction_id)
            key = (eviction_id, eviction.revision)
            if key not in self._begun:
                self._begun.add(key)
                self._at, self._spent_s = (eviction, Explaining(eviction.plan, self._planner)), 0.0
                return True
        return False
