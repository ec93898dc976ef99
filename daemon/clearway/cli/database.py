"""What the commands read and ask on a machine that reaches the database, in the form of the REST API."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice

from clearway.api import report_schemas, schemas, views
from clearway.api.report_schemas import StatusView
from clearway.api.schemas import ExplanationView, VerdictView
from clearway.bootstrap import checkpointer_actions, open_backend, open_planner
from clearway.cli import asker
from clearway.config.configuration import Config
from clearway.drain.lifecycle import plan_drain
from clearway.drain.request import DrainRequest, chosen_nodes
from clearway.drain.rolling import preview
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import under_way_by
from clearway.estimates.history import HistoryKeeper, RunKey
from clearway.execution.lifecycle import not_ours_to_drain
from clearway.model.audit import AuditKind
from clearway.model.clock import SystemClock
from clearway.model.durations import parse_duration_s
from clearway.model.errors import ClearwayError, DrainError
from clearway.model.operations import STATE_GROUPS, EvictionState
from clearway.model.orders import DrainOrder, MoveKind
from clearway.model.plan import NoPlan, Plan
from clearway.model.requests import RequestKind
from clearway.preemption.detection import imagined, usual_partition
from clearway.preemption.plan import decide
from clearway.relocation.controller import jobs_left
from clearway.relocation.plan import plan_moves
from clearway.store.repository import Store
from clearway.telemetry.log import configure_logging

_PAGE = 100  # entries of the audit trail


def plan_eviction(config: Config, nodes: int, max_delay_s: float, partition: str | None) -> Plan | NoPlan:
    """For an urgent job that does not exist. Earlier preemptions do not count: the question needs no database."""
    context = _fresh(config)
    partition = partition or usual_partition(context.snapshot, config.preemptors)
    return decide(imagined(nodes, max_delay_s, (partition,), context.now), context, open_planner(config))


def _fresh(config: Config) -> PlanningContext:
    configure_logging("text", quiet=True)  # standard output is for the answer alone
    with closing(open_backend(config, SystemClock())) as backend:
        snapshot = backend.snapshot()
    return PlanningContext(snapshot=snapshot, config=config, now=snapshot.taken_at, actions=checkpointer_actions())


@dataclass(frozen=True, slots=True)
class Database:
    """What commands ask of ``clearway.client.Client``. Whoever may read the database sees everything in it."""

    store: Store
    config: Config

    def status(self) -> StatusView:
        return views.read_status(self.store, asker.now(), self.config.daemon)

    def evictions(self, state: str | None, limit: int) -> schemas.EvictionList:
        states = None if state is None else STATE_GROUPS.get(state) or (EvictionState(state),)
        found = self.store.evictions(states=states, limit=limit + 1)
        return views.page(schemas.EvictionList, tuple(map(views.summary, found)), views.Page(limit))

    def promises(self, limit: int) -> schemas.EvictionList:
        return views.promise_list(self.store, views.Page(limit))

    def eviction(self, eviction_id: int) -> schemas.EvictionView:
        return views.eviction_view(self.store.eviction(eviction_id), self.store)

    def verdicts(self, eviction_id: int) -> tuple[VerdictView, ...]:
        return views.verdict_views(self.store.eviction(eviction_id))

    def steps(self, eviction_id: int) -> schemas.StepList:
        self.store.eviction(eviction_id)  # raises where there is none
        steps = self.store.steps(eviction_id)
        return schemas.StepList(items=tuple(schemas.StepView.model_validate(step) for step in steps))

    def explanation(self, eviction_id: int) -> ExplanationView:
        found, explained = self.store.eviction(eviction_id), self.store.explanation(eviction_id)
        if explained is None:
            why = "the daemon explains plans between its cycles"
            raise ClearwayError(f"eviction {eviction_id} is not explained yet: {why}")
        return views.explanation_view(eviction_id, found.plan, explained)

    def leaders(self, limit: int) -> report_schemas.LeaderList:
        return views.leader_list(self.store, views.Page(limit))

    def calibration(self, limit: int) -> report_schemas.CalibrationView:
        history = HistoryKeeper(self.store).history(self.config)
        return views.calibration_view(history, history.keys, asker.now(), views.Page(limit))

    def report(self, since: str) -> report_schemas.ReportView:
        return views.urgent_report(self.store, parse_duration_s(since), asker.now())

    def walltime_advice(self, user: str, name: str) -> report_schemas.WalltimeAdviceView:
        found = views.advice(user, name, self.store.runs_of(RunKey(user, name)))
        if found is None:
            raise ClearwayError(f"no job {name!r} of user {user!r} has been seen to end")
        return found

    def rolling_drains(self, limit: int) -> schemas.RollingList:
        return views.rolling_list(self.store, views.Page(limit))

    def rolling_drain(self, rolling_id: int) -> schemas.RollingView:
        found = self.store.rolling_drain(rolling_id)
        if found is None:
            raise DrainError(f"no rolling drain {rolling_id}")
        return views.rolling_view(found)

    def audit(self, limit: int, kind: AuditKind | None, actor: str | None) -> tuple[report_schemas.AuditView, ...]:
        return tuple(islice(self._entries({"kind": kind, "actor": actor}), limit))

    def _entries(self, wanted: dict[str, str | None]) -> Iterator[report_schemas.AuditView]:
        before: int | None = None
        while page := self.store.audit_trail(limit=_PAGE, before=before):
            for row in page:
                document = row.document()
                if all(value is None or document.get(name) == value for name, value in wanted.items()):
                    yield views.audit_view(row)
            before = page[-1].sequence

    def audit_check(self) -> report_schemas.AuditCheckView:
        return report_schemas.AuditCheckView.model_validate(self.store.check_audit())

    def what_if(self, nodes: int, max_delay_s: float, partition: str | None) -> schemas.WhatIfView:
        return views.what_if_view(asker.now(), plan_eviction(self.config, nodes, max_delay_s, partition))

    def drain_what_if(self, wish: DrainRequest) -> schemas.WhatIfView:
        order, context = self._order(wish)
        if why := not_ours_to_drain(order.nodes, context.snapshot):
            raise DrainError(why)
        return views.what_if_view(asker.now(), plan_drain(order, context, open_planner(self.config)))

    def rolling_what_if(self, wish: DrainRequest) -> schemas.RollingWhatIf:
        order, context = self._order(wish)
        planner = open_planner(self.config)
        found = preview(order, wish.rolling or 1, context.snapshot, lambda each: plan_drain(each, context, planner))
        return views.view(schemas.RollingWhatIf, found, taken_at=asker.now(), skipped=dict(found.skipped))

    def moves_what_if(self, kind: MoveKind) -> schemas.WhatIfView:
        context = self._informed()
        jobs = jobs_left(kind, self.store, self.config, context.now)
        return views.what_if_view(asker.now(), plan_moves(kind, context, jobs=jobs, actor=asker.actor()))

    def _order(self, wish: DrainRequest) -> tuple[DrainOrder, PlanningContext]:
        wish.check_times(datetime.now(UTC))
        context = self._informed()
        return wish.order(chosen_nodes(wish.nodes, context.snapshot), asker.actor()), context

    def _informed(self) -> PlanningContext:
        fresh = _fresh(self.config)
        return replace(
            fresh,
            preempted=self.store.preemption_counts(fresh.snapshot.holders),
            under_way=under_way_by(self.store.open_evictions()),
            history=HistoryKeeper(self.store).history(self.config),
        )

    def ask(
        self, kind: RequestKind, eviction_id: int | None = None, *, document: str = "", rolling_id: int | None = None
    ) -> int:
        return self.store.add_request(kind, eviction_id, asker.actor(), asker.now(), document, rolling_id)

    def request(self, request_id: int) -> schemas.RequestView:
        found = self.store.request(request_id)
        if found is None:
            raise ClearwayError(f"no request {request_id}")
        return schemas.RequestView.model_validate(found)
