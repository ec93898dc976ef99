"""A bench for the launcher: stand-ins for squeue, scontrol and slurmstepd around it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from clearway.model.claims import Claims, parse_claims

LAUNCHER = Path(__file__).parents[2] / "plugins" / "slurm" / "clearway-run"
SHELLS = [shell for shell in ("dash", "bash") if shutil.which(shell)]


def poll(condition: Callable[[], bool], limit_s: float = 15.0) -> None:
    """The limit is for a machine that does nothing else; a busy one has four times as long."""
    end = time.monotonic() + 4 * limit_s
    while not condition():
        assert time.monotonic() < end, "not so within the limit"
        time.sleep(0.02)


def processes_with(mark: bytes) -> list[int]:
    """Those whose environment holds this entry."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):  # a glob below it raises where a process ends meanwhile
        with contextlib.suppress(OSError):
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found


@dataclass
class Bench:
    folder: Path
    shell: str
    _started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def comment(self) -> str:
        return (self.folder / "comment").read_text().strip()

    def claims(self) -> Claims:
        claims = parse_claims(self.comment)
        assert claims is not None
        return claims

    def start(
        self,
        *arguments: str,
        program: str,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] | None = None,
        cwd: Path | None = None,
        **more: str,
    ) -> subprocess.Popen[str]:
        """The launcher as the child of a process that is called slurmstepd, as in a batch job."""
        path = self.folder / "program"
        path.write_text("#!/bin/bash\n" + textwrap.dedent(program))
        path.chmod(0o755)
        env = {
            **os.environ,
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "SLURM_JOB_ID": "7",
            "FOLDER": str(self.folder),
            "TMPDIR": str(self.folder),
            **more,
        }
        stepd = self.folder / "slurmstepd"
        command = [str(stepd), self.shell, str(LAUNCHER), *arguments, "--", str(path)]
        step = subprocess.Popen(
            command, env=env, cwd=cwd, text=True, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        self._started.append(step)
        return step

    def end(self) -> None:
        """Whatever a failed test has left running."""
        for step in self._started:
            subprocess.run(["pkill", "-KILL", "--session", str(step.pid)], check=False)
            step.wait()
        mark = f"FOLDER={self.folder}".encode()
        for pid in processes_with(mark):  # programs have sessions of their own
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for step in self._started:
            if step.stderr is not None:
                step.stderr.close()

    def launcher_pid(self) -> int:
        poll(lambda: (self.folder / "pid").exists() and bool((self.folder / "pid").read_text()))
        return int((self.folder / "pid").read_text())
