"""Who may use which route."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter

from clearway.api.authorization import PUBLIC, check_declared, needs
from clearway.api.logins import Tokens, new_token
from clearway.config.access import AccessConfig
from clearway.model.requests import Role
from tests.builders import NOW
from tests.simulation.world import config
from tests.unit.api.conftest import AUTHORIZED, ApiWorld, token_file

HEALTH = ("/health", "/liveness", "/metrics", "/api/v1/openapi.json")
READING = (
    "/api/v1/cluster",
    "/api/v1/preemptors",
    "/api/v1/evictions",
    "/api/v1/evictions/1",
    "/api/v1/evictions/1/steps",
    "/api/v1/evictions/1/plans",
    "/api/v1/evictions/1/explanation",
    "/api/v1/requests/1",
    "/api/v1/rolling-drains",
    "/api/v1/calibration",
    "/api/v1/jobs",
    "/api/v1/jobs/1",
)


class Guarded:
    """An application that nobody reads without identity, and a token for each role."""

    def __init__(self, folder: Path, end: datetime | None = None) -> None:
        made = {role: new_token(f"the-{role}", role, end) for role in Role}
        lines = "".join(entry.line + "\n" for _, entry in made.values())
        self.api = ApiWorld(folder, tokens=Tokens(token_file(folder, lines)), config=config(access={}))
        self.headers = {role: {"Authorization": f"Bearer {token}"} for role, (token, _) in made.items()}

    def status(self, method: str, path: str, role: Role | None, **more: Any) -> int:
        headers = {} if role is None else self.headers[role]
        return self.api.client.request(method, path, headers=headers, **more).status_code


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    made = Guarded(tmp_path)
    yield made
    made.api.client.close()
    made.api.store.close()


def test_without_identity_nothing_is_told_of_jobs(guarded: Guarded) -> None:
    guarded.api.fill()
    guarded.api.urgent(2)
    guarded.api.tick()
    for path in READING:
        assert guarded.status("GET", path, None) == 401, path
    for path in ("/api/v1/what-if", "/api/v1/drains/what-if", "/api/v1/compactions/what-if"):
        assert guarded.status("POST", path, None, json={}) == 401, path
    for path in HEALTH:
        assert guarded.status("GET", path, None) == 200, path


def test_a_change_needs_an_operator(guarded: Guarded) -> None:
    for role, status in ((Role.USER, 403), (Role.VIEWER, 403), (Role.OPERATOR, 202), (Role.ADMIN, 202)):
        answer = guarded.api.client.post("/api/v1/pause", headers=guarded.headers[role])
        assert answer.status_code == status, role
    assert [request.actor for request in guarded.api.store.pending_requests()] == ["the-operator", "the-admin"]


def test_where_everybody_may_read_a_bad_token_is_refused_all_the_same(api: ApiWorld) -> None:
    api.tick()
    assert api.client.get("/api/v1/cluster").status_code == 200
    assert api.client.get("/api/v1/cluster", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert api.client.get("/api/v1/cluster", headers=AUTHORIZED).status_code == 200
    assert api.client.post("/api/v1/pause").status_code == 401


def test_a_token_ends(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path, end=datetime(NOW.year, NOW.month, NOW.day + 1, tzinfo=UTC))
    guarded.api.tick()
    assert guarded.status("GET", "/api/v1/cluster", Role.VIEWER) == 200
    guarded.api.clock.advance(86_400)
    assert guarded.status("GET", "/api/v1/cluster", Role.VIEWER) == 401
    guarded.api.store.close()


def test_the_document_names_the_scheme_of_every_route_but_health(api: ApiWorld) -> None:
    document = api.client.get("/api/v1/openapi.json").json()
    assert document["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert ("security" in operation) == path.startswith("/api/"), path
            assert ("401" in operation["responses"]) == path.startswith("/api/"), path


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.fault("Every token could do everything, and reading was open to everybody.", found_by="attack")
def test_a_route_that_does_not_say_who_may_use_it_is_no_route(declared: bool) -> None:
    router = APIRouter()
    router.get("/known", dependencies=[needs(Role.VIEWER)])(lambda: 1)
    router.get("/open", dependencies=[PUBLIC])(lambda: 1)
    if declared:
        check_declared(router)
        return
    router.get("/forgotten")(lambda: 1)
    with pytest.raises(LookupError, match="declare needs"):
        check_declared(router)


def test_the_default_tells_nothing_of_jobs(make_api: Callable[..., ApiWorld]) -> None:
    assert AccessConfig().public == "health"
    api = make_api(config=config(access={}), tokens=False)
    api.tick()
    answer = api.client.get("/api/v1/cluster")
    assert (answer.status_code, "api.token_file" in answer.json()["detail"]) == (403, True)
