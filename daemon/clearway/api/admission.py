"""What stands before the routes: by which names callers address the daemon, how large a request may be, and what every
answer has. ``lanes`` bounds how many there are.
"""

import hashlib
import ipaddress
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MEDIA_TYPE = "application/problem+json"  # RFC 9457


def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """One line of text, whatever the detail holds."""
    title = HTTPStatus(status).phrase if status in set(HTTPStatus) else "error"
    document = {"title": title, "status": status, "detail": " ".join(detail.split())}
    return JSONResponse(document, status, headers, MEDIA_TYPE)


class Middleware:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app


LARGEST_HEAD = 16 * 1024  # bytes: request line and headers; a token of an identity provider has some 2,000


class BoundedHead(Middleware):
    """431 for more than ``LARGEST_HEAD`` of request line and headers."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._app
        if scope["type"] == "http" and _head_of(scope) > LARGEST_HEAD:
            why = f"request line and headers may have {LARGEST_HEAD} bytes"
            answer = problem(431, why, {"Connection": "close"})
        await answer(scope, receive, send)


def _head_of(scope: Scope) -> int:
    line = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
    return line + sum(len(name) + len(value) + 4 for name, value in scope["headers"])


class BoundedBody(Middleware):
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


class Heads(Middleware):
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


class Tags(Middleware):
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


class KnownHosts(Middleware):
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
