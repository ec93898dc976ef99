"""Whatever is sent, the answer is one clear line of JSON."""

from __future__ import annotations

from typing import Any

import pytest

from clearway.model.errors import StoreError
from tests.unit.api.conftest import AUTHORIZED, ApiWorld

WHAT_IF = "/api/v1/what-if"


def one_line(answer: Any) -> str:
    body = answer.json()
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert set(body) == {"title", "status", "detail"}
    assert body["status"] == answer.status_code
    assert isinstance(body["detail"], str)
    assert body["detail"]
    assert "\n" not in body["detail"]
    assert "Traceback" not in body["detail"]
    return str(body["detail"])


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/api/v1/evictions/1", 404, "no eviction 1"),
        ("/api/v1/evictions/1/steps", 404, "no eviction 1"),
        ("/api/v1/evictions/1/plans", 404, "no eviction 1"),
        ("/api/v1/requests/1", 404, "no request 1"),
        ("/api/v1/evictions/one", 422, "eviction_id: "),
        ("/api/v1/evictions/0", 422, "eviction_id: "),
        ("/api/v1/evictions/99999999999999999999", 422, "eviction_id: "),
        ("/api/v1/evictions?limit=0", 422, "limit: "),
        ("/api/v1/evictions?limit=101", 422, "limit: "),
        ("/api/v1/evictions?offset=-1", 422, "offset: "),
        ("/api/v1/evictions?state=sleeping", 422, "state: "),
        ("/api/v1/nothing", 404, "Not Found"),
        ("/api/v1/pause", 405, "Method Not Allowed"),
    ],
)
def test_bad_addresses(api: ApiWorld, path: str, status: int, words: str) -> None:
    api.tick()
    answer = api.client.get(path)
    assert answer.status_code == status
    assert words in one_line(answer)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "body: nodes or tasks must be given"),
        ({"nodes": 0, "max_delay": 60}, "nodes: "),
        ({"nodes": -1, "max_delay": 60}, "nodes: "),
        ({"nodes": "2", "max_delay": 60}, "nodes: "),
        ({"nodes": True, "max_delay": 60}, "nodes: "),
        ({"nodes": 2.5, "max_delay": 60}, "nodes: "),
        ({"nodes": 10**30, "max_delay": 60}, "nodes: "),
        ({"nodes": 9, "max_delay": 60}, "nodes: the cluster has 8"),
        ({"nodes": 2, "max_delay": "soon"}, "max_delay: must be a duration"),
        ({"nodes": 2, "max_delay": -1}, "max_delay: "),
        ({"nodes": 2, "max_delay": "8d"}, "max_delay: "),
        ({"nodes": 2, "max_delay": [60]}, "max_delay: "),
        ({"nodes": 2, "max_delay": 60, "partition": "nowhere\nelse"}, "partition: there is none"),
        ({"nodes": 2, "max_delay": 60, "partition": 7}, "partition: "),
        ({"nodes": 2, "max_delay": 60, "user": "root"}, "user: unknown key"),
        ([], "body: "),
        ("text", "body: "),
    ],
)
def test_bad_questions(api: ApiWorld, body: object, words: str) -> None:
    api.tick()
    answer = api.client.post(WHAT_IF, json=body)
    assert answer.status_code == 422
    assert words in one_line(answer)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b'{"nodes":1,"max_delay":NaN}', b'{"nodes":1,"max_delay":1e999}', b"[" * 9_000]
)
def test_bodies_that_are_no_json(api: ApiWorld, content: bytes) -> None:
    api.tick()
    answer = api.client.post(WHAT_IF, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    one_line(answer)


def test_a_body_is_bounded_whether_or_not_its_length_is_told(api: ApiWorld) -> None:
    api.tick()
    told = api.client.post(WHAT_IF, content=b" " * 20_000)
    streamed = api.client.post(
        WHAT_IF, content=(b" " * 1_000 for _ in range(20)), headers={"Content-Type": "application/json"}
    )
    assert (told.status_code, streamed.status_code) == (413, 413)
    assert one_line(told) == one_line(streamed) == "a body may have 16384 bytes"


def test_without_a_snapshot_there_is_nothing_to_tell(api: ApiWorld) -> None:
    for answer in (
        api.client.get("/api/v1/cluster"),
        api.client.get("/api/v1/preemptors"),
        api.client.post(WHAT_IF, json={"nodes": 1, "max_delay": 60}),
    ):
        assert answer.status_code == 503
        assert "no cycle has succeeded yet" in one_line(answer)


def test_a_database_that_does_not_answer(api: ApiWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise StoreError("database postgresql://clearway@db/clearway: connection refused")

    for name in ("evictions", "add_request", "try_to_write"):
        monkeypatch.setattr(api.store, name, broken)
    api.pulse.beat()
    for answer in (
        api.client.get("/api/v1/evictions"),
        api.client.post("/api/v1/pause", headers=AUTHORIZED),
        api.client.get("/readiness"),
    ):
        assert answer.status_code == 503
        assert "db" not in one_line(answer)


def test_a_bug_is_no_traceback_for_the_caller(api: ApiWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.store, "evictions", lambda **_: 1 / 0)
    answer = api.client.get("/api/v1/evictions")
    assert answer.status_code == 500
    assert "internal error" in one_line(answer)
