"""Where the commands read from and ask: answers have the form of the REST API, wherever they come from."""

from typing import Protocol

from clearway.api.plan_schemas import ExplanationView, VerdictView
from clearway.api.report_schemas import AuditCheckView, AuditView, ReportView
from clearway.api.schemas import (
    CalibrationView,
    EvictionList,
    EvictionView,
    LeaderList,
    RequestView,
    RollingList,
    RollingView,
    RollingWhatIf,
    StepList,
    WalltimeAdviceView,
    WhatIfView,
)
from clearway.api.status_schemas import StatusView
from clearway.drain.request import DrainRequest
from clearway.model.audit import AuditKind
from clearway.model.orders import MoveKind
from clearway.model.requests import RequestKind


class Source(Protocol):
    """Every call raises ``ClearwayError`` (one line) where there is no answer, or it is a refusal."""

    def status(self) -> StatusView: ...

    def evictions(self, state: str | None, limit: int) -> EvictionList:
        """Newest first; ``state`` as the API's parameter has it."""

    def promises(self, limit: int) -> EvictionList:
        """Newest first."""

    def eviction(self, eviction_id: int) -> EvictionView: ...

    def verdicts(self, eviction_id: int) -> tuple[VerdictView, ...]:
        """All of them."""

    def steps(self, eviction_id: int) -> StepList: ...

    def explanation(self, eviction_id: int) -> ExplanationView: ...

    def leaders(self, limit: int) -> LeaderList: ...

    def calibration(self, limit: int) -> CalibrationView: ...

    def report(self, since: str) -> ReportView:
        """``since``: how far to look back, such as 7d."""

    def walltime_advice(self, user: str, name: str) -> WalltimeAdviceView: ...

    def rolling_drains(self, limit: int) -> RollingList: ...

    def rolling_drain(self, rolling_id: int) -> RollingView: ...

    def audit(self, limit: int, kind: AuditKind | None, actor: str | None) -> tuple[AuditView, ...]:
        """Newest first."""

    def audit_check(self) -> AuditCheckView: ...

    def what_if(self, nodes: int, max_delay_s: float, partition: str | None) -> WhatIfView: ...

    def drain_what_if(self, wish: DrainRequest) -> WhatIfView: ...

    def rolling_what_if(self, wish: DrainRequest) -> RollingWhatIf: ...

    def moves_what_if(self, kind: MoveKind) -> WhatIfView: ...

    def ask(
        self, kind: RequestKind, eviction_id: int | None = None, *, document: str = "", rolling_id: int | None = None
    ) -> int:
        """Stores a request for the daemon; returns its number."""

    def request(self, request_id: int) -> RequestView: ...
