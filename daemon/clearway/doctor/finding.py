"""What a check finds, in words: what is so, and what to do about it."""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    OK = "ok"
    ADVICE = "advice"  # Clearway works; something is better known or changed
    FAULT = "fault"  # something that must hold does not
    UNTRIED = "untried"  # nobody has asked for it, or it cannot be found out


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """``what`` is one line. ``remedy`` is what to do, one line; empty where there is nothing to do."""

    area: str
    check: str
    state: State
    what: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """A finding without the name of its check."""

    state: State
    what: str
    remedy: str = ""


def ok(what: str) -> Result:
    return Result(State.OK, what)


def advice(what: str, remedy: str) -> Result:
    return Result(State.ADVICE, what, remedy)


def fault(what: str, remedy: str) -> Result:
    return Result(State.FAULT, what, remedy)


def untried(what: str, remedy: str = "") -> Result:
    return Result(State.UNTRIED, what, remedy)
