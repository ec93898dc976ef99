"""How much callers may hold at once, so that none locks out another, nor holds up the cycle.

Each kind of request has a lane, which answers some requests at a time, each with one worker thread at most, and lets
some more wait; more than that is answered 429 at once. All lanes together have as many threads as there are: metrics
and operators are answered however many read or ask for what-if plans. Health needs no thread and no lane, and the
site's monitor has a lane of its own.

Places are counted by caller: the identity where it is known, else the address. Behind one address (a proxy, a tunnel)
each user has own places. No caller has more than a part of a lane; where a lane is full, a caller with few places gets
one all the same, and the newest request of the caller with the most gives way. What a caller only claims to be does not
count: a token that has not been found good is one more request of its address.

What-if plans take a processor, and the loop needs one. They begin between two cycles, and their time is charged to the
caller: who has used more than there is (``SHARE_OF_ONE``) waits, and so do all once they have (``SHARE_OF_ALL``).

A request enters its lane when it has been read whole, and leaves it before its answer is sent: a slow peer holds no
place. Streams alone hold theirs to their end.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clearway.api.admission import Middleware, problem


class Lane(StrEnum):
    MONITOR = "monitor"  # metrics, for whom the site names (access.monitors)
    METRICS = "metrics"
    OPERATORS = "operators"  # changes by callers who are known
    LOGINS = "logins"  # changes by callers who say who they are, which is yet to be looked at
    READING = "reading"  # everything else
    WHAT_IF = "what_if"
    LISTENING = "listening"  # streams: a thread until the asker is known, then none


class Places(NamedTuple):
    """Of one lane: requests that are answered at a time, how many more may wait, and how many are one caller's."""

    threads: int
    waiting: int
    of_one: int

    @property
    def all(self) -> int:
        return self.threads + self.waiting


PLACES = {
    Lane.MONITOR: Places(1, 15, 16),
    Lane.METRICS: Places(2, 30, 4),
    Lane.OPERATORS: Places(3, 29, 16),
    Lane.LOGINS: Places(2, 14, 8),
    Lane.READING: Places(4, 60, 32),
    Lane.WHAT_IF: Places(1, 0, 1),
    Lane.LISTENING: Places(1, 63, 32),
}
STREAMS_OF_USER = 8  # of a caller who is known; an address without a name may be many
THREADS = sum(places.threads for places in PLACES.values())
_NAMING = (b"authorization", b"x-clearway-page")  # a token, or what a proxy adds a user's name to
_UNBOUNDED = ("/health", "/liveness", "/leader", "/readiness")
RETRY_AFTER_S = 1
REFUSED = "clearway.refused"  # in the scope of a request that found no place
_LANE_FULL = "too many requests of this kind are being answered; try again"
_SPENT = "what-if plans have taken much time; try again later"


class Caller(NamedTuple):
    name: str = ""  # of a user or a token that was found good; empty: not known
    monitor: bool = False  # whether ``access.monitors`` names the caller


NOBODY = Caller()


def lane_of(scope: Scope, caller: Caller = NOBODY) -> Lane | None:
    """None: what needs no lane."""
    path, reads = scope["path"], scope["method"] in ("GET", "HEAD")
    if path in _UNBOUNDED:
        return None
    if path == "/metrics":
        return Lane.MONITOR if caller.monitor else Lane.METRICS
    if path.endswith("/stream"):
        return Lane.LISTENING
    if not reads and path.endswith("/what-if"):
        return Lane.WHAT_IF
    if reads or not any(name in _NAMING for name, _ in scope["headers"]):
        return Lane.READING
    return Lane.OPERATORS if caller.name else Lane.LOGINS


def key_of(scope: Scope, caller: Caller) -> str:
    """By what a caller's places are counted: no address is a name with a blank."""
    return f"user {caller.name}" if caller.name else str((scope.get("client") or ("",))[0])


SHARE_OF_ONE, AT_ONCE_S = 0.1, 5.0  # of the time, and what may be used at a stretch
SHARE_OF_ALL, ALL_AT_ONCE_S = 0.3, 15.0
_MOST_REMEMBERED = 1_000


class Spending:
    """The time that what-if plans have taken, by caller; what was used is forgotten as time goes on."""

    def __init__(self) -> None:
        self._used: dict[str, tuple[float, float]] = {}  # seconds, and when that was

    def waits_s(self, key: str, now: float) -> float:
        """How long this caller has to wait; 0: not at all."""
        of_one = (self._left(key, now, SHARE_OF_ONE) - AT_ONCE_S) / SHARE_OF_ONE
        return max(0.0, of_one, (self._left("", now, SHARE_OF_ALL) - ALL_AT_ONCE_S) / SHARE_OF_ALL)

    def charge(self, key: str, seconds: float, now: float) -> None:
        for each, share in ((key, SHARE_OF_ONE), ("", SHARE_OF_ALL)):
            self._used[each] = self._left(each, now, share) + seconds, now
        if len(self._used) > _MOST_REMEMBERED:
            self._used = {each: used for each, used in self._used.items() if self._left(each, now, SHARE_OF_ONE) > 0}

    def _left(self, key: str, now: float, share: float) -> float:
        used_s, at = self._used.get(key, (0.0, now))
        return max(0.0, used_s - share * (now - at))


CROWDED = 500  # requests of one caller within a second
CROWDED_BY_REFUSALS = 100  # of them, those that find no place
_HOLD_S = 8.0


