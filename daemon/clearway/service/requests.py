"""What operators ask over REST and the command line, answered by the loop: decision 0007."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from clearway.config.configuration import Config
from clearway.drain.controller import Drains
from clearway.drain.request import DrainRequest, read_request
from clearway.drain.rolling_controller import RollingDrains
from clearway.execution.executor import Executor
from clearway.execution.open_operations import OpenOperations
from clearway.model.cluster import ClusterSnapshot
from clearway.model.errors import ClearwayError
from clearway.model.events import Emit, PlanMade
from clearway.model.operations import Eviction, EvictionState, Operation
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.model.requests import Request
from clearway.model.transitions import entered
from clearway.preemption.suppression import leave_alone
from clearway.relocation.controller import REQUESTS, Moves
from clearway.slurm.parse.hostlist import short
from clearway.store.base import Store

PAUSED = "paused"
_PAUSED = ", when the pause is over (clearway resume)"


@dataclass(frozen=True)
class Desk:
    """Answers requests in the order in which they came; one that is refused says why, and changes nothing."""

    store: Store
    operations: OpenOperations
    executor: Executor
    drains: Drains
    moves: Moves
    rolling: RollingDrains
    emit: Emit

    def answer_all(self, snapshot: ClusterSnapshot, config: Config, now: datetime) -> None:
        for request in self.store.pending_requests():
            handled = request
            try:
                handled = self._answer(request, snapshot, config, now)
            except ClearwayError as error:
                handled = replace(request, result=f"refused: {error}")
            self.store.finish_request(request.request_id, now, handled.result, handled.eviction_id, handled.rolling_id)

    def _answer(self, request: Request, snapshot: ClusterSnapshot, config: Config, now: datetime) -> Request:
        """The request with its result, and the eviction or the rolling drain that it began."""
        if request.kind == "drain":
            return self._drain(request, snapshot, config, now)
        if request.kind in REQUESTS:
            return self.moves.ask(request, snapshot, config, now)
        if request.kind == "undrain":
            return replace(request, result=self.drains.undrain(request, snapshot, config, now))
        if request.kind in ("pause", "resume"):
            self.store.set_value(PAUSED, request.kind == "pause")
            return replace(request, result="paused" if request.kind == "pause" else "resumed")
        if request.kind == "cancel_rolling":
            return replace(request, result=self.rolling.cancel(request))
        return replace(request, result=self._of_eviction(request, now))

    def _drain(self, request: Request, snapshot: ClusterSnapshot, config: Config, now: datetime) -> Request:
        wish = read_request(DrainRequest, request.document)
        if wish.rolling is not None:
            rolling = self.rolling.order(request, wish, snapshot, config, now)
            size = f"{len(rolling.turns)} node(s), {rolling.at_once} at once"
            return replace(request, rolling_id=rolling.rolling_id, result=f"rolling drain {rolling.rolling_id}: {size}")
        eviction = self.drains.drain(request, wish, snapshot, config, now)
        self.emit(PlanMade(eviction))
        begins = f"emptying {short(eviction.plan.placement_nodes)}" + (_PAUSED if self.store.get_value(PAUSED) else "")
        result = f"drain {eviction.eviction_id}: {eviction.outcome or begins}"
        return replace(request, eviction_id=eviction.eviction_id, result=result)

    def _of_eviction(self, request: Request, now: datetime) -> str:
        if request.eviction_id is None:
            return "refused: it names no eviction"
        eviction = self.operations.get(request.eviction_id)
        if request.kind == "approve":
            return self._approve(eviction, request.actor, now)
        if request.kind == "cancel":
            return self._cancel(eviction, request.actor, now)
        return f"refused: unknown request {request.kind}"

    def _approve(self, eviction: Operation, actor: str, now: datetime) -> str:
        if eviction.state is not EvictionState.AWAITING_APPROVAL:
            return f"refused: eviction {eviction.eviction_id} is {eviction.state.value}"
        told = {"outcome": "", "outcome_code": None, "why": ""}
        approved = entered(eviction, EvictionState.PLACING, now, approved_by=actor, **told)
        self.operations.save(approved)
        self.store.add_event(eviction.eviction_id, None, now, f"Approved by {actor}.")
        return "approved"

    def _cancel(self, eviction: Operation, actor: str, now: datetime) -> str:
        before_start = eviction.started_at is None and eviction.state is not EvictionState.CANCELLING
        if eviction.state.terminal or not before_start:
            return f"refused: eviction {eviction.eviction_id} is {eviction.state.value}"
        if isinstance(eviction, Eviction):
            leave_alone(self.store, eviction)
        else:
            self.rolling.leave_out(eviction, f"Its drain was cancelled by {actor}")
        self.executor.cancel(eviction, now, Outcome(OutcomeCode.CANCELLED, f"Cancelled by {actor}"))
        return "cancelled"
