"""The present in one answer, who may see what of it, and the feed that tells of changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from clearway.api.context import Feed
from clearway.api.reading_routes import node_map, shown
from clearway.model.requests import Role
from clearway.slurm.parse.hostlist import expand
from tests.simulation.world import config
from tests.unit.api.conftest import AUTHORIZED, ApiWorld


def uses(api: ApiWorld) -> dict[str, str]:
    nodes = api.client.get("/api/v1/now").json()["nodes"]
    return dict(zip(expand(nodes["names"]), nodes["uses"], strict=True))


def test_before_the_first_cycle_there_is_no_present(api: ApiWorld) -> None:
    assert api.client.get("/api/v1/now").status_code == 503


def test_what_waits_and_what_is_under_way(make_api: Callable[..., ApiWorld]) -> None:
    api = make_api(config=config("approve"))
    api.fill()
    urgent = api.urgent(2)
    api.tick()
    now = api.client.get("/api/v1/now").json()
    assert now["health"]["mode"] == "approve"
    assert now["leads"]
    assert [each["job_id"] for each in now["waiting"]] == [urgent]
    (planned,) = now["operations"]
    assert (planned["kind"], planned["state"], planned["job_id"]) == ("eviction", "awaiting_approval", urgent)
    assert [each["state"] for each in planned["jobs"]] == ["planned"] * 2
    assert now["nodes"]["states"] == "b" * 8
    assert sorted(uses(api).values()) == ["-"] * 6 + ["w"] * 2
    api.client.post("/api/v1/evictions/1/approve", headers=AUTHORIZED)
    api.tick()
    assert sorted(uses(api).values()) == ["-"] * 6 + ["l"] * 2
    for _ in range(40):
        api.tick()
    assert sorted(uses(api).values())[-2:] == ["r"] * 2, "the urgent job runs there"


def test_a_database_that_does_not_answer_takes_nothing_from_the_present(
    api: ApiWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.fill()
    api.tick()

    def broken(*_: Any, **__: Any) -> Any:
        raise AssertionError("asked for")

    for name in ("eviction", "evictions", "steps", "get_value"):
        monkeypatch.setattr(type(api.store), name, broken)
    assert api.client.get("/api/v1/now").status_code == 200


def test_a_free_node_and_one_that_is_drained(api: ApiWorld) -> None:
    api.submit(on=("n1",))
    api.tick()
    report = api.loop.report
    assert report is not None
    assert node_map(report, ()).states == "bfffffff"
    assert node_map(report, ()).uses == "-" * 8


class Slurm:
    def __init__(self, private: frozenset[str]) -> None:
        self.private = private

    def user_of(self, _: str) -> str | None:
        return None

    def admin_level(self, _: str) -> Any: ...

    def private_data(self) -> frozenset[str]:
        return self.private


@pytest.mark.parametrize("private", [{"jobs"}, {"jobs", "nodes"}, {"nodes"}, set()])
def test_a_user_sees_no_more_than_slurm_shows(make_api: Callable[..., ApiWorld], private: set[str]) -> None:
    api = make_api(config=config("approve"), slurm=Slurm(frozenset(private)))
    api.fill()
    api.urgent(2)
    api.tick()
    from clearway.api.authorization import _asker
    from clearway.model.requests import Identity

    api.app.dependency_overrides[_asker] = lambda: Identity("user1", Role.USER)
    now = api.client.get("/api/v1/now").json()
    leaving = {job["user"] for each in now["operations"] for job in each["jobs"]}
    if "jobs" in private:
        assert leaving <= {"user1"}
        assert now["nodes"] is None or set(now["nodes"]["uses"]) == {"-"}
        assert all(each["placement"] == "" for each in now["operations"])
    else:
        assert len(leaving) == 2
    assert (now["nodes"] is None) == ("nodes" in private)
    who = api.client.get("/api/v1/identity").json()
    assert (who["name"], who["role"], who["sees_all_jobs"]) == ("user1", "user", "jobs" not in private)


def test_the_present_needs_an_identity(make_api: Callable[..., ApiWorld]) -> None:
    api = make_api(config=config(access={"public": "health"}))
    for path in ("now", "stream", "identity"):
        assert api.client.get(f"/api/v1/{path}").status_code == 401
    assert api.client.get("/api/v1/identity", headers=AUTHORIZED).json()["name"] == "ann"


def test_what_is_shown_changes_with_what_is_seen_and_not_with_the_time(api: ApiWorld) -> None:
    api.fill()
    before = shown(api.tick())
    assert shown(api.tick()) == before
    api.urgent(2)
    assert shown(api.tick()) != before


# -- the feed --------------------------------------------------------------------------------------------------


def test_without_listeners_nothing_is_looked_at() -> None:
    def look() -> object:
        raise AssertionError("looked at")

    Feed().look(look)


def test_a_listener_hears_of_changes_alone() -> None:
    async def scenario() -> None:
        feed = Feed()
        events = feed.events()
        assert await anext(events), "what there is, is new to the listener"
        feed.look(lambda: 1)
        assert await anext(events)
        feed.look(lambda: 1)
        waiting = asyncio.create_task(anext(events))  # type: ignore[arg-type]
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done(), "nothing has changed"
        feed.look(lambda: 2)
        assert await waiting
        waiting = asyncio.create_task(anext(events, None))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        feed.close()
        assert await waiting is None, "the daemon stops"
        assert not feed._listeners

    asyncio.run(scenario())


def test_signs_of_life_and_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearway.api.context.ALIVE_EVERY_S", 0.001)
    monkeypatch.setattr("clearway.api.context.LONGEST_S", 0.5)

    async def scenario() -> list[bool]:
        return [changed async for changed in Feed().events()]

    first, *others = asyncio.run(scenario())
    assert first
    assert others
    assert not any(others)
