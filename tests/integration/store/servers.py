"""Real database servers for tests: Debian's packages, a folder of their own, a Unix socket, nothing left behind.

A server listens on no port. It is started in the foreground under ``setpriv --pdeathsig``, so it ends with the test
run even when that is killed. As root it runs as the package's own user, because PostgreSQL refuses to run as root.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import ClassVar, Self

START_TIMEOUT_S = 240
PATIENT = "connect_timeout=120"  # the store's own limit is for servers that answer at once
_PATH = ":".join(
    [
        os.environ.get("PATH", ""),
        "/usr/sbin:/usr/bin:/sbin:/bin",
        *(str(folder) for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)),
    ]
)


class DatabaseServer(ABC):
    """One server with as many databases as tests ask for."""

    name: ClassVar[str]
    programs: ClassVar[tuple[str, ...]]
    user: ClassVar[str]  # whom it runs as when started by root
    shutdown: ClassVar[signal.Signals]  # ends it at once, in order

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"clearway-{self.name}-"))
        self.data = self.folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)

    @classmethod
    def missing(cls) -> str | None:
        """Why it cannot run here, in words."""
        absent = [name for name in (*cls.programs, "setpriv") if shutil.which(name, path=_PATH) is None]
        if absent:
            return f"not installed: {', '.join(absent)}"
        if os.geteuid() == 0:
            try:
                pwd.getpwnam(cls.user)
            except KeyError:
                return f"there is no user {cls.user} to run it as"
        return None

    def __enter__(self) -> Self:
        atexit.register(self.close)
        try:
            if os.geteuid() == 0:
                shutil.chown(self.folder, self.user)
            self.folder.chmod(0o755)
            self.install()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.close)

    @abstractmethod
    def install(self) -> None:
        """Make an empty data folder."""

    @abstractmethod
    def command(self) -> list[str]: ...

    @abstractmethod
    def new_database(self) -> str:
        """Make an empty database; returns its URL."""

    @abstractmethod
    def answers(self) -> bool: ...

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._as_user(["setpriv", "--pdeathsig", self.shutdown.name[3:], *self.command()]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in the terminal is for the tests to handle
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{self.name} did not start:\n{(self.folder / 'log').read_text()[-4000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(self.shutdown)
        try:
            process.wait(START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def restart(self) -> None:
        self.stop()
        self.start()

    def run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._as_user(command), capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False
        )

    def check(self, command: Sequence[str]) -> None:
        done = self.run(command)
        if done.returncode:
            raise AssertionError(f"{command[0]} failed: {done.stdout}{done.stderr}")

    def _as_user(self, command: Sequence[str]) -> list[str]:
        found = [shutil.which(command[0], path=_PATH) or command[0], *command[1:]]
        for index, word in enumerate(found[1:], 1):  # the program behind setpriv lies in no ordinary folder either
            if command[0] == "setpriv" and word in self.programs:
                found[index] = shutil.which(word, path=_PATH) or word
        if os.geteuid() != 0:
            return found
        group = pwd.getpwnam(self.user).pw_gid
        identity = [f"--reuid={self.user}", f"--regid={group}", "--clear-groups"]
        if command[0] == "setpriv":
            return [found[0], *identity, *found[1:]]
        return [shutil.which("setpriv", path=_PATH) or "setpriv", *identity, *found]


class PostgresServer(DatabaseServer):
    name = "postgresql"
    programs = ("postgres", "initdb", "psql")
    user = "postgres"
    shutdown = signal.SIGINT  # "fast": open sessions are ended

    def install(self) -> None:
        self.check(["initdb", "-D", str(self.data), "-U", "clearway", "--auth=trust", "-E", "UTF8", "--no-sync"])

    def command(self) -> list[str]:
        # fsync off: these tests are about what the server does, not about its disk.
        return ["postgres", "-D", str(self.data), "-k", str(self.folder), "-c", "listen_addresses=", "-F"]

    def answers(self) -> bool:
        return self._psql("SELECT 1").returncode == 0

    def new_database(self) -> str:
        name = f"clearway_{next(self._numbers)}"
        done = self._psql(f"CREATE DATABASE {name}")
        assert done.returncode == 0, done.stderr
        return f"postgresql://clearway:not-a-secret@/{name}?host={self.folder}&{PATIENT}"

    def _psql(self, statement: str) -> subprocess.CompletedProcess[str]:
        return self.run(["psql", "-X", "-h", str(self.folder), "-U", "clearway", "-d", "postgres", "-c", statement])


class MariadbServer(DatabaseServer):
    name = "mariadb"
    programs = ("mariadbd", "mariadb-install-db", "mariadb")
    user = "mysql"
    shutdown = signal.SIGTERM

    @property
    def socket(self) -> Path:
        return self.folder / "socket"

    def install(self) -> None:
        self.check(
            [
                "mariadb-install-db",
                "--no-defaults",
                f"--datadir={self.data}",
                f"--tmpdir={self.folder}",  # a server that begins removes what others have under the same names
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ]
        )

    def command(self) -> list[str]:
        return [
            "mariadbd",
            "--no-defaults",
            f"--datadir={self.data}",
            f"--tmpdir={self.folder}",
            f"--socket={self.socket}",
            f"--pid-file={self.folder / 'pid'}",
            "--skip-networking",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-buffer-pool-size=32M",
            # What a careless site may have set: the store must not depend on the server's defaults.
            "--sql-mode=",
            "--character-set-server=latin1",
        ]

    def answers(self) -> bool:
        return self._sql("SELECT 1").returncode == 0

    def new_database(self) -> str:
        name = f"clearway_{next(self._numbers)}"
        done = self._sql(f"CREATE DATABASE {name}")
        assert done.returncode == 0, done.stderr
        return f"mariadb://root@localhost/{name}?unix_socket={self.socket}&{PATIENT}"

    def _sql(self, statement: str) -> subprocess.CompletedProcess[str]:
        return self.run(["mariadb", "--no-defaults", f"--socket={self.socket}", "-u", "root", "-e", statement])
