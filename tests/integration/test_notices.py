"""A whole daemon tells: switched on by a reload, over a real connection, and it ends in order."""

from __future__ import annotations

import json
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.integration.daemon import DaemonProcess, get, wait_for, write_config


def test_notifications_are_switched_on_by_a_reload(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.extend(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["notices"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    config, secret, urgent = write_config(tmp_path), tmp_path / "url", tmp_path / "urgent"
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as receiver:
        thread = threading.Thread(target=receiver.serve_forever)
        thread.start()
        secret.write_text(f"http://127.0.0.1:{receiver.server_port}/hook")
        secret.chmod(0o644)
        with DaemonProcess(config, URGENT_FILE=str(urgent)) as daemon:
            address = daemon.address
            config.write_text(f'{config.read_text()}\n[notify.webhook]\nurl_file = "{secret}"\n')
            daemon.signal(signal.SIGHUP)
            assert "lets others read or change the address" in daemon.expect("configuration not reloaded")
            secret.chmod(0o600)
            daemon.signal(signal.SIGHUP)
            daemon.expect("configuration reloaded")
            (tmp_path / "new").write_text("2")
            (tmp_path / "new").rename(urgent)
            wait_for(lambda: [each["kind"] for each in told].count("left") == 2, 60, "the owners to be told")
            wait_for(lambda: 'messages_sent_total{channel="webhook"} 0.0' not in get(f"{address}/metrics").text, 60)
            daemon.signal(signal.SIGTERM)
            assert daemon.wait() == 0
            assert "Traceback" not in daemon.log
            assert "/hook" not in daemon.log
        receiver.shutdown()
        thread.join()
