"""Who understands the text of a calendar: a process of its own, with bounds (``python -P -m`` this module).

What a file of 1 MiB makes of dateutil and icalendar can be minutes, and gigabytes. The kernel ends that: the process
has so much of a processor, of memory and of time, and dies with the daemon that started it. The text comes on standard
input, the answer is JSON on standard output. Whose file it is was looked at before.

A reader has one text at a time. The daemon begins and looks for the answer in a later cycle; the command line waits.
"""

import ctypes
import os
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType

from pydantic import TypeAdapter, ValidationError

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
WAITS_S = 7.0  # for the answer, where somebody waits: `clearway check-config` ends within ten seconds
COMMAND = (sys.executable, "-P", "-m", "clearway.promise.calendar_reader")
# How the daemon's Python finds its modules, and what its times without a zone are; the rest is none of the reader's.
_PASSED_ON = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "TZ", "TZDIR")
_ENDED_BY_BOUNDS = (-signal.SIGXCPU, -signal.SIGKILL, -signal.SIGALRM)


Answer = CalendarContents | str  # a text says in half a sentence why there are none
ANSWER: TypeAdapter[Answer] = TypeAdapter(Answer)


def main(now: str, ahead_s: str, parent: str) -> None:
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != int(parent):
        return  # it has died just before
    _bound()
    sys.excepthook = _tell
    text = sys.stdin.buffer.read().decode()
    try:
        _answer(read_calendar(text, datetime.fromisoformat(now), float(ahead_s)))
    except ConfigError as error:
        _answer(str(error))


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
    _answer(TOO_MUCH if issubclass(kind, MemoryError) else f"it cannot be read ({said})")


def _answer(answer: Answer) -> None:
    sys.stdout.buffer.write(ANSWER.dump_json(answer))
    sys.stdout.buffer.flush()


@dataclass(slots=True)
class CalendarReader:
    """``waits_s``: how long ``answer`` waits; 0: it only looks.

    Text and answer lie in memory, not in pipes: whichever side is slow, the other one does not wait for it.
    """

    waits_s: float = 0.0
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _output: int = field(default=-1, init=False)

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def begin(self, text: str, now: datetime, ahead_s: float) -> None:
        """As ``read_calendar``. What was begun before is given up. Raises ``ConfigError``."""
        self.close()
        command = (*COMMAND, now.isoformat(), repr(ahead_s), str(os.getpid()))
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        try:
            self._output = os.memfd_create("calendar-answer")
            with open(os.memfd_create("calendar"), "w+b") as given:  # noqa: PTH123 - it has no path
                given.write(text.encode())
                given.seek(0)
                self._process = subprocess.Popen(  # noqa: S603 - our own module, no shell
                    command, stdin=given, stdout=self._output, stderr=subprocess.DEVNULL, env=environment
                )
        except OSError as error:
            self.close()
            raise ConfigError(f"no process can be started to read it: {error.strerror}") from None

    def answer(self) -> CalendarContents | None:
        """None: there is none yet. Raises ``ConfigError`` where there will be none, or the text cannot be used."""
        process = self._process
        if process is None:
            raise ConfigError("nothing reads it")
        try:
            status = process.wait(self.waits_s) if self.waits_s else process.poll()
        except subprocess.TimeoutExpired:
            self.close()
            raise ConfigError(f"reading it takes more than {self.waits_s:g} s") from None
        if status is None:
            return None
        said = os.pread(self._output, LARGEST_ANSWER, 0)
        self.close()
        answer = _understood(status, said)
        if isinstance(answer, str):
            raise ConfigError(answer)
        return answer

    def close(self) -> None:
        process, self._process = self._process, None
        output, self._output = self._output, -1
        if process is not None:
            process.kill()
            process.wait()
        if output != -1:
            os.close(output)


def _understood(status: int, said: bytes) -> Answer:
    if status in _ENDED_BY_BOUNDS:
        return TOO_MUCH
    try:
        return ANSWER.validate_json(said)
    except ValidationError:
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        return f"the process that reads it ended without an answer ({how})"


if __name__ == "__main__":
    main(*sys.argv[1:])
