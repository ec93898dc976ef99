"""A whole daemon on a simulated cluster, with its real server and real time: in this process, or one of its own.

``python -m tests.integration.daemon CONFIG`` serves until it is told to stop: eight busy nodes, and ``URGENT_AFTER_S``
after its start an urgent job that needs two of them. Where ``URGENT_FILE`` names a file, the job comes when that file
does, and needs as many nodes as it says.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx

from clearway import bootstrap
from clearway.api.logins import Tokens, digest_of
from clearway.config.configuration import Config, load_config, parse_config
from clearway.model.clock import SystemClock
from clearway.model.cluster import Node
from clearway.service import server
from clearway.simulation.backend import SimulatedBackend
from clearway.simulation.cluster import SimulatedCluster
from clearway.simulation.jobs import Program
from clearway.telemetry.log import configure_logging

TOKEN = "correct-horse-battery"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
PATIENT_S = 80.0  # for an answer over HTTP: the daemon's machine may stand still
URGENT_AFTER_S = 1.0

CONFIG = """
[daemon]
mode = "{mode}"
poll_interval = 0.2
active_interval = 0.1
stale_after = 20
[store]
url = "sqlite:///{folder}/clearway.sqlite"
[api]
port = 0
token_file = "{folder}/tokens"
[access]
public = "reading"
[[preemptors]]
partition = ["urgent"]
max_delay = "5m"
[candidates]
min_runtime = 0
[costs]
checkpoint_overhead = 0
[budget]
jobs_per_hour = 100
lost_node_hours_per_hour = 100
[execution]
kill_allowance = "2s"
"""


def write_config(folder: Path, mode: str = "automatic") -> Path:
    tokens = folder / "tokens"
    tokens.write_text(f"ann operator never {digest_of(TOKEN)}\n")
    tokens.chmod(0o600)
    path = folder / "clearway.toml"
    path.write_text(CONFIG.format(folder=folder, mode=mode))
    return path


@dataclass
class Simulated:
    """The daemon's parts, before anything runs."""

    config: Config
    origin: Path

    def __post_init__(self) -> None:
        self.clock = SystemClock()
        self.cluster = SimulatedCluster(now=self.clock.now())
        self.cluster.add_nodes(
            Node(
                name=f"n{n}", available=True, raw_state="IDLE", cpus=4, memory_mib=4_000, partitions=("batch", "urgent")
            )
            for n in range(1, 9)
        )
        saves = {"program": Program(save_s=0.5), "comment": "clearway:checkpoint=signal,took=1"}
        for n in range(1, 9):  # half of them save themselves, the youngest of the others is the cheapest to kill
            self.cluster.submit(on=(f"n{n}",), ran_s=100.0 * n, **(saves if n > 4 else {}))
        backend = SimulatedBackend(self.cluster, self.clock)
        self.daemon = bootstrap.build(self.config, origin=str(self.origin), backend=backend, clock=self.clock)

    def submit_urgent(self, nodes: int, work_s: float = 2.0, **fields: Any) -> str:
        return self.cluster.submit(
            Program(work_s=work_s), num_nodes=nodes, partitions=("urgent",), priority=1_000, user="ursula", **fields
        )

    def service(self) -> server.Service:
        assert self.config.api.token_file is not None
        return server.Service(
            self.daemon.loop,
            self.daemon.metrics,
            Tokens(self.config.api.token_file),
            read_config=lambda: load_config(self.origin),
        )


@contextmanager
def running_here(
    folder: Path, mode: str = "automatic", extra: str = "", public: str = "reading", role: str = "operator"
) -> Iterator[tuple[Simulated, str]]:
    """The daemon in threads of this process, with its address."""
    path = write_config(folder, mode)
    path.write_text(path.read_text().replace('public = "reading"', f'public = "{public}"'))
    (folder / "tokens").write_text(f"ann {role} never {digest_of(TOKEN)}\n")
    simulated = Simulated(parse_config(path.read_text() + extra, str(path)), path)
    with server.background(simulated.service()) as service:
        yield simulated, service.address


def wait_for(done: Callable[[], Any], limit_s: float = 20.0, what: str = "") -> Any:
    """The limit is for a machine that does nothing else; a busy one has four times as long."""
    end = time.monotonic() + 4 * limit_s
    while not (value := done()):
        assert time.monotonic() < end, f"not within {4 * limit_s:g} s: {what or done}"
        time.sleep(0.05)
    return value


def get(url: str) -> httpx.Response:
    return httpx.get(url, timeout=PATIENT_S)


class DaemonProcess:
    """The daemon in a process of its own; its standard error is its log."""

    def __init__(self, config: Path, **environment: str) -> None:
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.daemon", str(config)],
            cwd=Path(__file__).parents[2],
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append(line.rstrip("\n"))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        return "\n".join(self.lines)

    @property
    def address(self) -> str:
        def found() -> str:
            assert self._process.poll() is None, self.log
            return next((line.split("address=")[1].split()[0] for line in self.lines if "address=" in line), "")

        return str(wait_for(found, what="the daemon's address"))

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self, limit_s: float = 80.0) -> int:
        status = self._process.wait(limit_s)
        self._reader.join(limit_s)  # its last words may still be on their way
        return status

    def expect(self, words: str, limit_s: float = 20.0) -> str:
        """Wait for a log line that holds these words."""
        return str(
            wait_for(lambda: next((line for line in self.lines if words in line), ""), limit_s, f"{words}\n{self.log}")
        )


def main(config: str) -> int:
    settings = load_config(Path(config))
    configure_logging(settings.daemon.log_format)
    simulated = Simulated(settings, Path(config))
    backend, began = simulated.daemon.loop.parts.backend, time.monotonic()
    original, submitted = backend.snapshot, []
    asked = os.environ.get("URGENT_FILE", "")

    def urgent_nodes() -> int:
        if asked:
            return int(Path(asked).read_text()) if Path(asked).exists() else 0
        return 2 if time.monotonic() - began > URGENT_AFTER_S else 0

    def snapshot() -> Any:
        if not submitted and (nodes := urgent_nodes()):
            submitted.append(simulated.submit_urgent(nodes))
        return original()

    backend.snapshot = snapshot  # type: ignore[method-assign]
    assert settings.api.token_file is not None
    return server.serve(
        simulated.daemon.loop,
        simulated.daemon.metrics,
        Tokens(settings.api.token_file),
        read_config=lambda: load_config(Path(config)),
        dispatcher=simulated.daemon.dispatcher,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
