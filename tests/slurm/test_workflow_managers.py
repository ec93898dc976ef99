"""Workflow managers from PyPI whose job leaves for an urgent one and comes back: a success, once.

docs/howto/workflow-managers.md has what each sees, and what to set. What is said there of a tool without its setting is
tried here as well: where a newer release does better, the page can say less.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from clearway.model.operations import EvictionState, PreemptionState
from tests.slurm import managers
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon, config_text
from tests.slurm.managers import SETTINGS, Driver, Tool
from tests.slurm.test_drain import ask, clearway, newest
from tests.slurm.urgent import SCRIPT, let_go

pytestmark = [
    pytest.mark.full,
    pytest.mark.one_slurm,
    pytest.mark.debian12("pip reaches no registry there"),
    pytest.mark.timeout(1_800),  # pip fetches up to 300 MB
]

WHOLE = ("--exclusive", "--mem=0")
AWAY_S = 20  # Dask gives up a worker after 15 s, and Parsl here after 10 s
# Each with what its users have to set.
TOOLS = {
    "snakemake": managers.snakemake(),
    "submitit": managers.submitit(f", {SETTINGS['submitit']}"),
    "dask": managers.dask(f"import dask; {SETTINGS['dask']}"),
    "dask-adapt": managers.dask(f"import dask; {SETTINGS['dask']}", "adapt(minimum_jobs=1, maximum_jobs=2)"),
    "parsl": managers.parsl(f", {SETTINGS['parsl']}"),
    "reframe": managers.reframe(),
    "reframe-squeue": managers.reframe("squeue"),
    "executorlib": managers.executorlib(),
}


def one_node_left(cluster: SlurmCluster) -> None:
    other = cluster.sbatch("sleep 3000", "--time=60", *WHOLE, "--output=/dev/null", user="cwbob")
    cluster.wait_state(other, "RUNNING")


def urgent_job(cluster: SlurmCluster) -> str:
    arguments = ("-p", "urgent", "-N1", *WHOLE, "--time=5", "--output=/dev/null")
    urgent = cluster.sbatch(SCRIPT, *arguments, user="cwdaemon")
    cluster.wait_state(urgent, "RUNNING", timeout=60)
    return urgent


def submitted(cluster: SlurmCluster) -> set[str]:
    """All jobs of the tool's user that Slurm knows."""
    return {job["JobId"] for job in cluster.records("job") if job["UserId"].startswith(f"{managers.USER}(")}


