"""From kill -9 of the leader to the successor's first cycle as leader: real daemons, one database, defaults.

Each daemon has process ids of its own, as on another machine: on one machine a successor sees that the leader's process
has ended, and does not wait for the lease. The cluster is simulated, as nothing is asked of it here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import httpx
import pytest
from rich.console import Console
from rich.table import Table

from clearway.config.configuration import Config

T = TypeVar("T")

ROUNDS, SITES = (100, 10) if os.environ.get("CLEARWAY_FULL") else (3, 1)  # so many sites at a time
MOST_S = 15.0
LIMIT_S = 120.0
ELSEWHERE = ("unshare", "--pid", "--mount-proc", "--fork", "--kill-child")
CONFIG = """
[daemon]
mode = "observe"
[store]
url = "sqlite:///{folder}/clearway.sqlite"
[api]
port = 0
token_file = "{folder}/tokens"
[[preemptors]]
partition = ["urgent"]
"""


class Daemon:
    """In a process namespace of its own; its address is in its log."""

    def __init__(self, folder: Path, number: int) -> None:
        self._log = folder / f"{number}.log"
        command = [*ELSEWHERE, sys.executable, "-m", "tests.integration.daemon", str(folder / "clearway.toml")]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=Path(__file__).parents[2], stdin=subprocess.DEVNULL, stderr=log, start_new_session=True
            )
        self.address = wait_for(self._address, f"daemon {number} to serve")

    def _address(self) -> str:
        lines = self._log.read_text().splitlines()
        return next((line.split("address=")[1].split()[0] for line in lines if "address=" in line), "")

    def leads(self) -> bool:
        """Whether it has finished a cycle as the leader."""
        found = httpx.get(f"{self.address}/health", timeout=LIMIT_S).json()
        return bool(found["status"] == "ok" and not found["standby"])

    def stands_by(self) -> bool:
        found = httpx.get(f"{self.address}/health", timeout=LIMIT_S).json()
        return bool(found["status"] == "ok" and found["standby"])

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def wait_for(done: Callable[[], T], what: str) -> T:
    end = time.monotonic() + LIMIT_S
    while not (value := done()):
        assert time.monotonic() < end, f"not within {LIMIT_S:g} s: {what}"
        time.sleep(0.02)
    return value


def fail_over(folder: Path, rounds: int) -> list[float]:
    """Seconds that each of so many failovers took, one after another on one database."""
    folder.mkdir()
    (folder / "tokens").touch(mode=0o600)
    (folder / "clearway.toml").write_text(CONFIG.format(folder=folder))
    took: list[float] = []
    daemons = [Daemon(folder, 0)]
    try:
        wait_for(daemons[0].leads, "the first daemon to lead")
        for number in range(1, rounds + 1):
            daemons.append(Daemon(folder, number))
            wait_for(daemons[1].stands_by, "the second daemon to stand by")
            time.sleep(2.0 * (number % 10) / 10)  # any moment between two renewals
            began = time.monotonic()
            daemons.pop(0).kill()
            wait_for(daemons[0].leads, "the successor's first cycle")
            took.append(time.monotonic() - began)
    finally:
        for daemon in daemons:
            daemon.kill()
    return took


def test_failover(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ThreadPoolExecutor(SITES) as pool:  # they mostly wait
        sites = [pool.submit(fail_over, tmp_path / str(site), ROUNDS // SITES) for site in range(SITES)]
        took = [each for site in sites for each in site.result()]
    took.sort()
    table = Table("rounds", "median", "p99", "longest", title="Seconds from kill -9 to the successor's first cycle")
    p99 = took[min(len(took) - 1, round(0.99 * len(took)) - 1)] if len(took) > 1 else took[0]
    table.add_row(str(len(took)), *(f"{value:.1f}" for value in (statistics.median(took), p99, took[-1])))
    with capsys.disabled():
        Console().print(table)
    assert Config().daemon.lease < MOST_S
    assert p99 <= MOST_S
