"""The daemon's end of the pyslurm worker: one call at a time, each with a time limit, and a new worker after a crash.

A worker that does not answer in time is killed, because a hung libslurm cannot be interrupted; one that has died is
replaced at the next call. A second failure in a row waits before the next start, up to a minute, so that a broken
installation does not start processes without end; a call within that wait fails at once.
"""

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from clearway.model.errors import CycleEndedError, SlurmError, SlurmTimeoutError, SlurmUnavailableError
from clearway.slurm.base import Fence, Unfenced
from clearway.slurm.process import KEEP_EVERY_S, error_for
from clearway.slurm.pyslurm_worker import LENGTH, MAX_FRAME, frame

COMMAND = (sys.executable, "-m", "clearway.slurm.pyslurm_worker")
MAX_WAIT_S = 60.0


class WorkerProcess:
    """Calls into a worker process. Safe to share between threads; ``restarts`` counts replaced workers."""

    def __init__(
        self,
        *,
        slurm_conf: str | None,
        timeout_s: float,
        command: Sequence[str] = COMMAND,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._conf = slurm_conf
        self._timeout_s = timeout_s
        self._command = tuple(command)
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._failures = 0  # in a row
        self._not_before = 0.0
        self._last_failure = ""
        self.fence: Fence = Unfenced()
        self.restarts = 0
        self.versions: dict[str, str] = {}

    @property
    def pid(self) -> int | None:
        """The worker's process id while it runs."""
        return None if self._process is None else self._process.pid

    def call(self, name: str, /, **args: object) -> Any:
        """The answer of one call. Raises SlurmError; after a time-out it is not known whether Slurm acted."""
        return self._call(name, args, lambda: self._timeout_s)

    def change(self, name: str, /, **args: object) -> None:
        """As ``call``, for one that changes something: the fence may refuse it, or give it less time."""
        self._call(name, args, lambda: min(self._timeout_s, self.fence.command_limit_s()))

    def _call(self, name: str, args: dict[str, object], limit_s: Callable[[], float]) -> Any:
        with self._lock:
            if self._process is None:
                self._start()
            value = self._exchange(name, args, limit_s())
            self._failures = 0
            return value

    def close(self) -> None:
        with self._lock:
            self._kill()

    def _start(self) -> None:
        wait_s = self._not_before - self._monotonic()
        if wait_s > 0:
            raise SlurmUnavailableError(f"pyslurm failed ({self._last_failure}); next try in {wait_s:.0f} s")
        environment = os.environ | ({} if self._conf is None else {"SLURM_CONF": self._conf})
        if self._failures:
            self.restarts += 1
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own module, no shell
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
            )
        except OSError as error:
            raise self._failed(f"the pyslurm worker cannot be started: {error}") from None
        try:
            self.versions = self._exchange("hello", {"conf": self._conf}, self._timeout_s)
        except SlurmError:
            self._kill()  # slurmctld is down, say: a worker that has not begun is of no use
            raise

    def _exchange(self, name: str, args: dict[str, object], limit_s: float) -> Any:
        process, deadline = self._process, self._monotonic() + limit_s
        assert process is not None and process.stdin and process.stdout  # noqa: S101, PT018 - for the type checker
        try:
            process.stdin.write(frame({"call": name, "args": args}))
            process.stdin.flush()
            reply = self._receive(process.stdout.fileno(), deadline)
        except TimeoutError:
            self._failed(f"{name} took longer than {limit_s:g} s")
            raise SlurmTimeoutError(f"pyslurm: {name} did not answer within {limit_s:g} s") from None
        except (OSError, EOFError, ValueError):
            status = self._wait(process)
            how = f"signal {-status}" if status < 0 else f"exit status {status}"
            raise self._failed(f"the worker ended in {name}, {how}") from None
        except CycleEndedError:
            self._kill()  # its answer must not be taken for that of the next call
            raise
        if "ok" in reply:
            return reply["ok"]
        raise self._error(name, reply["error"])

    def _receive(self, descriptor: int, deadline: float) -> dict[str, Any]:
        (length,) = LENGTH.unpack(self._read(descriptor, LENGTH.size, deadline))
        if length > MAX_FRAME:
            raise ValueError("an answer without end")
        reply = json.loads(self._read(descriptor, length, deadline))
        if not isinstance(reply, dict) or not ("ok" in reply or "error" in reply):
            raise ValueError("not an answer")
        return reply

    def _read(self, descriptor: int, size: int, deadline: float) -> bytes:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        data = bytearray()
        while len(data) < size:
            left_s = deadline - self._monotonic()
            if left_s <= 0:
                raise TimeoutError
            if not poll.poll(min(left_s, KEEP_EVERY_S) * 1000):
                self.fence.keep()
                continue
            part = os.read(descriptor, min(size - len(data), 1 << 20))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    def _error(self, name: str, error: dict[str, Any]) -> SlurmError:
        """The typed error for what the worker could not do; after the first two it goes on working."""
        kind, text = error.get("kind"), f"pyslurm: {name}: {error.get('text')}"
        number = error.get("errno")
        if kind == "slurm" and isinstance(number, int):
            return error_for(number, text)
        if kind == "unusable":
            return self._failed(str(error.get("text")))
        return SlurmUnavailableError(text)

    def _failed(self, why: str) -> SlurmUnavailableError:
        """End this worker, and say when the next may start: at once after the first failure, then later and later."""
        self._kill()
        self._failures += 1
        self._last_failure = why
        wait_s = 0.0 if self._failures == 1 else min(2.0 ** (self._failures - 2), MAX_WAIT_S)
        self._not_before = self._monotonic() + wait_s
        return SlurmUnavailableError(f"pyslurm: {why}")

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        """The exit status of a worker that has closed its end; one that only seems to be alive is killed."""
        try:
            return process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(OSError), process:  # its pipes are closed, which fails for what was not sent any more
                process.kill()
