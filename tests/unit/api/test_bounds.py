"""Each route and each kind of request with what bounds it: a new one without a bound fails here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any

import pytest
from fastapi.routing import APIRoute

from clearway.api import job_routes, operation_routes, reading_routes
from clearway.api.lanes import PLACES, Caller, Lane, lane_of
from clearway.api.operation_routes import Asking
from clearway.model.requests import OF_OPERATORS, OF_SWITCHES, OF_USERS, SWITCHES, RequestKind, Role
from clearway.store import request_rows
from tests.simulation.world import config
from tests.unit.api.conftest import AUTHORIZED, ApiWorld


class Bound(StrEnum):
    NONE = "it looks at what is in memory, and takes no thread"
    COUNTED = "by the number of requests of one actor, waiting and in a time"
    PAGED = "by the length of a page"
    ONE = "it reads one thing, which a cycle has made"
    SPENT = "by the time that plans of one caller take, and those of all"
    STREAM = "by the number of streams, each of which ends"
    ADMIN = "it reads everything; administrators alone may ask"


R, P, C, W = (Lane.READING, Bound.ONE), (Lane.READING, Bound.PAGED), Bound.COUNTED, (Lane.WHAT_IF, Bound.SPENT)
ROUTES: dict[str, tuple[Lane | None, Bound]] = {
    "GET /health": (None, Bound.NONE),
    "GET /liveness": (None, Bound.NONE),
    "GET /leader": (None, Bound.NONE),
    "GET /readiness": (None, Bound.NONE),
    "GET /metrics": (Lane.METRICS, Bound.ONE),
    "GET /api/v1/identity": R,
    "GET /api/v1/now": R,
    "GET /api/v1/stream": (Lane.LISTENING, Bound.STREAM),
    "GET /api/v1/cluster": R,
    "GET /api/v1/preemptors": R,
    "GET /api/v1/status": R,
    "GET /api/v1/leaders": P,
    "GET /api/v1/calibration": P,
    "GET /api/v1/walltime/advice": R,
    "GET /api/v1/report": R,
    "GET /api/v1/audit": P,
    "GET /api/v1/audit/check": (Lane.READING, Bound.ADMIN),
    "GET /api/v1/jobs": P,
    "GET /api/v1/jobs/{job_id}": P,
    "POST /api/v1/jobs/{job_id}/test-preemption": (Lane.OPERATORS, C),
    "POST /api/v1/what-if": W,
    "GET /api/v1/evictions": P,
    "GET /api/v1/evictions/{eviction_id}": R,
    "GET /api/v1/evictions/{eviction_id}/verdicts": P,
    "GET /api/v1/evictions/{eviction_id}/steps": R,
    "GET /api/v1/evictions/{eviction_id}/explanation": R,
    "GET /api/v1/evictions/{eviction_id}/plans": R,
    "POST /api/v1/evictions/{eviction_id}/approve": (Lane.OPERATORS, C),
    "POST /api/v1/evictions/{eviction_id}/cancel": (Lane.OPERATORS, C),
    "POST /api/v1/pause": (Lane.OPERATORS, C),
    "POST /api/v1/resume": (Lane.OPERATORS, C),
    "POST /api/v1/halt": (Lane.OPERATORS, C),
    "POST /api/v1/unhalt": (Lane.OPERATORS, C),
    "GET /api/v1/requests/{request_id}": R,
    "POST /api/v1/drains": (Lane.OPERATORS, C),
    "POST /api/v1/undrains": (Lane.OPERATORS, C),
    "POST /api/v1/drains/what-if": W,
    "POST /api/v1/compactions": (Lane.OPERATORS, C),
    "POST /api/v1/promotions": (Lane.OPERATORS, C),
    "POST /api/v1/compactions/what-if": W,
    "POST /api/v1/promotions/what-if": W,
    "GET /api/v1/rolling-drains": P,
    "GET /api/v1/rolling-drains/{rolling_id}": R,
    "POST /api/v1/rolling-drains/{rolling_id}/cancel": (Lane.OPERATORS, C),
    "POST /api/v1/rolling-drains/what-if": W,
    "POST /api/v1/promises": (Lane.OPERATORS, C),
    "GET /api/v1/promises": P,
    "DELETE /api/v1/promises/{eviction_id}": (Lane.OPERATORS, C),
}
LONGEST_PAGE = 1_000


def routes(api: ApiWorld) -> Iterator[tuple[str, Any]]:
    """By what the document says, which knows every route."""
    for path, methods in api.app.openapi()["paths"].items():
        for method, described in methods.items():
            yield f"{method.upper()} {path}", described


def test_each_route_has_its_bound(api: ApiWorld) -> None:
    """One that is missing here: say what bounds it, in number and in time."""
    assert {name for name, _ in routes(api)} == set(ROUTES)


@pytest.mark.parametrize("name", ROUTES)
def test_the_lane_of_each_route(name: str) -> None:
    method, path = name.split()
    scope = {"path": path, "method": method, "headers": [(b"authorization", b"Bearer x")]}
    assert lane_of(scope, Caller("ann")) is ROUTES[name][0]


def test_pages_are_bounded(api: ApiWorld) -> None:
    paged = {}
    for name, described in routes(api):
        limits = [each["schema"]["maximum"] for each in described.get("parameters", ()) if each["name"] == "limit"]
        paged |= {name: max(limits)} if limits else {}
    assert paged.keys() == {name for name, (_, bound, *_) in ROUTES.items() if bound is Bound.PAGED}
    assert max(paged.values()) <= LONGEST_PAGE


def test_what_changes_something_is_counted(api: ApiWorld) -> None:
    """It goes through ``Asking``, and so through the store's bound."""
    counted = set()
    for module in (operation_routes, reading_routes, job_routes):
        for each in vars(module).values():
            for route in getattr(each, "routes", ()):
                if isinstance(route, APIRoute) and asks(route.dependant):
                    counted |= {f"{method} /api/v1{route.path}" for method in route.methods}
    wanted = {name for name, (_, bound) in ROUTES.items() if bound is Bound.COUNTED}
    assert {plain(name) for name in counted} == wanted
    changing = {name for name, _ in routes(api) if not name.startswith("GET") and not name.endswith("what-if")}
    assert changing == wanted


