"""Each kind of request has a lane of its own: what fills one is refused at once, and holds up no other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from clearway.api import authorization, context, reading_routes
from clearway.api.admission import PLACES, Lane, Lanes, lane_of
from tests.unit.api.conftest import ApiWorld

NAMED = [(b"authorization", b"Bearer x")]


def scope(path: str, method: str = "GET", peer: str = "10.0.0.1", headers: Any = ()) -> dict[str, Any]:
    return {"type": "http", "path": path, "method": method, "headers": list(headers), "client": (peer, 1)}


@pytest.mark.parametrize(
    ("path", "method", "headers", "lane"),
    [
        ("/liveness", "GET", [], None),
        ("/health", "GET", [], None),
        ("/metrics", "GET", [], Lane.METRICS),
        ("/readiness", "GET", [], Lane.READING),
        ("/api/v1/evictions", "GET", NAMED, Lane.READING),
        ("/api/v1/pause", "POST", NAMED, Lane.OPERATORS),
        ("/api/v1/pause", "POST", [], Lane.READING),
        ("/api/v1/what-if", "POST", NAMED, Lane.WHAT_IF),
        ("/api/v1/drains/what-if", "POST", [], Lane.WHAT_IF),
        ("/api/v1/stream", "GET", NAMED, Lane.LISTENING),
        ("/", "GET", [], Lane.READING),
    ],
)
def test_which_lane(path: str, method: str, headers: Any, lane: Lane | None) -> None:
    assert lane_of(scope(path, method, headers=headers)) is lane


def test_every_route_that_plans_is_in_the_lane_of_what_if(api: ApiWorld) -> None:
    paths = api.app.openapi()["paths"]
    planning = {path for path in paths if "what-if" in path}
    assert planning
    assert all(lane_of(scope(path, "POST")) is Lane.WHAT_IF for path in planning)


@pytest.mark.parametrize(
    "endpoint", [reading_routes.health, reading_routes.liveness, context._context, authorization._public]
)
def test_what_is_in_no_lane_takes_no_thread(endpoint: Any) -> None:
    assert asyncio.iscoroutinefunction(endpoint)


class Crowd:
    """Requests that stay until they are let go."""

    def __init__(self) -> None:
        self.refused: list[Lane] = []
        self.answered = 0
        self.most = 0
        self._now = 0
        self._go_on = asyncio.Event()
        self.lanes = Lanes(self._app, self.refused.append)

    async def _app(self, scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:  # noqa: ARG002
        self._now += 1
        self.most = max(self.most, self._now)
        await self._go_on.wait()
        self._now -= 1
        self.answered += 1
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def ask(self, asked: dict[str, Any]) -> tuple[int, dict[bytes, bytes]]:
        started: list[Any] = []

        async def send(message: Any) -> None:
            started.append(message)

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        await self.lanes(asked, receive, send)
        return started[0]["status"], dict(started[0]["headers"])

    async def asked_by_all(self, *asked: dict[str, Any]) -> list[asyncio.Task[tuple[int, dict[bytes, bytes]]]]:
        tasks = [asyncio.create_task(self.ask(each)) for each in asked]
        for _ in range(10):  # until each is refused, waits or is being answered
            await asyncio.sleep(0)
        return tasks

    def let_go(self) -> None:
        self._go_on.set()


def test_a_full_lane_refuses_at_once_and_others_are_open() -> None:
    async def scenario() -> None:
        crowd = Crowd()
        first, *others = await crowd.asked_by_all(*[scope("/api/v1/what-if", "POST", f"10.0.0.{n}") for n in range(9)])
        assert not first.done()
        assert {each.result()[0] for each in others} == {429}
        assert {each.result()[1][b"retry-after"] for each in others} == {b"1"}
        assert crowd.refused == [Lane.WHAT_IF] * 8
        waiting = await crowd.asked_by_all(scope("/metrics"), scope("/api/v1/pause", "POST", headers=NAMED))
        crowd.let_go()
        assert [(await each)[0] for each in (first, *waiting)] == [200, 200, 200]
        assert (await crowd.ask(scope("/api/v1/what-if", "POST")))[0] == 200  # there is a place again

    asyncio.run(scenario())


def test_what_waits_has_its_turn() -> None:
    async def scenario() -> None:
        crowd, places = Crowd(), PLACES[Lane.READING]
        asked = [scope("/api/v1/evictions", peer=f"10.0.0.{n}") for n in range(sum(places) + 5)]
        tasks = await crowd.asked_by_all(*asked)
        assert [each.result()[0] for each in tasks if each.done()] == [429] * 5
        assert crowd.most == places.threads
        crowd.let_go()
        await asyncio.gather(*tasks)
        assert crowd.answered == sum(places)
        assert crowd.most == places.threads

    asyncio.run(scenario())


def test_one_peer_leaves_places_for_others() -> None:
    async def scenario() -> None:
        crowd, places = Crowd(), PLACES[Lane.READING]
        greedy = await crowd.asked_by_all(*[scope("/api/v1/evictions", peer="10.0.0.1")] * sum(places))
        assert sum(1 for each in greedy if not each.done()) == places.of_peer
        (other,) = await crowd.asked_by_all(scope("/api/v1/evictions", peer="10.0.0.2"))
        assert not other.done()
        crowd.let_go()
        assert (await other)[0] == 200
        await asyncio.gather(*greedy)

    asyncio.run(scenario())


def test_a_slow_reader_holds_no_place() -> None:
    async def scenario() -> None:
        crowd = Crowd()
        crowd.let_go()
        never = asyncio.Event()

        async def stuck(_: Any) -> None:
            await never.wait()

        asked = scope("/api/v1/what-if", "POST")
        sending = asyncio.create_task(crowd.lanes(asked, None, stuck))  # type: ignore[arg-type]
        for _ in range(10):
            await asyncio.sleep(0)
        assert crowd.answered
        assert (await crowd.ask(asked))[0] == 200
        never.set()
        await sending

    asyncio.run(scenario())


def test_streams_are_bounded_and_hold_no_thread() -> None:
    """A stream keeps its place to its end, but lets another begin as soon as its answer does."""

    async def scenario() -> None:
        places = PLACES[Lane.LISTENING]
        end, begun, refused = asyncio.Event(), [], []

        async def app(scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await end.wait()

        async def listen(peer: str) -> None:
            async def send(message: Any) -> None:
                if message["type"] == "http.response.start":
                    begun.append(message["status"])

            await lanes(scope("/api/v1/stream", peer=peer), None, send)  # type: ignore[arg-type]

        lanes = Lanes(app, refused.append)
        tasks = [asyncio.create_task(listen(f"10.0.0.{n % 9}")) for n in range(sum(places) + 3)]
        for _ in range(20 * len(tasks)):
            await asyncio.sleep(0)
        assert sorted(begun) == [200] * sum(places) + [429] * 3
        assert refused == [Lane.LISTENING] * 3
        end.set()
        await asyncio.gather(*tasks)
        again = asyncio.create_task(listen("10.0.0.1"))
        await again
        assert begun[-1] == 200

    asyncio.run(scenario())
