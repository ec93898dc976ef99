"""A proxy before a database server that can go deaf: it takes every packet, and answers none."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from typing import Self

from tests.integration.store.servers import DatabaseServer, MariadbServer


class DeafProxy:
    """On a port of this machine, before a server that listens on a socket in the file system."""

    def __init__(self, server: DatabaseServer) -> None:
        self._mariadb = isinstance(server, MariadbServer)
        self._server = server.folder / ("socket" if self._mariadb else ".s.PGSQL.5432")
        self._listens = socket.create_server(("127.0.0.1", 0))
        self._hears = threading.Event()
        self._hears.set()
        self._open: list[socket.socket] = []
        self._ends = False

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends = True
        self._hears.set()
        for each in (self._listens, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def url(self, direct: str) -> str:
        """Of the database that ``direct`` reaches without this proxy."""
        user = "root" if self._mariadb else "clearway:not-a-secret"
        scheme, name = direct.partition(":")[0], direct.partition("?")[0].rpartition("/")[2]
        return f"{scheme}://{user}@127.0.0.1:{self._listens.getsockname()[1]}/{name}?connect_timeout=2"

    def go_deaf(self) -> None:
        self._hears.clear()

    def hear_again(self) -> None:
        self._hears.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listens.accept()
                server = socket.socket(socket.AF_UNIX)
                self._open += [client, server]
                server.connect(str(Path(self._server)))
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while said := source.recv(65_536):
                if not self._hears.wait(120) or self._ends:
                    return
                target.sendall(said)
            target.shutdown(socket.SHUT_WR)