class Crowding:
    """Whether so many come, by caller, that each of them has to wait, for what costs next to nothing as well (health, a
    refusal, a document that is kept). Else those who ask without a pause would keep the event loop busy.
    """

    def __init__(self) -> None:
        self._second = 0
        self._counted: Counter[str] = Counter()

    def holds(self, key: str, now: float, most: int, *, known: bool = False) -> bool:
        """A caller who is known does not wait for what all others ask."""
        if int(now) != self._second:
            self._second, self._counted = int(now), Counter()
        self._counted[key] += 1
        return self._counted[key] > most or (not known and self._counted.total() > 5 * most)


@dataclass(eq=False, slots=True)
class _Place:
    key: str
    task: "asyncio.Task[None]"
    yields: bool = False  # it waits for its turn, or is a stream: it can be called off
    gave_way: bool = False


_LOOKS, _LOOKS_EVERY_S = 250, 0.02  # for the end of a cycle; then it begins all the same


class Lanes(Middleware):
    """``refused`` is told the lane of each request that finds no place; ``who`` knows callers without asking anybody;
    ``busy`` says whether a cycle is under way.
    """

    def __init__(
        self,
        app: ASGIApp,
        refused: Callable[[Lane], None] = lambda _: None,
        who: Callable[[Scope], Caller] = lambda _: NOBODY,
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(app)
        self._refused, self._who, self._busy = refused, who, busy
        self._turns = {lane: asyncio.Semaphore(places.threads) for lane, places in PLACES.items()}
        self._inside: dict[Lane, list[_Place]] = {lane: [] for lane in PLACES}  # the newest last
        self._spending = Spending()
        self._crowding = Crowding()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        caller = self._who(scope)
        lane = lane_of(scope, caller)
        await self._hold(f"{lane or 'health'} of {key_of(scope, caller)}", CROWDED, known=bool(caller.name))
        if lane is None:
            await self._app(scope, receive, send)
        else:
            await self._in_lane(lane, caller, scope, receive, send)

    async def _in_lane(self, lane: Lane, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        key, wait_s = key_of(scope, caller), 0.0
        if lane is Lane.WHAT_IF:
            wait_s = self._spending.waits_s(key, asyncio.get_running_loop().time())
        place = None if wait_s > 0 else self._enter(lane, key, known=bool(caller.name))
        if place is None:
            await self._hold(key, CROWDED_BY_REFUSALS)
            await self._refuse(lane, scope, receive, send, wait_s)
            return
        turn, answer, begun = AsyncExitStack(), list[Message](), False

        async def pass_on(message: Message) -> None:
            """A stream is sent as it comes, and keeps its place to its end; its turn ends when its answer begins."""
            nonlocal begun
            await turn.aclose()
            begun = place.yields = True
            await send(message)

        async def keep(message: Message) -> None:
            answer.append(message)

        try:
            async with turn:
                place.yields = True
                await turn.enter_async_context(self._turns[lane])
                place.yields = False
                if lane is Lane.WHAT_IF:
                    await self._plan(key, scope, receive, keep)
                else:
                    await self._app(scope, receive, pass_on if lane is Lane.LISTENING else keep)
        except asyncio.CancelledError:
            if not place.gave_way:
                raise
            place.task.uncancel()
            if not begun:
                await self._refuse(lane, scope, receive, send)
                return
            answer = [{"type": "http.response.body", "body": b"", "more_body": False}]
        finally:
            if place in self._inside[lane]:
                self._inside[lane].remove(place)
        for message in answer:
            await send(message)

    def _enter(self, lane: Lane, key: str, *, known: bool) -> _Place | None:
        inside, places = self._inside[lane], PLACES[lane]
        held = Counter(place.key for place in inside)
        of_one = STREAMS_OF_USER if known and lane is Lane.LISTENING else places.of_one
        if held[key] >= of_one or (len(inside) >= places.all and not self._make_room(inside, held, key)):
            return None
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - this runs in one
        inside.append(_Place(key, task))
        return inside[-1]

    def _make_room(self, inside: list[_Place], held: "Counter[str]", key: str) -> bool:
        """The newest of those who have the most gives way, where they would still have as many as the new caller."""
        able = [place for place in inside if place.yields and held[place.key] > held[key] + 1]
        if not able:
            return False
        most = max(held[place.key] for place in able)
        newest = next(place for place in reversed(able) if held[place.key] == most)
        inside.remove(newest)
        newest.gave_way, newest.yields = True, False
        newest.task.cancel()
        return True

    async def _plan(self, key: str, scope: Scope, receive: Receive, send: Send) -> None:
        clock = asyncio.get_running_loop().time
        for _ in range(_LOOKS):
            if not self._busy():
                break
            await asyncio.sleep(_LOOKS_EVERY_S)
        began = clock()
        try:
            await self._app(scope, receive, send)
        finally:
            self._spending.charge(key, clock() - began, clock())

    async def _hold(self, key: str, most: int, *, known: bool = False) -> None:
        if self._crowding.holds(key, asyncio.get_running_loop().time(), most, known=known):
            await asyncio.sleep(_HOLD_S)

    async def _refuse(self, lane: Lane, scope: Scope, receive: Receive, send: Send, wait_s: float = 0.0) -> None:
        self._refused(lane)
        scope[REFUSED] = True
        after = {"Retry-After": str(max(RETRY_AFTER_S, ceil(wait_s)))}
        await problem(429, _SPENT if wait_s else _LANE_FULL, after)(scope, receive, send)
