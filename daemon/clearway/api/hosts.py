"""Refuses requests that were meant for another host.

A web page can have its own name resolve to this machine (DNS rebinding), and its visitor's browser then sends requests
here that the page may read. The browser names the page's host, which is none of ours. An address in place of a name
cannot come about in this way.
"""

import ipaddress

from starlette.types import ASGIApp, Receive, Scope, Send

from clearway.api.problems import problem


class KnownHosts:
    """Middleware: 421 for a Host header with a name that is not among ``names`` (in small letters; None: any)."""

    def __init__(self, app: ASGIApp, names: frozenset[str] | None) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._names is not None:
            given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
            if not all(_known(value, self._names) for value in given):
                refused = problem(
                    421, "the Host header names another host; see api.allowed_hosts", {"Connection": "close"}
                )
                await refused(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _known(given: str, names: frozenset[str]) -> bool:
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
