"""A whole daemon on a simulated cluster with a clock that tests move: the same loop as in production."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Any

import pytest

from clearway.bootstrap import new_loop
from clearway.config.configuration import Config, PlanningConfig
from clearway.estimates.history import HistoryKeeper
from clearway.execution.lifecycle import is_placement
from clearway.model.cluster import JobState, Node
from clearway.model.events import CycleFailed, Event, HandlingFailed
from clearway.model.operations import Eviction
from clearway.model.report import CycleReport
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.promise.calendar import CalendarContents, read_calendar
from clearway.service.cycle import Parts
from clearway.simulation.backend import SimulatedBackend
from clearway.simulation.cluster import SimulatedCluster
from clearway.simulation.jobs import Program
from clearway.store.repository import Store
from tests.builders import NOW, ManualClock

SAVES = "clearway:checkpoint=signal"

PLANNING_S = 60.0  # the solver's limit is in real seconds, however the world's clock stands still


class Quiet:
    """Hears all events and only remembers failures: a test must not pass over a cycle that died.

    Nor over anything else that raised, unless it is ``tolerant``.
    """

    tolerant = False

    def __init__(self) -> None:
        self.failures: list[BaseException] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, CycleFailed):
            self.failures.append(event.error)
        if isinstance(event, HandlingFailed):
            self.failures.append(event.error)
            if not self.tolerant:
                raise event.error


class ReadsHere:
    """Reads a calendar within the cycle: its text is a test's own, and time stands still meanwhile."""

    def begin(self, text: str, now: datetime, ahead_s: float) -> None:
        self._asked = text, now, ahead_s

    def answer(self) -> CalendarContents:
        return read_calendar(*self._asked)

    def close(self) -> None:
        pass


def config(mode: str = "automatic", **sections: dict[str, Any]) -> Config:
    """Automatic by default, with one rule: the partition ``urgent``, 60 s of max delay."""
    raw: dict[str, Any] = {
        "daemon": {"mode": mode},
        "preemptors": [{"partition": ["urgent"], "max_delay": "60s"}],
        "candidates": {"min_runtime": 0},
        "execution": {"kill_allowance": "6s"},
        "budget": {"user_evictions_per_hour": None, "user_jobs_per_hour": None},
        "planning": {"time_per_cycle": PLANNING_S},
    }
    for section, keys in sections.items():
        raw[section] = raw.get(section, {}) | keys if isinstance(keys, dict) else keys
    return Config.model_validate(raw)


@dataclass
class World:
    """Eight nodes of four processors, in the partitions ``batch`` and ``urgent``."""

    store_url: str
    config: Config = field(default_factory=config)
    node_count: int = 8
    clock: ManualClock = field(default_factory=lambda: ManualClock(NOW))
    file_system_mib_s: float = inf  # what programs with ``save_mib`` share

    def __post_init__(self) -> None:
        if self.config.planning == PlanningConfig():
            self.config = self.config.model_copy(update={"planning": PlanningConfig(time_per_cycle=PLANNING_S)})
        self.cluster = SimulatedCluster(now=self.clock.now(), file_system_mib_s=self.file_system_mib_s)
        self.cluster.add_nodes(
            Node(
                name=f"n{number}",
                available=True,
                raw_state="IDLE",
                cpus=4,
                memory_mib=4_000,
                partitions=("batch", "urgent"),
            )
            for number in range(1, self.node_count + 1)
        )
        self.by_hand = SimulatedBackend(self.cluster, self.clock)  # what others than the daemon do
        self.observer = Quiet()
        self.start_daemon()

    def start_daemon(self, fuse: Callable[[Any], Any] = lambda store: store, **replaced: Any) -> None:
        """A daemon as after a restart: nothing is carried over but the database.

        ``fuse`` is put between the daemon and its store; ``replaced`` are parts of the daemon by name.
        """
        self.store = Store(self.store_url)
        parts: dict[str, Any] = {
            "backend": SimulatedBackend(self.cluster, self.clock),
            "store": fuse(self.store),
            "planner": EvictionDP(),
            "clock": self.clock,
            "emit": self.observer,
            "calendar_reader": ReadsHere(),
        }
        parts |= replaced
        history = HistoryKeeper(parts["store"], parts["emit"])
        self.parts = Parts(**({"history": history} | parts))
        self.backend = self.parts.backend
        self.loop = new_loop(self.config, self.parts)

    def submit(self, program: Program | None = None, **fields: Any) -> str:
        self.cluster.advance(self.clock.now())
        return self.cluster.submit(program, **fields)

    def urgent(self, nodes: int, work_s: float = 300.0, **fields: Any) -> str:
        defaults: dict[str, Any] = {"partitions": ("urgent",), "priority": 1_000, "user": "ursula"}
        return self.submit(Program(work_s=work_s), num_nodes=nodes, **(defaults | fields))

    def tick(self, seconds: float = 0.5) -> CycleReport:
        self.clock.advance(seconds)
        return self.loop.cycle()

    def run_until(self, done: Callable[[], bool], limit_s: float = 600.0, every_s: float = 0.5) -> None:
        """Cycle until ``done``; fails after ``limit_s`` of the cluster's time."""
        end = self.clock.now().timestamp() + limit_s
        while not done():
            assert self.clock.now().timestamp() < end, f"not done within {limit_s} s: {self.describe()}"
            self.tick(every_s)

    def state(self, job_id: str) -> JobState:
        return self.cluster.jobs[job_id].job.state

    def eviction(self) -> Eviction:
        """The only eviction there is."""
        (only,) = self.store.evictions()
        return only

    def settled(self) -> bool:
        """Whether everything that was begun has come to its end: the store's word, once the last cycle agrees."""
        report = self.loop.report
        if report is not None and any(e.state.acting for e in report.open_evictions):
            return False
        return not any(e.state.acting for e in self.store.open_evictions())

    def started(self, job_id: str) -> datetime | None:
        job = self.cluster.jobs[job_id].job
        return job.start_time if job.state is not JobState.PENDING else None

    def leftovers(self) -> list[str]:
        """What Clearway would have forgotten on the cluster."""
        reservations = [r.name for r in self.cluster.reservations.values() if is_placement(r)]
        attached = [i for i, e in self.cluster.jobs.items() if e.job.reservation and e.job.state is not JobState.ENDED]
        return reservations + attached

    def describe(self) -> str:
        jobs = [f"{i}:{e.job.state}:{','.join(e.job.nodes)}" for i, e in self.cluster.jobs.items()]
        steps = [
            f"{s.kind} {s.job_id or ''} {s.result} {s.detail}"
            for e in self.store.evictions()
            for s in self.store.steps(e.eviction_id)
        ]
        return "\n".join([*jobs, *(f"{e.eviction_id} {e.state} {e.outcome}" for e in self.store.evictions()), *steps])


@pytest.fixture
def make_world(tmp_path: Path, empty_database: Path) -> Iterator[Callable[..., World]]:
    """Worlds that are closed after the test, each with a database of its own."""
    worlds: list[World] = []

    def make(**fields: Any) -> World:
        path = tmp_path / f"store-{len(worlds)}.sqlite"
        shutil.copyfile(empty_database, path)
        worlds.append(World(f"sqlite:///{path}", **fields))
        return worlds[-1]

    yield make
    for world in worlds:
        world.store.close()
