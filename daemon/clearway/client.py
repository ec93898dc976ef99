"""The REST API for Python programs, and for the command line on machines that do not reach the database.

    from clearway.client import Client

    with Client.from_environment() as clearway:
        for each in clearway.status().waiting:
            print(each.job_id, each.left_s)

Answers are the API's schemas. Nothing here knows the daemon, its database or Slurm.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from clearway.api import report_schemas, schemas
from clearway.api.job_schemas import JobView
from clearway.api.report_schemas import AuditCheckView, AuditList, AuditView, CalibrationView, LeaderList, StatusView
from clearway.api.schemas import EvictionList, ExplanationView, RollingList, VerdictList, VerdictView
from clearway.drain.request import DrainRequest
from clearway.model.audit import AuditKind
from clearway.model.errors import ClearwayError
from clearway.model.orders import MoveKind
from clearway.model.requests import RequestKind

URL, TOKEN, TOKEN_FILE = "CLEARWAY_URL", "CLEARWAY_TOKEN", "CLEARWAY_TOKEN_FILE"
_LIMIT_S, _HEALTH_S = 60.0, 5.0
_PAGE = 100  # items; what every list of the API gives at a time
_TRIES = 4  # of a request that found the daemon busy
_LONGEST_WAIT_S = 5.0
_PATHS = {
    RequestKind.APPROVE: "evictions/{eviction_id}/approve",
    RequestKind.CANCEL: "evictions/{eviction_id}/cancel",
    RequestKind.CANCEL_ROLLING: "rolling-drains/{rolling_id}/cancel",
    RequestKind.COMPACT: "compactions",
    RequestKind.PROMOTE: "promotions",
}
_PATHS |= {kind: f"{kind.value}s" for kind in (RequestKind.DRAIN, RequestKind.UNDRAIN, RequestKind.PROMISE)}
_PATHS |= {kind: kind.value for kind in (RequestKind.PAUSE, RequestKind.RESUME, RequestKind.HALT, RequestKind.UNHALT)}

T = TypeVar("T", bound=BaseModel)
L = TypeVar("L", CalibrationView, EvictionList, LeaderList, RollingList, VerdictList)


class ApiError(ClearwayError):
    """The daemon refuses (``status``, its own sentence), or does not answer (0)."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class SilentError(ApiError):
    """Something takes the connection, or may, and then says nothing for as long as was waited."""


