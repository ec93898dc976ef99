"""Promised nodes over REST: asked for, listed, cancelled, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from clearway.config.access import AccessConfig, Public
from tests.simulation.world import config
from tests.unit.api.conftest import AUTHORIZED, ApiWorld

PROMISES = "/api/v1/promises"


@pytest.fixture
def api(make_api: Callable[..., ApiWorld]) -> ApiWorld:
    """The token's user may promise nodes."""
    settings = config(drain={"operators": ["ann"]}, promises={"hold": "300s"})
    return make_api(config=settings.model_copy(update={"access": AccessConfig(public=Public.READING)}))


def wish(api: ApiWorld, **fields: Any) -> dict[str, Any]:
    at = (api.clock.now() + timedelta(seconds=600)).isoformat()
    return {"nodes": 2, "partition": "batch", "at": at, "duration_s": 600, "users": ["beam"]} | fields


def test_asked_for_listed_and_cancelled(api: ApiWorld) -> None:
    asked = api.client.post(PROMISES, headers=AUTHORIZED, json=wish(api, reason="beam time 42"))
    assert asked.status_code == 202, asked.text
    api.tick()
    request = api.client.get(f"/api/v1/requests/{asked.json()['request_id']}").json()
    assert (request["code"], request["eviction_id"]) == ("done", 1)
    (listed,) = api.client.get(PROMISES).json()["items"]
    told = listed["promise"]
    assert (listed["state"], told["nodes"], told["users"], told["chosen"]) == ("scheduled", 2, ["beam"], "")
    assert (told["actor"], told["reason"]) == ("ann", "beam time 42")
    api.tick(301)
    api.tick()
    (listed,) = api.client.get(PROMISES).json()["items"]
    assert (listed["state"], listed["promise"]["chosen"]) == ("preempting", "n[1-2]")
    assert listed["promise"]["reservation"] == listed["placement"] == told["reservation"]
    assert api.client.get("/api/v1/evictions/1").json()["promise"] == listed["promise"]
    assert "clearway_promises_total" in api.client.get("/metrics").text
    assert api.client.delete(f"{PROMISES}/1").status_code == 401
    assert api.client.delete(f"{PROMISES}/1", headers=AUTHORIZED).status_code == 202
    for _ in range(4):
        api.tick()
    assert api.client.get("/api/v1/evictions/1").json()["state"] == "cancelled"
    assert not api.leftovers()


def test_kept_promises_are_counted(api: ApiWorld) -> None:
    api.client.post(PROMISES, headers=AUTHORIZED, json=wish(api, duration_s=60))
    for _ in range(700):
        api.tick(1.0)
    assert 'clearway_promises_total{result="kept"} 1.0' in api.client.get("/metrics").text
    (listed,) = api.client.get(PROMISES).json()["items"]
    assert (listed["state"], listed["outcome"]) == ("completed", "Kept: the nodes were free at the promised time.")


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"nodes": 0}, "nodes"),
        ({"nodes": True}, "nodes"),
        ({"at": 1_795_255_854}, "at"),
        ({"at": "tomorrow"}, "at"),
        ({"at": "2026-12-01T08:00:00"}, "at"),
        ({"duration_s": 59}, "duration_s"),
        ({"duration_s": "8h"}, "duration_s"),
        ({"duration_s": 1e300}, "duration_s"),
        ({"users": []}, "users"),
        ({"users": ["a b"]}, "users"),
        ({"users": ["beam,root"]}, "users"),
        ({"users": ["-beam"]}, "users"),
        ({"partition": "batch Nodes=ALL"}, "partition"),
        ({"reason": "two\nlines"}, "reason"),
        ({"node": 2}, "node"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(api: ApiWorld, fields: dict[str, Any], place: str) -> None:
    answer = api.client.post(PROMISES, headers=AUTHORIZED, json=wish(api, **fields))
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(place)
    assert api.store.pending_requests() == ()


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"])
def test_a_time_at_the_end_of_the_world_is_refused(api: ApiWorld, at: str) -> None:
    asked = api.client.post(PROMISES, headers=AUTHORIZED, json=wish(api, at=at))
    assert asked.status_code == 202, asked.text
    api.tick()
    request = api.client.get(f"/api/v1/requests/{asked.json()['request_id']}").json()
    assert (request["code"], request["result"].partition(": ")[2][:4]) == ("refused", "at: ")


def test_only_promises_are_cancelled_here(api: ApiWorld) -> None:
    assert api.client.delete(f"{PROMISES}/1", headers=AUTHORIZED).status_code == 404
    api.submit(on=("n1",), ran_s=100)
    api.client.post("/api/v1/drains", headers=AUTHORIZED, json={"nodes": "n2"})
    api.tick()
    assert api.client.delete(f"{PROMISES}/1", headers=AUTHORIZED).status_code == 404
    assert api.client.get(PROMISES).json() == {"items": [], "next_offset": None}
