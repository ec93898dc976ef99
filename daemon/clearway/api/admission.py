"""What stands before the routes: how much callers may hold at once, by which names, and what every answer has.

Each kind of request has a lane, which answers some requests at a time, each with one worker thread at most, and lets
some more wait; more than that is answered 429 at once. All lanes together have as many threads as there are: metrics
and operators are answered however many read or ask for what-if plans. Health needs no thread and no lane.

A request enters its lane when it has been read whole, and leaves it before its answer is sent: a slow peer holds no
place. Streams alone hold theirs to their end.
"""

import asyncio
import hashlib
import ipaddress
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from enum import StrEnum
from http import HTTPStatus
from typing import NamedTuple

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Lane(StrEnum):
    METRICS = "metrics"
    OPERATORS = "operators"  # changes by callers who say who they are
    READING = "reading"  # everything else
    WHAT_IF = "what_if"
    LISTENING = "listening"  # streams: a thread until the asker is known, then none


class Places(NamedTuple):
    """Of one lane: requests that are answered at a time, and how many more may wait."""

    threads: int
    waiting: int

    @property
    def of_peer(self) -> int:
        return max(1, sum(self) // 2)  # so that another address finds a place


# What-if plans take a processor each, and the loop needs one. Metrics are refused to nobody: a connection asks for one
# thing at a time, and there are no more of them.
PLACES = {
    Lane.METRICS: Places(2, 254),
    Lane.OPERATORS: Places(4, 28),
    Lane.READING: Places(4, 60),
    Lane.WHAT_IF: Places(1, 0),
    Lane.LISTENING: Places(1, 63),
}
THREADS = sum(places.threads for places in PLACES.values())
_NAMING = (b"authorization", b"x-clearway-page")  # a token, or what a proxy adds a user's name to
_HEALTH = ("/health", "/liveness")
RETRY_AFTER_S = 1
REFUSED = "clearway.refused"  # in the scope of a request that found no place
MEDIA_TYPE = "application/problem+json"  # RFC 9457


def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """One line of text, whatever the detail holds."""
    title = HTTPStatus(status).phrase if status in set(HTTPStatus) else "error"
    document = {"title": title, "status": status, "detail": " ".join(detail.split())}
    return JSONResponse(document, status, headers, MEDIA_TYPE)


def lane_of(scope: Scope) -> Lane | None:
    """By path and method alone: who the caller is, the routes find out. None: what needs no lane."""
    path, reads = scope["path"], scope["method"] in ("GET", "HEAD")
    if path in _HEALTH:
        return None
    if path == "/metrics":
        return Lane.METRICS
    if path.endswith("/stream"):
        return Lane.LISTENING
    if not reads and path.endswith("/what-if"):
        return Lane.WHAT_IF
    named = any(name in _NAMING for name, _ in scope["headers"])
    return Lane.READING if reads or not named else Lane.OPERATORS


class _Middleware:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app


class Lanes(_Middleware):
    """``refused`` is told the lane of each request that finds no place."""

    def __init__(self, app: ASGIApp, refused: Callable[[Lane], None] = lambda _: None) -> None:
        super().__init__(app)
        self._refused = refused
        self._turns = {lane: asyncio.Semaphore(places.threads) for lane, places in PLACES.items()}
        self._inside: Counter[Lane] = Counter()
        self._of_peer: Counter[tuple[Lane, str]] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        lane = lane_of(scope) if scope["type"] == "http" else None
        if lane is None:
            await self._app(scope, receive, send)
            return
        peer, places = (scope.get("client") or ("",))[0], PLACES[lane]
        if self._inside[lane] >= sum(places) or self._of_peer[lane, peer] >= places.of_peer:
            self._refused(lane)
            scope[REFUSED] = True
            why, wait = "too many requests of this kind are being answered; try again", str(RETRY_AFTER_S)
            await problem(429, why, {"Retry-After": wait})(scope, receive, send)
            return
        turn, answer = AsyncExitStack(), list[Message]()

        async def pass_on(message: Message) -> None:
            """A stream is sent as it comes, and keeps its place to its end; its turn ends when its answer begins."""
            await turn.aclose()
            await send(message)

        async def keep(message: Message) -> None:
            answer.append(message)

        self._inside[lane] += 1
        self._of_peer[lane, peer] += 1
        try:
            async with turn:
                await turn.enter_async_context(self._turns[lane])
                await self._app(scope, receive, pass_on if lane is Lane.LISTENING else keep)
        finally:
            self._inside[lane] -= 1
            self._of_peer[lane, peer] -= 1
            if not self._of_peer[lane, peer]:
                del self._of_peer[lane, peer]
        for message in answer:
            await send(message)


class BoundedBody(_Middleware):
    """Reads the whole body first, and refuses one that is larger than ``largest``, whether or not it says so before."""

    def __init__(self, app: ASGIApp, largest: int) -> None:
        super().__init__(app)
        self._largest = largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        body, more = bytearray(), True
        too_large = announced.isdigit() and int(announced) > self._largest
        while more and not too_large:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more, too_large = message.get("more_body", False), len(body) > self._largest
        if too_large:
            # The rest of the body is not read: the connection must not be used again.
            close = {"Connection": "close"}
            await problem(413, f"a body may have {self._largest} bytes", close)(scope, receive, send)
            return
        whole: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def read() -> Message:
            return whole.pop() if whole else await receive()

        await self._app(scope, read, send)


_STREAM = "/stream"  # has no end, so no length and no tag


def _reads(scope: Scope, method: str) -> bool:
    return scope["type"] == "http" and scope["method"] == method and not scope["path"].endswith(_STREAM)


class Heads(_Middleware):
    """HEAD is answered as GET is, without the body."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def bodiless(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        if _reads(scope, "HEAD"):
            await self._app({**scope, "method": "GET"}, receive, bodiless)
        else:
            await self._app(scope, receive, send)


class Gzip(GZipMiddleware):
    """For an asker that accepts it; a stream is sent as it comes."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        plain = scope["type"] == "http" and scope["path"].endswith(_STREAM)
        await (self.app if plain else super().__call__)(scope, receive, send)


class Tags(_Middleware):
    """An answer to GET has a weak ETag, of the content and not of its encoding; 304 for who has it (If-None-Match)."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _reads(scope, "GET"):
            await self._app(scope, receive, send)
            return
        lines = Headers(scope=scope).getlist("if-none-match")
        given = {tag.strip().removeprefix("W/") for line in lines for tag in line.split(",")}  # compared weakly
        start: Message = {}
        body = bytearray()

        async def tagged(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
                return
            body.extend(message.get("body", b""))
            if message.get("more_body", False):
                return
            whole = bytes(body)
            headers = MutableHeaders(raw=list(start["headers"]))
            if start["status"] == 200 and "ETag" not in headers:  # the page's files have tags of their own
                tag = f'W/"{hashlib.blake2b(whole, digest_size=16).hexdigest()}"'
                headers["ETag"] = tag
                headers.setdefault("Cache-Control", "private, no-cache")
                if tag.removeprefix("W/") in given:
                    del headers["Content-Length"]
                    whole = b""
                    start["status"] = 304
                start["headers"] = headers.raw
            await send(start)
            await send({"type": "http.response.body", "body": whole})

        await self._app(scope, receive, tagged)


class KnownHosts(_Middleware):
    """421 for a Host header with a name that is not among ``names`` (in small letters; None: any)."""

    def __init__(self, app: ASGIApp, names: frozenset[str] | None) -> None:
        super().__init__(app)
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._app
        if scope["type"] == "http" and self._names is not None:
            given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
            if not all(_is_known(value, self._names) for value in given):
                why = "the Host header names another host; see api.allowed_hosts"
                answer = problem(421, why, {"Connection": "close"})
        await answer(scope, receive, send)


def _is_known(given: str, names: frozenset[str]) -> bool:
    if given.startswith("["):
        host = given[1:].partition("]")[0]
    else:
        host = given.rpartition(":")[0] if given.rpartition(":")[2].isdigit() and ":" in given else given
    if host.lower().rstrip(".") in names:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
