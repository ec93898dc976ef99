"""What says notices: one class for each way. Each call may take seconds, and is made in a thread of its own."""

import http.client
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from clearway.config.notify import NotifyConfig, TextsConfig, filled
from clearway.config.trusted_files import read_trusted
from clearway.model.cluster import JobState
from clearway.model.errors import ConfigError, SlurmError, SlurmRefusedError
from clearway.model.notice import Channel, Notice, NoticeKind
from clearway.notify import words
from clearway.notify.changes import WARNED_BEFORE
from clearway.notify.mail import Mail
from clearway.notify.undelivered import NotYetError, UndeliverableError, UndeliveredError
from clearway.notify.words import plain, sentence
from clearway.slurm.job_notes import JobNotes, JobWords

_OURS = re.compile(r" ?\[Clearway [^\[\]]*\]")
_LONGEST = 1_024  # bytes of a Comment, as Slurm has it
# What claims may grow by: the launcher's longest (names of 64 characters) have some 400 bytes. Without room for them
# the launcher could not say that the job saves itself, and the job would lose its work the next time.
_ROOM_FOR_CLAIMS = 450
_ON_NODES = (JobState.RUNNING, JobState.CONFIGURING)


def with_note(comment: str, note: str) -> str | None:
    """The Comment with this note of ours; None where it cannot be given back as it was, or has no room."""
    if not comment.isprintable() or "\ufffd" in comment:
        return None
    written = f"{_OURS.sub('', comment)} [Clearway {note}]".strip()
    return written if len(written.encode()) <= _LONGEST - _ROOM_FOR_CLAIMS else None


class CommentWriter:
    """Implements ``sending.Sender`` for one notice at a time.

    Our part of a Comment stands in brackets behind whatever is there, ``[Clearway 2026-11-22 12:03 UTC preempted
    ...]``, and replaces the part of an earlier time. It is no claim, and no claim is touched by it. When in doubt,
    nothing is written: where the job may write its claims just now, where the Comment has changed since we looked,
    where it holds something that we could not give back as it was, and where claims might want the room.
    """

    def __init__(self, notes: JobNotes, texts: TextsConfig, steady: Callable[[], float] = time.monotonic) -> None:
        self._notes = notes
        self._texts = texts
        self._steady = steady

    def send(self, notices: Sequence[Notice], now: datetime) -> None:
        (notice,) = notices
        try:
            self._write(notice, now)
        except SlurmRefusedError as error:
            raise UndeliverableError(str(error)) from None
        except SlurmError as error:
            raise UndeliveredError(str(error)) from None

    def _write(self, notice: Notice, now: datetime) -> None:
        began = self._steady()
        seen = self._seen(notice)
        facts = {name: plain(text) for name, text in notice.about.items()}
        # Facts are ours, but for the id of the urgent job; brackets would end our part.
        note = re.sub(r"[^ -Z^-z|~]|clearway:", "", filled(self._texts.comment, facts))
        written = with_note(seen.comment, note)
        if written is None:
            raise UndeliverableError("the Comment has no room, or holds something that cannot be written back")
        if not seen.may_be_written(now):
            raise NotYetError("the job may write its claims just now")
        if written == seen.comment:
            return
        again = self._seen(notice)  # just before it is written; each look may take as long as Slurm answers
        if again.comment != seen.comment or not again.may_be_written(now + timedelta(seconds=self._steady() - began)):
            raise NotYetError("the Comment or the job has changed")
        self._notes.set_comment(again, written)

    def _seen(self, notice: Notice) -> JobWords:
        seen = self._notes.look(notice.job_id)
        if seen is None:
            raise UndeliverableError("Slurm does not know the job any more")
        return seen


