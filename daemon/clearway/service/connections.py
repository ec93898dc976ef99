"""Bounds what connections to the API may hold: how many there are, of each peer too, and for how long one may idle.

A connection is *answering* from when its request has been read whole until the answer is written. Any other one holds
nothing that is missed: one that waits for its first byte, for the rest of a request or for the next one, and one whose
peer does not read. Where there are too many, the one of these that has been so for longest is closed, so that idle
connections never keep a new one out. ``clearway.api.admission`` bounds those that answer; one whose request it refused
is read again after ``RETRY_AFTER_S``, so that callers who ask without a break cost little.
"""

import asyncio
import socket
import struct
from collections.abc import Iterable
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from clearway.api.admission import REFUSED, RETRY_AFTER_S

MOST = 256  # connections; each needs a file descriptor and some 20 KiB
MOST_OF_PEER = 128  # of one address; every caller on the daemon's own machine is one peer
PATIENCE_S = 20.0  # for a whole request, and for its answer to be taken
NEXT_REQUEST_S = 5  # for the next request of a connection


class BoundedConnection(H11Protocol):
    """A connection that knows whether it answers, and since when it does not."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.client = self.client or _user_of(transport)
        self.quiet_since = self.loop.time()
        for each in surplus(cast("set[BoundedConnection]", self.connections), self):
            each.transport.abort()

    def on_response_complete(self) -> None:
        self.quiet_since = self.loop.time()
        if self.scope.get(REFUSED):
            self.flow.pause_reading()
            self.loop.call_later(RETRY_AFTER_S, super().on_response_complete)
        else:
            super().on_response_complete()

    @property
    def peer(self) -> str:
        """The address of the other end; on a socket in the file system its user, as unix:UID."""
        return self.client[0] if self.client else ""

    @property
    def answering(self) -> bool:
        cycle = self.cycle
        read_whole = cycle is not None and not cycle.more_body
        return read_whole and not cycle.response_complete and not self.flow.write_paused


def _user_of(transport: asyncio.Transport) -> tuple[str, int] | None:
    """On a socket in the file system: the user of the process that has connected, as the kernel saw it then."""
    opened = transport.get_extra_info("socket")
    if opened is None or opened.family != socket.AF_UNIX:
        return None
    _, uid, _ = struct.unpack("3i", opened.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return f"unix:{uid}", 0


def surplus(connections: Iterable[BoundedConnection], new: BoundedConnection) -> list[BoundedConnection]:
    """Which to close now that there is a new one: of its peer's if these are too many, else of all.

    The new one itself where all others answer.
    """
    everyone = list(connections)
    of_peer = [each for each in everyone if each.peer == new.peer]
    crowd = of_peer if len(of_peer) > MOST_OF_PEER else everyone if len(everyone) > MOST else []
    quiet = [each for each in crowd if each is not new and not each.answering]
    return [min(quiet, key=lambda each: each.quiet_since, default=new)] if crowd else []


def close_idle(connections: Iterable[Any], now: float) -> None:
    """Close those that have not been answering for ``PATIENCE_S``; ``now`` is the event loop's time in seconds."""
    for each in list(connections):
        if not each.answering and now - each.quiet_since > PATIENCE_S:
            each.transport.abort()
