"""A Debian machine of its own: a tree that systemd-nspawn boots, with a network, users and services of its own.

The tree has Slurm, slurmdbd and MariaDB from Debian, and is kept between runs. No virtual
machine is needed: the kernel is this machine's. ``MemoryMax=`` of a unit is not enforced where it has cgroup v1.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

CACHE = Path(os.environ.get("XDG_CACHE_HOME", "/var/cache")) / "clearway-packaging"
PACKAGES = (
    "systemd,systemd-sysv,dbus,passwd,procps,iproute2,curl,sudo,python3,python3-venv,munge,mariadb-server,"
    "slurmctld,slurmd,slurm-client,slurmdbd,slurm-wlm-basic-plugins,slurm-wlm-mysql-plugin,rpm,ansible-core,python3-apt"
)
PATIENT_S = 240.0  # four times as long as a busy machine was seen to need
NAME = "clearway-test"
_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}


class MachineError(Exception):
    """A command in the machine failed, or something did not happen in time."""


def tree(suite: str) -> Path:
    """The tree of this suite, made where it is not there yet (1-2 minutes)."""
    name = hashlib.sha256(PACKAGES.encode()).hexdigest()[:12]
    made = CACHE / f"machine-{suite}-{name}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"machine-{suite}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.is_dir():
            new = made.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            options = ["--variant=minbase", "--mode=root", f"--include={PACKAGES}"]
            apt = ['--aptopt=Acquire::Check-Valid-Until "false"', '--aptopt=Acquire::Retries "3"']
            subprocess.run(["mmdebstrap", *options, *apt, suite, new], check=True, capture_output=True, timeout=1_200)
            (new / "etc/hostname").write_text(f"{NAME}\n")
            (new / "etc/hosts").write_text(f"127.0.0.1 localhost {NAME}\n")  # else the boot waits for names
            (new / "etc/machine-id").write_text("")
            # Its only network is the loopback device, for which this would wait.
            (new / "etc/systemd/system/systemd-networkd-wait-online.service").symlink_to("/dev/null")
            new.rename(made)
    return made


class Machine:
    """``with Machine("bookworm") as machine:`` boots one; it is gone afterwards."""

    def __init__(self, suite: str) -> None:
        self.suite = suite

    def __enter__(self) -> Self:
        self._leader = ""  # its first process, as this machine numbers it
        self._console = tempfile.TemporaryFile()
        # The tree itself stays as it is: what is written goes to memory, and is gone with the machine.
        options = ["-D", tree(self.suite), "-M", f"{NAME}-{os.getpid()}", f"--hostname={NAME}", "--volatile=overlay"]
        options += ["--boot", "--register=no", "--keep-unit", "--console=pipe", "--private-network"]
        # Killed by itself systemd-nspawn would leave the machine running; a PID namespace ends as a whole.
        namespace = ["setpriv", "--pdeathsig=KILL", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self._process = subprocess.Popen(
            [*namespace, "systemd-nspawn", "-q", *options, "--resolv-conf=off", "--link-journal=no"],
            stdin=subprocess.DEVNULL, stdout=self._console, stderr=self._console, start_new_session=True,
        )  # fmt: skip
        try:
            self.wait_for(self._booted, "the machine to boot")
        except BaseException:
            self._console.seek(0)
            print(self._console.read().decode(errors="replace")[-4_000:])
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGKILL)  # all that runs in the machine ends with it
        self._process.wait()
        self._console.close()

    def _booted(self) -> bool:
        if self._process.poll() is not None:
            raise MachineError("systemd-nspawn ended")
        pid = str(self._process.pid)  # unshare's; then systemd-nspawn's, then the first process of the machine
        for _ in range(2):
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            if len(children) != 1:
                return False
            (pid,) = children
        self._leader = pid
        self.root = Path(f"/proc/{self._leader}/root")
        state = self.run("systemctl is-system-running", check=False).stdout.strip()
        return state in {"running", "degraded"}

    def run(
        self, command: str, *, user: str = "root", check: bool = True, folder: str = "/root", limit_s: float = PATIENT_S
    ) -> subprocess.CompletedProcess[str]:
        """A shell's command in the machine.

        Raises:
            MachineError: it failed, unless ``check`` is False.
        """
        inner = ["sh", "-c", command] if user == "root" else ["runuser", "-u", user, "--", "sh", "-c", command]
        entered = ["nsenter", "-t", self._leader, "-a", f"--wdns={folder}"]
        done = subprocess.run(
            [*entered, *inner], env=_ENVIRONMENT, capture_output=True, text=True, check=False, timeout=limit_s,
            stdin=subprocess.DEVNULL, start_new_session=True,  # a `kill 0` in there would end the tests as well
        )  # fmt: skip
        if check and done.returncode:
            raise MachineError(f"{command}\nexit status {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def says(self, command: str, **more: str) -> str:
        return self.run(command, **more).stdout.strip()  # type: ignore[arg-type]

    def wait_for(self, true: Callable[[], bool], what: str, limit_s: float = PATIENT_S) -> float:
        """Seconds until it was true.

        Raises:
            MachineError: it was not in time.
        """
        began = time.monotonic()
        while not true():
            if time.monotonic() - began > limit_s:
                look = "systemctl --failed; journalctl -b --no-pager | tail -n 40"
                log = self.run(look, check=False).stdout if self._leader else ""
                raise MachineError(f"waited {limit_s:g} s for {what}\n{log}")
            time.sleep(0.2)
        return time.monotonic() - began

    def write(self, path: str, text: str) -> None:
        """A file that is there keeps its owner and mode."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
