"""Where the API listens: a port, with TLS or without, or a socket in the file system; and what connections hold."""

import asyncio
import contextlib
import os
import resource
import socket
import ssl
import stat
import struct
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from clearway.api.admission import LARGEST_HEAD, MEDIA_TYPE, problem
from clearway.api.context import Feed
from clearway.api.lanes import REFUSED, RETRY_AFTER_S
from clearway.config.access import ApiConfig
from clearway.model.errors import ConfigError

_SOCKET_MODE = 0o660  # the daemon's user and group; the folder may be stricter


@dataclass(frozen=True, slots=True)
class Listener:
    socket: socket.socket
    config: ApiConfig
    tls: ssl.SSLContext | None

    @property
    def address(self) -> str:
        if self.config.socket is not None:
            return f"unix:{self.config.socket}"
        host, port = self.socket.getsockname()[:2]
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    @property
    def in_the_clear(self) -> bool:
        """Whether tokens can be read on their way: neither TLS, nor this machine alone."""
        if self.tls is not None or self.config.socket is not None:
            return False
        return not _is_loopback(str(self.socket.getsockname()[0]))

    def reload(self) -> None:
        """Take a renewed certificate for new connections. Raises ``ConfigError``: the old one stays."""
        if self.tls is not None:
            _context(self.config)  # first in one that nobody uses: a key that does not fit would stay in ours
            _load(self.tls, self.config)

    def close(self) -> None:
        self.socket.close()
        if self.config.socket is not None:
            with contextlib.suppress(OSError):
                self.config.socket.unlink()


def listen(config: ApiConfig) -> Listener:
    """Bound before anything else starts, so that what is taken is told at once. Raises ``ConfigError``."""
    tls = None if config.certificate is None or config.socket is not None else _context(config)
    bound = _bind(config.host, config.port) if config.socket is None else _bind_path(config.socket)
    return Listener(bound, config, tls)


def known_hosts(config: ApiConfig) -> frozenset[str] | None:
    """The names by which callers may address the daemon, in small letters; None: any."""
    if "*" in config.allowed_hosts:
        return None
    names = {"localhost", config.host, socket.gethostname(), *config.allowed_hosts}
    if config.socket is None and not _is_loopback(config.host):
        names.add(socket.getfqdn())
    return frozenset(name.lower().rstrip(".") for name in names)


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _bind(host: str, port: int) -> socket.socket:
    with contextlib.ExitStack() as unless_bound:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, kind, protocol, _, address = found[0]
            # With its protocol: else asyncio leaves Nagle's algorithm on, and every answer waits 40 ms for an ACK.
            bound = unless_bound.enter_context(socket.socket(family, kind, protocol))
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError as error:
            raise ConfigError(f"api: cannot listen on {host} port {port}: {error.strerror or error}") from None
        unless_bound.pop_all()
    return bound


def _bind_path(path: Path) -> socket.socket:
    """A socket that a daemon has left behind is replaced, one on which a daemon listens is not."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.exists() and stat.S_ISSOCK(path.lstat().st_mode) and not _answers(path):
            path.unlink()
        before = os.umask(0o777 & ~_SOCKET_MODE)
        try:
            bound.bind(str(path))
        finally:
            os.umask(before)
    except OSError as error:
        bound.close()
        raise ConfigError(f"api.socket: cannot listen on {path}: {error.strerror or error}") from None
    return bound


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(str(path)) == 0


def check_certificate(config: ApiConfig) -> None:
    if config.certificate is not None:
        _context(config)


def _context(config: ApiConfig) -> ssl.SSLContext:
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(made, config)
    return made


def _load(context: ssl.SSLContext, config: ApiConfig) -> None:
    certificate, key = config.certificate, config.certificate_key
    if certificate is None or key is None:
        raise ConfigError("api: certificate and certificate_key go together")
    try:
        mode = stat.S_IMODE(key.stat().st_mode)
        if mode & stat.S_IRWXO:
            raise ConfigError(f"{key}: mode {mode:04o} lets others read the key; use 0600, or 0640")
        # A key with a password would be asked for on a terminal that a daemon does not have.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except ssl.SSLError as error:
        raise ConfigError(f"api: {certificate} and {key} cannot be used for TLS: {error.reason or error}") from None
    except OSError as error:
        raise ConfigError(f"api: {error.filename or key}: cannot be read: {error.strerror}") from None


# Connections; each needs a file descriptor and some 20 KiB. There are many, for who has opened one is known only when
# its request has been read: were few allowed of one address, a crowd behind it would have those of the others closed.
MOST = 2_000
MOST_OF_PEER = 1_500  # of one address; every caller on the daemon's own machine is one peer
_OTHER_FILES = 1_000
PATIENCE_S = 20.0  # for a whole request, and for its answer to be taken
NEXT_REQUEST_S = 5  # for the next request of a connection
_LAST_REQUESTS_S = 5  # how long open requests may take when the daemon stops


def _files() -> int:
    """How many files this process may have open; as many as the site allows, up to what is needed here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST + _OTHER_FILES
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


