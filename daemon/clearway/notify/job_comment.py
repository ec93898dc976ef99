"""Words on the job itself: in its Comment, which `squeue -o %k` shows, and in its own output.

Our part of a Comment stands in brackets behind whatever is there, ``[Clearway 2026-11-22 12:03 UTC preempted ...]``,
and replaces the part of an earlier time. It is no claim, and no claim is touched by it. When in doubt, nothing is
written: where the job may write its claims just now, where the Comment has changed since we looked, where it holds
something that we could not give back as it was, and where claims might want the room.
"""

import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from clearway.config.notify import TextsConfig, filled
from clearway.model.cluster import JobState
from clearway.model.errors import SlurmError, SlurmRefusedError
from clearway.model.notice import Notice, NoticeKind
from clearway.notify.changes import WARNED_BEFORE
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
    """Implements ``sending.Sender`` for one notice at a time."""

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
