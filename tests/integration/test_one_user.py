"""One user's many requests, and a thousand connections without a token: the cycle, the daemon's health, the monitor's
metrics and a halt go on, and memory stays bounded.

The load comes from a process of its own and ends by itself. Times are compared with those of the same machine just
before, for others may use it as well.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from clearway.api.logins import digest_of
from clearway.model.requests import OF_USERS
from tests.integration.daemon import PATIENT_S, DaemonProcess, get, wait_for, write_config

MALLORY, PROMETHEUS, ANN = "mallory-secret", "prometheus-secret", "ann-secret"
REQUESTS = """
POST /api/v1/drains {"nodes": "a[1-65536]"}
POST /api/v1/drains {"nodes": "n1"}
POST /api/v1/drains {"nodes": "n[1-8]", "rolling": 1}
POST /api/v1/undrains {"nodes": "n1"}
POST /api/v1/drains/what-if {"nodes": "n[1-8]"}
POST /api/v1/what-if {"nodes": 8, "max_delay": "1h"}
POST /api/v1/rolling-drains/what-if {"nodes": "n[1-8]", "rolling": 1}
POST /api/v1/compactions/what-if
POST /api/v1/promotions
POST /api/v1/promises {"nodes": 1, "at": "2030-01-01T00:00:00Z", "duration_s": 60.0, "users": ["mallory"]}
POST /api/v1/evictions/1/approve
POST /api/v1/evictions/1/cancel
POST /api/v1/jobs/1/test-preemption
POST /api/v1/halt
GET /api/v1/jobs
GET /api/v1/jobs/1
GET /api/v1/now
GET /api/v1/status
GET /api/v1/evictions
GET /api/v1/evictions/1/steps
GET /api/v1/report?since=365d
GET /api/v1/calibration
GET /api/v1/walltime/advice?user=mallory&name=x
GET /api/v1/requests/1
GET /api/v1/stream
GET /api/v1/openapi.json
GET /metrics
GET /readiness
"""
WITHOUT_A_TOKEN = """
GET /metrics
GET /liveness
GET /readiness
GET /api/v1/evictions
GET /
POST /api/v1/halt
GET /api/v1/openapi.json
"""
LATE_S = 1.5  # three times what a quiet machine keeps to
CYCLE_S = 2.5  # a bound of the histogram's
TIMES_AS_LONG = 30.0  # on a machine that others use
MEMORY_MIB = 150  # more than before


@contextmanager
def a_daemon(folder: Path) -> Iterator[DaemonProcess]:
    config = write_config(folder)
    text = config.read_text().replace('public = "reading"', 'public = "health"\nmonitors = ["prometheus"]')
    config.write_text(text + "[drain]\nowners = true\n")
    lines = (("mallory", "user", MALLORY), ("prometheus", "user", PROMETHEUS), ("ann", "operator", ANN))
    (folder / "tokens").write_text("".join(f"{name} {role} never {digest_of(of)}\n" for name, role, of in lines))
    with DaemonProcess(config, URGENT_FILE=str(folder / "urgent")) as daemon:
        wait_for(lambda: get(f"{daemon.address}/readiness").status_code == 200)
        yield daemon


@dataclass
class Watch:
    """Asks for health, metrics and a halt, over and over; each on a connection of its own, as such callers do."""

    address: str
    times: dict[str, list[float]] = field(default_factory=dict)
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)

    def look(self) -> None:
        self._ask("liveness", "GET", "/liveness", "")
        self._ask("metrics", "GET", "/metrics", PROMETHEUS)
        self._ask("halt", "POST", "/api/v1/halt", ANN)
        self._ask("unhalt", "POST", "/api/v1/unhalt", ANN)

    def _ask(self, what: str, method: str, path: str, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        began = time.monotonic()
        try:
            answer = httpx.request(method, self.address + path, headers=headers, timeout=PATIENT_S)
            status = answer.status_code
        except httpx.TransportError:
            status = 0
        self.times.setdefault(what, []).append(time.monotonic() - began)
        self.statuses[what, status] += 1

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Less often after a while: an operator may throw the switches 200 times within ten minutes."""
        end = threading.Event()

        def run() -> None:
            while not end.wait(0.3 if len(self.times.get("halt", ())) < 60 else 4.0):
                self.look()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()


