"""Bad days of a site, in the middle of an eviction on a real cluster: it comes to its end and touches no other job.

Where the daemon stops itself before its second requeue, one job has left and three have not when the harm begins, and
the command that comes next meets it.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from clearway.model.operations import EvictionState, PreemptionState
from tests.integration.store.servers import PostgresServer
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_or_fail
from tests.slurm.daemon import (
    BACKEND,
    RunningDaemon,
    check_result,
    config_text,
    install_programs,
    saver_script,
    slurm_settings,
)
from tests.slurm.false_clock import LIBRARY, FalseClock
from tests.slurm.machine import missing_requirements, stop_process
from tests.slurm.records_and_sacct import records_agree
from tests.slurm.test_end_to_end import LOOP, STEPS, WHOLE, no_leftovers, submit_urgent
from tests.slurm.urgent import let_go

COMMAND_LIMIT_S = 10 if BACKEND == "pyslurm" else 4  # a call of pyslurm may have to start its process
NEEDED = 4  # nodes of the urgent job


@dataclass
class Crowd:
    """A job on each of the eight nodes, and when it started."""

    saver: str  # saves itself, so it leaves first
    protected: str
    started: dict[str, str]


def fill(cluster: SlurmCluster) -> Crowd:
    install_programs(cluster)

    def submit(script: str, user: str = "cwalice") -> str:
        return cluster.sbatch(script, "--requeue", "--output=/dev/null", "--time=60", *WHOLE, user=user)

    saver = submit(saver_script(cluster, STEPS))
    jobs = [saver, submit(LOOP, "cwbob"), *(submit(LOOP) for _ in cluster.node_names[2:])]
    for job_id in jobs:
        cluster.wait_state(job_id, "RUNNING")
    cluster.wait_for(lambda: "checkpoint=signal" in cluster.job(saver).get("Comment", ""), 30, "the saver's claim")
    return Crowd(saver, jobs[1], {job_id: cluster.job(job_id)["StartTime"] for job_id in jobs})


class Halfway:
    """An eviction in its middle. Where its daemon stands still, ``wake`` lets it go on."""

    def __init__(self, cluster: SlurmCluster, daemon: RunningDaemon, crowd: Crowd, urgent: str) -> None:
        self.cluster, self.daemon, self.crowd, self.urgent = cluster, daemon, crowd, urgent
        self._read = daemon.log.stat().st_size

    def wake(self) -> None:
        """May be called twice."""
        os.kill(self.daemon.process.pid, signal.SIGCONT)

    def wait_failure(self) -> None:
        """Until a cycle of the woken daemon has failed."""

        def failed() -> bool:
            return b" cycle failed" in self.daemon.log.read_bytes()[self._read :]

        self.daemon.wait_for(failed, 60, "a cycle to fail")

    def restarted(self) -> set[str]:
        return {job_id for job_id in self.crowd.started if self.cluster.job(job_id)["Restarts"] != "0"}

    def comes_to_its_end(self) -> None:
        """The urgent job starts; exactly the jobs of the plan have left, once, and are back; nothing of ours stays."""
        cluster, daemon, crowd = self.cluster, self.daemon, self.crowd
        cluster.wait_state(self.urgent, "RUNNING", timeout=120)
        let_go(cluster, daemon, self.urgent)
        daemon.wait_for(lambda: daemon.evictions()[0].state.terminal, 120, "the end of the eviction")
        (eviction,) = daemon.evictions()
        assert eviction.state is EvictionState.COMPLETED
        gone = {p.job_id for p in eviction.preemptions if p.requeued_at is not None}
        assert {p.job_id: p.state for p in eviction.preemptions} == dict.fromkeys(gone, PreemptionState.RETURNED)
        assert crowd.saver in gone
        assert crowd.protected not in gone
        assert len(gone) == NEEDED
        for job_id, started in crowd.started.items():
            job = cluster.job(job_id)
            assert (job["JobState"], job["Restarts"]) == ("RUNNING", str(int(job_id in gone))), job
            assert (job["StartTime"] != started) is (job_id in gone), job
        check_result(cluster, crowd.saver, STEPS)
        no_leftovers(cluster)
        if cluster.accounting:
            records_agree(cluster, [eviction])


@pytest.fixture
def cluster(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """With slurmdbd where that can be had, so that each record is compared with it."""
    bare = missing_requirements(accounting=True)
    found: SlurmCluster = request.getfixturevalue("shared_cluster" if bare else "accounting_cluster")
    monkeypatch.setenv("SLURM_CONF", str(found.conf))
    found.reset()
    yield found
    found.reset()


@pytest.fixture
def database_server() -> Iterator[PostgresServer]:
    if reason := PostgresServer.missing():
        skip_or_fail(reason)
    with PostgresServer() as server:
        yield server


def stands_still(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@contextmanager
def halfway(cluster: SlurmCluster, folder: Path, **changes: str) -> Iterator[Halfway]:
    """The daemon stands still before its second requeue; ``changes``: of the configuration."""
    crowd = fill(cluster)
    slurm = f"{slurm_settings(cluster.conf)}\ntimeout = {COMMAND_LIMIT_S}"
    text = config_text(folder, cluster.conf, 600, **{"slurm": slurm} | changes)
    with RunningDaemon(cluster, folder, config=text, kill_at="stop@2:requeue") as daemon:
        daemon.wait_ready()
        urgent, _ = submit_urgent(cluster, NEEDED)
        daemon.wait_for(lambda: stands_still(daemon.process.pid), 60, "the daemon to stop at its second requeue")
        eviction = Halfway(cluster, daemon, crowd, urgent)
        try:
            yield eviction
        finally:
            eviction.wake()  # else it could not be ended


def test_slurmctld_is_killed(cluster: SlurmCluster, tmp_path: Path) -> None:
    with halfway(cluster, tmp_path / "daemon") as eviction:
        cluster.stop_controller()
        eviction.wake()
        eviction.wait_failure()
        cluster.start_controller()
        eviction.comes_to_its_end()


@pytest.mark.full
def test_slurmctld_is_slow(cluster: SlurmCluster, tmp_path: Path) -> None:
    """It stands still for longer than a command may take, and then does what it was told meanwhile."""
    with halfway(cluster, tmp_path / "daemon") as eviction:
        stop_process(cluster.pid_of("slurmctld"))
        eviction.wake()
        eviction.wait_failure()
        os.kill(cluster.pid_of("slurmctld"), signal.SIGCONT)
        eviction.comes_to_its_end()


@pytest.mark.debian12("they have no PostgreSQL")
def test_the_database_is_restarted(cluster: SlurmCluster, tmp_path: Path, database_server: PostgresServer) -> None:
    """While it is away no job leaves but the one whose requeue was stored before."""
    store = f'url = "{database_server.new_database()}"'
    with halfway(cluster, tmp_path / "daemon", store=store) as eviction:
        before = eviction.restarted()
        database_server.stop()
        eviction.wake()
        eviction.wait_failure()
        assert len(eviction.restarted() - before) <= 1
        database_server.start()
        eviction.comes_to_its_end()


def let_cycles_pass(daemon: RunningDaemon) -> None:
    def cycles() -> int:
        found = re.search(r"^clearway_cycles_total (\d+)", daemon.get("/metrics").text, re.MULTILINE)
        return int(found[1]) if found else 0

    enough = cycles() + 5
    daemon.wait_for(lambda: cycles() >= enough, 60, "five cycles")


@pytest.mark.full
@pytest.mark.debian12("they have no libfaketime")
def test_the_clock_jumps_while_a_job_saves_itself(cluster: SlurmCluster, tmp_path: Path) -> None:
    """Ahead by more than the urgent job may wait, and back: no job is requeued because of it."""
    if LIBRARY is None:
        skip_or_fail("libfaketime is not installed")
    folder, clock = tmp_path / "daemon", FalseClock(tmp_path / "clock")
    crowd = fill(cluster)
    hold = cluster.work / f"state.{crowd.saver}.hold"
    hold.touch()
    text = config_text(folder, cluster.conf, 300, execution='kill_allowance = 12\nlate_checkpoint = "kill"')
    with RunningDaemon(cluster, folder, config=text, env=clock.env) as daemon:
        urgent, _ = submit_urgent(cluster, NEEDED)
        eviction = Halfway(cluster, daemon, crowd, urgent)
        saving = "state=saving"
        daemon.wait_for(lambda: saving in cluster.job(crowd.saver).get("Comment", ""), 60, "the job to save itself")
        for ahead_s in (400, 0, -400, 0):
            clock.set(ahead_s)
            let_cycles_pass(daemon)
            assert not eviction.restarted(), f"requeued when the clock was {ahead_s} s ahead"
        hold.unlink()
        eviction.comes_to_its_end()
