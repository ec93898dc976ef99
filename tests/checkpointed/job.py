"""A batch job without Slurm: its step, its Comment, and what Slurm does to its processes at a requeue."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.05
KILL_WAIT_S = 2.0  # Slurm's KillWait is longer, but no program here needs it
# All that the job starts stays below the step, also what has made itself a daemon: Slurm's cgroup holds such, too.
REAPER = (
    "import ctypes, os, signal, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0 or sys.exit(70); "
    "[signal.signal(each, signal.SIG_DFL) for each in (signal.SIGPIPE, signal.SIGXFSZ)]; "  # Python ignores them
    "os.execv(sys.argv[1], sys.argv[2:])"
)
SQUEUE = """\
#!/bin/sh
case "$*" in
    *RestartCnt*) cat @HERE@/runs ;;
    *%U*) id -u ;;
    *%T*) echo RUNNING ;;
    *) cat @HERE@/comment ;;
esac
"""
SCONTROL = """\
#!/bin/sh
for word; do
    case $word in
        Comment=*) printf '%s\\n' "${word#Comment=}" >@HERE@/comment.new; mv @HERE@/comment.new @HERE@/comment ;;
    esac
done
"""
SRUN = """\
#!/bin/sh
while :; do case $1 in -n) shift 2 ;; -*) shift ;; *) exec "$@" ;; esac; done
"""


def below(pid: int) -> Iterator[int]:
    """All descendants of a process."""
    with contextlib.suppress(OSError):
        for task in list(Path(f"/proc/{pid}/task").iterdir()):
            for kid in (task / "children").read_text().split():
                yield int(kid)
                yield from below(int(kid))


def awaited(condition: Callable[[], bool], limit_s: float) -> bool:
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(POLL_S)
    return True


NUMBERS = itertools.count(7)


@dataclass
class Job:
    """One job in a folder of its own. The program's folder stays from run to run; TMPDIR is another in each."""

    folder: Path
    launcher: Path
    tools: str = ""  # folders that come first on PATH
    criu: Path | None = None

    def __post_init__(self) -> None:
        self.work = self.folder / "work"
        self.bin = self.folder / "bin"
        self.run, self.number = -1, next(NUMBERS)
        self.step: subprocess.Popen[bytes] | None = None
        self.batch = 0
        for folder in (self.work, self.bin):
            folder.mkdir(parents=True)
        (self.folder / "comment").write_text("a trial\n")
        for name, text in {"squeue": SQUEUE, "scontrol": SCONTROL, "srun": SRUN}.items():
            self._tool(name, text.replace("@HERE@", str(self.folder)))
        shutil.copy("/bin/bash", self.bin / "slurmstepd")
        if self.criu is not None:
            (self.bin / "criu").symlink_to(self.criu)
            (self.folder / "images").mkdir()
            settings = self.folder / "criu.conf"
            settings.write_text(f"images={self.folder}/images\npath={self.bin}\nlimit_mib=0\n")
            helper = (self.launcher / "clearway-criu").read_text()
            self._tool("clearway-criu", helper.replace("/etc/clearway/criu.conf", str(settings)))

    def _tool(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def environment(self) -> dict[str, str]:
        tmp = self.folder / f"tmp-{self.run}"
        tmp.mkdir(exist_ok=True)
        path = ":".join(word for word in (self.tools, str(self.bin), "/usr/local/bin:/usr/bin:/bin:/usr/sbin") if word)
        given = {
            "PATH": path,
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "TMPDIR": str(tmp),
            "SLURM_JOB_ID": str(self.number),
            "SLURM_JOB_NUM_NODES": "1",
            "SLURM_SUBMIT_DIR": str(self.work),
            "CLEARWAY_CRIU_HELPER": str(self.bin / "clearway-criu"),
        }
        return given | ({"SLURM_RESTART_COUNT": str(self.run)} if self.run > 0 else {})

    def start(self, line: str, **more: str) -> None:
        """The next run: a batch script with this last line, from another folder each time, as Slurm's own copy lies."""
        self.run += 1
        (self.folder / "runs").write_text(f"{self.run}\n")
        spool = self.folder / f"spool-{self.run}"
        spool.mkdir()
        script = spool / "slurm_script"
        script.write_text(f"#!/bin/bash\n{line}\n")
        script.chmod(0o755)
        step = [f"slurmstepd: [{self.number}.batch]", "-c", '"$@"; exit $?', "sh", str(script)]
        with (self.folder / "out").open("ab") as out, (self.folder / "err").open("ab") as err:
            self.step = subprocess.Popen(
                [sys.executable, "-I", "-c", REAPER, str(self.bin / "slurmstepd"), *step],
                cwd=self.work, env=self.environment() | more, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                start_new_session=True,
            )  # fmt: skip
        self.batch = 0
        awaited(self._has_begun, 20)

    def _has_begun(self) -> bool:
        assert self.step is not None
        self.batch = next(below(self.step.pid), 0)
        return self.batch != 0 or self.step.poll() is not None

    def ended(self) -> bool:
        return self.step is None or self.step.poll() is not None

    def status(self) -> int:
        assert self.step is not None
        return self.step.wait()

    def ask(self) -> None:
        """What Clearway does: a signal to the batch shell alone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.batch, signal.SIGUSR1)

    def requeue(self) -> None:
        """What Slurm does to every process of the job; then the node's own files are gone."""
        self._all(signal.SIGCONT)
        self._all(signal.SIGTERM)
        assert self.step is not None
        awaited(self.ended, KILL_WAIT_S)
        self.end()

    def end(self) -> None:
        """Whatever is left of this run."""
        if self.step is not None:
            for _ in range(100):
                if not self._all(signal.SIGKILL):
                    break
                time.sleep(0.02)
            self.step.kill()
            self.step.wait()
        shutil.rmtree(self.folder / f"tmp-{self.run}", ignore_errors=True)
        # Another node has none of these either. Programs name them by their folder.
        name = self.work.stat().st_ino & 0x7FFFFFFF
        Path(f"/dev/shm/clearway-table-{name}").unlink(missing_ok=True)
        ctypes.CDLL(None).mq_unlink(f"/clearway-table-{name}".encode())
        for kind in ("-Q", "-S"):
            subprocess.run(["ipcrm", kind, str(name)], capture_output=True, check=False, timeout=20)

    def _all(self, which: signal.Signals) -> int:
        assert self.step is not None
        found = [pid for pid in below(self.step.pid) if not _zombie(pid)]
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, which)
        return len(found)

    def pairs(self) -> dict[str, str]:
        """What the job's Comment says to Clearway."""
        word = re.search(r"clearway:(\S+)", (self.folder / "comment").read_text())
        return dict(pair.split("=", 1) for pair in word[1].split(",") if "=" in pair) if word else {}

    def text(self, name: str) -> str:
        path = self.folder / name
        return path.read_text(errors="replace") if path.is_file() else ""

    def said(self) -> list[str]:
        """The launcher's lines so far."""
        return re.findall(r"^clearway-run: (.*)$", self.text("err"), re.MULTILINE)

    def steps(self) -> list[str]:
        return self.text("work/steps").splitlines()


def _zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in {"Z", "X"}
    except OSError:
        return True
