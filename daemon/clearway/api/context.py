"""What the routes need of the daemon, and nothing more of it.

A feed tells listeners that what is shown has changed; what it is, they read by the ordinary routes, which know what
each may see. It looks once a cycle, and only while somebody listens.

Refused logins and roles are in the audit trail. An attacker may send many thousands a second: in ``WINDOW_S`` at most
``MOST_OF_ONE`` of an identity, or of an address without one, are entries of their own, and ``MOST`` of all, less than
2 MB a day; the first one after that says how many more there were.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Query, Request

from clearway.api.job_schemas import JOB_ID
from clearway.api.logins import Logins
from clearway.api.schemas import Problem
from clearway.api.views import Page
from clearway.config.configuration import Config
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import under_way_by
from clearway.estimates.history import RunKey, RunRecord
from clearway.estimates.learning import History
from clearway.model.audit import Audited, AuditKind
from clearway.model.clock import Clock
from clearway.model.cluster import Job
from clearway.model.errors import StoreError
from clearway.model.problem import Action
from clearway.model.report import CycleReport
from clearway.planning.base import Planner
from clearway.store.repository import Store
from clearway.telemetry.log import get_logger
from clearway.telemetry.metrics import Metrics

ALIVE_EVERY_S = 15.0  # a sign of life: proxies cut connections on which nothing comes
LONGEST_S = 300.0  # then the listener asks again, and its token is looked at again


@dataclass(eq=False)
class Feed:
    """The loop's thread calls ``look``, any thread ``close``; ``events`` belongs to an event loop."""

    _listeners: set[Callable[[], object]] = field(default_factory=set)  # what wakes each of them, from any thread
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _shown: object = None
    _closed: bool = False

    def look(self, shown: Callable[[], object]) -> None:
        """Call the listeners if what is ``shown`` now differs from what was shown before."""
        now = shown() if self._listeners else None
        changed, self._shown = now != self._shown, now
        if changed:
            self._call_all()

    def close(self) -> None:
        self._closed = True
        self._call_all()

    def _call_all(self) -> None:
        with self._lock:
            for call in self._listeners:
                call()

    async def events(self) -> AsyncIterator[bool]:
        """True: something has changed, as the first one always says; False: nothing has, for ``ALIVE_EVERY_S``."""
        loop, called = asyncio.get_running_loop(), asyncio.Event()
        call = partial(loop.call_soon_threadsafe, called.set)
        with self._lock:
            self._listeners.add(call)
        try:
            end = loop.time() + LONGEST_S
            yield True
            while not self._closed and loop.time() < end:
                try:
                    await asyncio.wait_for(called.wait(), ALIVE_EVERY_S)
                except TimeoutError:
                    yield False
                else:
                    called.clear()
                    if not self._closed:
                        yield True
        finally:
            with self._lock:
                self._listeners.discard(call)


MOST_OF_ONE = 5
MOST = 30
WINDOW_S = 600.0
_LONGEST = 200  # characters of what a caller chose


@dataclass
class Refusals:
    """Safe for several threads. ``count`` is told every one, by its reason: token or role."""

    store: Store
    clock: Clock
    count: Callable[[str], None] = lambda _: None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _began_s: float | None = None  # of the present window
    _inside: Counter[str] = field(default_factory=Counter)  # by who was refused
    _unrecorded: int = 0

    def note(self, reason: str, why: str, *, actor: str, peer: str, path: str) -> None:
        """A database that does not answer makes no refusal an admission, and none an error: it stays unrecorded."""
        self.count(reason)
        with self._lock:
            now_s = self.clock.monotonic()
            if self._began_s is None or now_s - self._began_s >= WINDOW_S:
                self._began_s, self._inside = now_s, Counter()
            who = actor or f"from {peer}"
            if self._inside[who] >= MOST_OF_ONE or self._inside.total() >= MOST:
                self._unrecorded += 1
                return
            self._inside[who] += 1
            more, self._unrecorded = self._unrecorded, 0
        about = {"reason": reason, "why": why[:_LONGEST], "peer": peer[:_LONGEST], "path": path[:_LONGEST]}
        if more:
            about |= {"more_before": str(more)}
        try:
            self.store.audit(Audited(at=self.clock.now(), actor=actor, kind=AuditKind.REFUSED, about=about))
        except StoreError:
            with self._lock:
                self._unrecorded += more + 1


_PROBE_COUNTS_S = 1.0
_PROBE_WAITS_S = 2.0


