"""What goes over the wire, and what of its failures is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from clearway.config.notify import NotifyConfig, TextsConfig
from clearway.model.errors import ConfigError
from clearway.model.notice import Channel, Notice
from clearway.notify.changes import as_json
from clearway.notify.sending import UndeliverableError, UndeliveredError, Webhook, open_senders
from tests.builders import NOW
from tests.unit.notify.test_words import notice

TEXTS = TextsConfig()


class Handler(BaseHTTPRequestHandler):
    status = 200
    bodies: list[bytes]

    def do_POST(self) -> None:
        self.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(self.status)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[tuple[type[Handler], str]]:
    handler = type("OneHandler", (Handler,), {"bodies": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        yield handler, f"http://127.0.0.1:{httpd.server_port}/secret"
        httpd.shutdown()
        thread.join()


def body(notices: Sequence[Notice]) -> bytes:
    return as_json(notices, TEXTS)


def test_a_webhook_is_posted(server: tuple[type[Handler], str]) -> None:
    handler, url = server
    Webhook(url, body).send((notice(),), NOW)
    (posted,) = handler.bodies
    (told,) = json.loads(posted)["notices"]
    assert (told["id"], told["kind"], told["user"], told["job_id"]) == ("1:7:left", "left", "anna", "7")


@pytest.mark.parametrize(
    ("status", "error"),
    [(500, UndeliveredError), (429, UndeliveredError), (404, UndeliverableError), (302, UndeliverableError)],
)
def test_what_a_receiver_answers(server: tuple[type[Handler], str], status: int, error: type[Exception]) -> None:
    """A redirect is not followed: names of jobs go where the site has said, and nowhere else."""
    handler, url = server
    handler.status = status
    with pytest.raises(error, match=f"answered {status}"):
        Webhook(url, body).send((notice(),), NOW)
    assert len(handler.bodies) == 1


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/secret", "http://[::bad/secret", "http://no such host/secret"])
def test_no_error_repeats_the_address(url: str) -> None:
    with pytest.raises(UndeliveredError) as caught:
        Webhook(url, body).send((notice(),), NOW)
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(caught.value.__cause__)


def test_secrets_come_from_files_that_nobody_else_reads(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("https://example.org/hook\n")
    config = NotifyConfig.model_validate({"webhook": {"url_file": str(file)}})
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="lets others read or change the address"):
        open_senders(config, None)
    file.chmod(0o600)
    assert set(open_senders(config, None)) == {Channel.WEBHOOK}
    for bad in ("file:///etc/passwd", "https://", "https://a b", "example.org", "http://[::bad"):
        file.write_text(bad)
        with pytest.raises(ConfigError, match="must hold one address"):
            open_senders(config, None)


def test_all_is_off_by_default() -> None:
    assert open_senders(NotifyConfig(), None) == {}
