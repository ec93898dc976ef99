"""The stream over a real connection: it tells of changes, ends with its listener and with the daemon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from clearway.api import context
from clearway.service import server
from tests.integration.daemon import PATIENT_S, TOKEN, Simulated, running_here, wait_for


def events(answer: httpx.Response) -> Iterator[str]:
    return (line.removeprefix("event: ") for line in answer.iter_lines() if line.startswith("event: "))


def test_a_change_is_told_and_listeners_leave_nothing_behind(tmp_path: Path) -> None:
    with running_here(tmp_path, "approve") as (simulated, address):
        client = httpx.Client(base_url=address, timeout=PATIENT_S)
        wait_for(lambda: client.get("/readiness").status_code == 200)
        with client.stream("GET", "/api/v1/stream") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            told = events(answer)
            assert next(told) == "changed"
            simulated.submit_urgent(2)
            assert next(each for each in told if each == "changed")
        wait_for(lambda: client.get("/api/v1/now").json()["waiting"])
        client.close()


def test_the_daemon_stops_at_once_though_somebody_listens(tmp_path: Path) -> None:
    with httpx.Client(timeout=PATIENT_S) as client:
        with running_here(tmp_path) as (simulated, address):
            wait_for(lambda: client.get(f"{address}/readiness").status_code == 200)
            answer = client.send(client.build_request("GET", f"{address}/api/v1/stream"), stream=True)
            told = events(answer)
            assert next(told) == "changed"
            assert simulated
        assert list(told) in ([], ["changed"]), "ended in order, not cut off"


def test_a_token_that_is_not_good_hears_nothing(tmp_path: Path) -> None:
    with running_here(tmp_path, public="health") as (_, address):
        url = f"{address}/api/v1/stream"
        assert httpx.get(url, timeout=PATIENT_S).status_code == 401
        wrong = {"Authorization": f"Bearer {TOKEN}x"}
        assert httpx.get(url, headers=wrong, timeout=PATIENT_S).status_code == 401


def test_a_listener_that_has_left_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "ALIVE_EVERY_S", 0.1)
    made: list[server.Service] = []
    original = Simulated.service

    def service(simulated: Simulated) -> server.Service:
        made.append(original(simulated))
        return made[-1]

    monkeypatch.setattr(Simulated, "service", service)
    with running_here(tmp_path) as (_, address), httpx.Client(timeout=PATIENT_S) as client:
        with client.stream("GET", f"{address}/api/v1/stream") as answer:
            told = events(answer)
            assert next(told) == "changed"
            assert len(made[0]._feed._listeners) == 1
        wait_for(lambda: len(made[0]._feed._listeners) == 0, what="the listener is gone")
