"""The machine under test clusters: what is installed, users, ports, commands, and what a killed run left behind."""

from __future__ import annotations

import fcntl
import os
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

PREFIX = "clearway-slurm-"
TEST_USERS = ("cwalice", "cwbob", "cwdaemon")  # two who submit, one that Clearway runs as
DAEMONS = ("munged", "slurmctld", "slurmd")
ACCOUNTING_DAEMONS = ("slurmdbd", "mariadbd", "mariadb-install-db")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SLACK = 4  # times every limit, which is told for a machine that does nothing else; a wait ends as soon as it may
PORT_BLOCK = 64  # the most that one cluster needs


class ClusterError(AssertionError):
    """Something the test cluster was asked to do went wrong; carries the output of the command."""


def missing_requirements(*, accounting: bool = False, rest: bool = False) -> str | None:
    """Why no cluster can be started here, in words, or None when one can."""
    if os.geteuid() != 0:
        return "needs root: slurmd starts the jobs of several users"
    wanted = DAEMONS + (ACCOUNTING_DAEMONS if accounting else ()) + (("slurmrestd",) if rest else ())
    missing = [name for name in wanted if shutil.which(name, path=SYSTEM_PATH) is None]
    return f"not installed: {', '.join(missing)}" if missing else None


def ensure_users(names: Sequence[str] = TEST_USERS) -> None:
    """Create the ordinary users that submit jobs in tests, where they do not exist."""
    with Path(__file__).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another test process may be about to create them
        for name in names:
            try:
                pwd.getpwnam(name)
            except KeyError:
                subprocess.run(["useradd", "--no-create-home", "--shell", "/bin/sh", name], check=True)


def slurm_version() -> tuple[int, int]:
    """(22, 5) or (26, 5), as ``slurmctld -V`` says."""
    text = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+)\.(\d+)", text)
    if found is None:
        raise ClusterError(f"slurmctld -V says {text!r}")
    return int(found[1]), int(found[2])


def call(
    command: Sequence[str], *, timeout: float, check: bool = True, stdin: str = "", **options: Any
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=timeout * SLACK,
        check=False,
        **options,
    )
    if check and done.returncode != 0:
        raise ClusterError(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def free_ports(count: int) -> tuple[int, socket.socket]:
    """The first of ``count`` free ports in a row, below the range that outgoing connections use.

    Its daemons listen only later, and not while a test has stopped them: until the socket is closed no other test
    cluster of this machine gets any of them, nor one in another file system.
    """
    for base in random.sample(range(10000, 32000 - PORT_BLOCK, PORT_BLOCK), 100):
        claim = socket.socket(socket.AF_UNIX)
        with suppress(OSError):  # another cluster has them
            claim.bind(f"\0clearway-test-ports-{base}")
            if not any(listens(port) for port in range(base, base + count)):
                return base, claim
        claim.close()
    raise ClusterError(f"no {count} free ports in a row")


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def stop_process(pid: int) -> None:
    """SIGSTOP, and wait until every thread stands still: for a moment after the signal they go on."""
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + 10 * SLACK
    while any(state != "T" for state in _threads(pid)):
        if time.monotonic() > end:
            raise ClusterError(f"process {pid} does not stop")
        time.sleep(0.01)


def _threads(pid: int) -> Iterator[str]:
    with suppress(OSError):  # the process has ended
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):  # the thread has ended
                yield (thread / "stat").read_text().rpartition(")")[2].split()[0]


def _processes_of(root: Path) -> Iterator[int]:
    """Job steps, jobs and clients of this cluster: who has its SLURM_CONF or a file of it open, and their children."""
    parents: dict[int, int] = {}
    found: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):  # it has ended meanwhile
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if _belongs(entry, root):
                found.add(int(entry.name))
    found.discard(os.getpid())
    for pid in parents:
        line, above = [pid], parents.get(pid)
        while above and above not in line:
            line.append(above)
            above = parents.get(above)
        if os.getpid() != pid and found.intersection(line):
            yield pid


def _belongs(entry: Path, root: Path) -> bool:
    """Whether the process of this folder in /proc is of the cluster: slurmstepd 26.05 writes over its environment."""
    if f"SLURM_CONF={root}/slurm.conf".encode() in (entry / "environ").read_bytes().split(b"\0"):
        return True
    for file in (entry / "fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            if file.readlink().is_relative_to(root):
                return True
    return False


def remove_cluster(root: Path) -> None:
    """End what still runs in this cluster folder and delete the folder."""
    deadline = time.monotonic() + 10 * SLACK
    killed: set[int] = set()
    looks = 0  # in a row that found none; one that is about to run another program shows nothing for a moment
    while looks < 2 and time.monotonic() < deadline:
        left = set(_processes_of(root))
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed |= left
        looks = 0 if left or any(map(_lives, killed)) else looks + 1
        time.sleep(0.02)  # the end of a killed process takes a moment
    if not os.environ.get("CLEARWAY_KEEP"):
        shutil.rmtree(root, ignore_errors=True)


def _lives(pid: int) -> bool:
    """Whether a thread of it can still write: killed, it shows neither environment nor files before its end."""
    return any(state not in "ZX" for state in _threads(pid))


def sweep_abandoned() -> None:
    """Clear away clusters whose test run was killed: their folder names the process that owned them."""
    for root in Path("/tmp").glob(f"{PREFIX}*"):
        owner = root.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists() and not os.environ.get("CLEARWAY_KEEP"):
            remove_cluster(root)


def make_gpus(root: Path, gpus: Mapping[str, Mapping[str, int]]) -> None:
    """Write gres.conf, and the files that stand for GPUs."""
    lines = []
    for name, types in gpus.items():
        for gpu_type, count in types.items():
            if ":" in gpu_type:
                lines.append(f"NodeName={name} Name={gpu_type[:-1]} Count={count}")
                continue
            for index in range(count):
                (root / "work" / f"{name}.{gpu_type}.{index}").touch()
            files = f"{root}/work/{name}.{gpu_type}.[0-{count - 1}]"
            lines.append(f"NodeName={name} Name=gpu Type={gpu_type} File={files}")
    (root / "gres.conf").write_text("\n".join(lines) + "\n")
