"""How long a cycle takes with 1,000 running and 1,000 pending jobs on a simulated cluster of 2,000 nodes.

Run with ``pytest tests/benchmarks/bench_cycle.py -s``. Each number is the median of several cycles of the whole loop,
SQLite on disk included: nothing to do; a plan for an urgent job of 64 nodes, made, stored and begun; its first steps.
The limit holds for a quiet machine: where the yardstick, which takes turns with the cycles, takes longer than there, a
cycle may take longer by as much. What is above the limit is measured again, four times at most.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from tests.benchmarks.yardstick import Pace
from tests.simulation import load
from tests.simulation.world import World, config

LIMIT_MS = 200.0
IDLE_CYCLES = 30
URGENT_JOBS = 7
RUNS = 5
GUARDED_BY = 2  # on a busy machine a cycle may take so many times longer, beside what the yardstick says


@pytest.fixture
def quiet_collector() -> Iterator[None]:
    """As ``Loop.run`` has it; the test runner's own modules would be searched for garbage else."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


class Times:
    """Milliseconds of one kind of cycle, each between two measures of the yardstick."""

    def __init__(self) -> None:
        self.taken: list[float] = []
        self.pace = Pace()

    def measure(self, act: Callable[[], object]) -> None:
        self.pace.take()
        begin = time.perf_counter()
        act()
        self.taken.append((time.perf_counter() - begin) * 1_000)
        self.pace.take()

    @property
    def median(self) -> float:
        return statistics.median(self.taken)

    def __str__(self) -> str:
        return f"{self.median:,.0f} ({max(self.taken):,.0f}; x{self.pace.slower:.1f})"


@pytest.mark.usefixtures("quiet_collector")
def test_a_cycle_is_short(tmp_path: Path) -> None:
    is_short(tmp_path, LIMIT_MS, ("60s", "5m", "10m"))


@pytest.mark.guard
@pytest.mark.usefixtures("quiet_collector")
def test_a_cycle_is_not_long_on_a_busy_machine_either(tmp_path: Path) -> None:
    is_short(tmp_path, LIMIT_MS * GUARDED_BY, ("5m",))


def is_short(tmp_path: Path, limit_ms: float, max_delays: Sequence[str]) -> None:
    late: set[str] | None = None
    for run in range(RUNS):
        folder = tmp_path / str(run)
        folder.mkdir()
        measured = measure(folder, max_delays)
        now = {what for what, times in measured.items() if times.median >= limit_ms * times.pace.slower}
        late = now if late is None else late & now
        if not late:
            return
    told = ", ".join(f"{what}: {times}" for what, times in measured.items())
    pytest.fail(f"in {RUNS} runs a median above {limit_ms:g} ms times the yardstick's: {late}; the last: {told}")


def measure(tmp_path: Path, max_delays: Sequence[str]) -> dict[str, Times]:
    """By what the cycle does and the max delay."""
    title = "One cycle, ms (median; longest, times as slow as a quiet machine)"
    table = Table(title=title, title_justify="left")
    for heading in ("max delay", "idle", "plans for an urgent job", "carries on"):
        table.add_column(heading, justify="right")
    measured: dict[str, Times] = {}
    for max_delay in max_delays:
        rules = [{"partition": ["urgent"], "max_delay": max_delay}]
        world = World(f"sqlite:///{tmp_path}/{max_delay}.sqlite", config(preemptors=rules), node_count=load.NODES)
        load.fill(world.cluster)
        world.tick()
        idle, plans, carries = Times(), Times(), Times()
        for _ in range(IDLE_CYCLES):
            idle.measure(world.tick)
        for _ in range(URGENT_JOBS):
            load.urgent(world.cluster)
            plans.measure(world.tick)
            for _ in range(3):
                carries.measure(world.tick)
        assert len(world.store.evictions()) == URGENT_JOBS
        assert not world.observer.failures
        world.store.close()
        row = {"idle": idle, "planning": plans, "carrying on": carries}
        measured |= {f"{what}, {max_delay}": times for what, times in row.items()}
        table.add_row(max_delay, *map(str, row.values()))
    Console(width=110).print(table)
    return measured
