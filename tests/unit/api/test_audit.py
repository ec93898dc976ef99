"""The audit trail over REST, and what of refusals comes into it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from clearway.api.context import MOST, MOST_OF_ONE, WINDOW_S
from clearway.model.audit import Audited, AuditKind
from clearway.model.errors import StoreError
from clearway.model.requests import Role
from tests.builders import NOW
from tests.unit.api.conftest import AUTHORIZED, ApiWorld
from tests.unit.api.test_authorization import Guarded

BAD = {"Authorization": "Bearer not-a-token"}


def kinds(api: ApiWorld) -> list[str]:
    return [row.document()["kind"] for row in api.store.audit_trail(limit=1_000)]


def test_a_request_and_its_answer_for_admins_alone(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    guarded.api.tick()
    guarded.api.client.post("/api/v1/pause", headers=guarded.headers[Role.OPERATOR])
    guarded.api.tick()
    for role in (Role.USER, Role.VIEWER, Role.OPERATOR):
        assert guarded.status("GET", "/api/v1/audit", role) == 403
    answer = guarded.api.client.get("/api/v1/audit?limit=2&before=3", headers=guarded.headers[Role.ADMIN]).json()
    told = [(item["sequence"], item["actor"], item["kind"], item["about"].get("kind")) for item in answer["items"]]
    assert told == [(2, "clearway", "answer", None), (1, "the-operator", "request", "pause")]
    assert answer["next_before"] is None
    check = guarded.api.client.get("/api/v1/audit/check", headers=guarded.headers[Role.ADMIN]).json()
    assert (check["intact"], check["entries"]) == (True, 5), "three roles were refused as well"
    guarded.api.store.close()


def test_pages(api: ApiWorld) -> None:
    for number in range(5):
        api.store.audit(Audited(at=NOW, actor=str(number), kind=AuditKind.TOKEN))
    context = api.app.state.context
    context.logins._tokens.entries = tuple(
        type(each)(type(each.identity)("ann", Role.ADMIN), None, each.digest) for each in context.logins.entries
    )
    first = api.client.get("/api/v1/audit?limit=3", headers=AUTHORIZED).json()
    assert [item["sequence"] for item in first["items"]] == [5, 4, 3]
    rest = api.client.get(f"/api/v1/audit?limit=3&before={first['next_before']}", headers=AUTHORIZED).json()
    assert ([item["sequence"] for item in rest["items"]], rest["next_before"]) == ([2, 1], None)


def test_refused_logins_cannot_fill_the_disk(api: ApiWorld) -> None:
    for _ in range(50):
        assert api.client.post("/api/v1/pause", headers=BAD).status_code == 401
    assert kinds(api) == ["refused"] * MOST_OF_ONE
    assert b'clearway_refused_logins_total{reason="token"} 50.0' in api.metrics.text()
    api.clock.advance(WINDOW_S)
    api.client.post("/api/v1/pause", headers=BAD)
    newest = api.store.audit_trail(limit=1)[0].document()
    assert newest["about"] == {
        "reason": "token",
        "why": "unknown token",
        "peer": "testclient",
        "path": "/api/v1/pause",
        "more_before": str(50 - MOST_OF_ONE),
    }
    assert len(kinds(api)) == MOST_OF_ONE + 1


def test_a_refusal_never_names_the_token(api: ApiWorld) -> None:
    api.client.post("/api/v1/pause", headers=BAD)
    assert "not-a-token" not in api.store.audit_trail()[0].entry


def test_a_database_that_does_not_answer_admits_nobody(api: ApiWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise StoreError("gone")

    monkeypatch.setattr(type(api.store), "audit", broken)
    assert api.client.post("/api/v1/pause", headers=BAD).status_code == 401
    assert api.app.state.context.refusals._unrecorded == 1


def test_without_a_token_there_is_no_login_to_refuse(api: ApiWorld) -> None:
    api.client.post("/api/v1/pause")
    assert kinds(api) == []


def test_one_identity_that_is_refused_hides_no_other(make_api: Callable[..., ApiWorld]) -> None:
    """All of them together are bounded, too."""
    api = make_api()
    refusals = api.app.state.context.refusals
    for _ in range(1_000):
        refusals.note("role", "needs a role", actor="mallory", peer="10.0.0.1", path="/api/v1/halt")
    refusals.note("role", "needs a role", actor="bob", peer="10.0.0.1", path="/api/v1/halt")
    refusals.note("token", "unknown token", actor="", peer="10.0.0.2", path="/api/v1/halt")
    actors = [row.document()["actor"] for row in api.store.audit_trail() if row.document()["kind"] == "refused"]
    assert sorted(actors) == ["", "bob"] + ["mallory"] * MOST_OF_ONE
    for number in range(1_000):
        refusals.note("token", "unknown token", actor="", peer=f"10.1.{number}", path="/api/v1/halt")
    assert len(api.store.audit_trail(limit=100)) <= MOST + 5