class Crowd:
    """Open connections by peer, those that have been quiet for longest first."""

    def __init__(self) -> None:
        self._of: dict[str, OrderedDict[BoundedConnection, None]] = {}
        self._total = 0
        self._most = min(MOST, max(100, _files() - _OTHER_FILES))

    def add(self, new: "BoundedConnection") -> None:
        self._of.setdefault(new.peer, OrderedDict())[new] = None
        self._total += 1

    def quiet(self, connection: "BoundedConnection") -> None:
        """It has been answered, and is quiet from now on."""
        own = self._of.get(connection.peer)
        if own is not None and connection in own:
            own.move_to_end(connection)

    def discard(self, gone: "BoundedConnection") -> None:
        own = self._of.get(gone.peer)
        if own is None or gone not in own:
            return
        del own[gone]
        self._total -= 1
        if not own:
            del self._of[gone.peer]

    def surplus(self, new: "BoundedConnection") -> "BoundedConnection | None":
        """What to close for a new one: of its peer's if too many, else of those of the peer that has the most; itself
        where all others answer. Asked for each new connection, so it looks at few.
        """
        own = self._of[new.peer]
        if len(own) <= min(MOST_OF_PEER, self._most) and self._total <= self._most:
            return None
        crowd = own if len(own) > MOST_OF_PEER else max(self._of.values(), key=len)
        return next((each for each in crowd if each is not new and not each.answering), new)


class BoundedConnection(H11Protocol):
    """Bounds what connections to the API may hold: how many there are, of each peer too, and for how long one may idle.
    One is *answering* from when its request has been read whole until the answer is written. Where there are too many,
    one of the peer with the most is closed, that has been quiet for longest: idle ones never keep a new one out. One
    whose request ``clearway.api.lanes`` refused is read again after ``RETRY_AFTER_S``.
    """

    crowd: Crowd  # of the server

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.client = self.client or _user_of(transport)
        self.quiet_since = self.loop.time()
        self.crowd.add(self)
        if (surplus := self.crowd.surplus(self)) is not None:
            self.crowd.discard(surplus)
            surplus.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.crowd.discard(self)

    def on_response_complete(self) -> None:
        self.quiet_since = self.loop.time()
        self.crowd.quiet(self)
        if self.scope.get(REFUSED):
            self.flow.pause_reading()
            self.loop.call_later(RETRY_AFTER_S, super().on_response_complete)
        else:
            super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """h11 tells where a head was too long; uvicorn calls this while it handles that."""
        error = sys.exc_info()[1]
        if not isinstance(error, h11.RemoteProtocolError) or error.error_status_hint != 431:
            super().send_400_response(msg)
            return
        headers = [(b"content-type", MEDIA_TYPE.encode()), (b"connection", b"close")]
        body = bytes(problem(431, f"request line and headers may have {LARGEST_HEAD} bytes").body)
        response = h11.Response(status_code=431, headers=headers, reason=b"Request Header Fields Too Large")
        for event in (response, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    @property
    def peer(self) -> str:
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


def close_idle(connections: Iterable[Any], now: float) -> None:
    """Close those that have not been answering for ``PATIENCE_S``; ``now`` is the event loop's time in seconds."""
    for each in list(connections):
        if not each.answering and now - each.quiet_since > PATIENCE_S:
            each.transport.abort()


class HttpServer(uvicorn.Server):
    """uvicorn without its own signal handlers, and with a tick for ours, from when it answers."""

    def __init__(self, app: object, tick: Callable[[], None], feed: Feed, tls: ssl.SSLContext | None) -> None:
        config = uvicorn.Config(
            app,  # type: ignore[arg-type]  # any ASGI application
            log_config=None,
            access_log=False,
            http=type("Connection", (BoundedConnection,), {"crowd": Crowd()}),
            ws="none",
            loop="asyncio",
            lifespan="on",
            proxy_headers=False,
            server_header=False,
            h11_max_incomplete_event_size=LARGEST_HEAD,
            timeout_keep_alive=NEXT_REQUEST_S,
            timeout_graceful_shutdown=_LAST_REQUESTS_S,
        )
        config.load()
        config.ssl = tls  # uvicorn's own takes weak ciphers, and no renewed certificate
        super().__init__(config)
        self._tick = tick
        self._feed = feed

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._feed.close()  # else it would wait for those who listen
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def on_tick(self, counter: int) -> bool:
        self._tick()
        close_idle(self.server_state.connections, asyncio.get_running_loop().time())
        return await super().on_tick(counter)