def crowd(daemon: DaemonProcess, requests: str, seconds: float, connections: int, token: str = "") -> dict[str, int]:
    command = [sys.executable, "-m", "tests.integration.crowd", daemon.address, str(seconds), str(connections)]
    folder = Path(__file__).parents[2]
    limit_s = 4 * seconds + PATIENT_S
    done = subprocess.run(
        [*command, *([token] if token else [])],
        input=requests, capture_output=True, text=True, cwd=folder, timeout=limit_s, check=True,
    )  # fmt: skip
    found: dict[str, int] = json.loads(done.stdout)
    return found


def metrics(daemon: DaemonProcess) -> dict[str, float]:
    text = httpx.get(
        f"{daemon.address}/metrics", headers={"Authorization": f"Bearer {PROMETHEUS}"}, timeout=PATIENT_S
    ).text
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def slow_cycles(seen: dict[str, float]) -> float:
    counted = seen["clearway_cycle_duration_seconds_count"]
    return counted - seen[f'clearway_cycle_duration_seconds_bucket{{le="{CYCLE_S}"}}']


def memory_mib(daemon: DaemonProcess) -> float:
    """The most that it ever had."""
    status = Path(f"/proc/{daemon.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def size(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.glob("clearway.sqlite*"))


def holds(daemon: DaemonProcess, load: Callable[[], dict[str, int]]) -> dict[str, int]:
    """The bounds, while this load lasts."""
    before, quiet = metrics(daemon), Watch(daemon.address)
    for _ in range(10):
        quiet.look()
    memory, watch = memory_mib(daemon), Watch(daemon.address)
    with watch.looking():
        answers = load()
    after = metrics(daemon)
    slowest = {what: [round(each, 2) for each in sorted(times)[-3:]] for what, times in watch.times.items()}
    print(json.dumps({"answers": answers, "looks": len(watch.times["halt"]), "slowest": slowest}))
    for what, times in watch.times.items():
        usual, worst = statistics.median(quiet.times[what]), max(quiet.times[what])
        assert statistics.median(times) <= max(LATE_S, TIMES_AS_LONG * usual), (what, times)
        late = [each for each in times if each > max(LATE_S, TIMES_AS_LONG * worst)]
        assert len(late) <= len(times) / 10, (what, times)
    statuses = {"liveness": 200, "metrics": 200, "halt": 202, "unhalt": 202}
    assert set(watch.statuses) == set(statuses.items()), watch.statuses
    assert after["clearway_cycles_total"] > before["clearway_cycles_total"], "cycles went on"
    assert slow_cycles(after) <= slow_cycles(before), "a cycle of more than 2.5 s"
    assert memory_mib(daemon) - memory < MEMORY_MIB
    return answers


def one_user(folder: Path, seconds: float, connections: int) -> None:
    with a_daemon(folder) as daemon:
        rows, began = size(folder), time.monotonic()
        answers = holds(daemon, lambda: crowd(daemon, REQUESTS, seconds, connections, MALLORY))
        assert sum(answers.values()) > 2 * seconds, answers
        assert answers["429"] > answers.get("202", 0), answers
        windows = 1 + (time.monotonic() - began) / 600
        assert answers["202"] <= OF_USERS.recent * windows + OF_USERS.waiting
        assert size(folder) - rows < 8 * 2**20, "what is refused is not stored"
        (folder / "urgent").write_text("2")
        wait_for(lambda: metrics(daemon)['clearway_preemptor_starts_total{result="in_time"}'] == 1, 20)


def thousand(folder: Path, seconds: float) -> None:
    with a_daemon(folder) as daemon:
        answers = holds(daemon, lambda: crowd(daemon, WITHOUT_A_TOKEN, seconds, 1_000))
        assert answers.get("200", 0) > 0, answers
        assert "202" not in answers


def test_one_user_asks_for_everything(tmp_path: Path) -> None:
    one_user(tmp_path, seconds=10, connections=32)


@pytest.mark.fault("Connections of callers without a token kept the monitor out.", found_by="load")
def test_a_thousand_connections_without_a_token(tmp_path: Path) -> None:
    thousand(tmp_path, seconds=12)


@pytest.mark.full
@pytest.mark.parametrize("line", [line for line in REQUESTS.splitlines() if line])
def test_one_user_asks_for_one_thing(tmp_path: Path, line: str) -> None:
    """2,000 requests or more of any kind, as far as they come through in the time."""
    with a_daemon(tmp_path) as daemon:
        holds(daemon, lambda: crowd(daemon, line, 20, 64, MALLORY))


@pytest.mark.full
def test_one_user_for_longer(tmp_path: Path) -> None:
    one_user(tmp_path, seconds=120, connections=200)


@pytest.mark.full
def test_a_thousand_connections_for_longer(tmp_path: Path) -> None:
    thousand(tmp_path, seconds=60)
