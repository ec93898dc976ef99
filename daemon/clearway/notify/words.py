"""Notices in words, fit for the place that they go to. Pure.

What users have written (names of jobs) may be an attack on what shows it: each place has an escape of its own, and
every such text is bounded. Templates look names up and run nothing (``config.notify.filled``).
"""

import json
from collections.abc import Callable, Sequence
from email.message import EmailMessage
from email.utils import format_datetime

from clearway.config.notify import MailConfig, TextsConfig, filled
from clearway.model.notice import Notice, NoticeKind

_LONGEST = 120  # characters of what a user may have written
_NO_WIDTH = "\u200b"  # what is parted by it looks the same, and means nothing
_LINES = 50  # of one message; of the rest only the number is told
_SUBJECTS = {
    NoticeKind.WARNED: "job {job_id} is to leave soon",
    NoticeKind.LEFT: "job {job_id} was {what}",
    NoticeKind.RETURNED: "job {job_id} was started again",
    NoticeKind.HELD: "job {job_id} is held in the queue",
    NoticeKind.APPROVAL: "operation {eviction_id} waits for approval",
    NoticeKind.LOOP: "jobs leave again and again",
    NoticeKind.STOPPED: "no job leaves for urgent jobs any more",
    NoticeKind.LATE: "operation {eviction_id} has missed its deadline",
}


def plain(text: str) -> str:
    """One line of printable characters: no line break, escape code or direction mark goes through."""
    line = "".join(each if each.isprintable() else "?" for each in text)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def sentence(notice: Notice, texts: TextsConfig, shown: Callable[[str], str] = plain) -> str:
    """What is told, as one line of plain text; ``shown`` is what becomes of each fact."""
    facts = {name: shown(text) for name, text in notice.about.items()}
    return filled(getattr(texts, notice.kind.value), facts).replace("()", "").replace("  ", " ").strip()


def lines(notices: Sequence[Notice], texts: TextsConfig, shown: Callable[[str], str] = plain) -> list[str]:
    """A sentence for each, a bounded number."""
    told = [sentence(each, texts, shown) for each in notices[:_LINES]]
    more = len(notices) - len(told)
    return [*told, f"... and {more} more."] if more else told


def as_json(notices: Sequence[Notice], texts: TextsConfig) -> bytes:
    """``id`` is the same when a notice has to be sent again, so that a receiver can drop it."""
    told = [
        {
            "id": f"{each.key}",
            "kind": each.kind.value,
            "at": each.at.isoformat(timespec="milliseconds"),
            "user": each.user or None,
            "job_id": each.job_id or None,
            "eviction_id": each.eviction_id,
            "text": sentence(each, texts),
            "about": {name: plain(text) for name, text in each.about.items()},
        }
        for each in notices
    ]
    return json.dumps({"version": 1, "notices": told}).encode()


def as_slack(notices: Sequence[Notice], texts: TextsConfig) -> bytes:
    """Slack's own escapes (& < >) leave no link, no mention and no markup; for Mattermost see ``_in_chat``."""
    text = "\n".join(lines(notices, texts, _in_chat))
    for character, escape in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(character, escape)
    return json.dumps({"text": text, "mrkdwn": False, "unfurl_links": False, "unfurl_media": False}).encode()


def _in_chat(text: str) -> str:
    """Mattermost takes Markdown, whatever ``mrkdwn`` says: nobody is called by ``@all``, and nothing is a link."""
    line = plain(text)
    for mark in ("@", "](", "://"):
        line = line.replace(mark, f"{mark[0]}{_NO_WIDTH}{mark[1:]}")
    return line


def as_mail(notices: Sequence[Notice], address: str, config: MailConfig, texts: TextsConfig) -> EmailMessage:
    """Headers hold one line each, whatever users have written."""
    first = notices[0]
    about = filled(_SUBJECTS[first.kind], {name: plain(text) for name, text in first.about.items()})
    if len(notices) > 1:
        about = f"{about}, and {len(notices) - 1} more"
    mail = EmailMessage()
    mail["From"] = config.sender
    mail["To"] = address
    mail["Subject"] = plain(filled(config.subject, {"subject": about}))
    mail["Date"] = format_datetime(first.created_at)
    mail["Message-ID"] = (
        f"<clearway.{first.notice_id}.{first.created_at:%Y%m%d%H%M%S%f}@{config.sender.partition('@')[2]}>"
    )
    mail["Auto-Submitted"] = "auto-generated"  # no answer of an absence assistant comes back
    mail.set_content("\n\n".join(lines(notices, texts)) + "\n\nClearway\n")
    return mail