class Client:
    """One daemon, for one thread at a time. ``url``: https://HOST:PORT, http://HOST:PORT or unix:PATH.

    ``authority``: a file with a certificate to believe beside the system's. Every method raises ``ApiError``.
    """

    def __init__(
        self, url: str, token: str = "", *, authority: Path | None = None, http: httpx.Client | None = None
    ) -> None:
        self.url = url
        self._http = http or _connected(url, authority)
        if token:
            self._http.headers["Authorization"] = f"Bearer {token}"

    @classmethod
    def from_environment(cls) -> Self:
        """By CLEARWAY_URL, and CLEARWAY_TOKEN or the file that CLEARWAY_TOKEN_FILE names."""
        url = os.environ.get(URL, "")
        if not url:
            raise ApiError(0, f"{URL} does not say where the daemon answers, such as https://host:8642")
        file = os.environ.get(TOKEN_FILE)
        return cls(url, os.environ.get(TOKEN) or (read_token(Path(file)) if file else ""))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def health(self) -> report_schemas.Health:
        """What the daemon says without a token, within seconds."""
        return self._answer(report_schemas.Health, lambda: self._http.get("/health", timeout=_HEALTH_S))

    def status(self) -> StatusView:
        return self._get(StatusView, "status")

    def evictions(self, state: str | None = None, limit: int = _PAGE) -> EvictionList:
        """Newest first; ``state`` is planned, active, past or one state."""
        return self._list(EvictionList, "evictions", limit, state=state)

    def promises(self, limit: int = _PAGE) -> EvictionList:
        return self._list(EvictionList, "promises", limit)

    def eviction(self, eviction_id: int) -> schemas.EvictionView:
        return self._get(schemas.EvictionView, f"evictions/{eviction_id}")

    def job(self, job_id: str) -> JobView:
        """By its display id, such as 4711, 4700_11 or 4700+1."""
        return self._get(JobView, f"jobs/{quote(job_id)}")

    def verdicts(self, eviction_id: int) -> tuple[VerdictView, ...]:
        """All of them, those of the jobs that leave first."""
        return self._list(VerdictList, f"evictions/{eviction_id}/verdicts", None).items

    def steps(self, eviction_id: int) -> schemas.StepList:
        return self._get(schemas.StepList, f"evictions/{eviction_id}/steps")

    def explanation(self, eviction_id: int) -> ExplanationView:
        return self._get(ExplanationView, f"evictions/{eviction_id}/explanation")

    def leaders(self, limit: int = _PAGE) -> LeaderList:
        return self._list(LeaderList, "leaders", limit)

    def calibration(self, limit: int = _PAGE) -> CalibrationView:
        return self._list(CalibrationView, "calibration", limit)

    def report(self, since: str = "7d") -> report_schemas.ReportView:
        """On urgent jobs; ``since``: how far to look back, such as 7d."""
        return self._get(report_schemas.ReportView, "report", since=since)

    def walltime_advice(self, user: str, name: str) -> report_schemas.WalltimeAdviceView:
        return self._get(report_schemas.WalltimeAdviceView, "walltime/advice", user=user, name=name)

    def rolling_drains(self, limit: int = _PAGE) -> RollingList:
        return self._list(RollingList, "rolling-drains", limit)

    def rolling_drain(self, rolling_id: int) -> schemas.RollingView:
        return self._get(schemas.RollingView, f"rolling-drains/{rolling_id}")

    def audit(
        self, limit: int = _PAGE, kind: AuditKind | None = None, actor: str | None = None
    ) -> tuple[AuditView, ...]:
        """Newest first; of this kind and actor alone where they are given."""
        found: list[AuditView] = []
        page: AuditList | None = None
        while page is None or (len(found) < limit and page.next_before is not None):
            page = self._get(AuditList, "audit", limit=_PAGE, before=page and page.next_before)
            found += [e for e in page.items if kind in (None, e.kind) and actor in (None, e.actor)]
        return tuple(found[:limit])

    def audit_check(self) -> AuditCheckView:
        return self._get(AuditCheckView, "audit/check")

    def what_if(self, nodes: int, max_delay_s: float, partition: str | None = None) -> schemas.WhatIfView:
        """For an urgent job of so many whole nodes."""
        return self.preview({"nodes": nodes, "max_delay": max_delay_s, "partition": partition})

    def preview(self, question: Mapping[str, Any]) -> schemas.WhatIfView:
        return self._post(schemas.WhatIfView, "what-if", json.dumps(question))

    def drain_what_if(self, wish: DrainRequest) -> schemas.WhatIfView:
        return self._post(schemas.WhatIfView, "drains/what-if", wish.model_dump_json())

    def rolling_what_if(self, wish: DrainRequest) -> schemas.RollingWhatIf:
        return self._post(schemas.RollingWhatIf, "rolling-drains/what-if", wish.model_dump_json())

    def moves_what_if(self, kind: MoveKind) -> schemas.WhatIfView:
        return self._post(schemas.WhatIfView, f"{kind.value}s/what-if")

    def ask(
        self, kind: RequestKind, eviction_id: int | None = None, *, document: str = "", rolling_id: int | None = None
    ) -> int:
        """Store a request for the daemon's next cycle; its number. ``document``: what it is about, as JSON."""
        if kind not in _PATHS:
            raise ApiError(0, f"{kind.value} cannot be asked for over REST: run it beside the database")
        path = _PATHS[kind].format(eviction_id=eviction_id, rolling_id=rolling_id)
        return self._post(schemas.RequestView, path, document).request_id

    def test_preemption(self, job_id: str) -> int:
        return self._post(schemas.RequestView, f"jobs/{quote(job_id)}/test-preemption").request_id

    def request(self, request_id: int) -> schemas.RequestView:
        return self._get(schemas.RequestView, f"requests/{request_id}")

    def _get(self, schema: type[T], path: str, **parameters: Any) -> T:
        given = {name: value for name, value in parameters.items() if value is not None}
        return self._answer(schema, lambda: self._http.get(f"/api/v1/{path}", params=given))

    def _post(self, schema: type[T], path: str, document: str = "") -> T:
        headers = {"Content-Type": "application/json"}
        sent: dict[str, Any] = {"content": document.encode(), "headers": headers} if document else {}
        return self._answer(schema, lambda: self._http.post(f"/api/v1/{path}", **sent))

    def _list(self, schema: type[L], path: str, limit: int | None, **parameters: Any) -> L:
        """The first ``limit`` items of all pages; None: all there are."""
        pages: list[L] = []
        offset: int | None = 0
        while offset is not None and (limit is None or offset < limit):
            wanted = _PAGE if limit is None else min(_PAGE, limit - offset)
            pages.append(self._get(schema, path, limit=wanted, offset=offset, **parameters))
            offset = pages[-1].next_offset
        items = tuple(each for page in pages for each in page.items)
        return pages[0].model_copy(update={"items": items, "next_offset": offset})

    def _answer(self, schema: type[T], send: Callable[[], httpx.Response]) -> T:
        try:
            answer = send()
            for _ in range(_TRIES - 1):
                if answer.status_code != httpx.codes.TOO_MANY_REQUESTS:
                    break
                wait = answer.headers.get("Retry-After", "")
                time.sleep(min(_LONGEST_WAIT_S, float(wait) if wait.isdigit() else 1.0))
                answer = send()
        except httpx.TimeoutException:
            raise SilentError(0, f"{self.url} gives no answer in time") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ApiError(0, f"{self.url} does not answer: {error or type(error).__name__}") from None
        if answer.is_error:
            raise ApiError(answer.status_code, _refusal(answer))
        try:
            return schema.model_validate_json(answer.content)
        except ValidationError:
            raise ApiError(answer.status_code, f"{self.url} answers, but not as this version of Clearway") from None


