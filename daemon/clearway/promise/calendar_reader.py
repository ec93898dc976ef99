"""Who understands the text of a calendar: a process of its own, with bounds (``calendar_worker``).

A reader has one text at a time. The daemon begins and looks for the answer in a later cycle; the command line waits.
"""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from pydantic import ValidationError

from clearway.model.errors import ConfigError
from clearway.promise.calendar import CalendarContents
from clearway.promise.calendar_worker import ANSWER, LARGEST_ANSWER, TOO_MUCH, Answer

WAITS_S = 7.0  # for the answer, where somebody waits: `clearway check-config` ends within ten seconds
COMMAND = (sys.executable, "-P", "-m", "clearway.promise.calendar_worker")
# How the daemon's Python finds its modules, and what its times without a zone are; the rest is none of the reader's.
_PASSED_ON = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "TZ", "TZDIR")
_ENDED_BY_BOUNDS = (-signal.SIGXCPU, -signal.SIGKILL, -signal.SIGALRM)


class CalendarReader(Protocol):
    def begin(self, text: str, now: datetime, ahead_s: float) -> None:
        """As ``read_calendar``. What was begun before is given up. Raises ``ConfigError``."""

    def answer(self) -> CalendarContents | None:
        """None: there is none yet. Raises ``ConfigError`` where there will be none, or the text cannot be used."""

    def close(self) -> None: ...


@dataclass(slots=True)
class ReadsInProcess:
    """``waits_s``: how long ``answer`` waits; 0: it only looks.

    Text and answer lie in memory, not in pipes: whichever side is slow, the other one does not wait for it.
    """

    waits_s: float = 0.0
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _output: int = field(default=-1, init=False)

    @property
    def pid(self) -> int | None:
        """The process's id while it has not been asked for its answer."""
        return None if self._process is None else self._process.pid

    def begin(self, text: str, now: datetime, ahead_s: float) -> None:
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
        if answer.contents is None:
            raise ConfigError(answer.refused)
        return answer.contents

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
        return Answer(refused=TOO_MUCH)
    try:
        return ANSWER.validate_json(said)
    except ValidationError:
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        return Answer(refused=f"the process that reads it ended without an answer ({how})")
