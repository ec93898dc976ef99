"""Changes: who may ask, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from clearway.api.tokens import Tokens
from clearway.model.cluster import JobState
from clearway.model.errors import ConfigError
from clearway.model.operations import EvictionState
from tests.simulation.world import config
from tests.unit.api.conftest import AUTHORIZED, TOKEN, ApiWorld, token_file

CHANGES = ("/api/v1/pause", "/api/v1/resume", "/api/v1/evictions/1/approve", "/api/v1/evictions/1/cancel")


def test_the_document_names_the_scheme_of_every_change_and_of_nothing_else(api: ApiWorld) -> None:
    document = api.client.get("/api/v1/openapi.json").json()
    assert document["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert ("security" in operation) == ("202" in operation["responses"]), path


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

    assert api.client.get(asked.headers["Location"]).json()["result"] == "approved"
    assert api.client.get("/api/v1/evictions/1").json()["approved_by"] == "ann"
    again = api.client.post("/api/v1/evictions/1/approve", headers=AUTHORIZED)
    api.tick()
    assert api.client.get(again.headers["Location"]).json()["result"].startswith("refused")


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
    assert (answer.status_code, answer.json()) == (404, {"detail": "no eviction 7"})


def test_the_loop_is_woken(api: ApiWorld) -> None:
    assert not api.loop._wake.is_set()
    api.client.post("/api/v1/pause", headers=AUTHORIZED)
    assert api.loop._wake.is_set()


# -- the token file --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o440])
def test_modes_that_keep_a_secret(tmp_path: Path, mode: int) -> None:
    assert Tokens(token_file(tmp_path, mode=mode)).actor(TOKEN) == "ann"


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o660, 0o620, 0o602, 0o666, 0o601])
def test_modes_that_do_not(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigError, match=f"mode {mode:04o}"):
        Tokens(token_file(tmp_path, mode=mode))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ann\n", "line 1: expected name:token"),
        (f":{TOKEN}\n", "line 1: expected name:token"),
        (f"a b:{TOKEN}\n", "line 1: expected name:token"),
        ("# comment\n\nann:short\n", "line 3: a token has at least 16"),
        (f"ann:{TOKEN} {TOKEN}\n", "line 1: a token has"),
        (f"ann:{TOKEN}\nann:{TOKEN}2\n", "line 2: ann is given twice"),
        (f"ann:{TOKEN}\nbob:{TOKEN}\n", "two names share one token"),
        ("x" * 70_000, "larger than"),
        (f"änn:{TOKEN}\n", "other than ASCII"),
    ],
)
def test_bad_token_files(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        Tokens(token_file(tmp_path, text))
    assert TOKEN not in str(caught.value)


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        Tokens(tmp_path / "absent")
    with pytest.raises(ConfigError, match="cannot be read"):
        Tokens(tmp_path)


def test_reload_takes_new_tokens_and_keeps_the_old_ones_when_it_cannot(tmp_path: Path) -> None:
    tokens = Tokens(token_file(tmp_path))
    token_file(tmp_path, "bob:another-long-token\n")
    tokens.reload()
    assert tokens.actor(TOKEN) is None
    assert tokens.actor("another-long-token") == "bob"
    token_file(tmp_path, "nonsense\n")
    with pytest.raises(ConfigError):
        tokens.reload()
    assert tokens.actor("another-long-token") == "bob"
