"""What says notices: one class for each way. Each call may take seconds, and is made in a thread of its own."""

import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol

from clearway.config.notify import NotifyConfig
from clearway.config.trusted_files import read_trusted
from clearway.model.errors import ConfigError
from clearway.model.notice import Channel, Notice
from clearway.notify import words
from clearway.notify.job_comment import CommentWriter, OutputWriter
from clearway.notify.mail import Mail
from clearway.notify.undelivered import UndeliverableError, UndeliveredError
from clearway.slurm.job_notes import JobNotes

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
