"""The Python half that checkpointers share: it runs a driver with a time limit and reads what it answers."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clearway.model.problem import Action

_HERE = Path(__file__).parent
_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Whether a checkpointer can be used on this node, and for this program."""

    ok: bool
    reason: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What came of a checkpoint. ``ok`` means complete on disk; anything else must be treated as no checkpoint."""

    ok: bool
    reason: str = ""
    size_mib: int = 0
    took_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Whether a generation can be restarted from."""

    ok: bool
    reason: str = ""


class Driver:
    """A checkpointer whose work is done by ``NAME.sh``; docs/contributing.md has the verbs.

    No call raises for what a checkpointer does: the result says ``ok`` or why not.
    ``environment`` is added to the driver's own: CLEARWAY_STATE, CLEARWAY_DIR and the checkpointer's settings.
    """

    name: str
    action: Action  # APP_CHECKPOINT, SYS_CHECKPOINT or SUSPEND: what planning calls it
    limits: tuple[str, ...]  # what it cannot do, one sentence each, for the documentation

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        *,
        probe_limit_s: float = 20.0,
        checkpoint_limit_s: float = 600.0,
        verify_limit_s: float = 120.0,
    ) -> None:
        self._environment = dict(environment or {})
        self._probe_limit_s = probe_limit_s
        self._checkpoint_limit_s = checkpoint_limit_s
        self._verify_limit_s = verify_limit_s

    @property
    def driver(self) -> Path:
        return _HERE / f"{self.name}.sh"

    def probe(self, program: Sequence[str] = ()) -> Probe:
        answer = self._ask(self._probe_limit_s, "probe", *(("--", *program) if program else ()))
        return Probe(ok=answer["ok"] == "yes", reason=answer["reason"], version=answer.get("version", ""))

    def wrap(self, program: Sequence[str]) -> tuple[str, ...]:
        """The command that starts the program so that it can be saved later."""
        return ("sh", str(self.driver), "start", "--", *program)

    def checkpoint(self, generation: Path, pid: int) -> Saved:
        """Saves the program, which then stands still until ``go_on``, or goes on; see the driver's verb."""
        began = time.monotonic()
        answer = self._ask(self._checkpoint_limit_s, "checkpoint", str(generation), str(pid))
        size = answer.get("size_mib", "")
        return Saved(
            ok=answer["ok"] == "yes",
            reason=answer["reason"],
            size_mib=int(size) if size.isdecimal() else 0,
            took_s=time.monotonic() - began,
        )

    def go_on(self, pid: int) -> None:
        """Lets a program go on that stands still since it was saved; ``pid`` leads its process group."""
        self._ask(self._probe_limit_s, "go_on")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGCONT)

    def verify(self, generation: Path) -> Verified:
        answer = self._ask(self._verify_limit_s, "verify", str(generation))
        return Verified(ok=answer["ok"] == "yes", reason=answer["reason"])

    def restart(self, generation: Path, program: Sequence[str]) -> tuple[str, ...]:
        """The command that goes on with what was saved."""
        return ("sh", str(self.driver), "restart", str(generation), "--", *program)

    def end(self) -> None:
        self._ask(self._probe_limit_s, "end")

    def _ask(self, limit_s: float, *words: str) -> dict[str, str]:
        """What the driver answers; ``ok`` and ``reason`` are always there."""
        command = ("timeout", "--kill-after=5", f"{limit_s:g}", "sh", str(self.driver), *words)
        try:
            # Not subprocess's own timeout: that would leave what the driver has started.
            done = subprocess.run(  # noqa: S603 - our own driver, no shell in between
                command,
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
        except OSError as error:
            return {"ok": "no", "reason": f"{self.driver}: {error}"}
        answer = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
        if done.returncode in (124, 137):
            answer |= {"ok": "no", "reason": f"{words[0]} took longer than {limit_s:g} s"}
        if answer.get("ok") != "yes":
            last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
            answer |= {"ok": "no", "reason": answer.get("reason") or last}
        answer["reason"] = answer.get("reason", "")[:_LONGEST_REASON]
        return answer
