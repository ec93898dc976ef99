"""The Comment: ours is written where no claim can be lost by it, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from clearway.config.notify import TextsConfig
from clearway.model.claims import parse_claims
from clearway.model.cluster import JobState
from clearway.model.errors import SlurmRefusedError, SlurmTimeoutError
from clearway.model.notice import Channel, NoticeKind
from clearway.notify.sending import CommentWriter, NotYetError, OutputWriter, UndeliverableError, UndeliveredError
from clearway.slurm.job_notes import JobWords
from tests.builders import NOW, after
from tests.unit.notify.test_words import notice

CLAIMS = "clearway:run=0,checkpoint=signal,signal=USR1,to=batch,app=a,state=saved,asked=1767268800"
TOLD = notice(
    channel=Channel.COMMENT,
    about={
        "what": "preempted",
        "cause": "for an urgent job",
        "at": "2026-01-01 12:00:00 UTC",
        "saved": "saved 12:00 UTC",
        "next": "waits in the queue",
    },
)


class Notes:
    """What Slurm answers to each look, and what is given to it."""

    def __init__(self, *answers: JobWords | Exception | None, refused: Exception | None = None) -> None:
        self.answers, self.refused = list(answers), refused
        self.written: list[str] = []

    def look(self, job_id: str, user: str) -> JobWords | None:
        assert (job_id, user) == (TOLD.job_id, TOLD.user)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def set_comment(self, words: JobWords, comment: str) -> None:
        if self.refused is not None:
            raise self.refused
        self.written.append(f"{words.target}: {comment}")

    def print_to_output(self, words: JobWords, text: str) -> None:
        self.set_comment(words, text)


def words(state: JobState, comment: str = CLAIMS, eligible: datetime | None = None) -> JobWords:
    return JobWords(target="5_7", state=state, comment=comment, eligible_time=eligible)


WAITS = words(JobState.PENDING, eligible=after(120))


def send(notes: Any) -> None:
    CommentWriter(notes, TextsConfig()).send((TOLD,), NOW)


@pytest.mark.parametrize(
    ("seen", "may"),
    [
        (WAITS, True),
        (words(JobState.PENDING, eligible=after(19)), False),  # it may start between look and write
        (words(JobState.PENDING), False),
        (words(JobState.RUNNING), False),  # the launcher may write
        (words(JobState.COMPLETING), False),  # likewise, until the run is over
        (words(JobState.UNKNOWN), False),
        (words(JobState.SUSPENDED), True),  # no process of the job runs
        (words(JobState.RUNNING, "own words"), True),
        (words(JobState.COMPLETING, ""), True),
        (words(JobState.RUNNING, "clearway:max_delay=5m"), False),
    ],
)
def test_when_it_is_written(seen: JobWords, may: bool) -> None:
    notes = Notes(seen)
    if not may:
        with pytest.raises(NotYetError):
            send(notes)
        assert not notes.written
        return
    send(notes)
    (written,) = notes.written
    assert written.startswith(f"5_7: {seen.comment}")
    assert written.endswith(
        "[Clearway preempted for an urgent job at 2026-01-01 12:00:00 UTC; saved 12:00 UTC; waits in the queue]"
    )
    assert parse_claims(written.removeprefix("5_7: ")) == parse_claims(seen.comment)


@pytest.mark.parametrize(
    "again",
    [
        replace(WAITS, comment=CLAIMS.replace("run=0", "run=1")),
        replace(WAITS, comment=""),
        replace(WAITS, state=JobState.RUNNING),
    ],
)
def test_what_has_changed_since_the_look_is_not_written_over(again: JobWords) -> None:
    notes = Notes(WAITS, again)
    with pytest.raises(NotYetError):
        send(notes)
    assert not notes.written


def test_a_look_that_takes_long_is_not_taken_for_a_short_one() -> None:
    """Slurm took 15 s for each look, and the job could start before the Comment was written."""
    soon = replace(WAITS, eligible_time=after(40))
    times = iter([0.0, 30.0])
    notes: Any = Notes(soon)
    with pytest.raises(NotYetError):
        CommentWriter(notes, TextsConfig(), lambda: next(times)).send((TOLD,), NOW)
    assert not notes.written


def test_what_is_there_already_is_not_written_again() -> None:
    notes = Notes(WAITS)
    send(notes)
    told = notes.written.pop().removeprefix("5_7: ")
    notes.answers = [replace(WAITS, comment=told)]
    send(notes)
    assert not notes.written


def test_what_slurm_says_to_it() -> None:
    with pytest.raises(UndeliverableError):
        send(Notes(None))
    with pytest.raises(UndeliverableError):
        send(Notes(WAITS, refused=SlurmRefusedError("Job has already finished")))
    with pytest.raises(UndeliveredError):
        send(Notes(SlurmTimeoutError("no answer")))


@pytest.mark.parametrize("state", list(JobState))
def test_only_a_job_that_runs_is_warned_in_its_output(state: JobState) -> None:
    notes: Any = Notes(words(state))
    writer = OutputWriter(notes, TextsConfig())
    warning = notice(kind=NoticeKind.WARNED, channel=Channel.OUTPUT, name="a\nb")
    if state in (JobState.RUNNING, JobState.CONFIGURING):
        writer.send((warning,), NOW)
        assert "\n" not in notes.written[0]
    else:
        with pytest.raises(UndeliverableError):
            writer.send((warning,), NOW)


def test_a_warning_that_comes_too_late_is_none() -> None:
    """What was to be done within minutes may be done by then, or be called off."""
    notes: Any = Notes(words(JobState.RUNNING))
    warning = notice(kind=NoticeKind.WARNED, channel=Channel.OUTPUT)
    with pytest.raises(UndeliverableError, match="too late"):
        OutputWriter(notes, TextsConfig()).send((warning,), after(31))
    assert not notes.written