def read_token(file: Path) -> str:
    """The token in a file of one line. Raises ``ApiError``, never with what the file holds."""
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it holds something other than ASCII"
        raise ApiError(0, f"{file}: the token cannot be read: {why}") from None


def _connected(url: str, authority: Path | None) -> httpx.Client:
    if url.startswith("unix:"):
        transport = httpx.HTTPTransport(uds=url.removeprefix("unix:"))
        return httpx.Client(base_url="http://localhost", transport=transport, timeout=_LIMIT_S)
    if not url.startswith(("http://", "https://")):
        raise ApiError(0, f"the daemon's address must be such as https://host:8642 or unix:PATH, not {url[:80]!r}")
    context = httpx.create_ssl_context()
    if authority is not None:
        try:
            context.load_verify_locations(authority)
        except OSError as error:  # ssl.SSLError is one
            raise ApiError(0, f"{authority}: cannot be used: {error.strerror or error}") from None
    return httpx.Client(base_url=url, verify=context, timeout=_LIMIT_S)


def _refusal(answer: httpx.Response) -> str:
    try:
        detail = answer.json()["detail"]
    except (ValueError, KeyError, TypeError):
        detail = None
    told = detail if isinstance(detail, str) else f"the daemon answers {answer.status_code} {answer.reason_phrase}"
    unknown = answer.status_code == httpx.codes.UNAUTHORIZED
    return f"{told} (set {TOKEN}, or run it where `scontrol token` works)" if unknown else told
