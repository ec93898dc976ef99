"""Slurm's commands as processes: without a shell, with a time limit, in an environment of our own; typed errors for
what they say on standard error. Answers (60 MB of a large cluster) can be taken in pieces.
"""

import codecs
import contextlib
import errno
import fcntl
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from clearway.model.errors import SlurmError, SlurmRefusedError, SlurmTimeoutError, SlurmUnavailableError
from clearway.slurm.base import Fence, Unfenced

# How a client finds and authenticates to slurmctld. Everything else in our environment (SQUEUE_*, SLURM_TIME_FORMAT
# and so on) could change what the commands print.
_PASSED_ON = ("PATH", "SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "LD_LIBRARY_PATH")
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin:/opt/slurm/bin"

_FIXED = {
    "LC_ALL": "C",
    "TZ": "UTC",
    "SLURM_TIME_FORMAT": "standard",
    "SLURM_BITSTR_LEN": "0",  # array task lists whole, without "..."
}

# The 10 s after which Slurm's own client gives up (MessageTimeout).
_NO_ANSWER = re.compile(r"Socket timed out|Timed out", re.IGNORECASE)

# "Unexpected message received" is what scontrol 22.05 prints when slurmctld is down.
_UNREACHABLE = re.compile(
    r"Unable to contact|Unexpected message received|onnection failure|onnection refused|connect failure"
    r"|Zero Bytes were transmitted|standby mode|cannot stat file|Unable to establish config"
    r"|Could not (?:open|establish)|Protocol authentication|Incompatible versions|[Mm]unge|fatal:"
    r"|Unable to process configuration|temporarily una(?:ble|vailable)|Invalid job format specification"
)


KEEP_EVERY_S = 1.0  # how often the fence hears of a call that is waited for
_PIECE = 2**20  # bytes that are decoded and handed on together; the most that a pipe holds for an ordinary user

Take = Callable[[str], object]  # is given the pieces of an answer, one after another

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@-]*", re.ASCII)


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def checked(name: str) -> str:
    """A name that goes into a list of names, where a comma or a bracket would make it several."""
    if not is_name(name):
        raise SlurmRefusedError(f"{name[:80]!r} is not a name that Slurm takes")
    return name


