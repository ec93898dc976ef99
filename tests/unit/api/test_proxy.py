"""A proxy says who the user is: it alone is believed, and no page of another site acts through it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from clearway.api.authorization import known_caller
from clearway.api.lanes import Caller
from clearway.config.configuration import parse_config
from clearway.model.errors import ConfigError
from tests.simulation.world import config
from tests.unit.api.conftest import AUTHORIZED, TOKEN, ApiWorld

PROXY, OTHER = "10.0.0.5", "10.0.0.6"
PAGE = {"X-Clearway-Page": "1"}
ACCESS = {"proxy_header": "X-Remote-User", "proxy_peers": [PROXY], "operators": ["olga"]}


@pytest.fixture
def world(make_api: Callable[..., ApiWorld]) -> ApiWorld:
    api = make_api(config=config(access=ACCESS))
    api.tick()
    return api


def client(api: ApiWorld, peer: str = PROXY) -> TestClient:
    return TestClient(api.app, raise_server_exceptions=False, client=(peer, 50_000))


def named(user: str) -> dict[str, str]:
    return {"X-Remote-User": user}


def test_the_proxy_names_the_user_and_the_role_follows(world: ApiWorld) -> None:
    for user, role in (("olga", "operator"), ("uwe", "user")):
        who = client(world).get("/api/v1/identity", headers=named(user)).json()
        assert (who["name"], who["role"]) == (user, role)
    assert client(world).get("/api/v1/identity").status_code == 401, "the proxy names no user"
    assert client(world).get("/api/v1/identity", headers=named("")).status_code == 401


def test_the_header_from_elsewhere_is_refused_and_recorded(world: ApiWorld) -> None:
    """The attack: whoever reaches the daemon beside the proxy claims to be an operator."""
    for peer in (OTHER, "127.0.0.1", "::1", "unix:0", ""):
        for method, path in (("GET", "identity"), ("POST", "halt")):
            answer = client(world, peer).request(method, f"/api/v1/{path}", headers=named("olga") | PAGE)
            assert answer.status_code == 401, peer
    assert world.store.pending_requests() == ()
    refused = [row.document() for row in world.store.audit_trail() if row.document()["kind"] == "refused"]
    assert refused
    assert all(each["about"]["reason"] == "proxy" for each in refused)


def test_where_everybody_reads_a_false_header_is_refused_all_the_same(make_api: Callable[..., ApiWorld]) -> None:
    api = make_api(config=config(access=ACCESS | {"public": "reading"}))
    api.tick()
    assert client(api, OTHER).get("/api/v1/cluster").status_code == 200
    assert client(api, OTHER).get("/api/v1/cluster", headers=named("olga")).status_code == 401


def test_without_a_proxy_the_header_means_nothing(make_api: Callable[..., ApiWorld]) -> None:
    api = make_api(config=config(access={"operators": ["olga"]}))
    assert client(api).get("/api/v1/identity", headers=named("olga")).status_code == 401


@pytest.mark.parametrize("user", ["root", "a b", "../x", "olga\t", "x" * 65, "-olga"])
def test_what_is_no_user_of_the_cluster_is_refused(world: ApiWorld, user: str) -> None:
    assert client(world).get("/api/v1/identity", headers=named(user)).status_code == 401


def test_two_names_are_refused(world: ApiWorld) -> None:
    """A proxy that adds its header and lets the caller's through."""
    two: Any = [("X-Remote-User", "olga"), ("x-remote-user", "uwe")]
    assert client(world).get("/api/v1/identity", headers=two).status_code == 401


def test_a_page_of_another_site_changes_nothing(world: ApiWorld) -> None:
    """The browser of an operator sends the proxy's cookie along with a form of any site; not a header of its own."""
    proxy = client(world)
    forged = {"Content-Type": "application/x-www-form-urlencoded", "Origin": "https://evil.example"}
    assert proxy.post("/api/v1/halt", headers=named("olga") | forged).status_code == 403
    assert world.store.pending_requests() == ()
    assert proxy.options("/api/v1/halt", headers={"Origin": "https://evil.example"}).status_code == 405
    assert proxy.post("/api/v1/pause", headers=named("olga") | PAGE).status_code == 202
    assert world.store.pending_requests()[0].actor == "olga"


def test_a_token_counts_more_than_the_proxy(world: ApiWorld) -> None:
    who = client(world).get("/api/v1/identity", headers=named("uwe") | AUTHORIZED).json()
    assert who["name"] == "ann"


@pytest.mark.parametrize(
    ("access", "why"),
    [
        ('proxy_header = "X-Remote-User"', "go together"),
        ('proxy_peers = ["10.0.0.5"]', "go together"),
        ('proxy_header = "X-Remote-User"\nproxy_peers = ["127.0.0.1"]', "every user of this machine"),
        ('proxy_header = "X-Remote-User"\nproxy_peers = ["::1"]', "every user of this machine"),
        ('proxy_header = "X-Remote-User"\nproxy_peers = ["portal"]', "neither an address"),
        ('proxy_header = "Authorization"\nproxy_peers = ["10.0.0.5"]', "proxy_header"),
    ],
)
def test_what_is_not_safe_is_no_configuration(access: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_config(f"[access]\n{access}\n", "test")


def test_places_are_counted_by_the_user_whom_the_proxy_names(world: ApiWorld) -> None:
    def caller(peer: str, user: str = "", token: str = "") -> Caller:
        headers = [(b"x-remote-user", user.encode())] * bool(user)
        headers += [(b"authorization", f"Bearer {token}".encode())] * bool(token)
        context = world.app.state.context
        return known_caller(context, {"type": "http", "headers": headers, "client": (peer, 1)})

    assert caller(PROXY, "uwe") == Caller("uwe")
    assert caller(OTHER, "uwe") == Caller(""), "what a caller only claims to be does not count"
    assert caller(PROXY) == Caller("")
    assert caller(OTHER, token=TOKEN) == Caller("ann")
    assert caller(OTHER, token="wrong") == Caller("")
    assert len(caller(PROXY, "u" * 10_000).name) < 100


@pytest.mark.parametrize(
    ("monitors", "peer", "token", "monitor"),
    [
        (["10.0.0.7"], "10.0.0.7", "", True),
        (["10.0.0.7"], "10.0.0.8", "", False),
        (["ann"], "127.0.0.1", TOKEN, True),
        (["ann"], "127.0.0.1", "wrong", False),
        (["10.0.0.7"], "10.0.0.7", TOKEN, False),
        (["unix:root"], "unix:0", "", True),
        (["unix:nobody-of-this-name"], "unix:0", "", False),
        ([], "10.0.0.7", TOKEN, False),
        ([""], "10.0.0.7", "", False),
    ],
)
def test_who_is_the_monitor(
    make_api: Callable[..., ApiWorld], monitors: list[str], peer: str, token: str, monitor: bool
) -> None:
    api = make_api(config=config(access={"monitors": monitors}))
    headers = [(b"authorization", f"Bearer {token}".encode())] * bool(token)
    found = known_caller(api.app.state.context, {"type": "http", "headers": headers, "client": (peer, 1)})
    assert found.monitor is monitor


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "127.9.9.9", "localhost"])
def test_the_address_of_everybody_on_the_machine_is_no_monitor(address: str) -> None:
    with pytest.raises(ConfigError, match="every user of this machine has the address"):
        parse_config(f'[access]\nmonitors = ["{address}"]\n', "here")
