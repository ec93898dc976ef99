"""The process that a calendar is read in: ``python -P -m clearway.promise.calendar_worker NOW AHEAD_S PARENT``.

What a file of 1 MiB makes of dateutil and icalendar can be minutes, and gigabytes. Here the kernel ends that: this
process has so much of a processor, of memory and of time, and dies with the daemon that started it. The text comes on
standard input, the answer is JSON on standard output. Whose file it is was looked at before.
"""

import ctypes
import os
import resource
import signal
import sys
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType

from pydantic import TypeAdapter

from clearway.config.fields import printable
from clearway.model.errors import ConfigError
from clearway.promise.calendar import CalendarContents, read_calendar

CPU_S = 5
WALL_S = 30  # of a machine that has much else to do
MEMORY_MIB = 128  # with the 25 MiB of the interpreter; the largest ordinary file takes 10 MiB more
LARGEST_ANSWER = 8 * 2**20  # bytes
TOO_MUCH = f"reading it takes more than {CPU_S} s or {MEMORY_MIB} MiB: have fewer events, rules and time zones in it"
_MAPPED_MIB = 256  # code and tables of libraries besides, which are shared with the daemon
_DIE_WITH_PARENT = 1  # Linux's PR_SET_PDEATHSIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    contents: CalendarContents | None = None
    refused: str = ""  # why there are none: half a sentence


ANSWER = TypeAdapter(Answer)


def main(now: str, ahead_s: str, parent: str) -> None:
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != int(parent):
        return  # it has died just before
    _bound()
    sys.excepthook = _tell
    text = sys.stdin.buffer.read().decode()
    try:
        answer = Answer(contents=read_calendar(text, datetime.fromisoformat(now), float(ahead_s)))
    except ConfigError as error:
        answer = Answer(refused=str(error))
    _answer(answer)


def _bound() -> None:
    for kind, most in (
        (resource.RLIMIT_CPU, CPU_S),
        (resource.RLIMIT_DATA, MEMORY_MIB * 2**20),
        (resource.RLIMIT_AS, (MEMORY_MIB + _MAPPED_MIB) * 2**20),
        (resource.RLIMIT_FSIZE, LARGEST_ANSWER),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (bound, bound))
    signal.alarm(WALL_S)


def _tell(kind: type[BaseException], error: BaseException, _: TracebackType | None) -> None:
    """What a file makes of a library that does not expect it."""
    said = printable(f"{kind.__name__}: {error}".partition("\n")[0])[:200]
    _answer(Answer(refused=TOO_MUCH if issubclass(kind, MemoryError) else f"it cannot be read ({said})"))


def _answer(answer: Answer) -> None:
    sys.stdout.buffer.write(ANSWER.dump_json(answer))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