def plain(name: str) -> str:
    return name.replace(":rolling}", "}")


def asks(dependant: Any) -> bool:
    return any(each.call is Asking or asks(each) for each in dependant.dependencies)


def test_no_lane_is_without_an_end() -> None:
    assert set(PLACES) == set(Lane)
    for places in PLACES.values():
        assert 1 <= places.of_one <= places.all < 100


@pytest.mark.parametrize("kind", RequestKind)
def test_each_kind_of_request_is_bounded_for_one_actor(api: ApiWorld, kind: RequestKind) -> None:
    """Whoever writes them: here past REST, as the command line does."""
    bound = OF_SWITCHES if kind in SWITCHES else OF_OPERATORS
    stored = 0
    with pytest.raises(request_rows.TooManyRequestsError):  # noqa: PT012 - the last of them
        while stored <= bound.waiting:
            api.store.add_request(kind, None, "mallory", api.clock.now())
            stored += 1
    assert stored == bound.waiting
    api.store.add_request(kind, None, "ann", api.clock.now())


def test_a_user_has_fewer_than_an_operator(make_api: Callable[..., ApiWorld]) -> None:
    api = make_api(config=config(drain={"owners": True}))
    tokens = api.app.state.context.logins._tokens
    tokens.entries = tuple(
        type(each)(type(each.identity)("mallory", Role.USER), None, each.digest) for each in tokens.entries
    )
    api.tick()
    entries = len(api.store.audit_trail(limit=1_000))
    statuses = []
    for number in range(50):
        body = {"nodes": f"n{number % 8 + 1}"}
        statuses.append(api.client.post("/api/v1/drains", json=body, headers=AUTHORIZED).status_code)
    assert statuses == [202] * OF_USERS.waiting + [429] * (len(statuses) - OF_USERS.waiting)
    assert len(api.store.audit_trail(limit=1_000)) == entries + OF_USERS.waiting
    for _ in range(20):
        api.tick()
        for _ in range(OF_USERS.waiting):
            api.client.post("/api/v1/drains", json={"nodes": "n1"}, headers=AUTHORIZED)
    asked = [row.document() for row in api.store.audit_trail(limit=1_000)]
    assert sum(each["actor"] == "mallory" for each in asked) == OF_USERS.recent


@pytest.mark.parametrize("path", ["drains", "undrains"])
def test_nodes_that_cannot_be_are_refused_before_anything_is_stored(api: ApiWorld, path: str) -> None:
    api.tick()
    entries = len(api.store.audit_trail(limit=1_000))
    for nodes in ("a[1-65536]", "nowhere", "partition=none"):
        answer = api.client.post(f"/api/v1/{path}", json={"nodes": nodes}, headers=AUTHORIZED)
        assert answer.status_code == 422, answer.text
    assert api.store.pending_requests() == ()
    assert len(api.store.audit_trail(limit=1_000)) == entries


def test_a_rolling_drain_is_imagined_for_a_bounded_time(api: ApiWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    api.fill()
    api.tick()
    original = operation_routes.plan_drain

    def slow(*given: Any) -> Any:
        api.clock.advance(operation_routes._LONGEST_PREVIEW_S / 3)
        return original(*given)

    monkeypatch.setattr(operation_routes, "plan_drain", slow)
    body = {"nodes": "n[1-8]", "rolling": 1}
    answer = api.client.post("/api/v1/rolling-drains/what-if", json=body, headers=AUTHORIZED)
    assert answer.status_code == 422
    assert "name fewer nodes, or more at a time" in answer.json()["detail"]