@pytest.fixture
def two_nodes(site: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> SlurmCluster:
    monkeypatch.setenv("SLURM_CONF", str(site.conf))
    site.reset()
    return site


@contextmanager
def left(cluster: SlurmCluster, folder: Path, tool: Tool) -> Iterator[tuple[Driver, RunningDaemon, str, str]]:
    """The tool's job has left its node for an urgent one: driver, daemon, the job, the urgent job."""
    one_node_left(cluster)
    with Driver(cluster, tool) as driver, RunningDaemon(cluster, folder / "daemon") as daemon:
        job = driver.wait_runs(1)
        yield driver, daemon, job, urgent_job(cluster)


@pytest.mark.parametrize("name", TOOLS)
def test_a_job_that_leaves_and_comes_back_is_a_success_once(two_nodes: SlurmCluster, tmp_path: Path, name: str) -> None:
    cluster = two_nodes
    before = submitted(cluster)
    with left(cluster, tmp_path, TOOLS[name]) as (driver, daemon, job, urgent):
        since, already = time.monotonic(), len(driver.told())

        def has_waited() -> bool:
            looked = driver.tool.asks is None or driver.saw_waiting(job, already)
            return driver.process.poll() is not None or (looked and time.monotonic() > since + AWAY_S)

        cluster.wait_for(has_waited, 90, "the tool to look at its job, which waits")
        assert (driver.process.poll(), cluster.state(job)) == (None, "PENDING"), "the tool waits, and so does the job"
        let_go(cluster, daemon, urgent)
        assert driver.wait_runs(2) == job
        driver.let_go()
        assert driver.wait_end() == 0
        assert "result: right" in driver.said()
        daemon.wait_for(lambda: daemon.evictions()[0].state is EvictionState.COMPLETED, 60, "the end of the eviction")
        (eviction,) = daemon.evictions()
        assert [(p.job_id, p.state) for p in eviction.preemptions] == [(job, PreemptionState.RETURNED)]
        assert submitted(cluster) - before == {job}
        assert cluster.job(job)["Restarts"] == "1"


@pytest.mark.parametrize("name", ["submitit", "reframe", "reframe-squeue", "executorlib"])
def test_a_job_that_is_cancelled_is_a_failure(two_nodes: SlurmCluster, name: str) -> None:
    """So these have looked at their job, where they waited for it above."""
    with Driver(two_nodes, TOOLS[name]) as driver:
        two_nodes.run("scancel", driver.wait_runs(1))
        assert driver.wait_end() == 1
        assert "result: right" not in driver.said()


def test_snakemake_does_not_notice_that_a_job_was_cancelled(two_nodes: SlurmCluster) -> None:
    """By sacct it is "CANCELLED by 0", which it does not know."""
    with Driver(two_nodes, TOOLS["snakemake"]) as driver:
        two_nodes.run("scancel", driver.wait_runs(1))
        two_nodes.wait_for(lambda: driver.told().count("CANCELLED by 0") > 2, 180, "looks at the job")
        assert driver.process.poll() is None


def test_submitit_without_a_comment_takes_the_end_of_a_started_program_for_an_error(
    two_nodes: SlurmCluster, tmp_path: Path
) -> None:
    with left(two_nodes, tmp_path, managers.submitit()) as (driver, *_):
        assert driver.wait_end() == 1
        assert "FailedJobError" in driver.said()
        assert "died with <Signals.SIGTERM: 15>" in driver.said()


def test_submitit_takes_a_suspended_job_for_one_that_has_ended_and_has_its_result_later(
    two_nodes: SlurmCluster,
) -> None:
    cluster = two_nodes
    with Driver(cluster, managers.submitit()) as driver:
        job = driver.wait_runs(1)
        cluster.run("scontrol", "suspend", job)
        assert driver.wait_end() == 1
        assert "has not produced any output (state: SUSPENDED)" in driver.said()
        cluster.run("scontrol", "resume", job)
        driver.let_go()
    again = f"import submitit; print('result:', submitit.SlurmJob('submitit', '{job}').result())"
    with driver.another(f'exec python3 -c "{again}"') as later:
        assert later.wait_end() == 0
        assert later.said() == "result: right\n"


def test_dask_without_a_setting_cancels_the_job_that_waits(two_nodes: SlurmCluster, tmp_path: Path) -> None:
    cluster = two_nodes
    before = submitted(cluster)
    with left(cluster, tmp_path, managers.dask()) as (driver, _, job, _):
        cluster.wait_state(job, "CANCELLED", timeout=60)
        assert driver.process.poll() is None  # it waits for ever
        assert submitted(cluster) - before == {job}


def test_dask_that_adapts_without_a_setting_submits_another_job(two_nodes: SlurmCluster, tmp_path: Path) -> None:
    cluster = two_nodes
    before = submitted(cluster)
    tool = managers.dask(scale="adapt(minimum_jobs=1, maximum_jobs=1)")
    with left(cluster, tmp_path, tool) as (driver, daemon, job, urgent):
        cluster.wait_state(job, "CANCELLED", timeout=60)
        cluster.wait_for(lambda: len(submitted(cluster) - before) == 2, 60, "another job")
        let_go(cluster, daemon, urgent)
        driver.wait_runs(2)
        driver.let_go()
        assert driver.wait_end() == 0
        assert "result: right" in driver.said()


def test_parsl_without_retries_fails_the_task_and_cancels_its_job(two_nodes: SlurmCluster, tmp_path: Path) -> None:
    with left(two_nodes, tmp_path, managers.parsl()) as (driver, _, job, _):
        assert driver.wait_end() == 1
        assert "ManagerLost" in driver.said()
        two_nodes.wait_state(job, "CANCELLED")


@pytest.mark.parametrize("keeps", [False, True])
def test_reframe_cancels_a_job_that_waits_for_promised_nodes_unless_told(
    two_nodes: SlurmCluster, tmp_path: Path, keeps: bool
) -> None:
    """So it does where any reservation holds all the nodes that its job could have."""
    cluster = two_nodes
    folder = tmp_path / "daemon"
    config = config_text(folder, cluster.conf, drain='operators = ["tester"]')
    tool = managers.reframe("slurm", f", {SETTINGS['reframe']}" if keeps else "")
    with RunningDaemon(cluster, folder, config=config) as daemon:
        at = datetime.now(tz=UTC) + timedelta(minutes=10)
        ask(daemon, "promises", nodes=2, partition="batch", at=at.isoformat(), duration_s=600, users=["cwbob"])
        daemon.wait_for(lambda: newest(daemon).state is EvictionState.PREEMPTING, 30, "the reservation")
        with Driver(cluster, tool) as driver:
            if keeps:
                asked = ("squeue", "-h", "--user", managers.USER, "-o", "%r")
                cluster.wait_for(lambda: "ReqNodeNotAvail" in cluster.run(*asked).stdout, 60, "the reason")
                looks = driver.told().count("PENDING")
                cluster.wait_for(lambda: driver.told().count("PENDING") > looks + 3, 60, "looks at the job")
                assert clearway(daemon, "promise", "--cancel", str(newest(daemon).eviction_id)).returncode == 0
                driver.wait_runs(1)
                driver.let_go()
            assert driver.wait_end() == (0 if keeps else 1)
            assert ("job cancelled because it was blocked due to reason: ReqNodeNotAvail" in driver.said()) != keeps
