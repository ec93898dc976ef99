"""Mails: where they go, and what becomes of one that is refused."""

from __future__ import annotations

import email
import socket
import threading
from collections.abc import Mapping
from email import policy
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from clearway.config.notify import MailConfig, NotifyConfig, TextsConfig
from clearway.model.errors import SlurmTimeoutError
from clearway.notify.sending import BusyError, Mail, UndeliverableError, UndeliveredError, UnwantedError
from clearway.slurm.job_notes import MailSettings
from tests.builders import NOW
from tests.unit.notify.test_words import notice

TEXTS = TextsConfig()

SENDMAIL = """#!/bin/sh
printf '%s\\n' "$@" > {folder}/arguments
cat > {folder}/mail
echo "$5" >> {folder}/asked
[ ! -f "{folder}/$5" ] || exit "$(cat "{folder}/$5")"
"""


def program(folder: Path, **refused: int) -> Path:
    """A mail program; ``refused``: what it ends with, by the name of an address."""
    made = folder / "sendmail"
    made.write_text(SENDMAIL.format(folder=folder))
    made.chmod(0o755)
    for name, status in refused.items():
        (folder / f"{name}@example.org").write_text(str(status))
    return made


def asked(folder: Path) -> list[str]:
    """Names that the program was asked to send to, in order."""
    file = folder / "asked"
    return [line.partition("@")[0] for line in file.read_text().split()] if file.exists() else []


class Notes:
    """Slurm's word on whom its mails of a job go to."""

    def __init__(self, user: str = "", *types: str) -> None:
        self.settings: MailSettings | Exception | None = MailSettings(user, frozenset(types))

    def mail_settings(self, _: str, __: str) -> MailSettings | None:
        if isinstance(self.settings, Exception):
            raise self.settings
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


@pytest.mark.parametrize(("owners", "error"), [("all", UndeliverableError), ("asked", UnwantedError)])
def test_no_mail_that_was_wanted_and_none_that_was_not(
    tmp_path: Path, owners: str, error: type[UndeliverableError]
) -> None:
    with pytest.raises(UndeliverableError) as caught:
        mail(tmp_path, Notes("-oQ", "END"), owners=owners).send((notice(),), NOW)
    assert caught.type is error


def test_a_job_that_slurm_forgets_while_no_mail_goes_out(tmp_path: Path) -> None:
    """It was told to a mail server that was down, until Slurm knew nothing of the job: the owner heard nothing."""
    notes = Notes("a@b.org", "REQUEUE")
    sender = mail(tmp_path, notes, owners="asked")
    with pytest.raises(UndeliveredError, match="cannot be started"):
        sender.send((notice(),), NOW)
    notes.settings = None
    program(tmp_path)
    sender.send((notice(),), NOW)
    assert asked(tmp_path) == ["a"]
    with pytest.raises(UndeliverableError, match="does not know the job any more") as caught:
        sender.send((notice(job_id="8", notice_id=4),), NOW)
    assert caught.type is UndeliverableError
    notes.settings = SlurmTimeoutError("no answer")
    with pytest.raises(UndeliveredError, match="does not say"):
        sender.send((notice(job_id="8", notice_id=4),), NOW)


@pytest.mark.parametrize(("status", "error"), [(75, BusyError), (1, BusyError), (67, UndeliverableError)])
def test_what_a_program_ends_with(tmp_path: Path, status: int, error: type[Exception]) -> None:
    with pytest.raises(error, match=f"ended with status {status}"):
        mail(tmp_path, sendmail=program(tmp_path, anna=status)).send((notice(),), NOW)


def test_a_program_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    with pytest.raises(UndeliveredError, match="cannot be started") as caught:
        mail(tmp_path, sendmail=tmp_path / "none").send((notice(),), NOW)
    assert caught.type is UndeliveredError


TO_OPERATORS = notice(user="", job_id="")
THREE = ("one@example.org", "two@example.org", "three@example.org")


def test_an_address_that_is_refused_keeps_no_other_from_its_mail(tmp_path: Path) -> None:
    """The first one that was refused ended it: nobody behind it was told."""
    sender = mail(tmp_path, sendmail=program(tmp_path, one=67), operators=THREE)
    with pytest.raises(UndeliverableError, match="status 67"):
        sender.send((TO_OPERATORS,), NOW)
    assert asked(tmp_path) == ["one", "two", "three"]


def test_only_what_was_not_taken_is_sent_again(tmp_path: Path) -> None:
    """All before one that was to be tried again got their mail with each attempt, for a day."""
    sender = mail(tmp_path, sendmail=program(tmp_path, two=75, three=67), operators=THREE)
    with pytest.raises(BusyError, match="status 75"):
        sender.send((TO_OPERATORS,), NOW)
    program(tmp_path, two=0)
    another = notice(user="", job_id="", notice_id=9, key="9")
    with pytest.raises(UndeliverableError, match="status 67"):
        sender.send((TO_OPERATORS, another), NOW)
    assert asked(tmp_path) == ["one", "two", "three", "one", "two", "three"]
    text = (tmp_path / "mail").read_text()
    assert "Subject: [clearway] job 7 was preempted\n" in text, "of two it was told once that it was refused"


class MailServer:
    """As much of SMTP as a mail needs; ``rcpt`` is the answer to RCPT, by what is in its line."""

    def __init__(self, rcpt: Mapping[str, str]) -> None:
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
                    answer = {"DATA": "354 go on", "RCPT": self._to(line), "QUIT": "221 bye"}.get(word, "250 ok")
                if answer:
                    stream.write(f"{answer}\r\n".encode())
                    stream.flush()
                if line == "QUIT":
                    return

    def _to(self, line: str) -> str:
        return next((answer for name, answer in self.rcpt.items() if name in line), "250 ok")

    def close(self) -> None:
        self.thread.join(30)
        self.listener.close()


@pytest.mark.parametrize(
    ("answer", "error"), [("250 ok", None), ("550 no such user", UndeliverableError), ("451 later", BusyError)]
)
def test_a_mail_server(tmp_path: Path, answer: str, error: type[Exception] | None) -> None:
    server = MailServer({"anna": answer})
    sender = mail(tmp_path, sendmail=None, smtp_host="127.0.0.1", smtp_port=server.port)
    if error is None:
        sender.send((notice(),), NOW)
        assert "To: anna@example.org" in server.lines
    else:
        with pytest.raises(error, match=f"mail refused: {answer[:3]}"):
            sender.send((notice(),), NOW)
    server.close()
    with pytest.raises(UndeliveredError, match=r"mail server: .*refused"):
        sender.send((notice(notice_id=4),), NOW)


def test_a_mail_server_refuses_some_of_many(tmp_path: Path) -> None:
    server = MailServer({"one": "550 no such user", "two": "451 later"})
    sender = mail(tmp_path, sendmail=None, smtp_host="127.0.0.1", smtp_port=server.port, operators=THREE)
    with pytest.raises(BusyError, match="mail refused: 451"):
        sender.send((TO_OPERATORS,), NOW)
    server.close()
    assert [line for line in server.lines if line.startswith("To:")] == ["To: three@example.org"]


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
