"""The source of a machine that reaches the database: what the daemon has stored, in the form of the REST API."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta

from clearway.api import audit_schemas, schemas, views
from clearway.api.plan_schemas import ExplanationView, VerdictView
from clearway.api.report_schemas import ReportView, report_view
from clearway.api.status import read_status
from clearway.api.status_schemas import StatusView
from clearway.cli import dry_run, options
from clearway.config.configuration import Config
from clearway.drain.request import DrainRequest
from clearway.estimates.history import read_history
from clearway.estimates.run_times import RunKey, advice_on, sentence
from clearway.model.audit import AuditKind, AuditRow
from clearway.model.durations import parse_duration_s
from clearway.model.errors import ClearwayError, DrainError
from clearway.model.operations import STATE_GROUPS, EvictionState, OperationKind
from clearway.model.orders import MoveKind
from clearway.model.requests import RequestKind
from clearway.model.urgent_report import MOST_CASES
from clearway.store.base import Store
from clearway.telemetry.report import report

_PAGE = 100


@dataclass(frozen=True, slots=True)
class Database:
    """Implements ``cli.source.Source``. Whoever may read the database sees everything in it."""

    store: Store
    config: Config

    def status(self) -> StatusView:
        return read_status(self.store, options.now(), self.config.daemon)

    def evictions(self, state: str | None, limit: int) -> schemas.EvictionList:
        states = None if state is None else STATE_GROUPS.get(state) or (EvictionState(state),)
        found = self.store.evictions(states=states, limit=limit + 1)
        items = tuple(views.eviction_summary(each, schemas.EvictionSummary) for each in found[:limit])
        return schemas.EvictionList(items=items, next_offset=limit if len(found) > limit else None)

    def promises(self, limit: int) -> schemas.EvictionList:
        found = self.store.evictions(kind=OperationKind.PROMISE, limit=limit + 1)
        items = tuple(views.eviction_summary(each, schemas.EvictionSummary) for each in found[:limit])
        return schemas.EvictionList(items=items, next_offset=limit if len(found) > limit else None)

    def eviction(self, eviction_id: int) -> schemas.EvictionView:
        return views.eviction_view(self.store.eviction(eviction_id), self.store)

    def verdicts(self, eviction_id: int) -> tuple[VerdictView, ...]:
        return views.verdict_views(self.store.eviction(eviction_id))

    def steps(self, eviction_id: int) -> schemas.StepList:
        self.store.eviction(eviction_id)  # raises where there is none
        steps = (schemas.StepView.model_validate(step) for step in self.store.steps(eviction_id))
        return schemas.StepList(items=tuple(steps))

    def explanation(self, eviction_id: int) -> ExplanationView:
        found, explained = self.store.eviction(eviction_id), self.store.explanation(eviction_id)
        if explained is None:
            raise ClearwayError(
                f"eviction {eviction_id} is not explained yet: the daemon explains plans between its cycles"
            )
        return views.explanation_view(eviction_id, found.plan, explained)

    def leaders(self, limit: int) -> schemas.LeaderList:
        found = self.store.leaders(limit=limit + 1)
        items = tuple(schemas.LeaderView.model_validate(each) for each in found[:limit])
        return schemas.LeaderList(items=items, next_offset=limit if len(found) > limit else None)

    def calibration(self, limit: int) -> schemas.CalibrationView:
        history = read_history(self.store, self.config)
        return views.calibration_view(history, history.keys, options.now(), limit, 0)

    def report(self, since: str) -> ReportView:
        now = options.now()
        at = now - timedelta(seconds=parse_duration_s(since))
        found = self.store.cases_since(at, MOST_CASES + 1)
        return report_view(report(found[:MOST_CASES], at, now, more=len(found) > MOST_CASES))

    def walltime_advice(self, user: str, name: str) -> schemas.WalltimeAdviceView:
        found = advice_on(self.store.runs_of(RunKey(user, name)))
        if found is None:
            raise ClearwayError(f"no job {name!r} of user {user!r} has been seen to end")
        return schemas.WalltimeAdviceView(user=user, app=name, advice=sentence(found), **asdict(found))

    def rolling_drains(self, limit: int) -> schemas.RollingList:
        found = self.store.rolling_drains(limit=limit + 1)
        items = tuple(views.view(schemas.RollingView, each, each.order) for each in found[:limit])
        return schemas.RollingList(items=items, next_offset=limit if len(found) > limit else None)

    def rolling_drain(self, rolling_id: int) -> schemas.RollingView:
        found = self.store.rolling_drain(rolling_id)
        if found is None:
            raise DrainError(f"no rolling drain {rolling_id}")
        return views.view(schemas.RollingView, found, found.order)

    def audit(self, limit: int, kind: AuditKind | None, actor: str | None) -> tuple[audit_schemas.AuditView, ...]:
        found: list[audit_schemas.AuditView] = []
        for row in self._trail():
            document = row.document()
            if (kind is None or document.get("kind") == kind) and (actor is None or document.get("actor") == actor):
                found.append(audit_schemas.audit_view(row))
                if len(found) == limit:
                    break
        return tuple(found)

    def _trail(self) -> Iterator[AuditRow]:
        """Newest first."""
        before: int | None = None
        while page := self.store.audit_trail(limit=_PAGE, before=before):
            yield from page
            before = page[-1].sequence

    def audit_check(self) -> audit_schemas.AuditCheckView:
        return audit_schemas.AuditCheckView.model_validate(self.store.check_audit())

    def what_if(self, nodes: int, max_delay_s: float, partition: str | None) -> schemas.WhatIfView:
        return views.what_if_view(options.now(), dry_run.eviction(self.config, nodes, max_delay_s, partition))

    def drain_what_if(self, wish: DrainRequest) -> schemas.WhatIfView:
        return views.what_if_view(options.now(), dry_run.drain(self.config, self.store, wish))

    def rolling_what_if(self, wish: DrainRequest) -> schemas.RollingWhatIf:
        found = dry_run.rolling_drain(self.config, self.store, wish)
        return views.view(schemas.RollingWhatIf, found, taken_at=options.now(), skipped=dict(found.skipped))

    def moves_what_if(self, kind: MoveKind) -> schemas.WhatIfView:
        return views.what_if_view(options.now(), dry_run.moves(kind, self.config, self.store))

    def ask(
        self, kind: RequestKind, eviction_id: int | None = None, *, document: str = "", rolling_id: int | None = None
    ) -> int:
        return self.store.add_request(kind, eviction_id, options.actor(), options.now(), document, rolling_id)

    def request(self, request_id: int) -> schemas.RequestView:
        found = self.store.request(request_id)
        if found is None:
            raise ClearwayError(f"no request {request_id}")
        return schemas.RequestView.model_validate(found)
