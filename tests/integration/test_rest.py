"""The daemon as it is run: a process, a port, signals, and systemd listening."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from clearway.config.configuration import load_config
from clearway.model.clock import SystemClock
from clearway.model.errors import ConfigError
from clearway.service.server import Notifier, Service, background
from clearway.store.repository import Store
from tests.integration.daemon import (
    AUTHORIZED,
    PATIENT_S,
    DaemonProcess,
    Simulated,
    get,
    running_here,
    wait_for,
    write_config,
)

MEMORY_LIMIT = 250 * 1024 * 1024


class Systemd:
    """The receiving end of sd_notify: it takes every message at once, or the daemon would wait for it."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self.messages: list[dict[str, str]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while message := self._socket.recv(4_096).decode():
            self.messages.append(dict(line.split("=", 1) for line in message.splitlines()))

    def expect(self, key: str, after: int = 0) -> int:
        """The index of the first message with this key."""

        def found() -> int:
            return next((n + 1 for n, m in enumerate(self.messages) if n >= after and key in m), 0)

        return int(wait_for(found, what=f"{key} in {self.messages}")) - 1

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RD)
        self._reader.join()
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Systemd, str]]:
    name = str(tmp_path / "notify") if request.param == "path" else f"@clearway-test-{os.getpid()}"
    listener = Systemd(name.replace("@", "\0"))
    yield listener, name
    listener.close()


def test_an_eviction_over_http(tmp_path: Path) -> None:
    with (
        running_here(tmp_path, "approve") as (simulated, address),
        httpx.Client(base_url=address, timeout=PATIENT_S) as client,
    ):
        wait_for(lambda: client.get("/readiness").status_code == 200)
        what_if = client.post("/api/v1/what-if", json={"nodes": 2, "max_delay": "20s"}).json()
        simulated.submit_urgent(2, work_s=600)
        wait_for(lambda: client.get("/api/v1/evictions", params={"state": "planned"}).json()["items"])
        assert len(what_if["plan"]["chosen"]["actions"]) == 2

        asked = client.post("/api/v1/evictions/1/approve", headers=AUTHORIZED)
        assert asked.status_code == 202
        path = asked.headers["Location"]
        wait_for(lambda: client.get(path).json()["result"].startswith("approved: "), what="the loop's answer")
        started = wait_for(lambda: client.get("/api/v1/evictions/1").json()["started_at"])
        body = client.get("/api/v1/evictions/1").json()
        assert started
        assert body["start_margin_s"] > 0
        assert body["approved_by"] == "ann"
        wait_for(lambda: "queued" in {p["state"] for p in client.get("/api/v1/evictions/1").json()["preemptions"]})


