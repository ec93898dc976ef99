"""Who asks over REST and the command line, what they may do, what is asked, and how it is answered. Frozen data."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple


class Role(StrEnum):
    """From the least to the most; each one may do what those before it may."""

    USER = "user"  # known, and no more: own jobs, and what Slurm lets every user see
    VIEWER = "viewer"  # sees the jobs of all users
    OPERATOR = "operator"  # approves, cancels, pauses, resumes, drains
    ADMIN = "admin"  # reads the audit trail

    @property
    def rank(self) -> int:
        return tuple(Role).index(self)

    def includes(self, other: "Role") -> bool:
        return self.rank >= other.rank


@dataclass(frozen=True, slots=True)
class Identity:
    """``name`` is a user of the cluster or the name of a token; it is stored as the actor of what is asked. An asker
    without any name has none: such an identity only reads, and only where the site allows it.
    """

    name: str
    role: Role

    @property
    def anonymous(self) -> bool:
        return not self.name


class RequestKind(StrEnum):
    APPROVE = "approve"  # carry an eviction out
    CANCEL = "cancel"  # call an eviction off
    PAUSE = "pause"
    RESUME = "resume"
    HALT = "halt"  # give Slurm no command any more, in the middle of a cycle as well
    UNHALT = "unhalt"
    DRAIN = "drain"
    UNDRAIN = "undrain"
    PROMISE = "promise"
    CANCEL_ROLLING = "cancel_rolling"
    COMPACT = "compact"
    PROMOTE = "promote"
    TEST_PREEMPTION = "test_preemption"  # ask a job to save itself, and requeue nothing
    HAND_OVER = "hand_over"  # give up the lease, so that another daemon leads


SWITCHES = (RequestKind.PAUSE, RequestKind.RESUME, RequestKind.HALT, RequestKind.UNHALT)
RECENT = timedelta(minutes=10)


class Allowance(NamedTuple):
    """How much one actor may ask of the loop: more is refused before it is stored, so that it takes no part of a cycle
    and of the audit trail. Switches are counted by themselves: nothing else that was asked may keep one from a halt.
    """

    waiting: int  # requests that are not handled yet
    recent: int  # requests within ``RECENT``


OF_USERS = Allowance(10, 60)
OF_OPERATORS = Allowance(200, 2_000)  # and of whoever may write to the database
OF_SWITCHES = Allowance(20, 200)


class RequestResult(StrEnum):
    DONE = "done"  # what was asked for is done, or has begun
    REFUSED = "refused"  # nothing was changed
    FAILED = "failed"  # Clearway failed at it, and does not try again: what was done until then stays


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What has become of a request: a code for programs and a sentence for people."""

    code: RequestResult = RequestResult.DONE
    sentence: str
    eviction_id: int | None = None  # the operation that it has led to, if any
    rolling_id: int | None = None

    @property
    def text(self) -> str:
        return self.sentence if self.code is RequestResult.DONE else f"{self.code.value}: {self.sentence}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRequest:
    """One request, for the loop to handle."""

    request_id: int
    kind: str  # a ``RequestKind``, unless another version of Clearway wrote it
    eviction_id: int | None
    actor: str
    created_at: datetime
    document: str = ""  # what a drain, undrain or promise is about, as JSON
    handled_at: datetime | None = None
    code: RequestResult | None = None  # None until it is handled
    result: str = ""  # ``Answer.text``; empty until it is handled
    rolling_id: int | None = None  # the rolling drain that it is about, or has led to

    @property
    def refused(self) -> bool:
        return self.code in (RequestResult.REFUSED, RequestResult.FAILED)
