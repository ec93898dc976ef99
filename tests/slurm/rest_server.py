"""The slurmrestd of a test cluster, on a Unix socket in the cluster's folder."""

from __future__ import annotations

import shutil
import socket
import subprocess
from abc import abstractmethod
from pathlib import Path

from tests.slurm.client import SlurmClient
from tests.slurm.machine import ensure_users

USER = "cwrest"  # slurmrestd refuses to run as root or SlurmUser


class RestServer(SlurmClient):
    """What of a cluster has to do with slurmrestd."""

    def __init__(self) -> None:
        super().__init__()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.rest_port = 0

    @abstractmethod
    def _spawn(self, name: str, *argv: str, user: str | None = None) -> None: ...

    @abstractmethod
    def end(self, name: str) -> None: ...

    @property
    def rest_socket(self) -> Path:
        return self.root / "rest" / "socket"

    @property
    def rest_pid(self) -> int:
        return self._processes["slurmrestd"].pid

    def start_rest(self) -> None:
        """Each request brings the token of whom it is from (rest_auth/jwt)."""
        ensure_users((USER,))
        folder = self.rest_socket.parent
        folder.mkdir(exist_ok=True)
        shutil.chown(folder, USER, USER)
        self.rest_socket.unlink(missing_ok=True)
        what = ["-a", "rest_auth/jwt", "-s", "slurmctld", f"unix:{self.rest_socket}", f"127.0.0.1:{self.rest_port}"]
        self._spawn("slurmrestd", "env", "SLURM_JWT=daemon", "slurmrestd", *what, user=USER)
        self.wait_for(self._rest_answers, 30, "slurmrestd's socket")

    def stop_rest(self) -> None:
        self.end("slurmrestd")

    def _rest_answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.rest_socket)) == 0