def test_the_stop_switch_by_file_is_part_of_the_audit_trail(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    switch = tmp_path / "halt"
    path.write_text(path.read_text().replace("[store]", f'halt_file = "{switch}"\n[store]'))
    simulated = Simulated(load_config(path), path)
    store = simulated.daemon.store

    def halts() -> list[str]:
        found = (row.document() for row in reversed(store.audit_trail()))
        return [each["about"]["halted"] for each in found if each["kind"] == "halt"]

    with background(simulated.service()):
        switch.touch()
        wait_for(lambda: len(halts()) == 1, what="the entry of the halt")
        switch.unlink()
        assert wait_for(lambda: len(halts()) == 2 and halts()) == [f"halted by the file {switch}", ""]


def test_an_answer_does_not_wait_for_the_network(tmp_path: Path) -> None:
    """With Nagle's algorithm on, every answer on a connection that is kept takes 40 ms; without it only some do."""
    with running_here(tmp_path) as (_, address), httpx.Client(base_url=address, timeout=PATIENT_S) as client:
        client.get("/health")
        took_s, end = [1.0], time.monotonic() + PATIENT_S
        while min(took_s) >= 0.03 and time.monotonic() < end:
            began = time.perf_counter()
            client.get("/health")
            took_s.append(time.perf_counter() - began)
        assert min(took_s) < 0.03


def test_life_under_systemd(tmp_path: Path, systemd: tuple[Systemd, str]) -> None:
    listener, name = systemd
    config = write_config(tmp_path)
    with DaemonProcess(config, NOTIFY_SOCKET=name) as daemon:
        ready = listener.expect("READY")
        listener.expect("WATCHDOG")
        assert get(f"{daemon.address}/health").status_code == 200
        before_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000

        config.write_text(config.read_text().replace('"automatic"', '"observe"').replace("port = 0", "port = 1"))
        daemon.signal(signal.SIGHUP)
        reloading = listener.expect("RELOADING", after=ready)
        assert before_us <= int(listener.messages[reloading]["MONOTONIC_USEC"])
        listener.expect("READY", after=reloading)
        assert "mode=observe needs_restart=api" in daemon.expect("configuration reloaded")
        wait_for(lambda: get(f"{daemon.address}/api/v1/cluster").json()["mode"] == "observe")
        store = Store(f"sqlite:///{tmp_path}/clearway.sqlite")
        recorded = {row.document()["kind"]: row.document()["about"] for row in store.audit_trail()}
        store.close()
        assert recorded["configuration"]["changes"] == {"daemon.mode": ["automatic", "observe"]}
        assert recorded["start"]["changes"]["daemon.mode"] == ["observe", "automatic"]
        metrics = get(f"{daemon.address}/metrics").text
        assert 'clearway_mode{mode="observe"} 1.0' in metrics

        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 0
        listener.expect("STOPPING", after=reloading)
        assert "Traceback" not in daemon.log
        assert daemon.lines[-1].endswith("info stopped")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(tmp_path: Path, number: int) -> None:
    config = write_config(tmp_path)
    with DaemonProcess(config) as daemon:
        daemon.expect("info cycle")
        daemon.signal(number)
        assert daemon.wait() == 0
    store = Store(f"sqlite:///{tmp_path}/clearway.sqlite")

    assert store.take_lease("another", SystemClock().now(), 60).owner == "another", "the lease was given up"
    store.close()


def test_a_bad_file_is_refused_and_the_old_configuration_stays(tmp_path: Path) -> None:
    config = write_config(tmp_path, "observe")
    with DaemonProcess(config) as daemon:
        address = daemon.address
        good = config.read_text()
        config.write_text(good.replace('mode = "observe"', 'mode = "yolo"'))
        daemon.signal(signal.SIGHUP)
        line = daemon.expect("configuration not reloaded")
        assert "daemon.mode" in line
        (tmp_path / "tokens").chmod(0o644)
        config.write_text(good.replace('"observe"', '"approve"'))
        daemon.signal(signal.SIGHUP)
        daemon.expect("mode 0644")
        assert get(f"{address}/health").json()["mode"] == "observe"
        asked = httpx.post(f"{address}/api/v1/pause", headers=AUTHORIZED, timeout=PATIENT_S)
        assert asked.status_code == 202, "the old tokens stay as well"


def test_memory_of_a_daemon_at_work(tmp_path: Path) -> None:
    with DaemonProcess(write_config(tmp_path)) as daemon:
        daemon.expect("event eviction=1")
        for path in ("/api/v1/openapi.json", "/api/v1/cluster", "/api/v1/evictions"):
            assert get(daemon.address + path).status_code == 200
        text = get(f"{daemon.address}/metrics").text
    resident = float(next(line for line in text.splitlines() if line.startswith("process_resident_memory")).split()[1])
    assert resident < MEMORY_LIMIT


def test_a_loop_that_dies_takes_the_daemon_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its loop a daemon would answer for ever and do nothing."""
    path = write_config(tmp_path)

    simulated = Simulated(load_config(path), path)

    monkeypatch.setattr(type(simulated.daemon.loop), "run", lambda *_: None)
    assert simulated.service().run() == 1


def test_a_port_that_is_taken_is_told_at_once(tmp_path: Path) -> None:

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        path = write_config(tmp_path)
        path.write_text(path.read_text().replace("port = 0", f"port = {port}"))
        simulated = Simulated(load_config(path), path)
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1 port {port}: Address already in use"):
            simulated.service()
        simulated.daemon.store.close()


def test_nobody_listens_to_notifications(tmp_path: Path) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "nobody")})
    notifier.ready("fine")
    Notifier({}).beat()
    assert notifier._address.endswith("nobody")


def test_it_listens_on_ipv6_where_there_is_any(tmp_path: Path) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("no IPv6 loopback here")
    path = write_config(tmp_path)
    path.write_text(path.read_text().replace("port = 0", 'port = 0\nhost = "::1"'))

    simulated = Simulated(load_config(path), path)
    service: Any = simulated.service()
    assert isinstance(service, Service)
    assert service.address.startswith("http://[::1]:")
    service._listener.close()
    simulated.daemon.store.close()
