"""Two daemons on one PostgreSQL beside a real cluster: the leader is stopped in an eviction, and woken."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from clearway.model.clock import SystemClock
from clearway.store.repository import SqlStore
from tests.integration.store.servers import PostgresServer
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon, config_text

BUSY = "exec sleep 3600"


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    reason = PostgresServer.missing()
    if reason:
        pytest.skip(reason)
    with PostgresServer() as server:
        yield server.new_database()


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.one_slurm
def test_a_woken_leader_requeues_nothing(cluster: SlurmCluster, tmp_path: Path, database: str) -> None:
    jobs = [
        cluster.sbatch(BUSY, "--requeue", "--exclusive", "--time=60", "--output=/dev/null", user="cwalice")
        for _ in cluster.node_names
    ]
    for job_id in jobs:
        cluster.wait_state(job_id, "RUNNING")

    def restarts() -> list[str]:
        return [cluster.job(job_id)["Restarts"] for job_id in jobs]

    def daemon(name: str, kill_at: str = "") -> RunningDaemon:
        keys = {"store": f'url = "{database}"', "candidates": "min_runtime = 0"}
        text = config_text(tmp_path / name, cluster.conf, **keys)
        return RunningDaemon(cluster, tmp_path / name, config=text, kill_at=kill_at)

    store = SqlStore(database)
    first, second = daemon("first", kill_at="stop@3:requeue"), daemon("second")
    try:
        with first:
            first.wait_ready()
            first.wait_for(lambda: first.get("/leader").status_code == 200, 60, "the first daemon to lead")
            with second:
                urgent = cluster.sbatch(
                    BUSY, "-p", "urgent", "-N6", "--exclusive", "--time=5", "--output=/dev/null", user="cwalice"
                )
                first.wait_for(lambda: stopped(first.process.pid), 60, "the leader to stop at its third requeue")
                (eviction,) = store.evictions()
                store.add_request("cancel", eviction.eviction_id, "olga", SystemClock().now())
                second.wait_for(lambda: second.get("/leader").status_code == 200, 60, "the successor to lead")
                second.wait_for(lambda: store.evictions()[0].state.terminal, 120, "the successor to end the eviction")
                ended, before = store.evictions()[0], restarts()
                assert before.count("1") <= 3
                os.kill(first.process.pid, signal.SIGCONT)
                first.wait_for(
                    lambda: "cycle ended early" in first.log.read_text(), 60, "the woken leader's cycle to end"
                )
                first.wait_for(lambda: first.get("/health").json()["standby"], 60, "the woken daemon to stand by")
                assert restarts() == before
                assert store.evictions() == (ended,)
                assert not cluster.scontrol_reservations()
                cluster.run("scancel", urgent)
    finally:
        store.close()
