"""Two daemons on one PostgreSQL beside a real cluster: in an eviction the leader is killed, or stopped and woken."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clearway.model.clock import SystemClock
from clearway.store.repository import Store
from tests.integration.store.servers import PostgresServer
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_or_fail
from tests.slurm.daemon import RunningDaemon, config_text

BUSY = "exec sleep 3600"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    reason = PostgresServer.missing()
    if reason:
        skip_or_fail(reason)
    with PostgresServer() as running:
        yield running


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


class Pair:
    """Two daemons on one database, beside a cluster full of jobs; the first one leads."""

    def __init__(self, cluster: SlurmCluster, folder: Path, database: str) -> None:
        self.cluster, self.store = cluster, Store(database)
        self._folder, self._database = folder, database
        args = ("--requeue", "--exclusive", "--time=60", "--output=/dev/null")
        self.jobs = [cluster.sbatch(BUSY, *args, user="cwalice") for _ in cluster.node_names]
        for job_id in self.jobs:
            cluster.wait_state(job_id, "RUNNING")

    def restarts(self) -> list[str]:
        return [self.cluster.job(job_id)["Restarts"] for job_id in self.jobs]

    def urgent(self) -> str:
        args = ("-p", "urgent", "-N6", "--exclusive", "--time=5", "--output=/dev/null")
        return self.cluster.sbatch(BUSY, *args, user="cwalice")

    @contextmanager
    def run(self, first_ends: str) -> Iterator[tuple[RunningDaemon, RunningDaemon]]:
        with self._daemon("first", first_ends) as first:
            first.wait_ready()
            first.wait_for(lambda: first.get("/leader").status_code == 200, 60, "the first daemon to lead")
            with self._daemon("second") as second:
                yield first, second

    def _daemon(self, name: str, kill_at: str = "") -> RunningDaemon:
        keys = {"store": f'url = "{self._database}"', "candidates": "min_runtime = 0"}
        text = config_text(self._folder / name, self.cluster.conf, **keys)
        return RunningDaemon(self.cluster, self._folder / name, config=text, kill_at=kill_at)


@pytest.fixture
def pair(cluster: SlurmCluster, tmp_path: Path, server: PostgresServer) -> Iterator[Pair]:
    made = Pair(cluster, tmp_path, server.new_database())
    yield made
    made.store.close()


@pytest.mark.debian12("they have no PostgreSQL")
def test_a_woken_leader_requeues_nothing(pair: Pair) -> None:
    store = pair.store
    with pair.run("stop@3:requeue") as (first, second):
        urgent = pair.urgent()
        first.wait_for(lambda: stopped(first.process.pid), 60, "the leader to stop at its third requeue")
        (eviction,) = store.evictions()
        store.add_request("cancel", eviction.eviction_id, "olga", SystemClock().now())
        second.wait_for(lambda: second.get("/leader").status_code == 200, 60, "the successor to lead")
        second.wait_for(lambda: store.evictions()[0].state.terminal, 120, "the successor to end the eviction")
        ended, before = store.evictions()[0], pair.restarts()
        assert before.count("1") <= 3
        os.kill(first.process.pid, signal.SIGCONT)
        first.wait_for(lambda: "cycle ended early" in first.log.read_text(), 60, "the woken leader's cycle to end")
        first.wait_for(lambda: first.get("/health").json()["standby"], 60, "the woken daemon to stand by")
        assert pair.restarts() == before
        assert store.evictions() == (ended,)
        assert not pair.cluster.scontrol_reservations()
        pair.cluster.run("scancel", urgent)


@pytest.mark.debian12("they have no PostgreSQL")
def test_a_killed_leader_is_succeeded(pair: Pair) -> None:
    """The eviction that it was in comes to its end: the urgent job runs, and each job of the plan has left once."""
    with pair.run("before@3:requeue") as (first, second):
        urgent = pair.urgent()
        first.wait_for(lambda: first.process.poll() is not None, 60, "the leader to be killed at its third requeue")
        assert pair.restarts().count("0") >= 6
        pair.cluster.wait_state(urgent, "RUNNING", timeout=150)
        (eviction,) = pair.store.evictions()
        pair.cluster.run("scancel", urgent)
        second.wait_for(lambda: pair.store.evictions()[0].state.terminal, 120, "the eviction to end")
        left = {p.job_id for p in eviction.preemptions}
        assert len(left) == 6
        assert {
            job: count for job, count in zip(pair.jobs, pair.restarts(), strict=True) if count != "0"
        } == dict.fromkeys(left, "1")
        assert not pair.cluster.scontrol_reservations()