@dataclass(frozen=True, slots=True)
class Commands:
    """Runs Slurm's commands. ``timeout_s`` holds for each of them."""

    timeout_s: float = 15.0
    slurm_conf: str | None = None
    bin_dir: str | None = None  # where the commands are; None: on the PATH
    env: Mapping[str, str] = field(default_factory=dict)  # in addition, and stronger
    fence: Fence = field(default_factory=Unfenced)

    def environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        conf = {"SLURM_CONF": self.slurm_conf} if self.slurm_conf else {}
        return {"PATH": _DEFAULT_PATH} | kept | _FIXED | conf | dict(self.env) | dict(extra)

    def run(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> str:
        """Standard output of a command that changes nothing. Raises a SlurmError for everything but success."""
        pieces: list[str] = []
        self.run_in_pieces(argv, pieces.append, env=env)
        return "".join(pieces)

    def run_in_pieces(self, argv: Sequence[str], take: Take, *, env: Mapping[str, str] | None = None) -> None:
        """As ``run``, but ``take`` is given the output piece by piece. After an error none of them may count."""
        self._run(argv, self.timeout_s, env or {}, take)

    def change(self, argv: Sequence[str]) -> None:
        """As ``run``, for a command that changes something: the fence may refuse it, or give it less time."""
        self._run(argv, min(self.timeout_s, self.fence.command_limit_s()), {}, lambda _: None)

    def _run(self, argv: Sequence[str], limit_s: float, env: Mapping[str, str], take: Take) -> None:
        program = argv[0] if self.bin_dir is None else str(Path(self.bin_dir, argv[0]))
        try:
            process = subprocess.Popen(  # noqa: S603 - fixed programs, an argument list, no shell
                [program, *argv[1:]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self.environment(env),
                start_new_session=True,
            )
        except FileNotFoundError:
            raise SlurmUnavailableError(f"Slurm's command {program} is not installed or not on the PATH") from None
        except OSError as error:
            raise SlurmUnavailableError(f"Slurm's command {program} cannot be started: {error.strerror}") from None
        with process:
            try:
                err = self._follow(process, limit_s, take)
            except TimeoutError:
                raise SlurmTimeoutError(f"{argv[0]} did not answer within {limit_s:g} s") from None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        message = _message(err)
        # Some releases print an error and exit with status 0 all the same.
        if process.returncode != 0 or "Invalid job format specification" in message:
            raise error_from(argv[0], message, process.returncode)

    def _follow(self, process: subprocess.Popen[bytes], limit_s: float, take: Take) -> bytes:
        """Hand on what it prints until it has ended; what it said on standard error. Raises ``TimeoutError``."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        out, err, size = list[bytes](), list[bytes](), 0
        for of_out, data in self._printed(process, time.monotonic() + limit_s):
            if not of_out:
                err.append(data)
                continue
            out.append(data)
            size += len(data)
            if size >= _PIECE:
                take(decoder.decode(b"".join(out)))
                out, size = [], 0
        take(decoder.decode(b"".join(out), final=True))
        return b"".join(err)

    def _printed(self, process: subprocess.Popen[bytes], end: float) -> Iterator[tuple[bool, bytes]]:
        """What it prints, and whether that is on standard output, until it has ended; the fence hears of it."""
        assert process.stdout is not None  # noqa: S101 - both are pipes
        assert process.stderr is not None  # noqa: S101
        keep_at = time.monotonic() + KEEP_EVERY_S
        with selectors.DefaultSelector() as selector:
            with contextlib.suppress(OSError):  # it may hold more at once: there are fewer wake-ups then
                fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, _PIECE)
            selector.register(process.stdout, selectors.EVENT_READ, True)
            selector.register(process.stderr, selectors.EVENT_READ, False)
            while selector.get_map() or process.poll() is None:
                now = time.monotonic()
                if now >= end:
                    raise TimeoutError
                if now >= keep_at:
                    self.fence.keep()
                    keep_at = time.monotonic() + KEEP_EVERY_S
                wait_s = max(0.0, min(end, keep_at) - now)
                if not selector.get_map():  # it has closed both, and is about to end
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(wait_s)
                for key, _ in selector.select(wait_s) if selector.get_map() else ():
                    if data := os.read(key.fd, _PIECE):
                        yield key.data, data
                    else:
                        selector.unregister(key.fileobj)


def _message(stderr: bytes) -> str:
    lines = stderr.decode("utf-8", errors="replace").splitlines()
    told = (re.sub(r"^(?:s\w+: )?(?:error: )?", "", line.strip()) for line in lines)
    return "; ".join(line for line in told if line)


def error_from(command: str, message: str, status: int) -> SlurmError:
    if _NO_ANSWER.search(message):
        return SlurmTimeoutError(f"{command}: {message}")
    if _UNREACHABLE.search(message) or status < 0:
        return SlurmUnavailableError(f"{command}: {message or f'ended by signal {-status}'}")
    return SlurmRefusedError(f"{command}: {message or f'exit status {status}'}")


T = TypeVar("T")
_UNKNOWN_JOB = re.compile(r"Invalid job id")


def unless_unknown(ask: Callable[[], T]) -> T | None:
    """What Slurm says of jobs; None where it knows none of them (any more)."""
    try:
        return ask()
    except SlurmRefusedError as error:
        if _UNKNOWN_JOB.search(str(error)):
            return None
        raise


AUTHENTICATION = 1007
INVALID_JOB_ID = 2017
ENDED = (2021, 2084, INVALID_JOB_ID)  # already completing or completed, finished, not known (any more)

_NOT_PERMITTED = frozenset({errno.EPERM, errno.EACCES})
_TIMEOUTS = frozenset({1021, 1022, 1023, 5004})
_STANDBY = frozenset({2027, 2131})


class RefusedError(SlurmRefusedError):
    """Slurm's no, with its number."""

    def __init__(self, message: str, errno: int) -> None:
        super().__init__(message)
        self.errno = errno


def error_for(number: int, text: str) -> SlurmError:
    """The typed error for Slurm's own error number, which pyslurm and slurmrestd pass on. 1000-1999 is communication,
    2000-4999 what slurmctld and slurmd refuse, 5000-5999 sockets, 6000-6999 authentication, 9000 and above slurmrestd.
    Below are errno's own (connection refused and the like, not permitted).
    """
    if number in _TIMEOUTS:
        return SlurmTimeoutError(text)
    if number in _NOT_PERMITTED:
        return RefusedError(text, number)
    if 0 <= number < 2000 or 5000 <= number < 7000 or number in _STANDBY:
        return SlurmUnavailableError(text)
    return RefusedError(text, number)
