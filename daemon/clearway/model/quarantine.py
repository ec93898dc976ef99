"""What is passed over for a while because its handling raised. Frozen data, and the shape of a guarded call."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeVar

T = TypeVar("T")


class Subject(StrEnum):
    JOB = "job"
    REQUEST = "request"  # is finished as failed, and never tried again
    OPERATION = "operation"
    PART = "part"  # of a cycle, such as its housekeeping


@dataclass(frozen=True, slots=True)
class Quarantined:
    """One subject that is passed over."""

    subject: Subject
    ident: str
    why: str  # the type and text of the error
    times: int  # failures in a row
    until: datetime  # it is tried again then


class Attempt(Protocol):
    """Calls ``act`` for one job; None where that raised, or where the job is passed over.

    ``ident`` is the job's id and what it is looked at for: one that fails as an urgent job may end as a candidate.
    """

    def __call__(self, ident: str, act: Callable[[], T]) -> T | None: ...


def unguarded(ident: str, act: Callable[[], T]) -> T | None:  # noqa: ARG001
    """An ``Attempt`` that raises: for questions that people ask, who are told the error."""
    return act()


def described(error: BaseException) -> str:
    """One line, however long or strange the error's own text is."""
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
