"""What a checkpointer needs for the same by itself: no launcher, no Slurm, no daemon, no checksums."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

LIMIT_S = 300
Start = Callable[[Sequence[str]], subprocess.Popen[bytes]]


def until(done: Callable[[], object], what: str) -> None:
    end = time.monotonic() + LIMIT_S
    while not done():
        assert time.monotonic() < end, f"not {what} within {LIMIT_S} s"
        time.sleep(0.01)


class Application:
    """The program saves itself on a signal, and waits until that is on the disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        self.command = command
        return subprocess.Popen(command, start_new_session=True)

    def save(self, program: subprocess.Popen[bytes]) -> None:
        program.send_signal(signal.SIGUSR1)
        until((self.folder / "state.0").exists, "saved")

    def restart(self) -> subprocess.Popen[bytes]:
        return self.start(self.command)


class Criu(Application):
    """As root, into a pid namespace, where the program's own ids are free."""

    def start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        silent = subprocess.DEVNULL
        return subprocess.Popen(command, start_new_session=True, stdin=silent, stdout=silent, stderr=silent)

    def save(self, program: subprocess.Popen[bytes]) -> None:
        (self.folder / "images").mkdir()
        dump = ["criu", "dump", "--tree", str(program.pid), "--images-dir", str(self.folder / "images")]
        subprocess.run([*dump, "--leave-stopped", "--manage-cgroups=ignore"], check=True, capture_output=True)
        on_disk(self.folder / "images")

    def restart(self) -> subprocess.Popen[bytes]:
        apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        images = ["--images-dir", str(self.folder / "images")]
        return self.start([*apart, "criu", "restore", *images, "--manage-cgroups=ignore"])


class Dmtcp(Application):
    def start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        self._coordinate()
        return self._run("dmtcp_launch", "--no-gzip", "--ckptdir", str(self.folder / "images"), *command)

    def save(self, program: subprocess.Popen[bytes]) -> None:  # noqa: ARG002 - the coordinator knows it
        subprocess.run(["dmtcp_command", "-p", self.port, "-bc"], check=False, capture_output=True)
        images = self.folder / "images"
        # 4.2.0 returns at once; the script comes last.
        until((images / "dmtcp_restart_script.sh").exists, "saved")
        on_disk(images)

    def restart(self) -> subprocess.Popen[bytes]:
        self._coordinate()
        return self._run("dmtcp_restart", *map(str, (self.folder / "images").glob("ckpt_*.dmtcp")))

    def _coordinate(self) -> None:
        """A new coordinator: the one before ends with its last program."""
        file = Path(tempfile.mkdtemp(dir=self.folder)) / "port"
        words = ["--daemon", "--exit-on-last", "--coord-port", "0", "--port-file", str(file)]
        folders = ["--ckptdir", str(self.folder / "images"), "--tmpdir", str(file.parent)]
        subprocess.run(["dmtcp_coordinator", "-q", *words, *folders], check=True, capture_output=True)
        until(lambda: file.exists() and file.read_text().strip(), "coordinated")
        self.port = file.read_text().strip()

    def _run(self, *words: str) -> subprocess.Popen[bytes]:
        name, *rest = words
        env = os.environ | {"DMTCP_COORD_HOST": "127.0.0.1", "DMTCP_COORD_PORT": self.port}
        command = [name, "-q", "-q", "-j", "--tmpdir", str(self.folder), *rest]
        return subprocess.Popen(command, start_new_session=True, env=env, stdin=subprocess.DEVNULL)


ALONE = {"application": Application, "criu": Criu, "dmtcp": Dmtcp}


def on_disk(folder: Path) -> None:
    subprocess.run(["sync", *map(str, folder.iterdir())], check=True)


def alone_s(name: str, holder: Path, folder: Path, steps: Callable[[Path], list[tuple[int, float]]]) -> float:
    """Seconds from the request of a program of 1,000 MB to be saved, over its end, until it does a step that is new."""
    log, by = folder / "log.0", ALONE[name](folder)
    program = by.start(["/usr/bin/python3", str(holder), "1", "1000", str(folder)])
    try:
        until(lambda: len(steps(log)) > 10, "computing")
        asked = time.time()
        by.save(program)
        end(program)
        reached = max(step for step, _ in steps(log))
        program = by.restart()
        until(lambda: max(step for step, _ in steps(log)) > reached, "computing again")
        return next(at for step, at in steps(log) if step > reached) - asked
    finally:
        end(program)


def end(program: subprocess.Popen[bytes]) -> None:
    if program.returncode is None:
        os.killpg(program.pid, signal.SIGKILL)
        program.wait()
