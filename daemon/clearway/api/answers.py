"""What HTTP promises of every answer that only reads: HEAD, gzip, an ETag, and 304 where nothing has changed since."""

import hashlib
from collections.abc import Iterator

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_DIGEST_BYTES = 16
_STREAM = "/stream"  # has no end, so no length and no tag


def _reads(scope: Scope, method: str) -> bool:
    return scope["type"] == "http" and scope["method"] == method and not scope["path"].endswith(_STREAM)


class Heads:
    """Middleware: HEAD is answered as GET is, without the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _reads(scope, "HEAD"):
            await self._app(scope, receive, send)
            return

        async def bodiless(message: Message) -> None:
            if message["type"] == "http.response.body":
                message["body"] = b""
            await send(message)

        await self._app({**scope, "method": "GET"}, receive, bodiless)


class Gzip(GZipMiddleware):
    """Middleware: for an asker that accepts it; a stream is sent as it comes."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        plain = scope["type"] == "http" and scope["path"].endswith(_STREAM)
        await (self.app if plain else super().__call__)(scope, receive, send)


class Tags:
    """Middleware: an answer to GET has an ETag, and is 304 for an asker that has it (If-None-Match).

    The tag is one of the content, so it is weak: another encoding has the same. What was asked for has been done by
    then; saved is the way, and the asker's work.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _reads(scope, "GET"):
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).getlist("if-none-match")
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
                tag = f'W/"{hashlib.blake2b(whole, digest_size=_DIGEST_BYTES).hexdigest()}"'
                headers["ETag"] = tag
                headers.setdefault("Cache-Control", "private, no-cache")
                if tag in _tags(given):
                    del headers["Content-Length"]
                    whole = b""
                    start["status"] = 304
                start["headers"] = headers.raw
            await send(start)
            await send({"type": "http.response.body", "body": whole})

        await self._app(scope, receive, tagged)


def _tags(given: list[str]) -> Iterator[str]:
    """Compared weakly, as If-None-Match is."""
    for line in given:
        for tag in map(str.strip, line.split(",")):
            yield tag if tag.startswith("W/") else f"W/{tag}"
