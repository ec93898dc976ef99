"""What goes over the wire, and what of its failures is told."""

from __future__ import annotations

import email
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from email import policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from clearway.config.notify import MailConfig, NotifyConfig, TextsConfig
from clearway.model.errors import ConfigError
from clearway.model.notice import Channel, Notice
from clearway.notify.sending import Mail, Webhook, open_senders
from clearway.notify.undelivered import UndeliverableError, UndeliveredError
from clearway.notify.words import as_json
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


SENDMAIL = """#!/bin/sh
printf '%s\\n' "$@" > {folder}/arguments
cat > {folder}/mail
exit {status}
"""


def program(folder: Path, status: int = 0) -> Path:
    made = folder / "sendmail"
    made.write_text(SENDMAIL.format(folder=folder, status=status))
    made.chmod(0o755)
    return made


class Notes:
    """Slurm's word on whom its mails of a job go to."""

    def __init__(self, user: str = "", *types: str) -> None:
        self.settings = user, frozenset(types)

    def mail_settings(self, _: str) -> tuple[str, frozenset[str]]:
        return self.settings


def mail(folder: Path, notes: Any = None, **config: Any) -> Mail:
    given = {"sendmail": folder / "sendmail", "owner": "{user}@example.org", "operators": ("ops@example.org",)} | config
    return Mail(MailConfig.model_validate(given), TEXTS, "", notes)


@pytest.mark.parametrize(
    ("notes", "owners", "address"),
    [
        (None, "all", "anna@example.org"),
        (Notes(), "all", "anna@example.org"),
        (Notes("a.b@other.org", "END"), "all", "a.b@other.org"),
        (Notes("anna2", "ALL"), "all", "anna2@example.org"),
        (Notes("-oQ/tmp@x.org", "REQUEUE"), "all", ""),
        (Notes("a@b.org,c@d.org", "REQUEUE"), "all", ""),
        (Notes("a@b.org", "REQUEUE"), "asked", "a@b.org"),
        (Notes("a@b.org", "END"), "asked", ""),
        (Notes(), "asked", ""),
    ],
)
def test_where_an_owners_mail_goes(tmp_path: Path, notes: Notes | None, owners: str, address: str) -> None:
    program(tmp_path)
    sender = mail(tmp_path, notes, owners=owners)
    if not address:
        with pytest.raises(UndeliverableError):
            sender.send((notice(),), NOW)
        return
    sender.send((notice(),), NOW)
    assert (tmp_path / "arguments").read_text().split() == ["-i", "-f", "clearway@localhost.localdomain", "--", address]
    read = email.message_from_bytes((tmp_path / "mail").read_bytes(), policy=policy.default)
    assert read["To"] == address
    assert read["Subject"] == "[clearway] job 7 was preempted"


def test_a_program_that_fails_is_tried_again(tmp_path: Path) -> None:
    with pytest.raises(UndeliveredError, match="ended with status 75"):
        mail(tmp_path, sendmail=program(tmp_path, status=75)).send((notice(),), NOW)
    with pytest.raises(UndeliveredError, match="cannot be started"):
        mail(tmp_path, sendmail=tmp_path / "none").send((notice(),), NOW)


class MailServer:
    """As much of SMTP as a mail needs; ``rcpt`` is the answer to RCPT."""

    def __init__(self, rcpt: str) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.rcpt, self.lines = rcpt, list[str]()
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def _serve(self) -> None:
        connection, _ = self.listener.accept()
        with connection, connection.makefile("rwb") as stream:
            stream.write(b"220 hello\r\n")
            stream.flush()
            in_data = False
            for raw in stream:
                line = raw.decode().rstrip("\r\n")
                self.lines.append(line)
                if in_data:
                    in_data = line != "."
                    answer = "" if in_data else "250 taken"
                else:
                    word = line[:4].upper()
                    in_data = word == "DATA"
                    answer = {"DATA": "354 go on", "RCPT": self.rcpt, "QUIT": "221 bye"}.get(word, "250 ok")
                if answer:
                    stream.write(f"{answer}\r\n".encode())
                    stream.flush()
                if line == "QUIT":
                    return

    def close(self) -> None:
        self.thread.join(30)
        self.listener.close()


@pytest.mark.parametrize(
    ("answer", "error"), [("250 ok", None), ("550 no such user", UndeliverableError), ("451 later", UndeliveredError)]
)
def test_a_mail_server(tmp_path: Path, answer: str, error: type[Exception] | None) -> None:
    server = MailServer(answer)
    sender = mail(tmp_path, sendmail=None, smtp_host="127.0.0.1", smtp_port=server.port)
    if error is None:
        sender.send((notice(),), NOW)
        assert "To: anna@example.org" in server.lines
    else:
        with pytest.raises(error):
            sender.send((notice(),), NOW)
    server.close()
    with pytest.raises(UndeliveredError, match=r"mail server: .*refused"):
        sender.send((notice(),), NOW)


@pytest.mark.parametrize(
    "given",
    [
        {"sendmail": "/usr/sbin/sendmail", "smtp_host": "mail"},
        {"sendmail": "sendmail"},
        {"smtp_host": "mail", "smtp_user": "clearway"},
        {"smtp_host": "mail", "smtp_user": "clearway", "smtp_password_file": "/x"},
        {"sender": "a\nBcc: b@c.org"},
        {"operators": ["-oX@example.org"]},
        {"owner": "{user}@example.org -oX"},
        {"owner": "{job_name}@example.org"},
    ],
)
def test_settings_that_do_not_fit_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        NotifyConfig.model_validate({"mail": given})
