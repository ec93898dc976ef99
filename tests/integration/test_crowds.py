"""Many callers at once, idle or busy: the daemon's health, its metrics and its operators are answered all the same."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from clearway.service import listening as connections
from tests.integration.daemon import AUTHORIZED, PATIENT_S, Simulated, get, running_here, wait_for

WHAT_IF = {"nodes": 2, "max_delay": "20s"}
CALLERS = 16


def connect(address: str) -> socket.socket:
    parts = urlsplit(address)
    return socket.create_connection((parts.hostname, parts.port), timeout=PATIENT_S)


@contextmanager
def a_crowd(address: str, size: int, says: bytes = b"") -> Iterator[list[socket.socket]]:
    with ExitStack() as opened:
        crowd = [opened.enter_context(connect(address)) for _ in range(size)]
        for each in crowd:
            each.sendall(says)
        yield crowd


def is_closed(connection: socket.socket) -> bool:
    """Waits for it; what was answered before that is passed over."""
    try:
        while connection.recv(65_536):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.mark.parametrize(
    "says", [b"", b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: "], ids=["silent", "half a request"]
)
@pytest.mark.fault("Idle connections kept health, metrics and operators from being answered.", found_by="load")
def test_idle_connections_lock_nobody_out(tmp_path: Path, says: bytes) -> None:
    with running_here(tmp_path) as (_, address), a_crowd(address, connections.MOST + 50, says):
        for path in ("/liveness", "/metrics", "/api/v1/evictions"):
            assert get(f"{address}{path}").status_code == 200
        assert httpx.post(f"{address}/api/v1/pause", headers=AUTHORIZED, timeout=PATIENT_S).status_code == 202


@pytest.mark.parametrize(
    "says",
    [
        b"",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: ",
        b"POST /api/v1/what-if HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{",
        b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=["nothing", "half a header", "half a body", "one request and no more"],
)
def test_what_is_not_asked_in_time_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: bytes
) -> None:
    monkeypatch.setattr(connections, "PATIENCE_S", 3.0)
    with running_here(tmp_path) as (_, address), connect(address) as slow:
        slow.sendall(says)
        assert is_closed(slow)
        assert get(f"{address}/liveness").status_code == 200


def test_answers_that_are_not_taken_hold_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each asks for the metrics 500 times and reads none of them."""
    monkeypatch.setattr(connections, "PATIENCE_S", 5.0)
    ask = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 500
    with running_here(tmp_path) as (_, address), a_crowd(address, 2) as crowd:
        for each in crowd:
            each.setblocking(False)
            each.send(ask)
        assert get(f"{address}/metrics").status_code == 200
        for each in crowd:
            each.settimeout(PATIENT_S)
            assert is_closed(each)


class Slow:
    """A planner that thinks until it is let go."""

    name = "slow"

    def __init__(self, planner: Any) -> None:
        self._planner = planner
        self.thinking = threading.Event()
        self.go_on = threading.Event()

    def decide(self, problem: Any, *given: Any, **named: Any) -> Any:
        self.thinking.set()
        assert self.go_on.wait(PATIENT_S)
        return self._planner.decide(problem, *given, **named)


@pytest.mark.fault("Callers of what-if plans held up everybody else.", found_by="load")
def test_what_if_plans_hold_nobody_else_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is made; whoever else asks for one is told so at once, while it is still being made."""
    slow: list[Slow] = []
    original = Simulated.service

    def service(simulated: Simulated) -> Any:
        made = original(simulated)
        context = made._http.config.app.state.context
        slow.append(Slow(context.planner))
        object.__setattr__(context, "planner", slow[0])
        return made

    monkeypatch.setattr(Simulated, "service", service)
    with running_here(tmp_path, "approve") as (simulated, address), ThreadPoolExecutor(CALLERS) as pool:
        simulated.submit_urgent(2, work_s=600)
        items = wait_for(lambda: get(f"{address}/api/v1/evictions").json()["items"])
        # An eviction is seen before the first cycle has ended, and questions are answered only after that.
        wait_for(lambda: get(f"{address}/readiness").status_code == 200)

        def ask(_: int) -> httpx.Response:
            return httpx.post(f"{address}/api/v1/what-if", json=WHAT_IF, timeout=PATIENT_S)

        try:
            first = pool.submit(ask, 0)
            assert slow[0].thinking.wait(PATIENT_S)
            others = list(pool.map(ask, range(1, CALLERS)))
            assert {answer.status_code for answer in others} == {429}
            assert all(int(answer.headers["Retry-After"]) > 0 for answer in others)
            for path in ("/liveness", "/metrics", "/readiness", "/api/v1/evictions"):
                assert get(f"{address}{path}").status_code == 200
            approve = f"{address}/api/v1/evictions/{items[0]['eviction_id']}/approve"
            assert httpx.post(approve, headers=AUTHORIZED, timeout=PATIENT_S).status_code == 202
            assert not first.done()
        finally:
            slow[0].go_on.set()
        assert first.result().status_code == 200
        assert 'clearway_rest_refusals_total{lane="what_if"} 15.0' in get(f"{address}/metrics").text