class Probe:
    """Whether the database takes a write. One is tried at a time, at most each second, however many ask; those who ask
    wait for it no longer than ``_PROBE_WAITS_S``. ``why_not`` belongs to an event loop, and takes no worker thread:
    these may all be waiting for the database.
    """

    def __init__(self, write: Callable[[], None]) -> None:
        self._write = write
        self._tried: Future[str] | None = None
        self._began = 0.0

    async def why_not(self) -> str:
        """Half a sentence; empty: it does."""
        now = asyncio.get_running_loop().time()
        if self._tried is None or (self._tried.done() and now - self._began > _PROBE_COUNTS_S):
            self._tried, self._began = Future(), now
            threading.Thread(target=self._try, args=(self._tried,), name="clearway-probe", daemon=True).start()
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(self._tried)), _PROBE_WAITS_S)
        except TimeoutError:
            return f"the database has taken no write for {asyncio.get_running_loop().time() - self._began:.0f} s"

    def _try(self, tried: Future[str]) -> None:
        why = "the database takes no write; the daemon's log says why"
        try:
            self._write()
            why = ""
        except StoreError as error:
            get_logger().error("the database takes no write", error=str(error))
        finally:
            tried.set_result(why)


class Pulse:
    """When the last cycle succeeded; until the first has, the daemon's start counts."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = clock.monotonic()
        self.beaten = False

    def beat(self) -> None:
        self._last = self._clock.monotonic()
        self.beaten = True

    @property
    def age_s(self) -> float:
        return max(0.0, self._clock.monotonic() - self._last)


@dataclass(frozen=True, kw_only=True)
class Context:
    """Functions where the daemon may replace what they return (a new report, a new configuration)."""

    report: Callable[[], CycleReport | None]
    config: Callable[[], Config]
    planner: Planner
    checkpointers: Mapping[str, Action]
    store: Store
    clock: Clock
    pulse: Pulse
    logins: Logins
    metrics: Metrics
    refusals: Refusals
    history: Callable[[], History] = History  # empty unless the daemon's own is given
    runs: Callable[[RunKey], tuple[RunRecord, ...]] = lambda _: ()
    wake: Callable[[], None] = lambda: None
    leads: Callable[[], bool] = lambda: False
    in_cycle: Callable[[], bool] = lambda: False  # whether a cycle is under way, rather than the pause after it
    backend: str = ""
    feed: Feed = field(default_factory=Feed)
    probe: Probe = field(default_factory=lambda: Probe(lambda: None))

    @property
    def standby(self) -> bool:
        """Whether another daemon acts, or may act by now: this one led in its last cycle, and its lease is over."""
        report = self.report()
        return report is not None and (report.standby or self.lease_over)

    @property
    def lease_over(self) -> bool:
        report = self.report()
        return report is not None and report.epoch is not None and not self.leads()

    def planning_context(self, report: CycleReport, jobs: Iterable[Job] | None = None) -> PlanningContext:
        """What the loop would plan from in its next cycle if nothing changed; ``jobs``: as far as these concern."""
        snapshot = report.snapshot
        counted = snapshot.jobs if jobs is None else jobs
        return PlanningContext(
            snapshot=snapshot,
            config=self.config(),
            now=snapshot.taken_at,
            preempted=self.store.preemption_counts(job for job in counted if job.state.holds_nodes),
            under_way=under_way_by(report.open_evictions),
            history=self.history(),
            actions=self.checkpointers,
        )


# async, as what only looks around: it takes no worker thread.
async def _context(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


Daemon = Annotated[Context, Depends(_context)]


async def _newest_report(daemon: Daemon) -> CycleReport:
    report = daemon.report()
    if report is None:
        raise HTTPException(503, "no cycle has succeeded yet; is Slurm reachable? See /readiness and the log")
    return report


Report = Annotated[CycleReport, Depends(_newest_report)]


def problems(descriptions: dict[int, str]) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI document's answers of these statuses."""
    return {status: {"model": Problem, "description": text} for status, text in descriptions.items()}


NOT_FOUND = problems({404: "there is none of this number"})
LONGEST_NAME = 255  # characters of a user or a node

UserFilter = Annotated[
    str | None, Query(max_length=LONGEST_NAME, description="only what concerns jobs of this user; null: all")
]
JobFilter = Annotated[
    str | None, Query(pattern=JOB_ID, description="only what concerns this job, by either form of its id; null: all")
]


def paged(what: str, *, most: int, usual: int, newest: bool = False) -> Any:
    """A dependency: the page of a list that is asked for."""

    async def asked(
        limit: Annotated[int, Query(ge=1, le=most, description=f"maximum number of {what}")] = usual,
        offset: Annotated[
            int, Query(ge=0, le=1_000_000, description=f"number of {'newest ' * newest}{what} to skip")
        ] = 0,
    ) -> Page:
        return Page(limit, offset)

    return Depends(asked)
