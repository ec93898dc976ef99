"""Each kind of request has a lane of its own: what fills one is refused at once, and holds up no other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from clearway.api import authorization, context, lanes, reading_routes
from clearway.api.lanes import PLACES, STREAMS_OF_USER, Caller, Lane, Lanes, Spending, lane_of
from tests.unit.api.conftest import ApiWorld

NAMED = [(b"authorization", b"Bearer x")]
NOBODY, ANN = Caller(), Caller("ann")


def named(user: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", f"Bearer {user}".encode())]


def who(asked: Any) -> Caller:
    """Everybody whose token is a name is known by it."""
    token = dict(asked["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
    return Caller(token, monitor=token == "prometheus")


def scope(path: str, method: str = "GET", peer: str = "10.0.0.1", headers: Any = ()) -> dict[str, Any]:
    return {"type": "http", "path": path, "method": method, "headers": list(headers), "client": (peer, 1)}


@pytest.mark.parametrize(
    ("path", "method", "headers", "caller", "lane"),
    [
        ("/liveness", "GET", [], NOBODY, None),
        ("/health", "GET", [], NOBODY, None),
        ("/leader", "GET", [], NOBODY, None),
        ("/readiness", "GET", [], NOBODY, None),
        ("/metrics", "GET", [], NOBODY, Lane.METRICS),
        ("/metrics", "GET", NAMED, ANN, Lane.METRICS),
        ("/metrics", "GET", [], Caller("", monitor=True), Lane.MONITOR),
        ("/api/v1/evictions", "GET", NAMED, ANN, Lane.READING),
        ("/api/v1/pause", "POST", NAMED, ANN, Lane.OPERATORS),
        ("/api/v1/pause", "POST", NAMED, NOBODY, Lane.LOGINS),
        ("/api/v1/pause", "POST", [], NOBODY, Lane.READING),
        ("/api/v1/what-if", "POST", NAMED, ANN, Lane.WHAT_IF),
        ("/api/v1/drains/what-if", "POST", [], NOBODY, Lane.WHAT_IF),
        ("/api/v1/stream", "GET", NAMED, ANN, Lane.LISTENING),
        ("/", "GET", [], NOBODY, Lane.READING),
    ],
)
def test_which_lane(path: str, method: str, headers: Any, caller: Caller, lane: Lane | None) -> None:
    assert lane_of(scope(path, method, headers=headers), caller) is lane


def test_every_route_that_plans_is_in_the_lane_of_what_if(api: ApiWorld) -> None:
    paths = api.app.openapi()["paths"]
    planning = {path for path in paths if "what-if" in path}
    assert planning
    assert all(lane_of(scope(path, "POST")) is Lane.WHAT_IF for path in planning)


@pytest.mark.parametrize(
    "endpoint",
    [
        reading_routes.health,
        reading_routes.liveness,
        reading_routes.leader,
        reading_routes.readiness,
        context._context,
        authorization._public,
    ],
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
        self.lanes = Lanes(self._app, self.refused.append, who)

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
        asked = [scope("/api/v1/evictions", peer=f"10.0.0.{n}") for n in range(places.all + 5)]
        tasks = await crowd.asked_by_all(*asked)
        assert [each.result()[0] for each in tasks if each.done()] == [429] * 5
        assert crowd.most == places.threads
        crowd.let_go()
        await asyncio.gather(*tasks)
        assert crowd.answered == places.all
        assert crowd.most == places.threads

    asyncio.run(scenario())


def test_one_peer_leaves_places_for_others() -> None:
    async def scenario() -> None:
        crowd, places = Crowd(), PLACES[Lane.READING]
        greedy = await crowd.asked_by_all(*[scope("/api/v1/evictions", peer="10.0.0.1")] * places.all)
        assert sum(1 for each in greedy if not each.done()) == places.of_one
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
        tasks = [asyncio.create_task(listen(f"10.0.0.{n % 9}")) for n in range(places.all + 3)]
        for _ in range(20 * len(tasks)):
            await asyncio.sleep(0)
        assert sorted(begun) == [200] * places.all + [429] * 3
        assert refused == [Lane.LISTENING] * 3
        end.set()
        await asyncio.gather(*tasks)
        again = asyncio.create_task(listen("10.0.0.1"))
        await again
        assert begun[-1] == 200

    asyncio.run(scenario())


def test_behind_one_address_each_user_has_own_places() -> None:
    """A proxy of the site, or a tunnel: one user takes all that one may have, and the others are answered."""

    async def scenario() -> None:
        crowd, places = Crowd(), PLACES[Lane.READING]
        greedy = await crowd.asked_by_all(*[scope("/api/v1/evictions", headers=named("mallory"))] * places.all)
        assert sum(1 for each in greedy if not each.done()) == places.of_one
        others = await crowd.asked_by_all(*[scope("/api/v1/evictions", headers=named(f"user{n}")) for n in range(40)])
        assert not any(each.done() for each in others)
        crowd.let_go()
        assert {(await each)[0] for each in others} == {200}
        await asyncio.gather(*greedy)

    asyncio.run(scenario())


def test_the_newest_of_those_with_the_most_gives_way() -> None:
    async def scenario() -> None:
        crowd, places = Crowd(), PLACES[Lane.READING]
        asked = [scope("/api/v1/evictions", peer=f"10.0.0.{n % 2}") for n in range(places.all)]
        greedy = await crowd.asked_by_all(*asked)
        assert not any(each.done() for each in greedy)
        few = places.of_one // 2
        others = await crowd.asked_by_all(*[scope("/api/v1/evictions", peer="10.0.0.9")] * few)
        assert not any(each.done() for each in others), "where a lane is full, a caller with few places gets one"
        gone = [n for n, each in enumerate(greedy) if each.done()]
        assert [greedy[n].result()[0] for n in gone] == [429] * few
        assert min(gone) >= len(greedy) - few, "the newest"
        assert crowd.most == places.threads
        crowd.let_go()
        assert {(await each)[0] for each in others} == {200}
        await asyncio.gather(*greedy)
        assert crowd.answered == places.all
        assert (await crowd.ask(asked[0]))[0] == 200, "no turn is lost"

    asyncio.run(scenario())


def test_nobody_gives_way_to_who_has_as_many() -> None:
    async def scenario() -> None:
        crowd, places = Crowd(), PLACES[Lane.READING]
        asked = [scope("/api/v1/evictions", peer=f"10.0.0.{n}") for n in range(places.all)]
        tasks = await crowd.asked_by_all(*asked)
        (late,) = await crowd.asked_by_all(scope("/api/v1/evictions", peer="10.0.1.1"))
        assert late.result()[0] == 429
        assert not any(each.done() for each in tasks)
        crowd.let_go()
        await asyncio.gather(*tasks)

    asyncio.run(scenario())


def test_the_monitor_has_a_place_of_its_own() -> None:
    async def scenario() -> None:
        crowd = Crowd()
        takers = [scope("/metrics", peer=f"10.0.{n // 200}.{n % 200}") for n in range(400)]
        await crowd.asked_by_all(*takers)
        assert crowd.refused
        assert set(crowd.refused) == {Lane.METRICS}
        (monitor,) = await crowd.asked_by_all(scope("/metrics", headers=named("prometheus")))
        assert not monitor.done()
        crowd.let_go()
        assert (await monitor)[0] == 200

    asyncio.run(scenario())


def test_one_caller_takes_few_places_of_the_metrics() -> None:
    async def scenario() -> None:
        crowd = Crowd()
        tasks = await crowd.asked_by_all(*[scope("/metrics")] * 64)
        assert sum(1 for each in tasks if not each.done()) == PLACES[Lane.METRICS].of_one < 8
        crowd.let_go()
        await asyncio.gather(*tasks)

    asyncio.run(scenario())


class Streams:
    """Streams that last until the test ends them; each is a list of what was sent."""

    def __init__(self) -> None:
        self.end = asyncio.Event()
        self.sent: list[list[Any]] = []
        self.lanes = Lanes(self._app, who=who)

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG002
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await self.end.wait()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def listen(self, peer: str, headers: Any = ()) -> asyncio.Task[None]:
        told: list[Any] = []
        self.sent.append(told)

        async def send(message: Any) -> None:
            told.append(message)

        asked = scope("/api/v1/stream", peer=peer, headers=headers)
        task = asyncio.create_task(self.lanes(asked, None, send))  # type: ignore[arg-type]
        for _ in range(10):
            await asyncio.sleep(0)
        return task


def test_streams_of_one_user_leave_places_behind_the_same_address() -> None:
    async def scenario() -> None:
        streams = Streams()
        tasks = [await streams.listen("10.0.0.1", named("mallory")) for _ in range(40)]
        statuses = [told[0]["status"] for told in streams.sent]
        assert statuses == [200] * STREAMS_OF_USER + [429] * (40 - STREAMS_OF_USER)
        tasks += [await streams.listen("10.0.0.1", named(f"user{n}")) for n in range(20)]
        assert [told[0]["status"] for told in streams.sent[40:]] == [200] * 20
        streams.end.set()
        await asyncio.gather(*tasks)

    asyncio.run(scenario())


def test_a_stream_that_gives_way_ends_in_order() -> None:
    async def scenario() -> None:
        streams, places = Streams(), PLACES[Lane.LISTENING]
        tasks = [await streams.listen(f"10.0.0.{n % 2}") for n in range(places.all)]
        tasks.append(await streams.listen("10.0.0.9"))
        assert streams.sent[-1][0]["status"] == 200
        (ended,) = [told for told in streams.sent if len(told) > 1]
        assert ended[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
        assert len(ended) == 2
        streams.end.set()
        await asyncio.gather(*tasks)

    asyncio.run(scenario())


def test_what_a_caller_may_spend() -> None:
    spending = Spending()
    assert spending.waits_s("ann", 0.0) == 0
    spending.charge("ann", lanes.AT_ONCE_S + 2.0, 0.0)
    assert spending.waits_s("ann", 0.0) == pytest.approx(2.0 / lanes.SHARE_OF_ONE)
    assert spending.waits_s("bob", 0.0) == 0
    assert spending.waits_s("ann", 2.0 / lanes.SHARE_OF_ONE) == pytest.approx(0)
    for number in range(10):
        spending.charge(f"user{number}", lanes.AT_ONCE_S, 100.0)
    assert spending.waits_s("bob", 100.0) > 0, "all have used what there is for all"
    assert spending.waits_s("bob", 1_000.0) == 0
    for number in range(5_000):
        spending.charge(f"10.0.{number}", 0.1, 1_000.0 + number)
    assert len(spending._used) <= lanes._MOST_REMEMBERED + 1


def test_who_plans_all_the_time_is_told_when_to_come_again() -> None:
    """One of its plans takes longer than a caller may use at a stretch."""

    async def scenario() -> None:
        clock = [0.0]

        async def app(scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001
            clock[0] += lanes.AT_ONCE_S + 1.0
            await send({"type": "http.response.start", "status": 200, "headers": []})

        crowd = Crowd()
        crowd.lanes = Lanes(app, crowd.refused.append, who)
        asyncio.get_running_loop().time = lambda: clock[0]  # type: ignore[method-assign]
        asked = scope("/api/v1/drains/what-if", "POST", headers=named("mallory"))
        assert (await crowd.ask(asked))[0] == 200
        status, headers = await crowd.ask(asked)
        assert status == 429
        assert 5 <= int(headers[b"retry-after"]) <= 1.0 / lanes.SHARE_OF_ONE
        assert (await crowd.ask(scope("/api/v1/drains/what-if", "POST", headers=named("ann"))))[0] == 200
        clock[0] += 60.0
        assert (await crowd.ask(asked))[0] == 200

    asyncio.run(scenario())


def test_a_plan_begins_between_two_cycles() -> None:
    async def scenario() -> None:
        busy, begun = [True], []

        async def app(scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001
            begun.append(busy[0])
            await send({"type": "http.response.start", "status": 200, "headers": []})

        crowd = Crowd()
        crowd.lanes = Lanes(app, busy=lambda: busy[0])
        task = asyncio.create_task(crowd.ask(scope("/api/v1/what-if", "POST")))
        await asyncio.sleep(3 * lanes._LOOKS_EVERY_S)
        assert not begun
        busy[0] = False
        assert (await task)[0] == 200
        assert begun == [False]

    asyncio.run(scenario())


def test_a_crowd_that_does_not_wait_is_made_to() -> None:
    """Who asks five hundred times in a second has to wait for the next answer; others are answered at once."""
    crowding = lanes.Crowding()
    held = [crowding.holds("10.0.0.1", 7.0, lanes.CROWDED) for _ in range(lanes.CROWDED + 5)]
    assert held == [False] * lanes.CROWDED + [True] * 5
    assert not crowding.holds("10.0.0.2", 7.5, lanes.CROWDED)
    assert not crowding.holds("10.0.0.1", 8.0, lanes.CROWDED)
    many = [crowding.holds(f"10.1.{number}", 9.0, lanes.CROWDED) for number in range(10 * lanes.CROWDED)]
    assert sum(not each for each in many) == 5 * lanes.CROWDED, "from many addresses as well"
    assert not crowding.holds("user ann", 9.0, lanes.CROWDED, known=True)


@pytest.mark.fault(
    "Who asked for a document that costs nothing, over and over, made a halt take longer than half a second.",
    found_by="load",
)
def test_who_is_answered_without_a_place_is_held_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001
            await send({"type": "http.response.start", "status": 200, "headers": []})

        monkeypatch.setattr(lanes, "CROWDED", 20)
        crowd = Crowd()
        crowd.lanes = Lanes(app)
        tasks = await crowd.asked_by_all(*[scope("/api/v1/openapi.json", headers=named("mallory"))] * 30)
        assert len([each for each in tasks if each.done()]) == 20
        for task in tasks:
            task.cancel()

    asyncio.run(scenario())


def test_a_held_refusal_keeps_nobody_from_being_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(lanes, "_HOLD_S", 0.05)
        crowd = Crowd()
        tasks = await crowd.asked_by_all(*[scope("/metrics")] * 2 * lanes.CROWDED_BY_REFUSALS)
        assert len([each for each in tasks if each.done()]) == lanes.CROWDED_BY_REFUSALS
        (other,) = await crowd.asked_by_all(scope("/metrics", headers=named("prometheus")))
        crowd.let_go()
        assert (await other)[0] == 200
        statuses = [status for status, _ in await asyncio.gather(*tasks)]
        assert statuses.count(429) == len(tasks) - PLACES[Lane.METRICS].of_one

    asyncio.run(scenario())
