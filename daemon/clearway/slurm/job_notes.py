"""Words on a job: its Comment, its own output, and whom Slurm's own mails of it go to. For a thread of its own.

The launcher writes its claims into the Comment, and Slurm cannot compare and set: a claim that is written between our
look and our write would be lost. ``may_be_written`` says when no run of the job can write.
"""

import re
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from clearway.model.cluster import JobState
from clearway.slurm import parse
from clearway.slurm.base import Fence
from clearway.slurm.parse import fields
from clearway.slurm.process import Commands, unless_unknown

_COLUMNS = (*parse.TARGET_COLUMNS, "UserName", "State", "NodeList", "EligibleTime", "Comment")
_OWNER = re.compile(r"^ *UserId=([^\s(]+)\(\d+\)", re.MULTILINE)
_MAIL = re.compile(r"MailUser=(\S+) MailType=(\S+)")
# A job that Slurm lets wait for so long does not start between a look and a write: commands end within 15 s, as they
# are set by default. That the loop lets it start meanwhile is seen by the second look, but for the moment after it.
_AHEAD = timedelta(seconds=20)
_CLAIM = "clearway:"


@dataclass(frozen=True, slots=True)
class JobWords:
    """A job as far as words on it go; ``target`` is how scontrol names exactly this job."""

    target: str
    state: JobState
    comment: str
    eligible_time: datetime | None

    def may_be_written(self, now: datetime) -> bool:
        """Whether no claim can be lost by a write now: the job makes none, or no process of the job can write."""
        if _CLAIM not in self.comment or self.state is JobState.SUSPENDED:
            return True
        waits = self.eligible_time is not None and self.eligible_time > now + _AHEAD
        return self.state is JobState.PENDING and waits


@dataclass(frozen=True, slots=True)
class MailSettings:
    user: str = ""
    types: frozenset[str] = frozenset()


class JobNotes:
    """Reads and writes them; each call is a command of Slurm's with a time limit. Raises ``SlurmError``."""

    def __init__(self, timeout_s: float, slurm_conf: str | None, fence: Fence) -> None:
        self._commands = Commands(timeout_s, slurm_conf, fence=fence)

    def look(self, job_id: str, user: str) -> JobWords | None:
        """None when Slurm does not know it (any more), when another user has its id, or when it cannot be read."""
        if not job_id.isdecimal():
            return None
        token = secrets.token_hex(8)  # see ``cli._squeue``
        argv = ["squeue", "--all", "--local", "--noheader", "--noconvert", "--states=all", f"--jobs={job_id}"]
        env = {"SQUEUE_FORMAT2": parse.job_format(token, _COLUMNS)}
        text = unless_unknown(lambda: self._commands.run(argv, env=env))
        for row in parse.split_rows(text or "", token, _COLUMNS)[0]:
            if row["JobID"] == job_id and row["UserName"] == user:
                return JobWords(
                    target=parse.job_target(row),
                    state=parse.job_state(row["State"], on_nodes=bool(fields.text(row["NodeList"]))),
                    comment="" if row["Comment"] == "(null)" else row["Comment"],
                    eligible_time=fields.time(row["EligibleTime"], "EligibleTime"),
                )
        return None

    def set_comment(self, words: JobWords, comment: str) -> None:
        self._commands.change(["scontrol", "--oneliner", "update", f"JobId={words.target}", f"Comment={comment}"])

    def print_to_output(self, words: JobWords, text: str) -> None:
        """Into the standard error of a running batch job; Slurm refuses it to operators."""
        self._commands.change(["scontrol", "notify", words.target, text])

    def mail_settings(self, job_id: str, user: str) -> MailSettings | None:
        """Whom Slurm's own mails of the job go to, as its owner chose; None when Slurm does not know the user's job."""
        if not job_id.isdecimal():
            return None
        text = unless_unknown(lambda: self._commands.run(["scontrol", "show", "job", job_id]))
        if text is None or (owner := _OWNER.search(text)) is None or owner[1] != user:
            return None
        found = _MAIL.search(text)
        return MailSettings(found[1], frozenset(found[2].upper().split(","))) if found else MailSettings()
