"""What must be told, to whom and by which channel. Frozen data; the store keeps it until it was said."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class Channel(StrEnum):
    WEBHOOK = "webhook"  # JSON
    SLACK = "slack"  # Slack's form of a webhook
    MAIL = "mail"
    COMMENT = "comment"  # the job's Comment on Slurm
    OUTPUT = "output"  # the job's own standard error, by scontrol notify


class NoticeKind(StrEnum):
    """What a notice tells of. Those of jobs come first, and go to their owners; the others go to operators."""

    WARNED = "warned"  # the job is to leave soon
    LEFT = "left"  # the job was requeued, cancelled or suspended
    RETURNED = "returned"  # it runs again
    BEGAN = "began"  # it did not go on from its newest checkpoint
    HELD = "held"  # it waits held in the queue, until somebody releases it
    APPROVAL = "approval"  # a plan waits for approval
    LOOP = "loop"  # jobs leave again and again without an end to it
    STOPPED = "stopped"  # no job leaves any more: nodes were lost after others had left them
    LATE = "late"  # a deadline was missed


ABOUT_JOBS = frozenset({NoticeKind.WARNED, NoticeKind.LEFT, NoticeKind.RETURNED, NoticeKind.BEGAN, NoticeKind.HELD})


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One thing that is told by one channel. Under the same key nothing is told by the same channel a second time."""

    key: str
    kind: NoticeKind
    channel: Channel
    at: datetime  # when it happened
    created_at: datetime  # when it was stored
    user: str = ""  # the owner who is told; "" for operators
    job_id: str = ""  # of the owner's job; "" for operators
    eviction_id: int | None = None
    about: Mapping[str, str] = field(default_factory=dict)  # what templates name, as text
    notice_id: int = 0  # 0 until the store has given it one
    attempts: int = 0  # to say it, so far


@dataclass(frozen=True, slots=True)
class Waiting:
    count: int
    oldest: datetime | None  # when the oldest of them was stored; None where none waits
