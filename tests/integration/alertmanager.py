"""A real Alertmanager for tests (Debian's package), and the webhook that it calls; both on loopback."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import httpx

from tests.integration.daemon import wait_for

STARTS = 3  # another program may take the port that was free a moment ago


class Webhook:
    """Keeps the alerts that are posted to it, as Alertmanager writes them."""

    def __init__(self) -> None:
        self.alerts: list[dict[str, Any]] = []
        kept = self.alerts

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                kept.extend(json.loads(body)["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Not on standard error."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/clearway"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Alertmanager:
    """Runs with this configuration; ``address`` is where Prometheus sends alerts."""

    def __init__(self, config: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="clearway-alertmanager-"))
        (self._folder / "alertmanager.yml").write_text(config)
        self._log = (self._folder / "log").open("wb")
        self._start()

    def _start(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        self._process = subprocess.Popen(
            [
                *("setpriv", "--pdeathsig", "KILL", "prometheus-alertmanager"),
                f"--config.file={self._folder}/alertmanager.yml",
                f"--storage.path={self._folder}/data",
                f"--web.listen-address={self.address}",
                "--cluster.listen-address=",  # alone: it listens to no other one
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        try:
            for _ in range(STARTS - 1):
                wait_for(lambda: self._ended() or self._ready(), 60, "Alertmanager")
                if self._ended():
                    self._start()
            wait_for(self._ready, 60, "Alertmanager")
        except BaseException as error:
            error.add_note((self._folder / "log").read_text()[-4_000:])
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _ended(self) -> bool:
        return self._process.poll() is not None

    def _ready(self) -> bool:
        assert not self._ended(), "Alertmanager has ended"
        try:
            return httpx.get(f"http://{self.address}/-/ready").status_code == 200
        except httpx.TransportError:
            return False
