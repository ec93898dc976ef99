"""What says notices: one class for each way. Each call may take seconds, and is made in a thread of its own."""

import http.client
import os
import re
import smtplib
import ssl
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from email.message import EmailMessage
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from clearway.config.notify import MailConfig, NotifyConfig, TextsConfig, filled, is_address
from clearway.config.trusted_files import read_trusted
from clearway.model.cluster import JobState
from clearway.model.errors import ClearwayError, ConfigError, SlurmError, SlurmRefusedError
from clearway.model.notice import Channel, Notice, NoticeKind
from clearway.notify.changes import WARNED_BEFORE, as_json, as_mail, as_slack, plain, sentence
from clearway.slurm.job_notes import JobNotes, JobWords, MailSettings

_ANSWER_S = 10.0  # of a receiver
_TOO_MANY = (408, 425, 429)
_FINAL = frozenset({os.EX_DATAERR, os.EX_NOUSER, os.EX_NOHOST})  # what a mail program ends with
_ASKED_FOR = frozenset({"REQUEUE", "ALL"})
_REMEMBERED = 10_000
_OURS = re.compile(r" ?\[Clearway [^\[\]]*\]")
_LONGEST = 1_024  # bytes of a Comment, as Slurm has it
# What claims may grow by: the launcher's longest (names of 64 characters) have some 400 bytes. Without room for them
# the launcher could not say that the job saves itself, and the job would lose its work the next time.
_ROOM_FOR_CLAIMS = 450
_ON_NODES = (JobState.RUNNING, JobState.CONFIGURING)


class UndeliveredError(ClearwayError):
    """Not now; another try may succeed."""


class NotYetError(UndeliveredError):
    """The moment is wrong, and may be right in a second."""


class BusyError(UndeliveredError):
    """Not this one now; the receiver takes others."""


class UndeliverableError(ClearwayError):
    """No other try will succeed."""


class UnwantedError(UndeliverableError):
    """The owner wants none."""


class Sender(Protocol):
    def send(self, notices: Sequence[Notice], now: datetime) -> None:
        """Say these in one message: all are for one user, or for operators. Raises an error of those above."""


def with_note(comment: str, note: str) -> str | None:
    """The Comment with this note of ours; None where it cannot be given back as it was, or has no room."""
    if not comment.isprintable() or "\ufffd" in comment:
        return None
    written = f"{_OURS.sub('', comment)} [Clearway {note}]".strip()
    return written if len(written.encode()) <= _LONGEST - _ROOM_FOR_CLAIMS else None


@contextmanager
def _as_slurm_takes_it() -> Iterator[None]:
    try:
        yield
    except SlurmRefusedError as error:
        raise UndeliverableError(str(error)) from None
    except SlurmError as error:
        raise UndeliveredError(str(error)) from None


