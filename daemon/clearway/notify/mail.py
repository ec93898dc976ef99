"""Notices as mails, one for each address. What one address refuses keeps no other from its mail."""

import os
import smtplib
import ssl
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from email.message import EmailMessage
from pathlib import Path
from typing import TypeVar

from clearway.config.notify import MailConfig, TextsConfig, filled, is_address
from clearway.model.errors import SlurmError
from clearway.model.notice import Notice
from clearway.notify import words
from clearway.notify.undelivered import BusyError, UndeliverableError, UndeliveredError, UnwantedError
from clearway.slurm.job_notes import JobNotes, MailSettings

_ANSWER_S = 10.0  # of a mail server
_ASKED_FOR = frozenset({"REQUEUE", "ALL"})
_FINAL = frozenset({os.EX_DATAERR, os.EX_NOUSER, os.EX_NOHOST})  # what a mail program ends with
_REMEMBERED = 10_000
_Post = Callable[[EmailMessage], None]
K = TypeVar("K")
V = TypeVar("V")


class Mail:
    """By a program on this machine, or by a mail server. Implements ``sending.Sender``.

    What one address has got is not sent to it again when another one has to be tried again. This, and whom Slurm's own
    mails of a job go to, is kept in memory: Slurm forgets jobs, perhaps while the mail server is down.
    """

    def __init__(self, config: MailConfig, texts: TextsConfig, password: str, notes: JobNotes | None) -> None:
        self._config = config
        self._texts = texts
        self._password = password
        self._notes = notes
        self._done = dict[tuple[int, str], str]()  # by notice and address: why it was refused; "" where it was taken
        self._settings = dict[str, MailSettings]()  # by job

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
                        post(words.as_mail(left, address, self._config, self._texts))
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
        asked = self._config.owners == "asked"
        try:
            settings = self._settings_of(notice.job_id)
        except SlurmError as error:
            if asked:
                raise UndeliveredError(f"Slurm does not say whom its mails go to: {error}") from None
            settings = None
        if settings is None:
            if asked:
                raise UndeliverableError("Slurm does not know the job any more, nor whether its owner wants mails")
            settings = MailSettings()  # the template's address is good enough
        if asked and not settings.types & _ASKED_FOR:
            return ""
        if settings.user and is_address(settings.user):
            return settings.user
        name = settings.user or notice.user  # a MailUser without a domain is a name like any other
        address = filled(self._config.owner, {"user": name})
        return address if is_address(address) else ""

    def _settings_of(self, job_id: str) -> MailSettings | None:
        if self._notes is None:
            return MailSettings()
        if job_id not in self._settings and (found := self._notes.mail_settings(job_id)) is not None:
            _keep(self._settings, {job_id: found})
        return self._settings.get(job_id)

    @contextmanager
    def _open(self) -> Iterator[_Post]:
        """What posts one mail. It raises ``BusyError`` or ``UndeliverableError`` where that says nothing of others."""
        if self._config.sendmail is not None:
            program = self._config.sendmail
            yield lambda mail: self._by_program(program, mail)
            return
        try:
            with self._server() as server:
                yield lambda mail: _by_server(server, mail)
        except smtplib.SMTPResponseException as error:
            raise UndeliveredError(f"the mail server answered {error.smtp_code}") from None
        except (OSError, smtplib.SMTPException) as error:
            raise UndeliveredError(f"mail server: {getattr(error, 'strerror', '') or type(error).__name__}") from None

    def _server(self) -> smtplib.SMTP:
        config = self._config
        context = ssl.create_default_context()
        assert config.smtp_host is not None  # noqa: S101 - there is a server where there is no program
        if config.smtp_security == "tls":
            return self._logged_in(
                smtplib.SMTP_SSL(config.smtp_host, config.smtp_port, timeout=_ANSWER_S, context=context)
            )
        server = smtplib.SMTP(config.smtp_host, config.smtp_port, timeout=_ANSWER_S)
        return self._logged_in(server, context if config.smtp_security == "starttls" else None)

    def _logged_in(self, server: smtplib.SMTP, context: ssl.SSLContext | None = None) -> smtplib.SMTP:
        try:
            if context is not None:
                server.starttls(context=context)
            if self._config.smtp_user is not None:
                server.login(self._config.smtp_user, self._password)
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


def _keep(known: dict[K, V], more: dict[K, V]) -> None:
    """The oldest are forgotten."""
    known |= more
    for each in list(known)[: max(0, len(known) - _REMEMBERED)]:
        del known[each]
