"""What says notices: one class for each way. Each call may take seconds, and is made in a thread of its own."""

import http.client
import smtplib
import ssl
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from datetime import datetime
from email.message import EmailMessage
from pathlib import Path
from typing import Protocol

from clearway.api.trusted_files import read_trusted
from clearway.config.notify import MailConfig, NotifyConfig, TextsConfig, filled, is_address
from clearway.model.errors import ConfigError, SlurmError
from clearway.model.notice import Channel, Notice
from clearway.notify import words
from clearway.notify.job_comment import CommentWriter, OutputWriter
from clearway.notify.undelivered import UndeliverableError, UndeliveredError
from clearway.slurm.job_notes import JobNotes

_ANSWER_S = 10.0  # of a receiver
_TOO_MANY = (408, 425, 429)
_ASKED_FOR = frozenset({"REQUEUE", "ALL"})


class Sender(Protocol):
    def send(self, notices: Sequence[Notice], now: datetime) -> None:
        """Say these in one message. All are for one user, or for operators.

        Raises:
            UndeliveredError: not now; another try may succeed.
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


class Mail:
    """By a program on this machine, or by a mail server; a mail for each address."""

    def __init__(self, config: MailConfig, texts: TextsConfig, password: str, notes: JobNotes | None) -> None:
        self._config = config
        self._texts = texts
        self._password = password
        self._notes = notes

    def send(self, notices: Sequence[Notice], now: datetime) -> None:  # noqa: ARG002 - see ``Sender``
        if not notices[0].user:
            self._deliver([words.as_mail(notices, each, self._config, self._texts) for each in self._config.operators])
            return
        by_address: dict[str, list[Notice]] = {}
        for notice in notices:
            if address := self._owners_address(notice):
                by_address.setdefault(address, []).append(notice)
        if not by_address:
            raise UndeliverableError("the owner has no address, or asked for no mail")
        self._deliver(
            [words.as_mail(told, address, self._config, self._texts) for address, told in sorted(by_address.items())]
        )

    def _owners_address(self, notice: Notice) -> str:
        """The job's MailUser, else by the site's template; "" where the owner gets no mail."""
        user, types = ("", frozenset[str]())
        if self._notes is not None:
            try:
                user, types = self._notes.mail_settings(notice.job_id)
            except SlurmError as error:
                if self._config.owners == "asked":  # else the template's address is good enough
                    raise UndeliveredError(f"Slurm does not say whom its mails go to: {error}") from None
        if self._config.owners == "asked" and not types & _ASKED_FOR:
            return ""
        if user and is_address(user):
            return user
        name = user or notice.user  # a MailUser without a domain is a name like any other
        address = filled(self._config.owner, {"user": name})
        return address if is_address(address) else ""

    def _deliver(self, mails: Sequence[EmailMessage]) -> None:
        if self._config.sendmail is not None:
            for mail in mails:
                self._by_program(self._config.sendmail, mail)
            return
        try:
            self._by_server(mails)
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _ in error.recipients.values()]
            wrong = all(code >= 500 for code in codes)
            raise (UndeliverableError if wrong else UndeliveredError)(f"mail refused: {codes}") from None
        except smtplib.SMTPResponseException as error:
            raise UndeliveredError(f"the mail server answered {error.smtp_code}") from None
        except (OSError, smtplib.SMTPException) as error:
            raise UndeliveredError(f"mail server: {getattr(error, 'strerror', '') or type(error).__name__}") from None

    def _by_server(self, mails: Sequence[EmailMessage]) -> None:
        config = self._config
        context = ssl.create_default_context()
        assert config.smtp_host is not None  # noqa: S101 - there is a server where there is no program
        if config.smtp_security == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(
                config.smtp_host, config.smtp_port, timeout=_ANSWER_S, context=context
            )
        else:
            server = smtplib.SMTP(config.smtp_host, config.smtp_port, timeout=_ANSWER_S)
        with server:
            if config.smtp_security == "starttls":
                server.starttls(context=context)
            if config.smtp_user is not None:
                server.login(config.smtp_user, self._password)
            for mail in mails:
                server.send_message(mail, config.sender, [str(mail["To"])])

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
            raise UndeliveredError(f"{program} ended with status {done.returncode}")


def open_senders(config: NotifyConfig, notes: JobNotes | None) -> dict[Channel, Sender]:
    """Those that are switched on, with their secrets; ``notes`` None: there is no Slurm to ask or to tell.

    Raises:
        ConfigError: where a secret cannot be used.
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
