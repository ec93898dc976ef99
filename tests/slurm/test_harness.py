"""The test cluster itself: real jobs of real users, and a controller that can be killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm.client import parse_record
from tests.slurm.cluster import IDLE_STATES, SlurmCluster
from tests.slurm.machine import ClusterError


def test_a_job_runs_as_the_user_who_submitted_it(cluster: SlurmCluster) -> None:
    job_id = cluster.sbatch("id -un; echo $SLURM_JOB_NUM_NODES", "-N2", user="cwalice")

    cluster.wait_state(job_id, "COMPLETED")

    assert cluster.job(job_id)["UserId"].startswith("cwalice(")
    assert (cluster.work / f"slurm-{job_id}.out").read_text().split() == ["cwalice", "2"]


def test_jobs_of_one_cpu_share_a_node(cluster: SlurmCluster) -> None:
    job_ids = [cluster.sbatch("sleep 100", "-n1", "-w", "node3", user="cwbob") for _ in range(2)]

    for job_id in job_ids:
        cluster.wait_state(job_id, "RUNNING")

    assert [cluster.job(job_id)["NodeList"] for job_id in job_ids] == ["node3", "node3"]


def test_jobs_survive_a_killed_controller(cluster: SlurmCluster) -> None:
    job_id = cluster.sbatch("sleep 100", "-N8", "--exclusive", user="cwalice")
    cluster.wait_state(job_id, "RUNNING")
    started = cluster.job(job_id)["StartTime"]

    cluster.stop_controller()
    assert "DOWN" in cluster.run("scontrol", "ping", check=False).stdout
    cluster.start_controller()

    assert cluster.wait_state(job_id, "RUNNING") == "RUNNING"
    assert cluster.job(job_id)["StartTime"] == started


def test_reset_leaves_nothing_behind(cluster: SlurmCluster) -> None:
    deaf = cluster.sbatch("trap '' TERM; while :; do sleep 1; done", "-N4", user="cwbob")
    stopped = cluster.sbatch("sleep 100", "-N1", user="cwbob")
    for job_id in (deaf, stopped):
        cluster.wait_state(job_id, "RUNNING")
    cluster.run("scontrol", "suspend", stopped)
    cluster.run("scontrol", "update", "NodeName=node8", "State=DRAIN", "Reason=test")
    flags = ["Flags=IGNORE_JOBS", "StartTime=now", "Duration=10", "Users=cwalice", "Nodes=node7"]
    cluster.run("scontrol", "create", "reservation", "ReservationName=left", *flags)

    cluster.reset()

    assert cluster.run("squeue", "-h").stdout == ""
    assert cluster.scontrol_reservations() == []
    assert {cluster.node_state(name) for name in cluster.node_names} <= IDLE_STATES


def test_a_failing_command_says_what_it_printed(cluster: SlurmCluster) -> None:
    with pytest.raises(ClusterError, match="Invalid job id"):
        cluster.run("scontrol", "requeue", "99999999")
    assert cluster.job("99999999") == {}


def test_nothing_outlives_a_cluster(cluster: SlurmCluster) -> None:
    with SlurmCluster(nodes=1) as other:
        job_id = other.sbatch("trap '' TERM; echo $$ $PPID; sleep 1000", user="cwalice")  # PPID: slurmstepd
        output, root = other.work / f"slurm-{job_id}.out", other.root
        pids = other.wait_for(lambda: output.exists() and output.read_text().split())
        assert len(pids) == 2
        assert all(map(_runs, pids))
    assert not root.exists()
    assert [pid for pid in pids if _runs(pid)] == []
    assert cluster.run("scontrol", "ping").returncode == 0


def test_record_values_may_hold_spaces() -> None:
    record = parse_record("JobId=7 JobName=x Comment=clearway: a b CPUs/Task=1 ReqB:S:C:T=0:0:*:* Power=")

    assert record["JobName"] == "x"
    assert record["CPUs/Task"] == "1"
    assert record["Power"] == ""


def _runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