class OutputWriter:
    """Implements ``sending.Sender``: into the standard error of a job that runs."""

    def __init__(self, notes: JobNotes, texts: TextsConfig) -> None:
        self._notes = notes
        self._texts = texts

    def send(self, notices: Sequence[Notice], now: datetime) -> None:
        (notice,) = notices
        if notice.kind is NoticeKind.WARNED and now - notice.created_at > WARNED_BEFORE:
            raise UndeliverableError("it is too late to warn: the job may have left, or stay after all")
        try:
            seen = self._notes.look(notice.job_id)
            if seen is None or seen.state not in _ON_NODES:
                raise UndeliverableError("the job does not run any more")
            self._notes.print_to_output(seen, sentence(notice, self._texts))
        except SlurmRefusedError as error:
            raise UndeliverableError(str(error)) from None
        except SlurmError as error:
            raise UndeliveredError(str(error)) from None


_ANSWER_S = 10.0  # of a receiver
_TOO_MANY = (408, 425, 429)


class Sender(Protocol):
    def send(self, notices: Sequence[Notice], now: datetime) -> None:
        """Say these in one message. All are for one user, or for operators.

        Raises:
            UndeliveredError: not now; another try may succeed. Others are not tried now, but for a ``BusyError``.
            UndeliverableError: no other try will.
        """


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Names of jobs go to the address that the site has given, and nowhere else."""

    def redirect_request(self, *_: object) -> None:
        return None


class Webhook:
    """POST to an address that is a secret: no error repeats it."""

    def __init__(self, url: str, body: Callable[[Sequence[Notice]], bytes]) -> None:
        self._url = url
        self._body = body
        self._opener = urllib.request.build_opener(_NoRedirect)

    def send(self, notices: Sequence[Notice], now: datetime) -> None:  # noqa: ARG002 - see ``Sender``
        body = self._body(notices)
        headers = {"Content-Type": "application/json", "User-Agent": "clearway"}
        try:
            request = urllib.request.Request(self._url, body, headers, method="POST")  # noqa: S310 - see ``_url_in``
            with self._opener.open(request, timeout=_ANSWER_S) as answer:
                answer.read(1_024)
        except urllib.error.HTTPError as error:
            error.close()
            why = f"the receiver answered {error.code}"
            if 300 <= error.code < 500 and error.code not in _TOO_MANY:
                raise UndeliverableError(why) from None
            raise UndeliveredError(why) from None
        except urllib.error.URLError as error:
            raise UndeliveredError(_reason(error.reason)) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise UndeliveredError(_reason(error)) from None


def _reason(error: object) -> str:
    """Without the address: errors of the standard library may repeat it."""
    if isinstance(error, OSError) and error.strerror:
        return f"the receiver cannot be reached: {error.strerror}"
    return f"the receiver cannot be reached: {type(error).__name__}"


def open_senders(config: NotifyConfig, notes: JobNotes | None) -> dict[Channel, Sender]:
    """Those that are switched on, with their secrets; ``notes`` None: there is no Slurm to ask or to tell.

    Raises ``ConfigError`` where a secret cannot be used.
    """
    texts, senders = config.texts, dict[Channel, Sender]()
    if config.webhook.url_file is not None:
        senders[Channel.WEBHOOK] = Webhook(_url_in(config.webhook.url_file), lambda told: words.as_json(told, texts))
    if config.slack.url_file is not None:
        senders[Channel.SLACK] = Webhook(_url_in(config.slack.url_file), lambda told: words.as_slack(told, texts))
    if config.mail.on:
        file = config.mail.smtp_password_file
        password = "" if file is None else read_trusted(file, "the password", secret=True).strip()
        senders[Channel.MAIL] = Mail(config.mail, texts, password, notes)
    if config.comment and notes is not None:
        senders[Channel.COMMENT] = CommentWriter(notes, texts)
    if config.job_output and notes is not None:
        senders[Channel.OUTPUT] = OutputWriter(notes, texts)
    return senders


def _url_in(file: Path) -> str:
    url = read_trusted(file, "the address", secret=True).strip()
    try:
        parts = urllib.parse.urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable() and " " not in url
    except ValueError:
        good = False
    if not good:
        raise ConfigError(f"{file}: must hold one address that begins with https:// or http://")
    return url
