"""A cluster with thousands of jobs: how much Slurm is asked, and how much memory the daemon takes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clearway.model.cluster import ClusterSnapshot, JobState
from clearway.model.operations import EvictionState
from clearway.simulation.backend import SimulatedBackend
from tests.simulation import load
from tests.simulation.world import World, config

REPOSITORY = Path(__file__).parents[2]
MOST_QUERIES = 2
MOST_MIB = 250


class CountingBackend(SimulatedBackend):
    """Counts what a real Slurm would have been asked."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.queries: Counter[str] = Counter()

    def snapshot(self) -> ClusterSnapshot:
        found = super().snapshot()
        self.queries["snapshot"] += found.queries
        return found

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if callable(found) and not name.startswith("_") and name != "snapshot":
            self.queries[name] += 1
        return found


def busy_world(make_world: Callable[..., World], **fields: Any) -> tuple[World, CountingBackend]:
    world = make_world(node_count=load.NODES, **fields)
    load.fill(world.cluster)
    backend = CountingBackend(world.cluster, world.clock)
    world.start_daemon(backend=backend)
    return world, backend


@pytest.mark.fault(
    "Each cycle read all records of Slurm anew: 8.7 s with 10,000 nodes and 60,000 jobs.", found_by="load"
)
def test_an_idle_cycle_asks_slurm_two_questions_at_most(make_world: Callable[..., World]) -> None:
    world, backend = busy_world(make_world)
    states = Counter(entry.job.state for entry in world.cluster.jobs.values())
    assert states == {JobState.RUNNING: load.RUNNING, JobState.PENDING: load.PENDING}
    for _ in range(30):  # 15 minutes: housekeeping that is done now and then has had its turn
        backend.queries.clear()
        world.tick(30)
        assert backend.queries.total() <= MOST_QUERIES, backend.queries
    assert not world.store.evictions()


def test_a_waiting_urgent_job_without_a_plan_asks_no_more(make_world: Callable[..., World]) -> None:
    world, backend = busy_world(make_world, config=config("observe"))
    load.urgent(world.cluster)
    world.tick()
    assert world.eviction().state is EvictionState.PROPOSED
    for _ in range(5):
        backend.queries.clear()
        world.tick()
        assert backend.queries.total() <= MOST_QUERIES, backend.queries


def test_it_makes_room_on_a_busy_cluster(make_world: Callable[..., World]) -> None:
    world, _ = busy_world(make_world, config=config(preemptors=[{"partition": ["urgent"], "max_delay": "5m"}]))
    urgent = load.urgent(world.cluster)
    submitted = world.clock.now()
    world.run_until(lambda: world.started(urgent) is not None, limit_s=300, every_s=2)
    eviction = world.eviction()
    assert set(world.cluster.jobs[urgent].job.nodes) == set(eviction.plan.placement_nodes)
    started = world.started(urgent)
    assert started is not None
    assert (started - submitted).total_seconds() <= 300
    planned = {p.job_id for p in eviction.preemptions}
    touched = {job_id for job_id, entry in world.cluster.jobs.items() if entry.lost_s or len(entry.runs) > 1}
    assert touched <= planned | {urgent}
    first = world.store.plans(eviction.eviction_id)[0]
    assert {verdict.job_id for verdict in first.verdicts} == {str(number) for number in range(1, load.RUNNING + 1)}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.simulation.load", str(tmp_path / "store.sqlite")],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=120) == 0


def peak_mib(pid: int) -> float:
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1_024


def planned(address: str) -> bool:
    try:
        # The eviction is stored before the cycle that makes it ends, the first of this daemon.
        return bool(ask(f"{address}/api/v1/evictions")["items"]) and bool(ask(f"{address}/api/v1/cluster"))
    except OSError:
        return False  # it does not answer yet, or has no cycle to tell of


def cycles(address: str) -> float:
    with urllib.request.urlopen(f"{address}/metrics", timeout=30) as answer:
        found = re.search(r"^clearway_cycles_total (\S+)$", answer.read().decode(), re.MULTILINE)
    assert found is not None
    return float(found[1])


def ask(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=30) as answer:
        return json.load(answer)


@pytest.mark.skipif(not Path("/proc/self/status").exists() or os.name != "posix", reason="reads /proc")
def test_memory_of_the_daemon_stays_small(daemon: tuple[subprocess.Popen[str], str]) -> None:
    process, address = daemon
    deadline = time.monotonic() + 150
    while not planned(address):
        assert time.monotonic() < deadline, "no eviction was planned"
        time.sleep(0.2)
    begun = cycles(address)
    while cycles(address) < begun + 10:  # with steps of the eviction
        ask(f"{address}/api/v1/cluster")
        assert time.monotonic() < deadline, "ten cycles more"
    assert process.poll() is None
    peak = peak_mib(process.pid)
    print(f"peak resident memory: {peak:.0f} MiB")
    assert peak < MOST_MIB
