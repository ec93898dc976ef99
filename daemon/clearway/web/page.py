"""Serves the page: a few hundred kilobytes of files, read once at the start, to whoever asks.

They hold no data. What the page shows it reads over REST, with the token of whoever looks at it. Everything is
addressed relative to the page, so it also works below a proxy's path.
"""

import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fastapi import FastAPI, HTTPException, Request, Response

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
# Nothing from elsewhere, and no script or style in a page or an attribute: text that a user wrote never runs.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # asked about each time, and answered 304: a new release shows at once
}


class File(NamedTuple):
    content: bytes
    kind: str
    etag: str


@cache
def shipped() -> dict[str, File]:
    """Every file of the page, by its path below ``static``."""
    static = Path(__file__).parent / "static"
    found = {}
    for file in filter(Path.is_file, static.rglob("*")):
        content, kind = file.read_bytes(), _TYPES.get(file.suffix, _TYPES[".txt"])
        found[str(file.relative_to(static))] = File(content, kind, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
    return found


def mount(app: FastAPI) -> None:
    """Add the page to the application; it takes no part in what REST documents."""
    shipped()

    # async: they take no worker thread.
    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def index(request: Request) -> Response:
        return _answer(request, "index.html")

    @app.api_route("/static/{path:path}", methods=["GET", "HEAD"], include_in_schema=False)
    async def static(request: Request, path: str) -> Response:
        return _answer(request, path)


def _answer(request: Request, path: str) -> Response:
    """Only what was found at the start is served, by its whole path: no path leads out of the folder."""
    file = shipped().get(path)
    if file is None:
        raise HTTPException(404, "the page has no such file")
    headers = {**HEADERS, "ETag": file.etag}
    if file.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.kind)
