"""The page behind a proxy that knows its users and reaches the daemon by its socket, below a path of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from clearway.config.configuration import load_config
from clearway.service.server import background
from tests.integration.daemon import PATIENT_S, Simulated, wait_for, write_config
from tests.integration.web.browser import visiting

BELOW = "/clearway"


@contextmanager
def proxy(path: Path, user: str) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            kept = {name: self.headers[name] for name in ("X-Clearway-Page", "Content-Type") if name in self.headers}
            with (
                httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=PATIENT_S) as daemon,
                daemon.stream(
                    self.command,
                    "http://localhost" + self.path.removeprefix(BELOW),
                    headers=kept | {"X-Remote-User": user},
                    content=self.rfile.read(size),
                ) as answer,
            ):
                self.send_response(answer.status_code)
                for name in ("Content-Type", "Content-Encoding", "Content-Security-Policy", "Location"):
                    if name in answer.headers:
                        self.send_header(name, answer.headers[name])
                self.end_headers()
                for part in answer.iter_raw():
                    self.wfile.write(part)
                    self.wfile.flush()

        do_POST = do_GET  # noqa: N815 - as the server names it

        def log_message(self, *_: object) -> None:
            pass

        def handle(self) -> None:
            with suppress(OSError, httpx.HTTPError):  # the visitor has left, or the daemon
                super().handle()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}{BELOW}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def serving(folder: Path, of_user: str) -> Iterator[tuple[Simulated, Path]]:
    path, where = write_config(folder), folder / "api.sock"
    access = f'[access]\nproxy_header = "X-Remote-User"\nproxy_peers = ["unix:{of_user}"]\noperators = ["olga"]'
    text = path.read_text().replace('[access]\npublic = "reading"', access)
    path.write_text(text.replace("[api]\n", f'[api]\nsocket = "{where}"\n'))
    simulated = Simulated(load_config(path), path)
    with background(simulated.service()):
        yield simulated, where


def test_who_signs_in_at_the_proxy_needs_no_token(browser: Any, tmp_path: Path, own_user: str) -> None:
    with (
        serving(tmp_path, own_user) as (simulated, where),
        proxy(where, "olga") as address,
        visiting(browser, address, token="") as visitor,
    ):
        page = visitor.go("now")
        page.get_by_text("olga").first.wait_for()
        page.get_by_role("button", name="Pause…").click()
        dialog = page.locator("dialog[open]")
        dialog.get_by_role("button", name="Pause", exact=True).click()
        dialog.locator(".result").wait_for()
        wait_for(lambda: simulated.daemon.loop.report.paused)
        visitor.check()


def test_a_process_of_another_user_is_not_the_proxy(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "nobody") as (_, where),
        httpx.Client(transport=httpx.HTTPTransport(uds=str(where)), timeout=PATIENT_S) as client,
    ):
        answer = client.get("http://localhost/api/v1/identity", headers={"X-Remote-User": "olga"})
        assert answer.status_code == 401


@pytest.fixture
def own_user() -> str:
    import os
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name
