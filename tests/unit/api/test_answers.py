"""HEAD, gzip, ETag and 304: of every answer that only reads."""

from __future__ import annotations

import pytest

from tests.unit.api.conftest import AUTHORIZED, ApiWorld

PATHS = ("/health", "/api/v1/evictions", "/api/v1/evictions/1", "/api/v1/cluster", "/api/v1/openapi.json")


@pytest.fixture
def api(api: ApiWorld) -> ApiWorld:
    api.fill()
    api.urgent(2)
    api.tick()
    return api


@pytest.mark.parametrize("path", PATHS)
def test_head_answers_as_get_does_without_the_body(api: ApiWorld, path: str) -> None:
    """It was 405."""
    get, head = api.client.get(path), api.client.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["Content-Type"] == get.headers["Content-Type"]
    assert head.headers["Content-Length"] == get.headers["Content-Length"]


def test_head_of_what_is_not_there(api: ApiWorld) -> None:
    assert api.client.head("/api/v1/evictions/99").status_code == 404
    assert api.client.head("/api/v1/pause").status_code == 405


@pytest.mark.parametrize("path", PATHS[1:])
def test_what_has_not_changed_is_not_sent_again(api: ApiWorld, path: str) -> None:
    first = api.client.get(path)
    tag = first.headers["ETag"]
    assert tag.startswith('W/"')
    for known in (tag, tag.removeprefix("W/"), f'"other", {tag}'):
        again = api.client.get(path, headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", tag)
    other = api.client.get(path, headers={"If-None-Match": '"other"'})
    assert (other.status_code, other.content) == (200, first.content)


def test_what_has_changed_is_sent(api: ApiWorld) -> None:
    tag = api.client.get("/api/v1/evictions/1").headers["ETag"]
    api.run_until(api.settled)
    assert api.client.get("/api/v1/evictions/1", headers={"If-None-Match": tag}).status_code == 200


def test_a_tag_opens_nothing(api: ApiWorld) -> None:
    """Whoever knows the tag of an answer still has to be allowed to have it."""
    tag = api.client.get("/api/v1/audit", headers=AUTHORIZED).headers.get("ETag", '"x"')
    assert api.client.get("/api/v1/audit", headers={"If-None-Match": tag}).status_code in (401, 403)


def test_long_answers_are_compressed_for_whoever_accepts_it(api: ApiWorld) -> None:
    path = "/api/v1/openapi.json"
    plain = api.client.get(path, headers={"Accept-Encoding": "identity"})
    packed = api.client.get(path, headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in plain.headers
    assert packed.headers["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in packed.headers["Vary"]
    assert int(packed.headers["Content-Length"]) < len(plain.content) / 4
    assert (packed.json(), packed.headers["ETag"]) == (plain.json(), plain.headers["ETag"])
