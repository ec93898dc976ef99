"""Changes: who may ask, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clearway.model.cluster import JobState
from clearway.model.operations import EvictionState
from clearway.model.requests import RequestKind
from tests.simulation.world import config
from tests.unit.api.conftest import AUTHORIZED, TOKEN, ApiWorld

CHANGES = (
    "/api/v1/pause",
    "/api/v1/resume",
    "/api/v1/halt",
    "/api/v1/unhalt",
    "/api/v1/evictions/1/approve",
    "/api/v1/evictions/1/cancel",
)


@pytest.mark.parametrize("path", CHANGES)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer wrong-horse-battery"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": TOKEN},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Authorization": "Bearer ann"},
        {"Authorization": f"Bearer ann:{TOKEN}"},
        {"Authorization": b"Bearer \xff\xfe"},
    ],
)
def test_without_a_valid_token_nothing_is_asked(api: ApiWorld, path: str, headers: dict[str, str]) -> None:
    answer = api.client.post(path, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert "token" in answer.json()["detail"]
    assert api.store.pending_requests() == ()


@pytest.mark.parametrize("path", CHANGES)
def test_without_a_token_file_changes_are_switched_off(make_api: Callable[..., ApiWorld], path: str) -> None:
    api = make_api(tokens=False)
    answer = api.client.post(path, headers=AUTHORIZED)
    assert answer.status_code == 403
    assert "api.token_file" in answer.json()["detail"]
    assert api.store.pending_requests() == ()


def test_halt_and_unhalt(api: ApiWorld) -> None:
    api.tick()
    assert api.client.get("/api/v1/cluster").json()["halted"] == ""
    api.client.post("/api/v1/halt", headers=AUTHORIZED)
    assert api.store.halted_by()  # before the loop has read it
    api.tick()
    assert api.client.get("/api/v1/cluster").json()["halted"].startswith("halted by ")
    assert api.client.get("/health").json()["halted"]
    api.client.post("/api/v1/unhalt", headers=AUTHORIZED)
    api.tick()
    assert api.client.get("/api/v1/cluster").json()["halted"] == ""


def test_pause_and_resume(api: ApiWorld) -> None:
    api.fill()
    asked = api.client.post("/api/v1/pause", headers=AUTHORIZED)
    assert asked.status_code == 202
    assert asked.json()["actor"] == "ann"
    assert asked.json()["handled_at"] is None
    api.urgent(2)
    api.tick()

    assert api.client.get(asked.headers["Location"]).json()["result"] == "paused"
    assert api.client.get("/api/v1/cluster").json()["paused"] is True
    assert api.client.get("/api/v1/preemptors").json()["items"][0]["why"] == "paused"
    assert api.store.evictions() == ()

    api.client.post("/api/v1/resume", headers=AUTHORIZED)
    api.tick()
    assert len(api.store.evictions()) == 1


def test_approve(make_api: Callable[..., ApiWorld]) -> None:
    api = make_api(config=config("approve"))
    jobs = api.fill()
    api.urgent(2)
    api.tick()
    assert api.eviction().state is EvictionState.AWAITING_APPROVAL

    asked = api.client.post("/api/v1/evictions/1/approve", headers=AUTHORIZED, json={"actor": "mallory"})
    assert api.state(jobs[0]) is JobState.RUNNING, "REST itself must not act"
    api.tick()

    assert api.client.get(asked.headers["Location"]).json()["result"].startswith("approved: ")
    assert api.client.get("/api/v1/evictions/1").json()["approved_by"] == "ann"
    again = api.client.post("/api/v1/evictions/1/approve", headers=AUTHORIZED)
    api.tick()
    assert api.client.get(again.headers["Location"]).json()["result"].startswith("refused")


@pytest.mark.parametrize("allowed", [False, True])
def test_no_operator_approves_an_eviction_for_an_own_job(make_api: Callable[..., ApiWorld], allowed: bool) -> None:
    access = {"public": "reading", "own_approvals": allowed}
    api = make_api(config=config("approve", access=access))
    jobs = api.fill()
    api.urgent(2, user="ann")  # as the token is named
    api.tick()
    asked = api.client.post("/api/v1/evictions/1/approve", headers=AUTHORIZED)
    api.tick()
    result = api.client.get(asked.headers["Location"]).json()["result"]
    if allowed:
        assert result.startswith("approved: ")
        return
    assert result == "refused: the urgent job is ann's own, so another operator must approve (access.own_approvals)"
    behind_sudo = api.store.add_request(RequestKind.APPROVE, 1, "root (command line, sudo by ann)", api.clock.now())
    api.tick()
    told = api.store.request(behind_sudo)
    assert told is not None
    assert told.refused
    assert api.eviction().state is EvictionState.AWAITING_APPROVAL
    assert all(api.state(job_id) is JobState.RUNNING for job_id in jobs)


def test_cancel(make_api: Callable[..., ApiWorld]) -> None:
    api = make_api(config=config("approve"))
    jobs = api.fill()
    api.urgent(2)
    api.tick()

    asked = api.client.post("/api/v1/evictions/1/cancel", headers=AUTHORIZED)
    api.tick()

    assert api.client.get(asked.headers["Location"]).json()["result"] == "cancelled"
    assert api.eviction().state is EvictionState.CANCELLED
    assert all(api.state(job_id) is JobState.RUNNING for job_id in jobs)


def test_an_unknown_eviction_cannot_be_approved(api: ApiWorld) -> None:
    answer = api.client.post("/api/v1/evictions/7/approve", headers=AUTHORIZED)
    assert (answer.status_code, answer.json()["detail"]) == (404, "no eviction 7")


def test_the_loop_is_woken(api: ApiWorld) -> None:
    assert not api.loop._wake.is_set()
    api.client.post("/api/v1/pause", headers=AUTHORIZED)
    assert api.loop._wake.is_set()
