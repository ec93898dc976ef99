"""Records are what happened: what Slurm says of a job afterwards corrects what was intended."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clearway.model.operations import EvictionState, PreemptionState
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_without_accounting
from tests.slurm.daemon import RunningDaemon, config_text
from tests.slurm.records_and_sacct import records_agree
from tests.slurm.test_bad_days import stands_still
from tests.slurm.urgent import SCRIPT, let_go

LOOP = 'while ! [ -e "end.$SLURM_JOB_ID" ]; do sleep 0.1; done'
JOB = ("-N1", "--exclusive", "--mem=0", "--requeue", "--output=/dev/null")
CANDIDATES = 'min_runtime = 1\nspare_before_end = "0s"'
Meanwhile = Callable[[SlurmCluster, str], None]


@pytest.fixture(scope="module")
def counted() -> Iterator[SlurmCluster]:
    skip_without_accounting()
    with SlurmCluster(nodes=1, accounting=True) as cluster:
        yield cluster


def metric(daemon: RunningDaemon, name: str) -> float:
    """Summed over its labels."""
    return sum(map(float, re.findall(rf"^clearway_{name}{{.*}} (\S+)$", daemon.get("/metrics").text, re.MULTILINE)))


def completes(cluster: SlurmCluster, job_id: str) -> None:
    (cluster.work / f"end.{job_id}").touch()
    cluster.wait_state(job_id, "COMPLETED")


def is_cancelled(cluster: SlurmCluster, job_id: str) -> None:
    cluster.run("scancel", job_id, user="cwalice")
    cluster.wait_state(job_id, "CANCELLED")


def is_requeued(cluster: SlurmCluster, job_id: str) -> None:
    cluster.run("scontrol", "requeue", job_id, user="cwalice")
    cluster.wait_state(job_id, "PENDING")


@pytest.mark.fault(
    "A job that ended between the look and its requeue was recorded as preempted, and counted in the budget.",
    found_by="trial",
)
@pytest.mark.parametrize(
    ("meanwhile", "state"),
    [
        (completes, PreemptionState.ENDED),
        pytest.param(is_cancelled, PreemptionState.ENDED, marks=pytest.mark.one_slurm),
        (is_requeued, PreemptionState.RETURNED),
    ],
)
def test_what_happens_between_the_look_and_the_requeue_was_not_clearway(
    counted: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: Meanwhile, state: PreemptionState
) -> None:
    cluster = counted
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    cluster.reset()
    job_id = cluster.sbatch(LOOP, *JOB, "--time=30", user="cwalice")
    cluster.wait_state(job_id, "RUNNING")
    folder = tmp_path / "daemon"
    text = config_text(folder, cluster.conf, 600, candidates=CANDIDATES, budget="jobs_per_hour = 5")
    with RunningDaemon(cluster, folder, config=text, kill_at="stop:requeue") as daemon:
        daemon.wait_ready()
        urgent = cluster.sbatch(SCRIPT, "-p", "urgent", *JOB, "--time=5", user="cwbob")
        daemon.wait_for(lambda: stands_still(daemon.process.pid), 60, "the daemon to stop before its requeue")
        meanwhile(cluster, job_id)
        os.kill(daemon.process.pid, signal.SIGCONT)
        cluster.wait_state(urgent, "RUNNING", timeout=60)
        let_go(cluster, daemon, urgent)
        daemon.wait_for(lambda: daemon.evictions()[0].state is EvictionState.COMPLETED, 60, "its end")
        (eviction,) = daemon.evictions()
        (p,) = eviction.preemptions
        assert (p.state, p.requeued_at, p.actual_lost_node_s) == (state, None, None), p
        for name in ("preemptions_total", "lost_work_node_seconds_total", "caused_preemptions_total"):
            assert metric(daemon, name) == 0, name
        assert 'clearway_budget_jobs{kind="used"} 0.0' in daemon.get("/metrics").text
        records_agree(cluster, daemon.evictions())


@pytest.mark.fault("A preempted job that its user held for two seconds ended as failed.", found_by="trial")
def test_a_preempted_job_that_its_user_holds_for_a_while_comes_back(
    counted: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = counted
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    cluster.reset()
    job_id = cluster.sbatch(LOOP, *JOB, "--time=30", user="cwalice")
    cluster.wait_state(job_id, "RUNNING")
    folder = tmp_path / "daemon"
    text = config_text(folder, cluster.conf, 600, candidates=CANDIDATES)
    with RunningDaemon(cluster, folder, config=text) as daemon:
        urgent = cluster.sbatch(SCRIPT, "-p", "urgent", *JOB, "--time=5", user="cwbob")
        cluster.wait_for(lambda: cluster.job(job_id)["Restarts"] == "1", 60, "it to be requeued")
        cluster.wait_state(job_id, "PENDING")
        cluster.run("scontrol", "hold", job_id, user="cwalice")
        is_held = PreemptionState.HELD
        daemon.wait_for(lambda: daemon.evictions()[0].preemptions[0].state is is_held, 30, "that to be seen")
        cluster.wait_state(urgent, "RUNNING", timeout=60)
        cluster.run("scontrol", "release", job_id, user="cwalice")
        let_go(cluster, daemon, urgent)
        cluster.wait_state(job_id, "RUNNING", timeout=60)
        daemon.wait_for(lambda: daemon.evictions()[0].state is EvictionState.COMPLETED, 60, "its end")
        (p,) = daemon.evictions()[0].preemptions
        assert p.state is PreemptionState.RETURNED, p
        assert metric(daemon, "preemptions_total") == 1
        records_agree(cluster, daemon.evictions())