class CommentWriter:
    """One notice at a time, in the job's Comment.

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
        with _as_slurm_takes_it():
            self._write(notice, now)

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
        seen = self._notes.look(notice.job_id, notice.user)
        if seen is None:
            raise UndeliverableError("Slurm does not know the job any more")
        return seen


class OutputWriter:
    """Into the standard error of a job that runs."""

    def __init__(self, notes: JobNotes, texts: TextsConfig) -> None:
        self._notes = notes
        self._texts = texts

    def send(self, notices: Sequence[Notice], now: datetime) -> None:
        (notice,) = notices
        if notice.kind is NoticeKind.WARNED and now - notice.created_at > WARNED_BEFORE:
            raise UndeliverableError("it is too late to warn: the job may have left, or stay after all")
        with _as_slurm_takes_it():
            seen = self._notes.look(notice.job_id, notice.user)
            if seen is None or seen.state not in _ON_NODES:
                raise UndeliverableError("the job does not run any more")
            self._notes.print_to_output(seen, sentence(notice, self._texts))


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
            final = 300 <= error.code < 500 and error.code not in _TOO_MANY
            kind = UndeliverableError if final else UndeliveredError
            raise kind(f"the receiver answered {error.code}") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            cause = error.reason if isinstance(error, urllib.error.URLError) else error
            # Without the address: errors of the standard library may repeat it.
            why = (isinstance(cause, OSError) and cause.strerror) or type(cause).__name__
            raise UndeliveredError(f"the receiver cannot be reached: {why}") from None


class Mail:
    """By a program on this machine, or by a mail server; what one address refuses keeps no other from its mail.

    What one address has got is not sent to it again when another one has to be tried again. This, and whom Slurm's own
    mails of a job go to, is kept in memory: Slurm forgets jobs, perhaps while the mail server is down.
    """

    def __init__(self, config: MailConfig, texts: TextsConfig, password: str, notes: JobNotes | None) -> None:
        self._config = config
        self._texts = texts
        self._password = password
        self._notes = notes
        self._done = dict[tuple[int, str], str]()  # by notice and address: why it was refused; "" where it was taken
        self._settings = dict[tuple[str, str], MailSettings]()  # by job and user

    def send(self, notices: Sequence[Notice], now: datetime) -> None:  # noqa: ARG002 - see ``Sender``
        by_address = self._by_address(notices)
        if not by_address:
            wanted = self._config.owners == "all" and self._config.owner
            raise (UndeliverableError if wanted else UnwantedError)("the owner has no address, or asked for no mail")
        later = list[str]()
        with self._open() as post:
            for address, told in by_address.items():
                left = [each for each in told if (each.notice_id, address) not in self._done]
                why = ""
                try:
                    if left:
                        post(as_mail(left, address, self._config, self._texts))
                except UndeliverableError as error:
                    why = str(error)
                except BusyError as error:
                    later.append(str(error))
                    continue
                _keep(self._done, {(each.notice_id, address): why for each in left})
        if later:
            raise BusyError("; ".join(later))
        done = {self._done[each.notice_id, address] for address, told in by_address.items() for each in told}
        if refused := done - {""}:
            raise UndeliverableError("; ".join(sorted(refused)))

    def _by_address(self, notices: Sequence[Notice]) -> dict[str, list[Notice]]:
        if not notices[0].user:
            return {each: list(notices) for each in self._config.operators}
        found = dict[str, list[Notice]]()
        for notice in notices:
            if address := self._owners_address(notice):
                found.setdefault(address, []).append(notice)
        return found

    def _owners_address(self, notice: Notice) -> str:
        """The job's MailUser, else by the site's template; "" where the owner gets no mail."""
        settings = self._settings_of((notice.job_id, notice.user))
        if self._config.owners == "asked" and not settings.types & _ASKED_FOR:
            return ""
        if settings.user and is_address(settings.user):
            return settings.user
        name = settings.user or notice.user  # a MailUser without a domain is a name like any other
        address = filled(self._config.owner, {"user": name})
        return address if is_address(address) else ""

    def _settings_of(self, job: tuple[str, str]) -> MailSettings:
        """Where Slurm does not say, the template's address is good enough, unless owners must have asked."""
        if self._notes is None:
            return MailSettings()
        asked = self._config.owners == "asked"
        try:
            if job not in self._settings and (found := self._notes.mail_settings(*job)) is not None:
                _keep(self._settings, {job: found})
        except SlurmError as error:
            if asked:
                raise UndeliveredError(f"Slurm does not say whom its mails go to: {error}") from None
        if asked and job not in self._settings:
            raise UndeliverableError("Slurm does not know the job any more, nor whether its owner wants mails")
        return self._settings.get(job, MailSettings())

    @contextmanager
    def _open(self) -> Iterator[Callable[[EmailMessage], None]]:
        """What posts one mail. It raises ``BusyError`` or ``UndeliverableError`` where that says nothing of others."""
        if self._config.sendmail is not None:
            yield partial(self._by_program, self._config.sendmail)
            return
        try:
            with self._server() as server:
                yield partial(_by_server, server)
        except smtplib.SMTPResponseException as error:
            raise UndeliveredError(f"the mail server answered {error.smtp_code}") from None
        except (OSError, smtplib.SMTPException) as error:
            raise UndeliveredError(f"mail server: {getattr(error, 'strerror', '') or type(error).__name__}") from None

    def _server(self) -> smtplib.SMTP:
        config, context = self._config, ssl.create_default_context()
        host, port = config.smtp_host or "", config.smtp_port
        if config.smtp_security == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(host, port, timeout=_ANSWER_S, context=context)
        else:
            server = smtplib.SMTP(host, port, timeout=_ANSWER_S)
        try:
            if config.smtp_security == "starttls":
                server.starttls(context=context)
            if config.smtp_user is not None:
                server.login(config.smtp_user, self._password)
        except BaseException:
            server.close()
            raise
        return server

    def _by_program(self, program: Path, mail: EmailMessage) -> None:
        # The address is an argument of its own, and cannot be an option: ``is_address`` saw to that.
        argv = [str(program), "-i", "-f", self._config.sender, "--", str(mail["To"])]
        try:
            done = subprocess.run(  # noqa: S603 - the site's program, an argument list, no shell
                argv, input=mail.as_bytes(), capture_output=True, timeout=3 * _ANSWER_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise UndeliveredError(f"{program} did not end in time") from None
        except OSError as error:
            raise UndeliveredError(f"{program} cannot be started: {error.strerror}") from None
        if done.returncode != 0:
            why = f"{program} ended with status {done.returncode}"
            raise UndeliverableError(why) if done.returncode in _FINAL else BusyError(why)


def _by_server(server: smtplib.SMTP, mail: EmailMessage) -> None:
    try:
        server.send_message(mail, str(mail["From"]), [str(mail["To"])])
    except smtplib.SMTPRecipientsRefused as error:
        ((code, _),) = error.recipients.values()
    except smtplib.SMTPDataError as error:
        code = error.smtp_code
    else:
        return
    why = f"mail refused: {code}"
    raise UndeliverableError(why) if code >= 500 else BusyError(why)


def _keep(known: dict[Any, Any], more: dict[Any, Any]) -> None:
    """The oldest are forgotten."""
    known |= more
    for each in list(known)[: max(0, len(known) - _REMEMBERED)]:
        del known[each]


def open_senders(config: NotifyConfig, notes: JobNotes | None) -> dict[Channel, Sender]:
    """Those that are switched on; ``notes`` None: there is no Slurm. Raises ``ConfigError`` for a secret of no use."""
    texts, senders = config.texts, dict[Channel, Sender]()
    if config.webhook.url_file is not None:
        senders[Channel.WEBHOOK] = Webhook(_url_in(config.webhook.url_file), lambda told: as_json(told, texts))
    if config.slack.url_file is not None:
        senders[Channel.SLACK] = Webhook(_url_in(config.slack.url_file), lambda told: as_slack(told, texts))
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
