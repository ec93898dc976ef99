"""Job ids come again: a controller that has begun anew gives them to other jobs, and the database remembers the old."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from clearway.cli.app import app
from clearway.model.cluster import Job
from clearway.model.operations import EvictionState, PreemptionState
from clearway.slurm.cli import CliBackend
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon, config_text

ANN, BOB, URGENT = "cwalice", "cwbob", "cwdaemon"
WHOLE_NODE = ("-N1", "-n4", "-o", "/dev/null")  # a file of another user would be in the way
ONCE = "min_runtime = 0\nmax_preemptions = 1"


@pytest.fixture
def anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    with SlurmCluster(nodes=1) as cluster:
        monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
        yield cluster


def begin_anew(cluster: SlurmCluster) -> None:
    """As after the loss of StateSaveLocation: no job is known, and the first id is 1 again."""
    cluster.end("slurmctld")
    lost = ("job_state*", "resv_state*")  # with -c it goes on counting, and it brings a reservation back that is gone
    for file in (file for pattern in lost for file in (cluster.root / "state").glob(pattern)):
        file.unlink()
    cluster.start_controller(clean=True)
    cluster.wait_for(cluster._all_idle, 60, "all nodes idle")


def operations(daemon: RunningDaemon, job_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = daemon.get(f"/api/v1/jobs/{job_id}").json()["operations"]
    return found


@pytest.mark.fault(
    "Where Slurm gave a job id again, the new job's page showed the eviction of another user's job.", found_by="trial"
)
def test_a_strangers_job_has_nothing_of_the_one_before(anew: SlurmCluster, tmp_path: Path) -> None:
    """An eviction is still open, for a job and with a job whose ids belong to others by now."""
    text = config_text(tmp_path / "d", anew.conf, candidates=ONCE)
    old = anew.sbatch("exec sleep 600", *WHOLE_NODE, user=ANN)
    anew.wait_state(old, "RUNNING")
    with RunningDaemon(anew, tmp_path / "d", config=text) as daemon:
        old_urgent = anew.sbatch("exec sleep 600", "-p", "urgent", *WHOLE_NODE, user=URGENT)
        anew.wait_state(old_urgent, "RUNNING")
        daemon.wait_for(lambda: daemon.evictions()[0].state is EvictionState.RETURNING, 60, "the return to be watched")
        assert len(operations(daemon, old)) == 1
    begin_anew(anew)
    new = anew.sbatch("exec sleep 600", *WHOLE_NODE, user=BOB)
    anew.wait_state(new, "RUNNING")
    new_urgent = anew.sbatch("exec sleep 600", "-p", "urgent", *WHOLE_NODE, user=ANN)
    assert (new, new_urgent) == (old, old_urgent)
    with RunningDaemon(anew, tmp_path / "d", config=text.replace('protected_users = ["cwbob"]', "")) as daemon:
        anew.wait_state(new_urgent, "RUNNING", timeout=60)
        daemon.wait_for(lambda: len(daemon.evictions()) == 2, 30, "an eviction for the new job")
        now = daemon.evictions()[0]
        assert [p.job.user for p in now.preemptions] == [BOB]
        daemon.wait_for(lambda: daemon.evictions()[1].state.terminal, 30, "the old one to end")
        assert [p.state for p in daemon.evictions()[1].preemptions] == [PreemptionState.ENDED]
        for job_id in (new, new_urgent):
            assert [each["eviction_id"] for each in operations(daemon, job_id)] == [now.eviction_id]


@pytest.mark.fault(
    "A daemon of another cluster joined as a standby, and would have acted on the wrong cluster's job ids.",
    found_by="trial",
)
def test_a_database_of_another_cluster(anew: SlurmCluster, tmp_path: Path) -> None:
    """A daemon of a renamed cluster refuses it in one line, also as a standby, until it is told that it may."""
    folder = tmp_path / "d"
    with RunningDaemon(anew, folder):
        pass
    anew.end("slurmctld")
    anew.conf.write_text(re.sub(r"^ClusterName=.*$", "ClusterName=other", anew.conf.read_text(), flags=re.MULTILINE))
    (anew.root / "state" / "clustername").unlink()
    anew.start_controller(clean=True)
    run = CliRunner().invoke
    config = str(folder / "clearway.toml")
    refuses = f"the database belongs to cluster clearway ({anew.root}/state on "
    for command in (["serve", "-c", config], ["check-config", config], ["doctor", "-c", config]):
        said = run(app, command)
        assert said.exit_code != 0
        told = " ".join(said.output.split())
        assert refuses in told
        assert "Slurm here is cluster other" in told
    adopted = run(app, ["adopt", "-c", config])
    assert adopted.exit_code == 0, adopted.output
    assert "The database belongs to cluster other" in adopted.output
    assert run(app, ["check-config", config]).exit_code == 0
    with RunningDaemon(anew, folder) as daemon:
        assert run(app, ["adopt", "-c", config]).exit_code == 1, "a daemon leads"
        assert daemon.get("/readiness").status_code == 200


def test_what_slurm_says_of_a_submission_over_requeues(anew: SlurmCluster) -> None:
    """SubmitTime changes with each requeue, and Restarts grow: of one job, an array's task and a component."""
    backend = CliBackend(now=lambda: datetime.now(UTC), slurm_conf=str(anew.conf))

    def seen(job_id: str) -> Job:
        return next(each for each in backend.snapshot().jobs if each.job_id == job_id)

    def runs_again(job_id: str) -> bool:
        anew.lift_waits()
        return anew.state(job_id) == "RUNNING"

    plain = anew.sbatch("exec sleep 600", "-n1", user=ANN)
    task = anew.sbatch("exec sleep 600", "-n1", "--array=1", user=ANN)
    anew.wait_state(plain, "RUNNING")
    anew.wait_state(task, "RUNNING")
    for job_id in (plain, task):
        first = before = seen(job_id)
        for restarts in (1, 2):
            anew.run("sleep", "1.1")  # SubmitTime has whole seconds
            anew.run("scontrol", "requeue", job_id)
            anew.wait_state(job_id, "PENDING")
            now = seen(job_id)
            assert now.restart_count == restarts
            assert now.submit_time > before.submit_time
            assert before.submission.leads_to(now.submission)
            assert first.submission.leads_to(now.submission)
            assert not now.submission.leads_to(before.submission)
            anew.wait_for(partial(runs_again, job_id), 30, f"job {job_id} to start again")
            assert now.submission == seen(job_id).submission
            before = now
    backend.close()
